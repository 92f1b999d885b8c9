// The products of a backend: descriptors of one kind of product, and the list of the kinds seen.
#include "kernels/cuda/product.cuh"

#include <cstdlib>
#include <cstring>

namespace fwa {

fwa_status blas_status(cublasStatus_t code, const char *what, int line, const char *function) {
    if (code == CUBLAS_STATUS_SUCCESS) return FWA_OK;
    fwa_status status = code == CUBLAS_STATUS_NOT_SUPPORTED ? FWA_UNSUPPORTED : FWA_BACKEND;
    if (code == CUBLAS_STATUS_ALLOC_FAILED) status = FWA_MEMORY;
    return fwa_error_raise(status, __FILE__, line, function, "%s: %s", what, cublasLtGetStatusString(code));
}

cudaDataType_t product_type(int64_t dtype) {
    return dtype == FWA_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

cublasComputeType_t product_compute(const product_kind &kind) {
    return kind.act == FWA_F32 ? CUBLAS_COMPUTE_32F_PEDANTIC : CUBLAS_COMPUTE_32F;
}

// A row-major matrix of `rows` rows as the library sees it: columns of length `columns`.
static fwa_status make_layout(cublasLtMatrixLayout_t *out, int64_t dtype, int64_t rows, int64_t columns,
                              int64_t stride) {
    FWA_BLAS_TRY(cublasLtMatrixLayoutCreate(out, product_type(dtype), static_cast<uint64_t>(columns),
                                            static_cast<uint64_t>(rows), stride));
    return FWA_OK;
}

static fwa_status describe(product *p) {
    const product_kind &kind = p->kind;
    FWA_BLAS_TRY(cublasLtMatmulDescCreate(&p->operation, product_compute(kind), CUDA_R_32F));
    const cublasOperation_t first = kind.tb ? CUBLAS_OP_T : CUBLAS_OP_N, second = kind.ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    FWA_BLAS_TRY(cublasLtMatmulDescSetAttribute(p->operation, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first));
    FWA_BLAS_TRY(cublasLtMatmulDescSetAttribute(p->operation, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second));
    FWA_TRY(make_layout(&p->a, kind.act, kind.ta ? kind.k : kind.M, kind.ta ? kind.M : kind.k, kind.lda));
    FWA_TRY(make_layout(&p->b, kind.act, kind.tb ? kind.N : kind.k, kind.tb ? kind.k : kind.N, kind.ldb));
    FWA_TRY(make_layout(&p->c, kind.out, kind.M, kind.N, kind.ldc));
    FWA_TRY(make_layout(&p->d, kind.out, kind.M, kind.N, kind.ldd));
    return FWA_OK;
}

fwa_status product_create(product **out, const product_kind &kind) {
    auto *p = static_cast<product *>(calloc(1, sizeof(product)));
    FWA_CHECK(p, FWA_MEMORY, "cannot allocate a product");
    p->kind = kind;
    const fwa_status status = describe(p);
    if (status != FWA_OK) {
        product_destroy(p);
        return fwa_error_pass(status, __FILE__, __LINE__, __func__);
    }
    *out = p;
    return FWA_OK;
}

void product_destroy(product *p) {
    if (p->operation) (void)cublasLtMatmulDescDestroy(p->operation);
    for (cublasLtMatrixLayout_t layout : {p->a, p->b, p->c, p->d})
        if (layout) (void)cublasLtMatrixLayoutDestroy(layout);
    free(p);
}

cublasStatus_t product_multiply(fwa_stream *stream, const product *p, const product_operands &o,
                                const cublasLtMatmulAlgo_t *algorithm, size_t workspace) {
    return cublasLtMatmul(stream->products->handle, p->operation, &o.alpha, o.b, p->b, o.a, p->a, &o.beta, o.c, p->c,
                          o.d, p->d, algorithm, stream->workspace, workspace, stream->handle);
}

product *products_find(const fwa_cuda_products *products, const product_kind &kind) {
    product *p = products->first;
    while (p && memcmp(&p->kind, &kind, sizeof kind) != 0) p = p->next;
    return p;
}

void products_keep(fwa_cuda_products *products, product *p) {
    for (product **at = &products->first; *at; at = &(*at)->next) {
        product *old = *at;
        if (memcmp(&old->kind, &p->kind, sizeof p->kind) != 0) continue;
        *at = old->next;
        product_destroy(old);
        break;
    }
    p->next = products->first;
    products->first = p;
}

} // namespace fwa

extern "C" {

fwa_status fwa_cuda_products_create(fwa_cuda_products **out, const fwa_backend *backend) {
    auto *products = static_cast<fwa_cuda_products *>(calloc(1, sizeof(fwa_cuda_products)));
    FWA_CHECK(products, FWA_MEMORY, "cannot allocate the state of matrix products");
    const fwa_status status = fwa::blas_status(cublasLtCreate(&products->handle), "cublasLtCreate", __LINE__, __func__);
    if (status != FWA_OK) free(products);
    FWA_TRY(status);
    products->backend = backend;
    *out = products;
    return FWA_OK;
}

void fwa_cuda_products_destroy(fwa_cuda_products *products) {
    if (!products) return;
    for (fwa::product *p = products->first, *next; p; p = next) {
        next = p->next;
        fwa::product_destroy(p);
    }
    (void)cublasLtDestroy(products->handle);
    free(products);
}

} // extern "C"
