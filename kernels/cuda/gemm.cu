// Matrix products through cuBLASLt (contract: gemm in ops.def).
//
//   d[M,N] = alpha op(a) op(b) + beta c,  op(a) [M,k], op(b) [k,N];  c absent: c = d
//
// Types: a, b act; d and c act or fp32; sums and scales fp32, in f32 without TF32 or any other shortening. Row-major
// with row strides: the library counts in columns, so it is given the transposed product b^T a^T. Any sizes >= 1, any
// alignment. Split sums are added by the library in fp32 through the workspace, never through memory that others write:
// the same algorithm gives the same bits.
//
// The algorithm of a kind of product (sizes, types, transposes, strides, alignment) is chosen once: of the library's
// first proposals the fastest on this stream, where an earlier one is kept unless a later one is clearly faster. While
// a stream is captured, or where there is no memory to measure in, its first proposal is taken and not remembered.
#include <cstdlib>
#include <cstring>

#include <cublasLt.h>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/products.h"

namespace {

constexpr int proposals = 8, repeats = 3;
constexpr float clearly_faster = 0.97f; // of the time of the best one so far
constexpr uint32_t most_alignment = 256;

fwa_status blas_status(cublasStatus_t code, const char *what, int line, const char *function) {
    if (code == CUBLAS_STATUS_SUCCESS) return FWA_OK;
    fwa_status status = code == CUBLAS_STATUS_NOT_SUPPORTED ? FWA_UNSUPPORTED : FWA_BACKEND;
    if (code == CUBLAS_STATUS_ALLOC_FAILED) status = FWA_MEMORY;
    return fwa_error_raise(status, __FILE__, line, function, "%s: %s", what, cublasLtGetStatusString(code));
}

#define BLAS_TRY(call)                                                                                                 \
    do {                                                                                                               \
        fwa_status blas_status_ = blas_status((call), #call, __LINE__, __func__);                                      \
        if (blas_status_ != FWA_OK) return blas_status_;                                                               \
    } while (0)

// Everything that an algorithm may depend on; compared byte by byte, so it is cleared before it is filled.
struct kind {
    int64_t M, N, k, lda, ldb, ldc, ldd;
    uint32_t align_a, align_b, align_c, align_d;
    fwa_dtype act, out;
    int ta, tb, in_place;
};

struct product {
    kind key;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, c, d;
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace;
    product *next;
};

} // namespace

struct fwa_cuda_products {
    cublasLtHandle_t handle;
    product *first;
    const fwa_backend *backend;
};

namespace {

// One product's operands and scales.
struct operands {
    const void *a, *b, *c;
    void *d;
    float alpha, beta;
};

uint32_t alignment(const void *data) {
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    uint32_t bytes = most_alignment;
    while (address % bytes != 0) bytes /= 2;
    return bytes;
}

cudaDataType_t type_of(fwa_dtype dtype) {
    return dtype == FWA_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

void free_product(product *p) {
    if (p->operation) (void)cublasLtMatmulDescDestroy(p->operation);
    for (cublasLtMatrixLayout_t layout : {p->a, p->b, p->c, p->d})
        if (layout) (void)cublasLtMatrixLayoutDestroy(layout);
    free(p);
}

// A row-major matrix of `rows` rows as the library sees it: columns of length `columns`.
fwa_status make_layout(cublasLtMatrixLayout_t *out, fwa_dtype dtype, int64_t rows, int64_t columns, int64_t stride) {
    BLAS_TRY(cublasLtMatrixLayoutCreate(out, type_of(dtype), static_cast<uint64_t>(columns),
                                        static_cast<uint64_t>(rows), stride));
    return FWA_OK;
}

fwa_status fill_product(product *p) {
    const kind &key = p->key;
    const auto compute = key.act == FWA_F32 ? CUBLAS_COMPUTE_32F_PEDANTIC : CUBLAS_COMPUTE_32F;
    BLAS_TRY(cublasLtMatmulDescCreate(&p->operation, compute, CUDA_R_32F));
    const cublasOperation_t first = key.tb ? CUBLAS_OP_T : CUBLAS_OP_N, second = key.ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    BLAS_TRY(cublasLtMatmulDescSetAttribute(p->operation, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first));
    BLAS_TRY(cublasLtMatmulDescSetAttribute(p->operation, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second));
    FWA_TRY(make_layout(&p->a, key.act, key.ta ? key.k : key.M, key.ta ? key.M : key.k, key.lda));
    FWA_TRY(make_layout(&p->b, key.act, key.tb ? key.N : key.k, key.tb ? key.k : key.N, key.ldb));
    FWA_TRY(make_layout(&p->c, key.out, key.M, key.N, key.ldc));
    FWA_TRY(make_layout(&p->d, key.out, key.M, key.N, key.ldd));
    return FWA_OK;
}

fwa_status set_preference(cublasLtMatmulPreference_t preference, const kind &key, bool split) {
    const size_t bytes = FWA_CUDA_WORKSPACE_BYTES;
    const uint32_t reductions = split ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_NONE;
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        const void *value;
        size_t size;
    } attributes[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &key.align_b, sizeof key.align_b},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &key.align_a, sizeof key.align_a},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &key.align_c, sizeof key.align_c},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &key.align_d, sizeof key.align_d},
    };
    for (const auto &attribute : attributes)
        BLAS_TRY(cublasLtMatmulPreferenceSetAttribute(preference, attribute.name, attribute.value, attribute.size));
    return FWA_OK;
}

