// Sums of the gates of the Falcon rate (rate.cuh), from a call's own k, beta and lambda:
//
//   band   x_j . x_{j-p}, p < W, of the rows of a query/key head, [B,rows,Hq,W]; W = 4 or 8 for the eigenvalue, else 1
//   E_t    the mean of the window's |x_j|^2, or the largest eigenvalue of its Gram matrix, both made of the band
//
// then the gates of the step as the chunk kernels have them (chunk_rate.cuh). Up to them all is fp32, with errors of
// some 1e-6; sums over steps are double, the same bits every time. Energies of eigenvalue windows longer than 8 come
// from energy.cu. Mapping: band, 16 lanes four rows; steps, a thread a step of a query/key head, with columns a warp;
// the threads of a block as a tree, then one block over the blocks. Cost: keys, beta and lambda are read once.
#include "core/shape.h"
#include "kernels/cuda/chunk_rate.cuh"
#include "kernels/cuda/eigenvalue.cuh"
#include "kernels/cuda/moves.cuh"

namespace {

using namespace fwa;

constexpr int64_t most_blocks = 1024; // of which each has a part of the sums
constexpr int row_lanes = 16, run = 4;

// N neighbouring elements of `count` rows from row j on; 0 for rows that are none, or have no key.
template <typename T, int N, int count>
__device__ void load_rows(float (&x)[count][N], const mixer_task &a, int64_t b, int64_t hq, int64_t j, int64_t k) {
    const int64_t t = j - a.n - (a.shifted ? 1 : 0);
    if (N > 1 && t >= 0 && j + count <= a.rows) {
        const T *from = static_cast<const T *>(a.k.data) + a.k.offset(b, t, hq, k);
        pieces<T, N> raw[count];
#pragma unroll
        for (int i = 0; i < count; i++) raw[i] = load_words<N>(from + i * a.k.stride[1]);
#pragma unroll
        for (int i = 0; i < count; i++) unpack<T>(x[i], raw[i]);
        return;
    }
#pragma unroll
    for (int i = 0; i < count; i++) {
        const int64_t row = j + i;
        const bool there = row >= 0 && row < a.rows && !(a.shifted && row == a.n && !a.resumed);
#pragma unroll
        for (int e = 0; e < N; e++) x[i][e] = there ? a.key_of_pair(b, hq, row, k + e) : 0.0f;
    }
}

// T, N: the type of k, whose rows are read in aligned pieces of N; N = 1: any rows.
template <typename T, int N, int W>
__global__ void __launch_bounds__(map_threads) band_kernel(const __grid_constant__ mixer_task a, float *band) {
    constexpr int spread = row_lanes / W; // lanes that have the same sum
    const int lane = static_cast<int>(threadIdx.x) % row_lanes, half = static_cast<int>(threadIdx.x) % 32 / row_lanes;
    const int64_t runs = (a.rows + run - 1) / run, count = a.B * runs * a.Hq;
    each_row((count + 1) / 2, [&](int64_t pair) {
        int64_t above, hq, b, j;
        divide(pair * 2 + half, a.Hq, &above, &hq);
        divide(above, runs, &b, &j);
        j *= run;
        float sums[run][W] = {};
        for (int64_t k = lane * N; k < a.K && b < a.B; k += row_lanes * N) {
            float x[run + W - 1][N];
            load_rows<T>(x, a, b, hq, j - (W - 1), k);
#pragma unroll
            for (int i = 0; i < run; i++)
#pragma unroll
                for (int p = 0; p < W; p++)
#pragma unroll
                    for (int e = 0; e < N; e++) sums[i][p] += x[i + W - 1][e] * x[i + W - 1 - p][e];
        }
#pragma unroll
        for (int i = 0; i < run; i++) {
            const float sum = spread_sums<row_lanes>(sums[i], lane);
            if (b < a.B && j + i < a.rows && lane % spread == 0)
                band[((b * a.rows + j + i) * a.Hq + hq) * W + lane / spread] = sum;
        }
    });
}

// E of the step that owns `row`, with its pairs; rows of band stand `stride` apart.
template <int W> __device__ float energy_of_window(const float *band, int64_t stride, int64_t row, int pairs) {
    if (pairs <= 0) return 0.0f;
    if constexpr (W == 1) {
        float sum = 0.0f;
        for (int p = 0; p < pairs; p++) sum += band[(row - p) * stride];
        return sum / static_cast<float>(pairs);
    } else {
        float A[W][W], top[W];
#pragma unroll
        for (int i = 0; i < W; i++) {
            pack<float, W> x = {};
            if (i >= W - pairs) x = load<W>(band + (row - (W - 1) + i) * stride);
#pragma unroll
            for (int j = 0; j <= i; j++) A[i][j] = A[j][i] = j >= W - pairs ? x.at[i - j] : 0.0f;
        }
        return largest_eigenvalue<W>(A, top) / static_cast<float>(pairs);
    }
}

__device__ void add_gates(fwa_gate_sums &to, const fwa_gate_sums &from) {
    to.steps += from.steps, to.eta += from.eta, to.alpha += from.alpha;
    to.ridge += from.ridge, to.clamped += from.clamped;
}

// A step of a value head; a lane of `lanes` takes every `lanes`-th column.
template <int lanes>
__device__ void add_step(fwa_gate_sums &to, const chunk_rate &rate, int64_t b, int64_t h, int64_t t, float energy,
                         int lane) {
    const mixer_task &a = rate.task;
    const float most = 1.0f - static_cast<float>(a.options.eps_gamma); // of alpha
    step_scalars scalars = scalars_of_step(a, b, h, t);
    float steps = 0.0f, eta = 0.0f, alpha = 0.0f, ridge = 0.0f, clamped = 0.0f;
#pragma unroll 4
    for (int64_t c = lane; c < (lanes > 1 ? a.V : 1); c += lanes) {
        if (lanes > 1) scalars.beta = a.beta.get(b, t, h, c);
        const step_gates g = gates_of_step(rate, scalars, energy);
        if (!(g.eta > 0.0f)) continue;
        steps += 1.0f, eta += g.eta, alpha += g.clamped ? most : g.eta * g.lambda;
        ridge += g.clamped ? most / g.eta : g.lambda, clamped += g.clamped ? 1.0f : 0.0f;
    }
    add_gates(to, {steps, eta, alpha, ridge, clamped});
}

// The threads of a block as a tree; the result on thread 0.
__device__ fwa_gate_sums block_gates(const fwa_gate_sums &own) {
    __shared__ fwa_gate_sums shared[map_threads];
    shared[threadIdx.x] = own;
    for (int half = map_threads / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) add_gates(shared[threadIdx.x], shared[threadIdx.x + half]);
    }
    return shared[0];
}

