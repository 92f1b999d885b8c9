// The attention core: o_t = sum_j p_tj v_j, p_t = softmax over j in I_t of scale q_t . x_j (docs/math/softmax.md).
//
// Blocks of 64 queries against blocks of 64 rows with a running maximum m and sum l (online softmax), so that every
// exponent is <= 0. Saved: lse = m + log l of each step. The backward pass computes p again from it:
//   D_t = d_o_t . o_t   dp = d_o V^T   ds = scale p (dp - D)   dq = ds X   dx = ds^T Q   dv = p^T d_o
// dq in a kernel over blocks of queries, dx and dv in one over blocks of rows: no atomics, sums in a fixed order, the
// same bits every time. All fp32 on the ordinary units. Any K, V, T. Shapes: mixer_task.cuh, Kp and Vp multiples of 32.
//
// Mapping: 256 threads a block, 16 x 16, each 4 left x 4 right elements of a 64 x 64 tile, then 4 left rows x 8 columns
// of what the tile multiplies; 128 columns a block, more columns in more blocks, which compute the tile again. Cost a
// head: forward T^2 (K + V) multiply-adds, backward T^2 (2.5 K + 2.5 V) for K, V <= 128; causality halves both.
#include <cfloat>

#include "core/shape.h"
#include "kernels/cuda/core.cuh"

namespace {

using namespace fwa;

constexpr int tile = 64, depth = 16, width = 128, threads = 256, pad = 4;

// Rows of a dense matrix [count,stride]; rows beyond `count` read as zeros.
struct matrix {
    const float *data;
    int64_t count, stride;

