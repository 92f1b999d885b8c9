// A matrix product as cuBLASLt sees it: what the files that run, choose and record products share.
//
// The library counts in columns, so that it is given the transposed product: its A is our b, its B our a.
#ifndef FWA_KERNELS_CUDA_PRODUCT_CUH
#define FWA_KERNELS_CUDA_PRODUCT_CUH

#include <cublasLt.h>

#include "kernels/cuda/products.h"

namespace fwa {

fwa_status blas_status(cublasStatus_t code, const char *what, int line, const char *function);

#define FWA_BLAS_TRY(call)                                                                                             \
    do {                                                                                                               \
        const fwa_status fwa_blas_status_ = fwa::blas_status((call), #call, __LINE__, __func__);                       \
        if (fwa_blas_status_ != FWA_OK) return fwa_blas_status_;                                                       \
    } while (0)

// Everything that an algorithm may depend on: d[M,N] = alpha op(a) op(b) + beta c. Compared byte by byte, so that all
// fields have one size.
struct product_kind {
    int64_t M, N, k, lda, ldb, ldc, ldd;
    int64_t align_a, align_b, align_c, align_d; // bytes, at most 256
    int64_t act, out;                           // fwa_dtype
    int64_t ta, tb, in_place;                   // in_place: c is d
};

struct product {
    product_kind kind;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, c, d;
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace; // bytes
    product *next;
};

// One call's operands and scales.
struct product_operands {
    const void *a, *b, *c;
    void *d;
    float alpha, beta;
};

cudaDataType_t product_type(int64_t dtype);
cublasComputeType_t product_compute(const product_kind &kind);

// A product without an algorithm. Caller: product_destroy, or products_keep.
fwa_status product_create(product **out, const product_kind &kind);
void product_destroy(product *p);
cublasStatus_t product_multiply(fwa_stream *stream, const product *p, const product_operands &o,
                                const cublasLtMatmulAlgo_t *algorithm, size_t workspace);

product *products_find(const fwa_cuda_products *products, const product_kind &kind); // NULL: none yet
void products_keep(fwa_cuda_products *products, product *p);                         // in place of one of its kind

// Fills in algorithm and workspace for products of this kind on this stream. *final: the choice holds for all of them.
fwa_status product_choose(fwa_stream *stream, product *p, const product_operands &o, bool *final);

} // namespace fwa

struct fwa_cuda_products {
    cublasLtHandle_t handle;
    const fwa_backend *backend;
    fwa::product *first; // the latest
};

#endif