// W = 0: energies have been made.
template <int W, int lanes>
__global__ void __launch_bounds__(map_threads)
    gate_parts_kernel(const __grid_constant__ chunk_rate rate, const float *band, fwa_gate_sums *parts) {
    const mixer_task &a = rate.task;
    const int lane = lanes > 1 ? static_cast<int>(threadIdx.x) % 32 : 0;
    fwa_gate_sums own = {};
    const auto visit = [&](int64_t i) {
        int64_t above, hq, b, t;
        float energy;
        divide(i, a.Hq, &above, &hq);
        divide(above, a.T, &b, &t);
        if constexpr (W > 0)
            energy = energy_of_window<W>(band + (b * a.rows * a.Hq + hq) * W, a.Hq * W, a.n + t, window_pairs(a, b, t));
        else
            energy = static_cast<float>(a.energy[(b * a.Hq + hq) * a.T + t]);
        for (int64_t h = hq * a.group; h < (hq + 1) * a.group; h++) add_step<lanes>(own, rate, b, h, t, energy, lane);
    };
    if constexpr (lanes > 1)
        each_row(a.B * a.T * a.Hq, visit);
    else
        each_element(a.B * a.T * a.Hq, visit);
    const fwa_gate_sums all = block_gates(own);
    if (threadIdx.x == 0) parts[blockIdx.x] = all;
}

__global__ void __launch_bounds__(map_threads)
    gate_sums_kernel(fwa_gate_sums *sums, const fwa_gate_sums *parts, int count) {
    fwa_gate_sums own = {};
    for (int i = static_cast<int>(threadIdx.x); i < count; i += map_threads) add_gates(own, parts[i]);
    const fwa_gate_sums all = block_gates(own);
    if (threadIdx.x == 0) add_gates(*sums, all);
}

