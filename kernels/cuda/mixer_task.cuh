// One call of a mixing rule as its kernels see it: sizes, views of the caller's tensors, and dense fp32 arrays in
// `saved` and `scratch`, one head after another, in which rates (rate.cuh) and cores (core.cuh) work.
//
// As on the CPU (cpu/core.h, cpu/head.h): pairs (x_j, v_j) are rows, n rows of the tail, then one a step, so that step
// t owns row n + t; I_t is the rows first[t] .. n+t; value head h reads query/key head h / group. Rows are padded with
// zeros: x and q to `Kp`, v and o to `Vp` columns, so that no kernel tests for the end of one. Under a normalised read
// column V is all ones and its state is z.
#ifndef FWA_KERNELS_CUDA_MIXER_TASK_CUH
#define FWA_KERNELS_CUDA_MIXER_TASK_CUH

#include "kernels/cpu/bump.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/numeric.cuh"
#include "kernels/rule.h"

namespace fwa {

// A tensor of at most four dimensions, f32 or bf16, with a dense last one. Absent: data is null.
struct view {
    void *data;
    int64_t stride[3];
    bool bf16;

    __host__ __device__ bool present() const {
        return data != nullptr;
    }
    __device__ int64_t offset(int64_t i, int64_t j, int64_t k, int64_t l) const {
        return i * stride[0] + j * stride[1] + k * stride[2] + l;
    }
    __device__ float get(int64_t i, int64_t j, int64_t k = 0, int64_t l = 0) const {
        const int64_t at = offset(i, j, k, l);
        return bf16 ? to_float(static_cast<const __nv_bfloat16 *>(data)[at]) : static_cast<const float *>(data)[at];
    }
    __device__ void set(float value, int64_t i, int64_t j, int64_t k = 0, int64_t l = 0) const {
        const int64_t at = offset(i, j, k, l);
        if (bf16)
            static_cast<__nv_bfloat16 *>(data)[at] = from_float<__nv_bfloat16>(value);
        else
            static_cast<float *>(data)[at] = value;
    }
};

struct state_views {
    view S, z, k_last, tail_x, tail_v;
    int64_t tail; // rows
};

enum class energy_kind { none, mean, top };

struct mixer_task {
    fwa_mixer_options options;
    int64_t B, T, Hq, H, K, V;
    int64_t n, rows, group; // rows of the tail, n + T, H / Hq
    int64_t Kp, Vp, halo;   // no window reaches further back than `halo` rows
    int64_t columns;        // of w and gamma: 1, or Vp
    int64_t slices;         // parts of V whose contributions to dq, dx, dw, dgamma stand apart
    bool shifted, normalized, before, decay_first, save, resumed; // resumed: k_last came in
    float scale;                                                  // attention
    energy_kind energies;

    view q, k, v, beta, lambda, log_decay, o;
    view d_o, dq, dk, dv, dbeta, dlambda, dlog_decay;
    const uint8_t *reset, *tail_reset;
    int64_t reset_stride, tail_reset_stride;
    state_views in, out, d_in, d_out;

    int32_t *first;   // [B,T]
    uint8_t *drop;    // [B,T], 1 where S is emptied before step t
    float *qs, *xs;   // [B,Hq,T,Kp], [B,Hq,rows,Kp]; qs null: not gathered
    float *vs, *os;   // [B,H,rows,Vp], [B,H,T,Vp]; os before the division of a normalised read
    float *w, *gamma; // [B,H,T,columns]
    double *norms;    // [B,Hq,rows] |x_j|^2
    double *energy;   // [B,Hq,T]
    double *jacobi;   // matrices of the largest eigenvalue where shared memory is too small for them
    float *z;         // [B,Hq,T,Kp] its eigenvector; backward only

    float *d_os, *dvs;       // [B,H,T,Vp], [B,H,rows,Vp]
    float *dqs, *dxs;        // [B,H,slices,T,Kp], [B,H,slices,rows,Kp]
    float *dw, *dgamma;      // [B,H,slices,T], or [B,H,T,Vp] with columns
    double *denergy, *pulls; // [B,H,T]; [B,Hq,T] its sum over value heads, divided by B_t

    float *states;   // steps, saved: S before every piece
    float *ring;     // steps, backward: S before every part of a piece
    float *ring_far; // steps, backward: S before every step of a part, where shared memory is too small for it
    float *kept;     // steps, backward: residuals of a part, where a step has too many for shared memory
    float *lse;      // attention, saved: [B,H,T] log of the sum of exponentials
    float *sums;     // attention, backward: [B,H,T] d_o . o

    // Element k of row j of x, of a row that stands for a pair, from the call's own tensors.
    __device__ float key_of_pair(int64_t b, int64_t hq, int64_t j, int64_t k_) const {
        const int64_t t = j - n;
        if (t < 0) return in.tail_x.get(b, j, hq, k_);
        if (!shifted) return k.get(b, t, hq, k_);
        return t > 0 ? k.get(b, t - 1, hq, k_) : in.k_last.get(b, hq, k_);
    }
    // Whether row j is there for a step without a pair.
    __device__ bool empty_row(int64_t b, int64_t j) const {
        return j >= n && pairs(b, j - n) <= 0;
    }
    __device__ const float *x_row(int64_t b, int64_t h, int64_t j) const {
        return xs + ((b * Hq + h / group) * rows + j) * Kp;
    }
    __device__ const float *q_row(int64_t b, int64_t h, int64_t t) const {
        return qs + ((b * Hq + h / group) * T + t) * Kp;
    }
    __device__ int64_t first_of(int64_t b, int64_t t) const {
        return first[b * T + t];
    }
    __device__ int64_t pairs(int64_t b, int64_t t) const {
        return n + t + 1 - first[b * T + t];
    }
};

// Warps of a grid take rows in turn; `visit(row)` runs on all lanes of the warp.
template <typename F> __device__ inline void each_row(int64_t count, F visit) {
    const int64_t warps = static_cast<int64_t>(gridDim.x) * (blockDim.x / 32);
    const int64_t own = static_cast<int64_t>(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
    for (int64_t row = own; row < count; row += warps) visit(row);
}

// Threads of a grid take elements in turn.
template <typename F> __device__ inline void each_element(int64_t count, F visit) {
    const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) visit(i);
}

constexpr int map_threads = 256;
// Blocks of map_threads threads for each_row and each_element.
inline unsigned blocks_for(int64_t items, int64_t items_a_block) {
    const int64_t blocks = (items + items_a_block - 1) / items_a_block;
    return static_cast<unsigned>(blocks < 16384 ? blocks : 16384);
}
inline unsigned row_blocks(int64_t rows) {
    return blocks_for(rows, map_threads / 32);
}
inline unsigned element_blocks(int64_t elements) {
    return blocks_for(elements, map_threads);
}

// Launches on the stream of the call; a launch that fails returns from the calling function.
#define FWA_LAUNCH(kernel, blocks, threads, shared, stream, ...)                                                       \
    do {                                                                                                               \
        kernel<<<(blocks), (threads), (shared), (stream)>>>(__VA_ARGS__);                                              \
        FWA_CUDA_TRY(cudaGetLastError());                                                                              \
    } while (0)

} // namespace fwa
#endif
