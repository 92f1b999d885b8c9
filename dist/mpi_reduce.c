// The all-reduce: sums in rank order, whatever the messages' timing, so that all ranks and all runs get the same bits.
//
// Slices up to WHOLE_BYTES: every rank sends its slice to every other and folds all of them. Longer ones: rank r
// receives segment r from everyone and folds it (SCATTER), then sends the folded segment to everyone (SHARE).
#include "dist/mpi_group.h"

#include <stdlib.h>

#include "core/shape.h"
#include "dist/accumulate.h"

enum { WHOLE_BYTES = 16 << 10, SEGMENT_BYTES = 512 << 10 };

fwa_status fwa_mpi_workspace_reserve(fwa_mpi_workspace *work, size_t bytes) {
    if (work->bytes >= bytes) return FWA_OK;
    free(work->data);
    *work = (fwa_mpi_workspace){0};
    work->data = malloc(bytes);
    FWA_CHECK(work->data, FWA_MEMORY, "no memory for %zu bytes of communication workspace", bytes);
    work->bytes = bytes;
    return FWA_OK;
}

typedef struct segment {
    char *data;
    int64_t count; // elements, 0 for the last ranks of a short slice
    int64_t bytes;
} segment;

static segment lane_segment(const fwa_mpi_group *group, const fwa_mpi_lane *lane, int rank) {
    int64_t size = (int64_t)fwa_dtype_size(lane->request->dtype);
    if (lane->phase == FWA_MPI_WHOLE) return (segment){lane->slice, lane->count, lane->count * size};
    int64_t each = fwa_ceil_div(lane->count, group->comm.size);
    int64_t start = fwa_min(rank * each, lane->count), count = fwa_min(each, lane->count - start);
    return (segment){lane->slice + start * size, count, count * size};
}

// Where rank `peer`'s contribution to this rank's segment lies.
static char *lane_slot(const fwa_mpi_group *group, const fwa_mpi_lane *lane, int peer) {
    segment mine = lane_segment(group, lane, group->comm.rank);
    if (peer == group->comm.rank) return mine.data;
    return (char *)lane->work.data + (peer - (peer > group->comm.rank)) * mine.bytes;
}

static int lane_tag(const fwa_mpi_group *group, const fwa_mpi_lane *lane) {
    return FWA_MPI_TAG_LANE + (int)(lane - group->lanes);
}

static fwa_status post_contributions(fwa_mpi_group *group, fwa_mpi_lane *lane) {
    int rank = group->comm.rank, size = group->comm.size, tag = lane_tag(group, lane);
    segment mine = lane_segment(group, lane, rank);
    FWA_TRY(fwa_mpi_workspace_reserve(&lane->work, (size_t)mine.bytes * (size_t)(size - 1)));
    for (int i = 1; i < size; i++) {
        int peer = (rank - i + size) % size;
        FWA_TRY(fwa_mpi_batch_receive(&lane->batch, group->mpi, lane_slot(group, lane, peer), mine.bytes, peer, tag));
    }
    for (int i = 1; i < size; i++) {
        int peer = (rank + i) % size;
        segment theirs = lane_segment(group, lane, peer);
        FWA_TRY(fwa_mpi_batch_send(&lane->batch, group->mpi, theirs.data, theirs.bytes, peer, tag));
    }
    return FWA_OK;
}

static fwa_status post_results(fwa_mpi_group *group, fwa_mpi_lane *lane) {
    int rank = group->comm.rank, size = group->comm.size, tag = lane_tag(group, lane);
    segment mine = lane_segment(group, lane, rank);
    for (int i = 1; i < size; i++) {
        int peer = (rank - i + size) % size;
        segment theirs = lane_segment(group, lane, peer);
        FWA_TRY(fwa_mpi_batch_receive(&lane->batch, group->mpi, theirs.data, theirs.bytes, peer, tag));
    }
    for (int i = 1; i < size; i++) {
        FWA_TRY(fwa_mpi_batch_send(&lane->batch, group->mpi, mine.data, mine.bytes, (rank + i) % size, tag));
    }
    return FWA_OK;
}