    __device__ float4 four(int64_t row, int64_t column) const {
        if (row >= count || column >= stride) return make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        return *reinterpret_cast<const float4 *>(data + row * stride + column);
    }
};

struct shared_tiles {
    float left[depth][tile + pad], right[depth][tile + pad]; // transposed: [column][row]
    float weights[tile][tile + pad];                         // [right row][left row]
    float columns[depth][width + pad];
};

// What a thread is: elements 4 ly .. of the left rows, 4 rx .. of the right rows.
struct lanes {
    int ly, rx;
    __device__ lanes() : ly(static_cast<int>(threadIdx.x) / 16), rx(static_cast<int>(threadIdx.x) % 16) {}
};

__device__ void stage_rows(float (*to)[tile + pad], const matrix &from, int64_t row0, int64_t column0) {
    const int row = static_cast<int>(threadIdx.x) / 4, column = static_cast<int>(threadIdx.x) % 4 * 4;
    const float4 x = from.four(row0 + row, column0 + column);
    to[column][row] = x.x, to[column + 1][row] = x.y, to[column + 2][row] = x.z, to[column + 3][row] = x.w;
}

// s[i][j] = left row i . right row j
__device__ void products(shared_tiles &shared, float (&s)[4][4], const matrix &left, int64_t l0, const matrix &right,
                         int64_t r0) {
    const lanes own;
    for (int i = 0; i < 16; i++) s[i / 4][i % 4] = 0.0f;
    for (int64_t c0 = 0; c0 < left.stride; c0 += depth) {
        __syncthreads();
        stage_rows(shared.left, left, l0, c0);
        stage_rows(shared.right, right, r0, c0);
        __syncthreads();
#pragma unroll
        for (int c = 0; c < depth; c++) {
            const float4 a = *reinterpret_cast<const float4 *>(&shared.left[c][own.ly * 4]);
            const float4 b = *reinterpret_cast<const float4 *>(&shared.right[c][own.rx * 4]);
            const float as[4] = {a.x, a.y, a.z, a.w}, bs[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
            for (int i = 0; i < 16; i++) s[i / 4][i % 4] += as[i / 4] * bs[i % 4];
        }
    }
}

// The thread's part of the weights that multiply right rows.
__device__ void stage_weights(shared_tiles &shared, const float (&p)[4][4]) {
    const lanes own;
#pragma unroll
    for (int j = 0; j < 4; j++)
        *reinterpret_cast<float4 *>(&shared.weights[own.rx * 4 + j][own.ly * 4]) =
            make_float4(p[0][j], p[1][j], p[2][j], p[3][j]);
}

// sum[i][c] += sum_j weights(i,j) right row j, columns c0 + 4 rx .. and c0 + 64 + 4 rx ..
__device__ void accumulate(shared_tiles &shared, float (&sum)[4][8], const matrix &right, int64_t r0, int64_t c0) {
    const lanes own;
    for (int j0 = 0; j0 < tile; j0 += depth) {
        __syncthreads();
        for (int i = static_cast<int>(threadIdx.x); i < depth * width / 4; i += threads) {
            const int row = i / (width / 4), column = i % (width / 4) * 4;
            *reinterpret_cast<float4 *>(&shared.columns[row][column]) = right.four(r0 + j0 + row, c0 + column);
        }
        __syncthreads();
#pragma unroll
        for (int j = 0; j < depth; j++) {
            const float4 p = *reinterpret_cast<const float4 *>(&shared.weights[j0 + j][own.ly * 4]);
            const float4 a = *reinterpret_cast<const float4 *>(&shared.columns[j][own.rx * 4]);
            const float4 b = *reinterpret_cast<const float4 *>(&shared.columns[j][width / 2 + own.rx * 4]);
            const float ps[4] = {p.x, p.y, p.z, p.w}, cs[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
            for (int i = 0; i < 32; i++) sum[i / 8][i % 8] += ps[i / 8] * cs[i % 8];
        }
    }
}

// Largest value and sum over the 16 threads that share left rows.
__device__ float row_max(float x) {
    for (int offset = 8; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(everyone, x, offset));
    return x;
}
__device__ float row_sum(float x) {
    return warp_part_sum(x, 16);
}

// The head and block of queries or rows of this thread block.
struct position {
    const mixer_task &a;
    int64_t b, h, head, begin, c0;
    matrix q, x, v, d_o;

    __device__ position(const mixer_task &task, int64_t blocks, int64_t column_blocks) : a(task) {
        const int64_t i = blockIdx.x;
        begin = i % blocks * tile, c0 = i / blocks % column_blocks * width;
        head = i / blocks / column_blocks, h = head % a.H, b = head / a.H;
        q = {a.q_row(b, h, 0), a.T, a.Kp};
        x = {a.x_row(b, h, 0), a.rows, a.Kp};
        v = {a.vs + head * a.rows * a.Vp, a.rows, a.Vp};
        d_o = {a.d_os ? a.d_os + head * a.T * a.Vp : nullptr, a.T, a.Vp};
    }
    __device__ bool sees(int64_t t, int64_t j) const {
        return t < a.T && j >= a.first_of(b, t) && j <= a.n + t;
    }
    // Rows that the block of queries t0 .. reaches: [*from, *to).
    __device__ void row_range(int64_t t0, int64_t *from, int64_t *to) const {
        *from = a.first_of(b, t0) / tile * tile;
        *to = a.n + min(t0 + tile, a.T);
    }
    // Writes 4 left rows x 8 columns; rows and columns beyond the matrix are dropped.
    __device__ void write(float *to, int64_t count, int64_t stride, const float (&sum)[4][8]) const {
        const lanes own;
        for (int i = 0; i < 4; i++) {
            const int64_t row = begin + own.ly * 4 + i;
            for (int part = 0; part < 2 && row < count; part++) {
                const int64_t column = c0 + part * (width / 2) + own.rx * 4;
                if (column >= stride) continue;
                const float *s = &sum[i][part * 4];
                *reinterpret_cast<float4 *>(to + row * stride + column) = make_float4(s[0], s[1], s[2], s[3]);
            }
        }
    }
};

// Takes one block of scores into the running maximum and sum; s becomes p, what was summed before shrinks.
__device__ void online_softmax(float (&s)[4][4], float (&m)[4], float (&l)[4], float (&o)[4][8]) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float top = fmaxf(m[i], row_max(fmaxf(fmaxf(s[i][0], s[i][1]), fmaxf(s[i][2], s[i][3]))));
        const float shrink = top > -FLT_MAX ? expf(m[i] - top) : 1.0f;
        float sum = 0.0f;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            s[i][j] = s[i][j] == -FLT_MAX ? 0.0f : expf(s[i][j] - top); // NaN stays
            sum += s[i][j];
        }
        l[i] = shrink * l[i] + row_sum(sum);
        m[i] = top;
#pragma unroll
        for (int c = 0; c < 8; c++) o[i][c] *= shrink;
    }
}

