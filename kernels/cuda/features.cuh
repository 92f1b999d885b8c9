// What both passes from a projection to mixer features share: the view of the convolution's inputs, its taps, the
// feature map and its slope (features_forward.cu, features_backward.cu).
#ifndef FWA_KERNELS_CUDA_FEATURES_CUH
#define FWA_KERNELS_CUDA_FEATURES_CUH

#include "kernels/cuda/launch.cuh"

namespace fwa {

constexpr int most_taps = 16;
constexpr float eps_l2 = 1e-12f;

// [B,T,P] with strides of sequences and steps.
template <typename T> struct sequences {
    T *data;
    int64_t b, t;
    __device__ T *at(int64_t sequence, int64_t step) const {
        return data + sequence * b + step * t;
    }
};

template <typename T> sequences<T> sequences_of(fwa_tensor x) {
    return {static_cast<T *>(x.data), x.stride[0], x.stride[1]};
}

// x and what stands before it; halo and reset may be absent. W = 1 with w absent: no convolution.
template <typename T> struct conv_input {
    sequences<const T> x, halo;
    const uint8_t *reset; // [B,T]
    const float *w;       // [P,W]
    int64_t B, steps, H, K;
    int W;

    // How many steps before step t it sees, at most W - 1.
    __device__ int reach(int64_t b, int64_t t) const {
        if (!reset) return W - 1;
        for (int back = 0; back < W - 1 && back <= t; back++)
            if (reset[b * steps + t - back]) return back;
        return W - 1;
    }

    // Channels c .. c+N-1 of step t >= -(W-1); zeros where nothing stands.
    template <int N> __device__ pack<T, N> input(int64_t b, int64_t t, int64_t c) const {
        return __builtin_bit_cast(pack<T, N>, words<N>(b, t, c));
    }
    template <int N> __device__ pieces<T, N> words(int64_t b, int64_t t, int64_t c) const {
        if (exists(t)) return load_words<N>(place(b, t) + c);
        return pieces<T, N>{};
    }
    __device__ bool exists(int64_t t) const {
        return t >= 0 || (halo.data && t >= 1 - W);
    }
    __device__ const T *place(int64_t b, int64_t t) const {
        return t >= 0 ? x.at(b, t) : halo.at(b, W - 1 + t);
    }
};

// taps.at[back][i]: what meets channel c + i `back` steps ago; zeros beyond W.
template <int N, int TAPS> struct taps { float at[TAPS][N]; };

template <int N, int TAPS, typename T> __device__ taps<N, TAPS> load_taps(const conv_input<T> &in, int64_t c) {
    taps<N, TAPS> w;
    if constexpr (TAPS == 4) {
        if (in.w && in.W == TAPS && reinterpret_cast<std::uintptr_t>(in.w) % 16 == 0) { // four taps at once
#pragma unroll
            for (int i = 0; i < N; i++) {
                const auto one = load<TAPS>(in.w + (c + i) * TAPS);
#pragma unroll
                for (int back = 0; back < TAPS; back++) w.at[back][i] = one.at[TAPS - 1 - back];
            }
            return w;
        }
    }
#pragma unroll
    for (int back = 0; back < TAPS; back++)
#pragma unroll
        for (int i = 0; i < N; i++)
            w.at[back][i] = back >= in.W ? 0.0f : in.w ? in.w[(c + i) * in.W + in.W - 1 - back] : 1.0f;
    return w;
}

__device__ inline float phi_value(fwa_phi phi, float n) {
    switch (phi) {
    case FWA_PHI_ELU1:
        return n > 0.0f ? n + 1.0f : expf(n);
    case FWA_PHI_RELU:
        return n > 0.0f ? n : 0.0f;
    case FWA_PHI_SILU:
        return n * sigmoid<float>(n);
    default:
        return n;
    }
}

__device__ inline float phi_slope(fwa_phi phi, float n) {
    switch (phi) {
    case FWA_PHI_ELU1:
        return n > 0.0f ? 1.0f : expf(n);
    case FWA_PHI_RELU:
        return n > 0.0f ? 1.0f : 0.0f;
    case FWA_PHI_SILU:
        return silu_slope(n, sigmoid<float>(n));
    default:
        return 1.0f;
    }
}

// u = conv(x) of N channels of one step.
template <int N, int TAPS, typename T>
__device__ pack<float, N> convolve(const conv_input<T> &in, const taps<N, TAPS> &w, int64_t b, int64_t t, int64_t c) {
    const int seen = in.reach(b, t);
    pack<float, N> u = {};
#pragma unroll
    for (int back = TAPS - 1; back >= 0; back--) {
        if (back > seen) continue;
        const auto x = in.template input<N>(b, t - back, c);
#pragma unroll
        for (int i = 0; i < N; i++) u.at[i] += w.at[back][i] * to_float(x.at[i]);
    }
    return u;
}

// The kernels that walk along time take 4 steps at once (features_forward.cu, features_backward.cu): groups of 4 to 32
// lanes share a head, N channels a lane, W <= 4. Besides the general kind there is one for SiLU and the identity map,
// without and with resets: there u is kept times -log2 e, so that the sigmoid is 1 / (1 + 2^u).
constexpr int batch = 4;
enum walk_kind { WALK_GENERAL, WALK_LEAN, WALK_LEAN_RESETS };
template <walk_kind KIND> constexpr float walk_scale = KIND != WALK_GENERAL ? -log2_e : 1.0f;

template <typename T> walk_kind walk_kind_of(const fwa_feature_options *options, bool resets) {
    if (sizeof(T) != 2 || !options->silu || options->phi != FWA_PHI_IDENTITY) return WALK_GENERAL;
    return resets ? WALK_LEAN_RESETS : WALK_LEAN;
}

// Resets of steps first, first - 1, ... one a lane, in a group of 4 two: for reset_bits.
__device__ inline unsigned reset_flags(const uint8_t *reset, int first, int steps, int lanes) {
    const int own = first - static_cast<int>(threadIdx.x) % lanes;
    const auto at = [&](int step) { return step >= 0 && step < steps && reset[step] ? 1u : 0u; };
    return lanes < 8 ? at(own) | at(own - 4) << 1 : at(own);
}
// Bit i: step first - i begins a document, i < 8.
__device__ inline unsigned reset_bits(unsigned flags, int lanes) {
    const unsigned group = threadIdx.x % 32 & ~static_cast<unsigned>(lanes - 1);
    const unsigned bits = __ballot_sync(everyone, flags & 1u) >> group;
    return lanes < 8 ? (bits & 15u) | __ballot_sync(everyone, flags & 2u) >> group << 4 : bits;
}
// How many steps back a step sees, at most 3: from its bit and those of the steps before it.
__device__ inline int reset_reach(unsigned bits) {
    return __ffs(static_cast<int>((bits & 7u) | 8u)) - 1;
}

// rstd = (scale sum s^2 + bias)^(-1/2), s as the walk has it; factor: of n in e n (backward).
struct walk_norm {
    bool present;
    float scale, bias, factor;
};

inline walk_norm walk_norm_of(const fwa_feature_options &options, int64_t K, bool lean) {
    const bool rms = options.norm == FWA_NORM_RMS;
    const double mean = rms ? 1.0 / static_cast<double>(K) : 1.0, unit = lean ? ln_2 * ln_2 : 1.0;
    return {options.norm != FWA_NORM_NONE, static_cast<float>(mean * unit),
            rms ? static_cast<float>(options.eps) : eps_l2, static_cast<float>(mean * unit)};
}

// How the steps of all sequences are shared out: every sequence in `runs` pieces of `run` steps (a multiple of
// `batch`, the last one shorter); lane groups take neighbouring heads of a run.
struct walk_shape {
    int lanes, run;
    int64_t runs;
    int x_bytes, row_bytes, grad_bytes; // from step to step: of x, of features, of dx
};

// The steps of one sequence as one lane sees them: 32 bits of step and of stride, in bytes, make one address in one
// instruction.
template <typename T> struct walk_column {
    const char *first; // of step 0
    int bytes;         // from step to step
    __device__ T *step(int t) const {
        int64_t offset; // compilers would extend both beforehand, and multiply 64 bits
        asm("mul.wide.s32 %0, %1, %2;" : "=l"(offset) : "r"(t), "r"(bytes));
        return reinterpret_cast<T *>(const_cast<char *>(first) + offset);
    }
};
template <typename T> __device__ walk_column<T> walk_along(T *first, int bytes) {
    return {reinterpret_cast<const char *>(first), bytes};
}
template <typename T> __host__ __device__ int step_bytes(int64_t stride) {
    return static_cast<int>(stride * static_cast<int64_t>(sizeof(T)));
}

// Copies a pack from global to shared memory while the thread goes on; zeros where it does not exist.
template <typename T, int N> __device__ void copy_ahead(pieces<T, N> *to, const T *from, bool exists = true) {
    constexpr int bytes = pieces<T, N>::bytes;
    const auto shared = static_cast<unsigned>(__cvta_generic_to_shared(to));
    const int count = exists ? bytes : 0;
    if constexpr (bytes == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(shared), "l"(from), "r"(count) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                     :
                     : "r"(shared), "l"(from), "n"(bytes), "r"(count)
                     : "memory");
}
// Ends a group of copies; waits until all but the last `LEFT` groups of this thread have arrived.
__device__ inline void end_copies() {
    asm volatile("cp.async.commit_group;" : : : "memory");
}
template <int LEFT> __device__ void await_copies() {
    asm volatile("cp.async.wait_group %0;" : : "n"(LEFT) : "memory");
}

// Whether its steps and strides are small enough.
template <typename T> bool walk_fits(const conv_input<T> &in, int64_t stride) {
    constexpr int64_t most = INT_MAX / static_cast<int64_t>(sizeof(T));
    return in.steps < 1 << 30 && in.x.t < most && stride < most && in.H * in.K < most;
}

// Runs so that as few rounds of `groups` lane groups as possible do all, where a run costs `extra` steps more.
inline walk_shape make_walk(int64_t pieces, int64_t steps, int lanes, int64_t groups, int64_t extra) {
    walk_shape best = {lanes, 0, 0, 0, 0, 0};
    int64_t least = INT64_MAX;
    for (int64_t runs = fwa_ceil_div(steps, 256); runs <= fwa_ceil_div(steps, 16); runs++) {
        const int64_t run = fwa_round_up(fwa_ceil_div(steps, runs), batch);
        const int64_t cost = fwa_ceil_div(pieces * fwa_ceil_div(steps, run), groups) * (run + extra);
        if (cost >= least) continue;
        least = cost;
        best.run = static_cast<int>(run), best.runs = fwa_ceil_div(steps, run);
    }
    return best;
}

// Without convolution, SiLU, norm and map both passes copy.
inline bool features_copy(const fwa_feature_options *options) {
    return options->width == 0 && !options->silu && options->norm == FWA_NORM_NONE && options->phi == FWA_PHI_IDENTITY;
}

template <typename T, int N>
static __global__ void __launch_bounds__(256)
    features_copy_kernel(sequences<T> to, sequences<const T> from, int64_t B, int64_t steps, int64_t packs) {
    const int64_t step = static_cast<int64_t>(gridDim.x) * 256;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x; i < B * steps * packs; i += step) {
        int64_t row, pack, b, t;
        divide(i, packs, &row, &pack);
        divide(row, steps, &b, &t);
        store(to.at(b, t) + pack * N, load_words<N>(from.at(b, t) + pack * N));
    }
}

