// Transfers in flight: start, test, and say who is missing.
#include "dist/mpi_batch.h"

#include <stdlib.h>

#include "core/shape.h"

enum { PIECE = 1 << 30 }; // bytes of one MPI message; MPI counts are ints

fwa_status fwa_mpi_status(int code, const char *call) {
    if (code == MPI_SUCCESS) return FWA_OK;
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int length = 0;
    MPI_Error_string(code, text, &length);
    FWA_FAIL(FWA_COMM, "MPI failed: got \"%s\" from %s, expected success", text, call);
}

void fwa_mpi_batch_free(fwa_mpi_batch *batch) {
    free(batch->requests);
    free(batch->statuses);
    free(batch->entries);
    *batch = (fwa_mpi_batch){0};
}

static fwa_status batch_grow(fwa_mpi_batch *batch) {
    int capacity = batch->capacity ? 2 * batch->capacity : 16;
    MPI_Request *requests = realloc(batch->requests, (size_t)capacity * sizeof(MPI_Request));
    if (requests) batch->requests = requests;
    MPI_Status *statuses = realloc(batch->statuses, (size_t)capacity * sizeof *statuses);
    if (statuses) batch->statuses = statuses;
    fwa_mpi_entry *entries = realloc(batch->entries, (size_t)capacity * sizeof *entries);
    if (entries) batch->entries = entries;
    FWA_CHECK(requests && statuses && entries, FWA_MEMORY, "no memory for %d transfers", capacity);
    batch->capacity = capacity;
    return FWA_OK;
}

fwa_status fwa_mpi_batch_add(fwa_mpi_batch *batch, int peer, int bytes, MPI_Request **out) {
    if (batch->count == batch->capacity) FWA_TRY(batch_grow(batch));
    int i = batch->count++;
    batch->requests[i] = MPI_REQUEST_NULL;
    batch->entries[i] = (fwa_mpi_entry){peer, bytes};
    *out = &batch->requests[i];
    return FWA_OK;
}

fwa_status fwa_mpi_batch_send(fwa_mpi_batch *batch, MPI_Comm comm, const void *from, int64_t bytes, int peer, int tag) {
    for (int64_t start = 0; start < bytes; start += PIECE) {
        int n = (int)fwa_min(PIECE, bytes - start);
        MPI_Request *request;
        FWA_TRY(fwa_mpi_batch_add(batch, peer, -1, &request));
        FWA_MPI_TRY(MPI_Isend((const char *)from + start, n, MPI_BYTE, peer, tag, comm, request));
    }
    return FWA_OK;
}

fwa_status fwa_mpi_batch_receive(fwa_mpi_batch *batch, MPI_Comm comm, void *to, int64_t bytes, int peer, int tag) {
    for (int64_t start = 0; start < bytes; start += PIECE) {
        int n = (int)fwa_min(PIECE, bytes - start);
        MPI_Request *request;
        FWA_TRY(fwa_mpi_batch_add(batch, peer, n, &request));
        FWA_MPI_TRY(MPI_Irecv((char *)to + start, n, MPI_BYTE, peer, tag, comm, request));
    }
    return FWA_OK;
}

static fwa_status check_lengths(const fwa_mpi_batch *batch) {
    for (int i = 0; i < batch->count; i++) {
        if (batch->entries[i].bytes < 0) continue;
        int got = 0;
        FWA_MPI_TRY(MPI_Get_count(&batch->statuses[i], MPI_BYTE, &got));
        FWA_CHECK(
            got == batch->entries[i].bytes, FWA_COMM,
            "message from rank %d: got %d bytes, expected %d (all ranks must issue the same operations in the same "
            "order with the same sizes)",
            batch->entries[i].peer, got, batch->entries[i].bytes);
    }
    return FWA_OK;
}

fwa_status fwa_mpi_batch_test(fwa_mpi_batch *batch, bool *done) {
    *done = batch->count == 0;
    if (*done) return FWA_OK;
    int finished = 0;
    int code = MPI_Testall(batch->count, batch->requests, &finished, batch->statuses);
    if (code == MPI_ERR_IN_STATUS) {
        for (int i = 0; i < batch->count; i++) {
            int error = batch->statuses[i].MPI_ERROR;
            if (error != MPI_ERR_PENDING) FWA_TRY(fwa_mpi_status(error, "a transfer"));
        }
    }
    FWA_TRY(fwa_mpi_status(code, "MPI_Testall"));
    if (!finished) return FWA_OK;
    FWA_TRY(check_lengths(batch));
    batch->count = 0;
    *done = true;
    return FWA_OK;
}

void fwa_mpi_batch_late(const fwa_mpi_batch *batch, bool *late) {
    for (int i = 0; i < batch->count; i++) {
        int finished = 0, peer = batch->entries[i].peer;
        if (peer < 0) continue;
        MPI_Request_get_status(batch->requests[i], &finished, MPI_STATUS_IGNORE);
        if (!finished) late[peer] = true;
    }
}
