// Rows held in registers: teams of 1, 2 or 4 warps walk the rows of a matrix, a thread has up to 4 packs of each, and
// what the next row takes is loaded while the current one is worked on (rmsnorm.cu, forward in skip_gate_norm.cu).
#ifndef FWA_KERNELS_CUDA_ROWS_CUH
#define FWA_KERNELS_CUDA_ROWS_CUH

#include "kernels/cuda/launch.cuh"

namespace fwa {

constexpr int team_threads = 128, most_team_packs = 4; // threads of a block, packs of a thread
constexpr int64_t most_team_row = team_threads * most_team_packs;

// How rows of `packs` packs are held: thread `lane` of a team of `size` has packs lane, lane + size, ..., `each` of
// them at most.
struct team_plan {
    int size, each;
};

inline team_plan plan_team(int64_t packs) {
    team_plan plan = {32, 1};
    while (plan.size < team_threads && packs > static_cast<int64_t>(plan.size) * most_team_packs) plan.size *= 2;
    plan.each = static_cast<int>(fwa_max(fwa_ceil_div(packs, plan.size), 1));
    return plan;
}

// Kernel<1> .. <4>, instances of a template over the packs of a thread.
#define FWA_TEAM_KERNEL(kernel, each, ...)                                                                             \
    ((each) == 1   ? kernel<__VA_ARGS__, 1>                                                                            \
     : (each) == 2 ? kernel<__VA_ARGS__, 2>                                                                            \
     : (each) == 3 ? kernel<__VA_ARGS__, 3>                                                                            \
                   : kernel<__VA_ARGS__, 4>)

// This thread's place among the teams of a launch; rows first, first + step, ... are its team's.
struct team {
    int size, lane, at; // threads, this one, this team within the block
    int64_t first, step;
    __device__ explicit team(int threads)
        : size(threads), lane(static_cast<int>(threadIdx.x) % threads), at(static_cast<int>(threadIdx.x) / threads),
          first(static_cast<int64_t>(blockIdx.x) * (team_threads / threads) + at),
          step(static_cast<int64_t>(gridDim.x) * (team_threads / threads)) {}
    // First element of pack p, and whether a row of D elements has it.
    template <int N> __device__ int column(int p) const {
        return (p * size + lane) * N;
    }
};

// Sum over a team, on each of its threads. `space` holds two times 4 floats of shared memory; `turn` goes 0, 1, 0, ...
__device__ inline float team_sum(float x, const team &t, float *space, int turn) {
    x = warp_sum(x);
    if (t.size == 32) return x;
    const int warps = t.size / 32;
    float *own = space + turn * (team_threads / 32) + t.at * warps;
    if (threadIdx.x % 32 == 0) own[t.lane / 32] = x;
    asm volatile("bar.sync %0, %1;" : : "r"(1 + t.at), "r"(t.size) : "memory");
    float sum = 0.0f;
    for (int i = 0; i < warps; i++) sum += own[i];
    return sum;
}

// out[0 .. D) = what the teams of a block have together of the columns in `sums`, through `space` of 16 KiB.
template <int N, int PACKS>
__device__ void add_teams(float *out, const float (&sums)[PACKS][N], const team &t, int D, float *space) {
    __syncthreads();
#pragma unroll
    for (int p = 0; p < PACKS; p++)
#pragma unroll
        for (int i = 0; i < N; i++)
            if (t.column<N>(p) < D) space[t.at * D + t.column<N>(p) + i] = sums[p][i];
    __syncthreads();
    for (int d = static_cast<int>(threadIdx.x); d < D; d += team_threads) {
        float sum = 0.0f;
        for (int j = 0; j < team_threads / t.size; j++) sum += space[j * D + d];
        out[d] = sum;
    }
}
constexpr int team_space = most_team_row * 8; // floats: teams x D, D elements in packs of at most 8

} // namespace fwa
#endif
