// What matrix products keep between calls: the library's handle and the algorithm chosen for every kind of product
// seen.
#ifndef FWA_KERNELS_CUDA_PRODUCTS_H
#define FWA_KERNELS_CUDA_PRODUCTS_H

#include "core/backend.h"
#include "kernels/cuda/device.h"

#ifdef __cplusplus
extern "C" {
#endif

// Owned by `backend`, used by its streams from the thread that runs operators. Caller: fwa_cuda_products_destroy. Where
// backend->deterministic, a kind of product takes the library's first proposal without split sums instead of the
// fastest of several, so that two runs choose alike.
FWA_MUST_CHECK fwa_status fwa_cuda_products_create(struct fwa_cuda_products **out, const fwa_backend *backend);
void fwa_cuda_products_destroy(struct fwa_cuda_products *products);

// Choices as records of text, and taking them over (core/backend.h).
FWA_MUST_CHECK fwa_status fwa_cuda_products_records(const struct fwa_cuda_products *products, char **records);
FWA_MUST_CHECK fwa_status fwa_cuda_products_take(struct fwa_cuda_products *products, const char *records, int *taken,
                                                 int *passed_over);

#ifdef __cplusplus
}
#endif
#endif