fwa_status propose(fwa_cuda_products *products, const product *p, cublasLtMatmulHeuristicResult_t *found, int *count) {
    cublasLtMatmulPreference_t preference;
    BLAS_TRY(cublasLtMatmulPreferenceCreate(&preference));
    fwa_status status = set_preference(preference, p->key, !products->backend->deterministic);
    cublasStatus_t code = CUBLAS_STATUS_SUCCESS;
    if (status == FWA_OK)
        code = cublasLtMatmulAlgoGetHeuristic(products->handle, p->operation, p->b, p->a, p->c, p->d, preference,
                                              proposals, found, count);
    (void)cublasLtMatmulPreferenceDestroy(preference);
    FWA_TRY(status);
    const kind &key = p->key;
    FWA_CHECK(code == CUBLAS_STATUS_SUCCESS && *count > 0, FWA_UNSUPPORTED,
              "cuBLASLt has no product [%lld, %lld] x [%lld, %lld] of %s into %s with row strides %lld, %lld, %lld: %s",
              static_cast<long long>(key.M), static_cast<long long>(key.k), static_cast<long long>(key.k),
              static_cast<long long>(key.N), fwa_dtype_name(key.act), fwa_dtype_name(key.out),
              static_cast<long long>(key.lda), static_cast<long long>(key.ldb), static_cast<long long>(key.ldd),
              cublasLtGetStatusString(code));
    return FWA_OK;
}

cublasStatus_t multiply(fwa_stream *stream, const product *p, const operands &o, const cublasLtMatmulAlgo_t *algorithm,
                        size_t workspace) {
    return cublasLtMatmul(stream->products->handle, p->operation, &o.alpha, o.b, p->b, o.a, p->a, &o.beta, o.c, p->c,
                          o.d, p->d, algorithm, stream->workspace, workspace, stream->handle);
}

// Milliseconds of `repeats` runs after one to warm up; INFINITY where the algorithm does not run.
fwa_status measure(fwa_stream *stream, const product *p, const operands &o, const cublasLtMatmulHeuristicResult_t *one,
                   cudaEvent_t begin, cudaEvent_t end, float *time) {
    *time = INFINITY;
    if (one->state != CUBLAS_STATUS_SUCCESS) return FWA_OK;
    if (multiply(stream, p, o, &one->algo, one->workspaceSize) != CUBLAS_STATUS_SUCCESS) return FWA_OK;
    FWA_CUDA_TRY(cudaEventRecord(begin, stream->handle));
    for (int i = 0; i < repeats; i++) BLAS_TRY(multiply(stream, p, o, &one->algo, one->workspaceSize));
    FWA_CUDA_TRY(cudaEventRecord(end, stream->handle));
    FWA_CUDA_TRY(cudaEventSynchronize(end));
    FWA_CUDA_TRY(cudaEventElapsedTime(time, begin, end));
    return FWA_OK;
}