static void fold(fwa_mpi_group *group, const fwa_mpi_lane *lane) {
    segment mine = lane_segment(group, lane, group->comm.rank);
    for (int r = 0; r < group->comm.size; r++) group->sources[r] = lane_slot(group, lane, r);
    fwa_accumulate(lane->request->dtype, lane->request->op, mine.data, group->sources, group->comm.size, mine.count);
}

static fwa_mpi_request *find_request(fwa_mpi_group *group, int64_t slice) {
    for (int i = 0; i < group->requests_high; i++) {
        fwa_mpi_request *r = &group->requests[i];
        if (r->used && slice >= r->first && slice < r->first + r->slices) return r;
    }
    return NULL;
}

static fwa_status lane_begin(fwa_mpi_group *group, fwa_mpi_lane *lane) {
    fwa_mpi_request *request = find_request(group, lane->next);
    FWA_CHECK(request, FWA_ERROR, "slice %lld of a reduction that is not under way", (long long)lane->next);
    int64_t start = (lane->next - request->first) * request->slice_count;
    int64_t size = (int64_t)fwa_dtype_size(request->dtype);
    lane->request = request;
    lane->slice = request->buffer + start * size;
    lane->count = fwa_min(request->slice_count, request->count - start);
    lane->phase = lane->count * size <= WHOLE_BYTES ? FWA_MPI_WHOLE : FWA_MPI_SCATTER;
    return post_contributions(group, lane);
}

static fwa_status lane_step(fwa_mpi_group *group, fwa_mpi_lane *lane) {
    bool done;
    FWA_TRY(fwa_mpi_batch_test(&lane->batch, &done));
    if (!done) return FWA_OK;
    if (lane->phase != FWA_MPI_SHARE) fold(group, lane);
    if (lane->phase == FWA_MPI_SCATTER) {
        lane->phase = FWA_MPI_SHARE;
        return post_results(group, lane);
    }
    lane->request->finished++;
    lane->request = NULL;
    lane->next += FWA_MPI_LANES;
    return FWA_OK;
}

static fwa_status lanes_progress(fwa_mpi_group *group) {
    for (int i = 0; i < FWA_MPI_LANES; i++) {
        fwa_mpi_lane *lane = &group->lanes[i];
        if (!lane->request && lane->next < group->slices) FWA_TRY(lane_begin(group, lane));
        if (lane->request) FWA_TRY(lane_step(group, lane));
    }
    return FWA_OK;
}

fwa_status fwa_mpi_reduce_progress(fwa_mpi_group *group) {
    FWA_TRY(fwa_mpi_fail(group, lanes_progress(group)));
    return FWA_OK;
}

fwa_status fwa_mpi_reduce_start(fwa_mpi_group *group, void *buffer, int64_t count, fwa_dtype dtype, fwa_reduce op,
                                fwa_mpi_request **out) {
    int slot = 0;
    while (slot < FWA_MPI_REQUESTS && group->requests[slot].used) slot++;
    FWA_CHECK(slot < FWA_MPI_REQUESTS, FWA_ERROR,
              "got a reduction while %d are under way, expected at most %d: wait first", FWA_MPI_REQUESTS,
              FWA_MPI_REQUESTS);
    int64_t slice = (int64_t)SEGMENT_BYTES / (int64_t)fwa_dtype_size(dtype) * group->comm.size;
    int64_t slices = group->comm.size == 1 ? 0 : fwa_ceil_div(count, slice);
    group->requests[slot] = (fwa_mpi_request){true, buffer, count, dtype, op, slice, group->slices, slices, 0};
    group->slices += slices;
    group->requests_used++;
    if (slot >= group->requests_high) group->requests_high = slot + 1;
    *out = &group->requests[slot];
    return fwa_mpi_reduce_progress(group);
}

void fwa_mpi_reduce_release(fwa_mpi_group *group, fwa_mpi_request *request) {
    request->used = false;
    group->requests_used--;
}
