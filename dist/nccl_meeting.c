// One all-gather over the host: each rank's verdict on itself, its GPU, and rank 0's NCCL id.
#include "dist/nccl_meeting.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dist/nccl_group.h"

typedef struct card {
    int64_t status;
    char uuid[16]; // of the GPU
    char bus[32], host[64];
    ncclUniqueId id; // of rank 0
} card;

static fwa_status fill_card(card *mine, int rank, int device) {
    struct cudaDeviceProp properties;
    FWA_NCCL_CUDA_TRY(cudaGetDeviceProperties(&properties, device));
    FWA_NCCL_CUDA_TRY(cudaDeviceGetPCIBusId(mine->bus, sizeof mine->bus, device));
    memcpy(mine->uuid, properties.uuid.bytes, sizeof mine->uuid);
    if (rank != 0) return FWA_OK;
    ncclResult_t result = ncclGetUniqueId(&mine->id);
    FWA_CHECK(result == ncclSuccess, FWA_COMM, "ncclGetUniqueId: %s: %s", ncclGetErrorString(result),
              ncclGetLastError(NULL));
    return FWA_OK;
}

static fwa_status judge(const card *cards, int size) {
    for (int r = 0; r < size; r++)
        FWA_CHECK(cards[r].status == FWA_OK, FWA_COMM, "rank %d (host %s) could not prepare for NCCL: %s", r,
                  cards[r].host, fwa_status_name((fwa_status)cards[r].status));
    for (int r = 1; r < size; r++)
        for (int s = 0; s < r; s++)
            FWA_CHECK(
                memcmp(cards[r].uuid, cards[s].uuid, sizeof cards[r].uuid) != 0, FWA_CONFIG,
                "ranks %d and %d share GPU %s of host %s, expected one rank a GPU; start fewer ranks, or give each "
                "its own in CUDA_VISIBLE_DEVICES (Slurm: --gpus-per-task=1)",
                s, r, cards[r].bus, cards[r].host);
    return FWA_OK;
}

fwa_status fwa_nccl_meet(fwa_comm *host, fwa_status mine, int device, ncclUniqueId *id) {
    card *cards = calloc((size_t)host->size, sizeof *cards), own;
    memset(&own, 0, sizeof own);
    gethostname(own.host, sizeof own.host - 1);
    if (mine == FWA_OK) mine = fill_card(&own, host->rank, device);
    if (mine == FWA_OK && !cards)
        mine = fwa_error_raise(FWA_MEMORY, __FILE__, __LINE__, __func__, "no memory for %d ranks", host->size);
    own.status = mine;
    fwa_status status = cards ? host->all_gather(host, NULL, &own, cards, sizeof own, FWA_U8) : mine;
    if (status == FWA_OK) status = mine != FWA_OK ? mine : judge(cards, host->size);
    if (status == FWA_OK) *id = cards[0].id;
    free(cards);
    FWA_TRY(status);
    return FWA_OK;
}
