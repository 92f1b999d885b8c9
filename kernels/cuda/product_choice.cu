// Choosing the algorithm of a kind of product: of the library's proposals the fastest on this stream.
//
// Every proposal runs a few times; those that come close to the best run again, in turns, so that a change of the clock
// meets all of them, and the shortest time of each counts. An earlier proposal is kept unless a later one is clearly
// faster. Without measuring, the library's first proposal is taken: where the backend is deterministic (then without
// split sums), where there is no memory to measure in, and while the stream is captured (then not remembered).
#include <cmath>

#include "kernels/cuda/product.cuh"

namespace fwa {
namespace {

constexpr int proposals = 16, repeats = 2, finalists = 5, most_rounds = 6;
constexpr float final_ms = 100;         // what the final takes, about, where one round does not take longer
constexpr float close = 1.15f;          // of the shortest time: runs in the final
constexpr float clearly_faster = 0.99f; // of the time of the best one so far

struct proposal {
    cublasLtMatmulHeuristicResult_t result;
    float time; // ms a run; INFINITY where it does not run
};

fwa_status set_preference(cublasLtMatmulPreference_t preference, const product_kind &kind, bool split) {
    const size_t bytes = FWA_CUDA_WORKSPACE_BYTES;
    const uint32_t reductions = split ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_NONE;
    const auto a = static_cast<uint32_t>(kind.align_b), b = static_cast<uint32_t>(kind.align_a),
               c = static_cast<uint32_t>(kind.align_c), d = static_cast<uint32_t>(kind.align_d);
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        const void *value;
        size_t size;
    } attributes[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &a, sizeof a},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &b, sizeof b},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &c, sizeof c},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &d, sizeof d},
    };
    for (const auto &attribute : attributes)
        FWA_BLAS_TRY(cublasLtMatmulPreferenceSetAttribute(preference, attribute.name, attribute.value, attribute.size));
    return FWA_OK;
}

fwa_status propose(const fwa_cuda_products *products, const product *p, proposal *found, int *count) {
    cublasLtMatmulHeuristicResult_t results[proposals];
    cublasLtMatmulPreference_t preference;
    const product_kind &kind = p->kind;
    FWA_BLAS_TRY(cublasLtMatmulPreferenceCreate(&preference));
    const fwa_status status = set_preference(preference, kind, !products->backend->deterministic);
    cublasStatus_t code = CUBLAS_STATUS_SUCCESS;
    if (status == FWA_OK)
        code = cublasLtMatmulAlgoGetHeuristic(products->handle, p->operation, p->b, p->a, p->c, p->d, preference,
                                              proposals, results, count);
    (void)cublasLtMatmulPreferenceDestroy(preference);
    FWA_TRY(status);
    FWA_CHECK(code == CUBLAS_STATUS_SUCCESS && *count > 0, FWA_UNSUPPORTED,
              "cuBLASLt has no product [%lld, %lld] x [%lld, %lld] of %s into %s with row strides %lld, %lld, %lld: %s",
              static_cast<long long>(kind.M), static_cast<long long>(kind.k), static_cast<long long>(kind.k),
              static_cast<long long>(kind.N), fwa_dtype_name(static_cast<fwa_dtype>(kind.act)),
              fwa_dtype_name(static_cast<fwa_dtype>(kind.out)), static_cast<long long>(kind.lda),
              static_cast<long long>(kind.ldb), static_cast<long long>(kind.ldd), cublasLtGetStatusString(code));
    for (int i = 0; i < *count; i++) found[i] = {results[i], INFINITY};
    return FWA_OK;
}

// What a measurement needs.
struct bench {
    fwa_stream *stream;
    const product *p;
    product_operands o;
    cudaEvent_t begin, end;
};

cublasStatus_t run(const bench &b, const proposal &one) {
    return product_multiply(b.stream, b.p, b.o, &one.result.algo, one.result.workspaceSize);
}