fwa_status pick_fastest(fwa_stream *stream, const product *p, const operands &o,
                        const cublasLtMatmulHeuristicResult_t *found, int count, int *best) {
    cudaEvent_t begin = nullptr, end = nullptr;
    FWA_CUDA_TRY(cudaEventCreate(&begin));
    fwa_status status = fwa_cuda_status(cudaEventCreate(&end), "cudaEventCreate", __FILE__, __LINE__, __func__);
    float shortest = INFINITY;
    for (int i = 0; i < count && status == FWA_OK; i++) {
        float time = INFINITY;
        status = measure(stream, p, o, &found[i], begin, end, &time);
        if (time >= clearly_faster * shortest) continue;
        shortest = time;
        *best = i;
    }
    (void)cudaEventDestroy(begin);
    if (end) (void)cudaEventDestroy(end);
    FWA_TRY(status);
    return FWA_OK;
}

// Measures with d itself as the target where it is not read, in memory of its own where it is.
fwa_status choose(fwa_stream *stream, const product *p, operands o, const cublasLtMatmulHeuristicResult_t *found,
                  int count, int *best) {
    void *own = nullptr;
    if (p->key.in_place && o.beta != 0.0f) {
        const size_t bytes = static_cast<size_t>((p->key.M - 1) * p->key.ldd + p->key.N) * fwa_dtype_size(p->key.out);
        if (cudaMalloc(&own, bytes) != cudaSuccess) {
            (void)cudaGetLastError();
            return FWA_OK;
        }
        FWA_CUDA_TRY(cudaMemsetAsync(own, 0, bytes, stream->handle));
        o.c = o.d = own;
    }
    const fwa_status status = pick_fastest(stream, p, o, found, count, best);
    if (own) (void)cudaFree(own);
    FWA_TRY(status);
    return FWA_OK;
}

// Fills in the algorithm. *final: the choice holds for all products of this kind.
fwa_status decide(fwa_stream *stream, product *p, const operands &o, bool *final) {
    cublasLtMatmulHeuristicResult_t found[proposals];
    int count = 0, best = 0;
    FWA_TRY(propose(stream->products, p, found, &count));
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    FWA_CUDA_TRY(cudaStreamIsCapturing(stream->handle, &capture));
    const bool measurable = !stream->products->backend->deterministic && count > 1;
    *final = capture == cudaStreamCaptureStatusNone || !measurable;
    if (*final && measurable) FWA_TRY(choose(stream, p, o, found, count, &best));
    p->algorithm = found[best].algo;
    p->workspace = found[best].workspaceSize;
    return FWA_OK;
}

fwa_status run(fwa_stream *stream, product *p, const operands &o) {
    BLAS_TRY(multiply(stream, p, o, &p->algorithm, p->workspace));
    return FWA_OK;
}

fwa_status run_new(fwa_stream *stream, const kind &key, const operands &o) {
    auto *p = static_cast<product *>(calloc(1, sizeof(product)));
    FWA_CHECK(p, FWA_MEMORY, "cannot allocate a product");
    p->key = key;
    bool final = false;
    fwa_status status = fill_product(p);
    if (status == FWA_OK) status = decide(stream, p, o, &final);
    if (status == FWA_OK) status = run(stream, p, o);
    if (status == FWA_OK && final) {
        p->next = stream->products->first;
        stream->products->first = p;
    } else {
        free_product(p);
    }
    FWA_TRY(status);
    return FWA_OK;
}