__global__ void __launch_bounds__(threads)
    attention_forward_kernel(const __grid_constant__ mixer_task a, int64_t blocks, int64_t column_blocks) {
    __shared__ shared_tiles shared;
    const position at(a, blocks, column_blocks);
    const lanes own;
    float s[4][4], o[4][8] = {}, m[4], l[4] = {};
    int64_t from, to;
    for (int i = 0; i < 4; i++) m[i] = -FLT_MAX;
    at.row_range(at.begin, &from, &to);
    for (int64_t j0 = from; j0 < to; j0 += tile) {
        products(shared, s, at.q, at.begin, at.x, j0);
        for (int i = 0; i < 16; i++) {
            const bool seen = at.sees(at.begin + own.ly * 4 + i / 4, j0 + own.rx * 4 + i % 4);
            s[i / 4][i % 4] = seen ? s[i / 4][i % 4] * a.scale : -FLT_MAX;
        }
        online_softmax(s, m, l, o);
        stage_weights(shared, s);
        accumulate(shared, o, at.v, j0, at.c0);
    }
    for (int i = 0; i < 4; i++) {
        const int64_t t = at.begin + own.ly * 4 + i;
        for (int c = 0; c < 8 && t < a.T; c++) o[i][c] /= l[i];
        if (a.save && own.rx == 0 && at.c0 == 0 && t < a.T) a.lse[at.head * a.T + t] = m[i] + logf(l[i]);
    }
    at.write(a.os + at.head * a.T * a.Vp, a.T, a.Vp, o);
}

// D_t = d_o_t . o_t
__global__ void __launch_bounds__(map_threads) attention_sums_kernel(const __grid_constant__ mixer_task a) {
    each_row(a.B * a.H * a.T, [&](int64_t row) {
        float sum = 0.0f;
        for (int64_t c = threadIdx.x % 32; c < a.Vp; c += 32) sum += a.d_os[row * a.Vp + c] * a.os[row * a.Vp + c];
        sum = warp_sum(sum);
        if (threadIdx.x % 32 == 0) a.sums[row] = sum;
    });
}

// s becomes p and dp becomes ds; step(i,j) and row(i,j) are the query and the row of an element.
__device__ void score_grads(const position &at, float (&s)[4][4], float (&dp)[4][4], int i, int64_t t, int64_t j) {
    const mixer_task &a = at.a;
    float &p = s[i / 4][i % 4], &d = dp[i / 4][i % 4];
    if (!at.sees(t, j)) {
        p = d = 0.0f;
        return;
    }
    p = expf(p * a.scale - a.lse[at.head * a.T + t]);
    d = a.scale * p * (d - a.sums[at.head * a.T + t]);
}

__global__ void __launch_bounds__(threads)
    attention_dq_kernel(const __grid_constant__ mixer_task a, int64_t blocks, int64_t column_blocks) {
    __shared__ shared_tiles shared;
    const position at(a, blocks, column_blocks);
    const lanes own;
    float s[4][4], dp[4][4], dq[4][8] = {};
    int64_t from, to;
    at.row_range(at.begin, &from, &to);
    for (int64_t j0 = from; j0 < to; j0 += tile) {
        products(shared, s, at.q, at.begin, at.x, j0);
        products(shared, dp, at.d_o, at.begin, at.v, j0);
#pragma unroll
        for (int i = 0; i < 16; i++) score_grads(at, s, dp, i, at.begin + own.ly * 4 + i / 4, j0 + own.rx * 4 + i % 4);
        stage_weights(shared, dp);
        accumulate(shared, dq, at.x, j0, at.c0);
    }
    at.write(a.dqs + at.head * a.T * a.Kp, a.T, a.Kp, dq);
}

