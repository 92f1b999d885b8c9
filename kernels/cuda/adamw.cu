// Decoupled AdamW with clipping and the copy that products read, in one pass (contract: adamw in ops.def and ops.h).
//
//   g = grad s;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  p -= r (m c1 / (sqrt(v c2) + eps) + decay p)
//   s = state->grad_scale, c_i = 1 / (1 - b_i^n), n = state->accepted, r = state->lr lr_scale;  copy = p
//
// Shapes: dense tensors of one count; master, grad, m, v fp32, copy T, fp32 or absent. Nothing is written where
// state->skip. Numerics: fp32, bias corrections in f64. Cost: bound by memory, 28 bytes a parameter, 30 with a bf16
// copy. Mapping: one thread a pack of 4 parameters; one thread of a block reads the state and computes the factors.
#include "kernels/cuda/launch.cuh"

namespace {

using namespace fwa;

constexpr int threads = 256, N = 4, blocks_per_multiprocessor = 16;

struct factors {
    float grad, beta1, beta2, one_minus_beta1, one_minus_beta2;
    float mean, variance; // bias corrections
    float eps, rate, decay;
    bool skip;
};

__device__ factors make_factors(const fwa_adamw_options &o, const fwa_step_state &state) {
    const auto updates = static_cast<double>(state.accepted);
    return {
        .grad = static_cast<float>(state.grad_scale),
        .beta1 = static_cast<float>(o.beta1),
        .beta2 = static_cast<float>(o.beta2),
        .one_minus_beta1 = static_cast<float>(1 - o.beta1),
        .one_minus_beta2 = static_cast<float>(1 - o.beta2),
        .mean = static_cast<float>(1 / (1 - pow(o.beta1, updates))),
        .variance = static_cast<float>(1 / (1 - pow(o.beta2, updates))),
        .eps = static_cast<float>(o.eps),
        .rate = static_cast<float>(state.lr * o.lr_scale),
        .decay = static_cast<float>(o.decay),
        .skip = state.skip != 0,
    };
}

template <typename T, int P>
__device__ void update(float *master, T *copy, const float *grad, float *m, float *v, const factors &f) {
    const auto gs = load<P>(grad);
    auto ps = load<P>(master), ms = load<P>(m), vs = load<P>(v);
    pack<T, P> second;
    for (int j = 0; j < P; j++) {
        const float g = gs.at[j] * f.grad;
        ms.at[j] = f.beta1 * ms.at[j] + f.one_minus_beta1 * g;
        vs.at[j] = f.beta2 * vs.at[j] + f.one_minus_beta2 * (g * g);
        const float step = ms.at[j] * f.mean / (sqrtf(vs.at[j] * f.variance) + f.eps) + f.decay * ps.at[j];
        ps.at[j] -= f.rate * step;
        second.at[j] = from_float<T>(ps.at[j]);
    }
    store(master, ps), store(m, ms), store(v, vs);
    if (copy) store(copy, second);
}

template <typename T>
__global__ void __launch_bounds__(threads)
    adamw_kernel(float *master, T *copy, const float *grad, float *m, float *v, int64_t n, bool packed,
                 fwa_adamw_options options, const fwa_step_state *state) {
    __shared__ factors f;
    if (threadIdx.x == 0) f = make_factors(options, *state);
    __syncthreads();
    if (f.skip) return;
    const int64_t step = static_cast<int64_t>(gridDim.x) * threads * N;
    for (int64_t i = (static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x) * N; i < n; i += step) {
        if (packed && i + N <= n) {
            update<T, N>(master + i, copy ? copy + i : nullptr, grad + i, m + i, v + i, f);
            continue;
        }
        for (int64_t j = i; j < n && j < i + N; j++)
            update<T, 1>(master + j, copy ? copy + j : nullptr, grad + j, m + j, v + j, f);
    }
}

fwa_status check_dense(fwa_tensor t, const char *name, fwa_dtype dtype, int64_t count) {
    FWA_CHECK(t.data && t.dtype == dtype && fwa_tensor_count(t) == count && fwa_tensor_dense(t), FWA_ERROR,
              "%s: got %lld elements of %s%s, expected a dense tensor of %lld of %s", name,
              static_cast<long long>(fwa_tensor_count(t)), fwa_dtype_name(t.dtype), t.data ? "" : ", absent",
              static_cast<long long>(count), fwa_dtype_name(dtype));
    return FWA_OK;
}

template <typename T>
fwa_status adamw(fwa_stream *stream, fwa_tensor master, fwa_tensor copy, fwa_tensor grad, fwa_tensor m, fwa_tensor v,
                 const fwa_adamw_options *options, const fwa_step_state *state) {
    const int64_t n = fwa_tensor_count(master);
    FWA_TRY(check_dense(master, "master", FWA_F32, n));
    FWA_TRY(check_dense(grad, "grad", FWA_F32, n));
    FWA_TRY(check_dense(m, "m", FWA_F32, n));
    FWA_TRY(check_dense(v, "v", FWA_F32, n));
    const bool copied = fwa_tensor_present(copy) && copy.data != master.data;
    // Vectors keep their values in fp32 in every precision.
    if (copied && copy.dtype == FWA_F32 && element<T>::dtype != FWA_F32)
        return adamw<float>(stream, master, copy, grad, m, v, options, state);
    if (copied) FWA_TRY(check_dense(copy, "copy", element<T>::dtype, n));
    if (n == 0) return FWA_OK;
    bool packed = true;
    for (const void *data : {master.data, grad.data, m.data, v.data, copied ? copy.data : master.data})
        packed = packed && reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
    adamw_kernel<T><<<grid(stream, n, threads * N, blocks_per_multiprocessor), threads, 0, stream->handle>>>(
        data_of<float>(master), copied ? data_of<T>(copy) : nullptr, data_of<const float>(grad), data_of<float>(m),
        data_of<float>(v), n, packed, *options, state);
    FWA_CUDA_LAUNCHED();
    return FWA_OK;
}

} // namespace

FWA_CUDA_ENTRIES(adamw, adamw,
                 (fwa_stream * stream, fwa_tensor master, fwa_tensor copy, fwa_tensor grad, fwa_tensor m, fwa_tensor v,
                  const fwa_adamw_options *options, const fwa_step_state *state),
                 (stream, master, copy, grad, m, v, options, state))