// W; 0: energies come from energy.cu.
int width_of_band(const mixer_task &a) {
    if (a.energies != energy_kind::top) return 1;
    return a.halo < 4 ? 4 : a.halo < 8 ? 8 : 0;
}

// Whether rows of k can be read in pieces of N.
template <typename T, int N> bool reads_pieces(const mixer_task &a) {
    bool whole = a.K % N == 0 && reinterpret_cast<uintptr_t>(a.k.data) % 16 == 0;
    for (int64_t stride : a.k.stride) whole = whole && stride % N == 0;
    return whole && a.k.bf16 == (sizeof(T) == 2);
}

template <int W>
fwa_status sum_parts(cudaStream_t stream, const chunk_rate &rate, const gate_memory &memory, unsigned *blocks) {
    const mixer_task &a = rate.task;
    const int64_t steps = a.B * a.T * a.Hq;
    const auto kernel = a.columns > 1 ? gate_parts_kernel<W, 32> : gate_parts_kernel<W, 1>;
    const unsigned needed = a.columns > 1 ? row_blocks(steps) : element_blocks(steps);
    *blocks = static_cast<unsigned>(fwa_min(needed, most_blocks));
    FWA_LAUNCH(kernel, *blocks, map_threads, 0, stream, rate, memory.band, memory.parts);
    return FWA_OK;
}

template <int W>
fwa_status sum_band(cudaStream_t stream, const chunk_rate &rate, const gate_memory &memory, unsigned *blocks) {
    const mixer_task &a = rate.task;
    const auto kernel = reads_pieces<__nv_bfloat16, 8>(a) ? band_kernel<__nv_bfloat16, 8, W>
                        : reads_pieces<float, 4>(a)       ? band_kernel<float, 4, W>
                                                          : band_kernel<float, 1, W>;
    FWA_TRY(find_windows(stream, a));
    FWA_LAUNCH(kernel, blocks_for(a.B * fwa_ceil_div(a.rows, run) * a.Hq, map_threads / row_lanes), map_threads, 0,
               stream, a, memory.band);
    return sum_parts<W>(stream, rate, memory, blocks);
}

fwa_status sum_long_windows(cudaStream_t stream, const chunk_rate &rate, const gate_memory &memory, unsigned *blocks) {
    FWA_TRY(gather_keys(stream, rate.task));
    FWA_TRY(energy_forward(stream, rate.task));
    return sum_parts<0>(stream, rate, memory, blocks);
}

} // namespace

namespace fwa {

gate_memory plan_gates(mixer_task *a, fwa_bump *scratch) {
    gate_memory memory = {};
    const int64_t W = width_of_band(*a), keys = a->B * a->Hq;
    a->first = FWA_TAKE(scratch, int32_t, a->B * a->T);
    a->drop = FWA_TAKE(scratch, uint8_t, a->B * a->T);
    memory.parts = FWA_TAKE(scratch, fwa_gate_sums, most_blocks);
    if (W > 0) {
        memory.band = FWA_TAKE(scratch, float, keys * a->rows * W);
        return memory;
    }
    a->xs = FWA_TAKE(scratch, float, keys * a->rows * a->Kp);
    a->energy = FWA_TAKE(scratch, double, keys * a->T);
    const size_t work = energy_work(*a);
    if (work) a->jacobi = static_cast<double *>(fwa_bump_take(scratch, static_cast<int64_t>(work), 1));
    return memory;
}

fwa_status sum_gates(cudaStream_t stream, rate_kind kind, const mixer_task &task, const gate_memory &memory,
                     fwa_gate_sums *sums) {
    const chunk_rate rate = {task, kind, nullptr};
    const int W = width_of_band(task);
    unsigned blocks;
    FWA_CHECK(has_gates(kind), FWA_ERROR, "rate kind %d has no gates", static_cast<int>(kind));
    FWA_TRY((W == 1   ? sum_band<1>
             : W == 4 ? sum_band<4>
             : W == 8 ? sum_band<8>
                      : sum_long_windows)(stream, rate, memory, &blocks));
    FWA_LAUNCH(gate_sums_kernel, 1, map_threads, 0, stream, sums, memory.parts, static_cast<int>(blocks));
    return FWA_OK;
}

} // namespace fwa