__global__ void __launch_bounds__(threads)
    attention_dkv_kernel(const __grid_constant__ mixer_task a, int64_t blocks, int64_t column_blocks) {
    __shared__ shared_tiles shared;
    const position at(a, blocks, column_blocks);
    const lanes own;
    float s[4][4], dp[4][4], dx[4][8] = {}, dv[4][8] = {};
    for (int64_t t0 = max(at.begin - a.n, int64_t{0}) / tile * tile; t0 < a.T; t0 += tile) {
        if (a.first_of(at.b, t0) >= at.begin + tile) break; // so are those of all later steps
        products(shared, s, at.x, at.begin, at.q, t0);
        products(shared, dp, at.v, at.begin, at.d_o, t0);
#pragma unroll
        for (int i = 0; i < 16; i++) score_grads(at, s, dp, i, t0 + own.rx * 4 + i % 4, at.begin + own.ly * 4 + i / 4);
        stage_weights(shared, s);
        if (at.c0 < a.Vp) accumulate(shared, dv, at.d_o, t0, at.c0);
        __syncthreads();
        stage_weights(shared, dp);
        if (at.c0 < a.Kp) accumulate(shared, dx, at.q, t0, at.c0);
    }
    if (at.c0 < a.Vp) at.write(a.dvs + at.head * a.rows * a.Vp, a.rows, a.Vp, dv);
    if (at.c0 < a.Kp) at.write(a.dxs + at.head * a.rows * a.Kp, a.rows, a.Kp, dx);
}

fwa_status attention_shape(mixer_task *task) {
    task->Kp = fwa_round_up(task->K, 32);
    task->Vp = fwa_round_up(task->V, 32);
    task->slices = 1;
    return FWA_OK;
}

void attention_plan(mixer_task *task, fwa_bump *saved, fwa_bump *scratch, bool backward) {
    if (task->save) task->lse = FWA_TAKE(saved, float, task->B * task->H * task->T);
    if (backward) task->sums = FWA_TAKE(scratch, float, task->B * task->H * task->T);
}

unsigned grid(const mixer_task &task, int64_t blocks, int64_t column_blocks) {
    return static_cast<unsigned>(task.B * task.H * blocks * column_blocks);
}

fwa_status attention_forward(cudaStream_t stream, const mixer_task &task) {
    const int64_t blocks = fwa_ceil_div(task.T, tile), columns = fwa_ceil_div(task.Vp, width);
    FWA_LAUNCH(attention_forward_kernel, grid(task, blocks, columns), threads, 0, stream, task, blocks, columns);
    return FWA_OK;
}

fwa_status attention_backward(cudaStream_t stream, const mixer_task &task) {
    const int64_t queries = fwa_ceil_div(task.T, tile), rows = fwa_ceil_div(task.rows, tile);
    const int64_t keys = fwa_ceil_div(task.Kp, width), both = fwa_max(keys, fwa_ceil_div(task.Vp, width));
    FWA_LAUNCH(attention_sums_kernel, row_blocks(task.B * task.H * task.T), map_threads, 0, stream, task);
    FWA_LAUNCH(attention_dq_kernel, grid(task, queries, keys), threads, 0, stream, task, queries, keys);
    FWA_LAUNCH(attention_dkv_kernel, grid(task, rows, both), threads, 0, stream, task, rows, both);
    return FWA_OK;
}

} // namespace

namespace fwa {
const core core_attention = {"own flash kernel in fp32", attention_shape, attention_plan, attention_forward,
                             attention_backward};
}