// one->time = the shorter one of what it is and what a run takes now.
fwa_status time_runs(const bench &b, proposal *one, int runs) {
    float time = 0;
    FWA_CUDA_TRY(cudaEventRecord(b.begin, b.stream->handle));
    for (int i = 0; i < runs; i++) FWA_BLAS_TRY(run(b, *one));
    FWA_CUDA_TRY(cudaEventRecord(b.end, b.stream->handle));
    FWA_CUDA_TRY(cudaEventSynchronize(b.end));
    FWA_CUDA_TRY(cudaEventElapsedTime(&time, b.begin, b.end));
    one->time = fminf(one->time, time / static_cast<float>(runs));
    return FWA_OK;
}

float shortest(const proposal *found, int count) {
    float time = INFINITY;
    for (int i = 0; i < count; i++) time = fminf(time, found[i].time);
    return time;
}

fwa_status time_all(const bench &b, proposal *found, int count) {
    for (int i = 0; i < count; i++) {
        if (found[i].result.state != CUBLAS_STATUS_SUCCESS || run(b, found[i]) != CUBLAS_STATUS_SUCCESS) continue;
        FWA_TRY(time_runs(b, &found[i], repeats));
    }
    // The limit of the final: the time of its last member, or what is still close to the best.
    float limit = shortest(found, count);
    const float most = close * limit;
    for (int n = 1; n < finalists; n++) {
        float next = INFINITY;
        for (int i = 0; i < count; i++)
            if (found[i].time > limit) next = fminf(next, found[i].time);
        if (next > most) break;
        limit = next;
    }
    const float rounds = fminf(final_ms / (finalists * repeats * limit), most_rounds);
    for (int round = 0; round == 0 || static_cast<float>(round) < rounds; round++)
        for (int i = 0; i < count; i++)
            if (found[i].time <= limit) FWA_TRY(time_runs(b, &found[i], repeats));
    return FWA_OK;
}

fwa_status find_fastest(bench *b, proposal *found, int count, int *best) {
    FWA_CUDA_TRY(cudaEventCreate(&b->begin));
    fwa_status status = fwa_cuda_status(cudaEventCreate(&b->end), "cudaEventCreate", __FILE__, __LINE__, __func__);
    if (status == FWA_OK) status = time_all(*b, found, count);
    (void)cudaEventDestroy(b->begin);
    if (b->end) (void)cudaEventDestroy(b->end);
    FWA_TRY(status);
    for (int i = 0; i < count; i++)
        if (found[i].time < clearly_faster * found[*best].time) *best = i;
    return FWA_OK;
}

// Measures with d itself as the target where it is not read, in memory of its own where it is.
fwa_status measure(fwa_stream *stream, const product *p, product_operands o, proposal *found, int count, int *best) {
    void *own = nullptr;
    fwa_status status = FWA_OK;
    const product_kind &kind = p->kind;
    if (kind.in_place && o.beta != 0.0f) {
        const size_t size = fwa_dtype_size(static_cast<fwa_dtype>(kind.out));
        const size_t bytes = static_cast<size_t>((kind.M - 1) * kind.ldd + kind.N) * size;
        if (cudaMalloc(&own, bytes) != cudaSuccess) {
            (void)cudaGetLastError();
            return FWA_OK;
        }
        o.c = o.d = own;
        status = fwa_cuda_status(cudaMemsetAsync(own, 0, bytes, stream->handle), "cudaMemsetAsync", __FILE__, __LINE__,
                                 __func__);
    }
    bench b = {stream, p, o, nullptr, nullptr};
    if (status == FWA_OK) status = find_fastest(&b, found, count, best);
    if (own) (void)cudaFree(own);
    FWA_TRY(status);
    return FWA_OK;
}

} // namespace

fwa_status product_choose(fwa_stream *stream, product *p, const product_operands &o, bool *final) {
    proposal found[proposals];
    int count = 0, best = 0;
    FWA_TRY(propose(stream->products, p, found, &count));
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    FWA_CUDA_TRY(cudaStreamIsCapturing(stream->handle, &capture));
    const bool measurable = !stream->products->backend->deterministic && count > 1;
    *final = capture == cudaStreamCaptureStatusNone || !measurable;
    if (*final && measurable) FWA_TRY(measure(stream, p, o, found, count, &best));
    p->algorithm = found[best].result.algo;
    p->workspace = found[best].result.workspaceSize;
    return FWA_OK;
}

} // namespace fwa
