// What matrix products keep between calls: the library's handle and the algorithm chosen for every kind of product
// seen.
#ifndef FWA_KERNELS_CUDA_PRODUCTS_H
#define FWA_KERNELS_CUDA_PRODUCTS_H

#include <stdbool.h>

#include "kernels/cuda/device.h"

#ifdef __cplusplus
extern "C" {
#endif

// Owned by the backend, used by its streams from the thread that runs operators. Caller: fwa_cuda_products_destroy.
FWA_MUST_CHECK fwa_status fwa_cuda_products_create(struct fwa_cuda_products **out);
void fwa_cuda_products_destroy(struct fwa_cuda_products *products);

// measure false: kinds of products not seen yet take the library's first choice without split sums instead of the
// fastest of several, so that two runs choose alike.
void fwa_cuda_products_measure(struct fwa_cuda_products *products, bool measure);

#ifdef __cplusplus
}
#endif
#endif