fwa_status check_matrix(fwa_tensor t, const char *name, fwa_dtype dtype, int64_t rows, int64_t columns) {
    FWA_TRY(fwa_tensor_expect(t, name, dtype, 2, rows, columns));
    FWA_CHECK(rows <= 1 || t.stride[0] >= columns, FWA_ERROR, "%s: got row stride %lld, expected at least %lld", name,
              static_cast<long long>(t.stride[0]), static_cast<long long>(columns));
    FWA_CHECK(rows >= 1 && columns >= 1 && rows <= INT_MAX && columns <= INT_MAX, FWA_UNSUPPORTED,
              "%s: got [%lld, %lld]; products on CUDA take sizes from 1 to 2^31 - 1", name,
              static_cast<long long>(rows), static_cast<long long>(columns));
    return FWA_OK;
}

int64_t leading(fwa_tensor t) {
    return t.shape[0] > 1 ? t.stride[0] : t.shape[1];
}

template <typename T>
fwa_status gemm(fwa_stream *stream, fwa_tensor d, fwa_tensor a, bool ta, fwa_tensor b, bool tb, fwa_tensor c,
                double alpha, double beta) {
    constexpr fwa_dtype act = fwa::element<T>::dtype;
    FWA_EXPECT_DIMS(d, 2);
    FWA_EXPECT_DIMS(a, 2);
    const int64_t M = d.shape[0], N = d.shape[1], k = a.shape[ta ? 0 : 1];
    const fwa_dtype out = d.dtype == FWA_F32 ? FWA_F32 : act;
    FWA_TRY(check_matrix(d, "d", out, M, N));
    FWA_TRY(check_matrix(a, "a", act, ta ? k : M, ta ? M : k));
    FWA_TRY(check_matrix(b, "b", act, tb ? N : k, tb ? k : N));
    if (!fwa_tensor_present(c)) c = d;
    FWA_TRY(check_matrix(c, "c", out, M, N));
    const bool in_place = c.data == d.data;
    FWA_CHECK(!in_place || M <= 1 || c.stride[0] == d.stride[0], FWA_ERROR,
              "c: got d's memory with row stride %lld, expected d's %lld", static_cast<long long>(c.stride[0]),
              static_cast<long long>(d.stride[0]));
    kind key;
    memset(&key, 0, sizeof key);
    key.M = M, key.N = N, key.k = k;
    key.lda = leading(a), key.ldb = leading(b), key.ldc = leading(c), key.ldd = leading(d);
    key.align_a = alignment(a.data), key.align_b = alignment(b.data);
    key.align_c = alignment(c.data), key.align_d = alignment(d.data);
    key.act = act, key.out = out, key.ta = ta, key.tb = tb, key.in_place = in_place;
    const operands o = {a.data, b.data, c.data, d.data, static_cast<float>(alpha), static_cast<float>(beta)};
    for (product *p = stream->products->first; p; p = p->next) {
        if (memcmp(&p->key, &key, sizeof key) != 0) continue;
        FWA_TRY(run(stream, p, o));
        return FWA_OK;
    }
    FWA_TRY(run_new(stream, key, o));
    return FWA_OK;
}

} // namespace

extern "C" {

fwa_status fwa_cuda_products_create(fwa_cuda_products **out, const fwa_backend *backend) {
    auto *products = static_cast<fwa_cuda_products *>(calloc(1, sizeof(fwa_cuda_products)));
    FWA_CHECK(products, FWA_MEMORY, "cannot allocate the state of matrix products");
    const fwa_status status = blas_status(cublasLtCreate(&products->handle), "cublasLtCreate", __LINE__, __func__);
    if (status != FWA_OK) free(products);
    FWA_TRY(status);
    products->backend = backend;
    *out = products;
    return FWA_OK;
}

void fwa_cuda_products_destroy(fwa_cuda_products *products) {
    if (!products) return;
    for (product *p = products->first, *next; p; p = next) {
        next = p->next;
        free_product(p);
    }
    (void)cublasLtDestroy(products->handle);
    free(products);
}

} // extern "C"

FWA_CUDA_ENTRIES(gemm, gemm,
                 (fwa_stream * stream, fwa_tensor d, fwa_tensor a, bool ta, fwa_tensor b, bool tb, fwa_tensor c,
                  double alpha, double beta),
                 (stream, d, a, ta, b, tb, c, alpha, beta))
