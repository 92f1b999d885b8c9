// Gradient buckets over a communicator's started reductions.
#include "dist/buckets.h"

#include <stdlib.h>

enum { MOST_BUCKETS = 512 }; // as many as a communicator lets be under way

typedef struct bucket {
    fwa_tensor tensor;
    fwa_comm_request *request; // NULL: not started since the last wait
} bucket;

struct fwa_buckets {
    fwa_comm *comm;
    int count;
    int started;  // entries of `order`
    int *order;   // bucket numbers in the order of their start
    bucket *list; // [count]
};

static fwa_status check_tensors(const fwa_tensor *tensors, int count) {
    FWA_CHECK(count >= 0 && count <= MOST_BUCKETS, FWA_ERROR, "got %d buckets, expected 0 to %d", count, MOST_BUCKETS);
    for (int i = 0; i < count; i++) {
        char text[96];
        FWA_CHECK(fwa_tensor_present(tensors[i]) && fwa_tensor_dense(tensors[i]), FWA_ERROR,
                  "bucket %d: got %s, expected a dense tensor with memory", i, fwa_tensor_text(tensors[i], text));
    }
    return FWA_OK;
}

fwa_status fwa_buckets_create(fwa_buckets **out, fwa_comm *comm, const fwa_tensor *tensors, int count) {
    *out = NULL;
    FWA_TRY(check_tensors(tensors, count));
    fwa_buckets *buckets = calloc(1, sizeof *buckets);
    FWA_CHECK(buckets, FWA_MEMORY, "no memory for %d buckets", count);
    buckets->comm = comm;
    buckets->count = count;
    buckets->order = calloc((size_t)count + 1, sizeof *buckets->order);
    buckets->list = calloc((size_t)count + 1, sizeof *buckets->list);
    if (!buckets->order || !buckets->list) {
        fwa_buckets_destroy(buckets);
        FWA_FAIL(FWA_MEMORY, "no memory for %d buckets", count);
    }
    for (int i = 0; i < count; i++) buckets->list[i].tensor = tensors[i];
    *out = buckets;
    return FWA_OK;
}

void fwa_buckets_destroy(fwa_buckets *buckets) {
    if (!buckets) return;
    free(buckets->order);
    free(buckets->list);
    free(buckets);
}

fwa_status fwa_buckets_start(fwa_buckets *buckets, fwa_stream *stream, int i) {
    FWA_CHECK(i >= 0 && i < buckets->count, FWA_ERROR, "got bucket %d, expected 0 to %d", i, buckets->count - 1);
    bucket *b = &buckets->list[i];
    FWA_CHECK(!b->request, FWA_ERROR, "bucket %d: got a second start, expected fwa_buckets_wait before it", i);
    FWA_TRY(buckets->comm->all_reduce_start(buckets->comm, stream, b->tensor.data, fwa_tensor_count(b->tensor),
                                            b->tensor.dtype, FWA_REDUCE_SUM, &b->request));
    buckets->order[buckets->started++] = i;
    return FWA_OK;
}

fwa_status fwa_buckets_wait(fwa_buckets *buckets, fwa_stream *stream) {
    for (int n = 0; n < buckets->started; n++) {
        bucket *b = &buckets->list[buckets->order[n]];
        FWA_TRY(buckets->comm->wait(buckets->comm, stream, b->request));
        b->request = NULL;
    }
    buckets->started = 0;
    return FWA_OK;
}
