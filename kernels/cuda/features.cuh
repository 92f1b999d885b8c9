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
        if (t >= 0) return load<N>(x.at(b, t) + c);
        if (halo.data && t >= 1 - W) return load<N>(halo.at(b, W - 1 + t) + c);
        return pack<T, N>{};
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