template <typename T>
fwa_status copy_features(fwa_stream *stream, sequences<T> to, sequences<const T> from, int64_t B, int64_t steps,
                         int64_t P, bool aligned) {
    constexpr int N = pack_size<T>;
    const bool packed = aligned && P % N == 0;
    const int64_t packs = packed ? P / N : P;
    const auto blocks = static_cast<unsigned>(fwa_min(fwa_ceil_div(B * steps * packs, 256), INT_MAX));
    auto *kernel = packed ? features_copy_kernel<T, N> : features_copy_kernel<T, 1>;
    kernel<<<blocks, 256, 0, stream->handle>>>(to, from, B, steps, packs);
    FWA_CUDA_LAUNCHED();
    return FWA_OK;
}

// The checks and the view that both passes begin with; y is the tensor of features or their gradient.
template <typename T>
fwa_status features_input(fwa_tensor y, fwa_tensor rstd, fwa_tensor x, fwa_tensor w, fwa_tensor halo, fwa_tensor reset,
                          const fwa_feature_options *options, conv_input<T> *out) {
    FWA_EXPECT_DIMS(y, 4);
    const int64_t B = y.shape[0], steps = y.shape[1], H = y.shape[2], K = y.shape[3], W = options->width;
    FWA_CHECK(W >= 0 && W <= most_taps, FWA_UNSUPPORTED, "width: got %lld, expected 0 to %d", static_cast<long long>(W),
              most_taps);
    FWA_EXPECT_DENSE(y, element<T>::dtype, 4, B, steps, H, K);
    FWA_EXPECT(x, element<T>::dtype, 3, B, steps, H * K);
    if (options->norm != FWA_NORM_NONE) FWA_EXPECT_DENSE(rstd, FWA_F32, 3, B, steps, H);
    if (W > 0) FWA_EXPECT_DENSE(w, FWA_F32, 2, H * K, W);
    if (fwa_tensor_present(halo)) FWA_EXPECT(halo, element<T>::dtype, 3, B, fwa_max(W - 1, 0), H * K);
    if (fwa_tensor_present(reset)) FWA_EXPECT_DENSE(reset, FWA_U8, 2, B, steps);
    *out = {
        .x = sequences_of<const T>(x),
        .halo = sequences_of<const T>(halo),
        .reset = data_of<const uint8_t>(reset),
        .w = W > 0 ? data_of<const float>(w) : nullptr,
        .B = B,
        .steps = steps,
        .H = H,
        .K = K,
        .W = static_cast<int>(fwa_max(W, 1)),
    };
    return FWA_OK;
}

} // namespace fwa
#endif
