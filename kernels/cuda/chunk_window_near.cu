// Chunk form of the window core, backward: the sums over V that pairs of one window make, per chunk (docs/kernels.md).
// With r, e and the coefficients Z as in the serial kernels, for rows of a distance below W:
//
//   dG_{a,b} = -sum_i w_i (e_ia . Z_{i-1,b} + e_ib . Z_{i-1,a})      dP_il = dO_i . Z_il      dw_i = sum_j e_ij . r_ij
//   dlg_i    = gamma_i (sum_{l near} e_il . Z_{i-1,l} - sum_{j near} y_j . (S_{i-1}^T x_j without near l))
//
// where y_j is what steps > i add to the gradient of the residual of j. A pair's first residual and the values are
// enough to have all others again, as in the forward pass. A warp takes a chunk of a value head, step by step, lanes
// along V; the sums of a step are made at once. fp32; overwritten, the same bits every time. What far pairs need, C and
// D, takes the place of e as bf16.
#include "kernels/cuda/chunk_rows.cuh"
#include "kernels/cuda/chunk_window.cuh"

namespace {

using namespace fwa;

constexpr int sum_stride = 36; // rows of four-float pieces in different banks

struct gate_row {
    float u, seen, w, pairs;
};

// How many sums a step has: of members j and j - p at j W + p, but of w at D W; reads p back, then the decay.
template <int W> constexpr int step_sums = W *W + W;

// Shared memory of a warp.
template <int W> struct near_memory {
    float close[window_close(W)];
    float4 gates[64];
    float sums[(step_sums<W> < 32 ? step_sums<W> : 32) * sum_stride];
};

// N columns of bf16.
template <int N> __device__ void get_row(float (&to)[N], const __nv_bfloat16 *from) {
    unpack<__nv_bfloat16>(to, load_words<N>(from));
}

template <int N> __device__ float dot(const float (&x)[N], const float (&y)[N]) {
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < N; k++) sum += x[k] * y[k];
    return sum;
}

// Sum number `lane` of `count` over the warp, through rows of `space`; the whole warp comes here.
template <int count> __device__ float warp_sums(const float *x, float *space, int lane) {
    __syncwarp();
#pragma unroll
    for (int i = 0; i < count; i++) space[i * sum_stride + lane] = x[i];
    __syncwarp();
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (lane < count) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const float4 part = *reinterpret_cast<const float4 *>(space + lane * sum_stride + i * 4);
            sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
        }
    }
    return (sum.x + sum.y) + (sum.z + sum.w);
}

// Of the steps of a chunk: members of the window as columns [W][N], G of them, and coefficients of the D pairs before
// the window as well, z[D + m] that of member m; all that was written decays on.
template <int W, int N> struct window_rows {
    static constexpr int D = W - 1;
    float r[W][N], value[W][N], z[2 * D][N], gram[W][W];
    float weight[W], keep, sight;

    // Behind a step whose new coefficients are `last`.
    __device__ void next(const float (&last)[N]) {
#pragma unroll
        for (int k = 0; k < N; k++) {
            float after[W], written[W];
#pragma unroll
            for (int j = 0; j < W; j++) written[j] = weight[j] * r[j][k];
#pragma unroll
            for (int j = 1; j < W; j++) {
                float sum = 0.0f;
#pragma unroll
                for (int l = 0; l < W; l++) sum += (l <= j ? gram[j][l] : gram[l][j]) * written[l];
                after[j] = keep * r[j][k] + (1.0f - keep) * value[j][k] - sum;
            }
#pragma unroll
            for (int j = 0; j < D; j++) r[j][k] = after[j + 1], value[j][k] = value[j + 1][k];
#pragma unroll
            for (int n = 0; n < 2 * D - 1; n++) z[n][k] = z[n + 1][k];
            z[2 * D - 1][k] = last[k];
        }
#pragma unroll
        for (int j = 0; j < D; j++)
#pragma unroll
            for (int l = 0; l <= j; l++) gram[j][l] = gram[j + 1][l + 1];
    }
};

// A pointer that goes along with the steps to the lane's line of what a step needs, some steps ahead of it.
struct near_prefetch {
    const char *at;
    int64_t stride;
    int last; // step
    __device__ void step(int i) {
        if (i <= last) prefetch(at);
        at += stride;
    }
};

template <int W, int V> struct near_block {
    static constexpr int D = W - 1, N = V / 32;
    const window_task &a;
    int64_t tile;
    int b, h, c, lane;
    near_memory<W> &m;
    const __nv_bfloat16 *fresh, *members; // the lane's columns of row 0
    __nv_bfloat16 *rows_kept;             // and of what takes the place of members

    __device__ near_block(const window_task &task, near_memory<W> &memory) : a(task), m(memory) {
        tile = blockIdx.x, lane = static_cast<int>(threadIdx.x);
        const int block = static_cast<int>(blockIdx.x), head = block / a.chunks;
        c = block % a.chunks, b = head / a.H, h = head % a.H;
        fresh = a.fresh + tile * 64 * V + lane * N;
        rows_kept = a.members + tile * 64 * (V * W) + lane * N;
        members = rows_kept + lane * (N * (W - 1));
    }

    __device__ gate_row gate(int r) const {
        const float4 g = m.gates[r];
        return {g.x, g.y, g.z, g.w};
    }
    // Row r of v of the tile.
    __device__ void value_row(float (&to)[N], int r) const {
        const int t = tile_step(a, c, r);
        const __nv_bfloat16 *from = nullptr;
        if (t >= 0 && t < a.T) from = a.v.row(b, t, h);
        if (t < 0 && a.first_v) from = a.first_v + (static_cast<int64_t>(b * a.H + h) * (D + 1) + r) * V;
#pragma unroll
        for (int k = 0; k < N; k++) to[k] = 0.0f;
        if (from) get_row<N>(to, from + lane * N);
    }
    __device__ void member_rows(float (&to)[W][N], int i) const {
        float all[N * W];
        get_row<N * W>(all, members + i * (V * W));
#pragma unroll
        for (int n = 0; n < N * W; n++) to[n % W][n / W] = all[n];
    }
    // Row r of the first or second matrix in the place of members.
    __device__ void keep_row(const float (&row)[N], int r, int second) const {
        store(rows_kept + (r * W + second) * V, repack<__nv_bfloat16>(row));
    }
    __device__ float weight(const gate_row &g, int j) const {
        return static_cast<float>(D - j) < g.pairs ? g.w : 0.0f;
    }

    // y_j of member j behind step i: what later steps of the chunk add to the gradient of its residual.
    __device__ void later_pulls(float (&y)[W][N], int i, float u) const {
#pragma unroll
        for (int n = 0; n < W * N; n++) y[n / N][n % N] = 0.0f;
#pragma unroll
        for (int ahead = 1; ahead < W; ahead++) {
            if (i + ahead > 63) continue;
            const gate_row g = gate(i + ahead);
            const float decay = power2(g.seen - u);
            float e[W][N];
            member_rows(e, i + ahead);
#pragma unroll
            for (int j = ahead; j < W; j++) {
                const float by = weight(g, j - ahead) * decay;
#pragma unroll
                for (int k = 0; k < N; k++) y[j][k] += by * e[j - ahead][k];
            }
        }
    }
    // -sum_j y_j . (S^T x_j without near l), elementwise.
    __device__ void later_share(float (&to)[N], const window_rows<W, N> &rows, const float (&y)[W][N]) const {
#pragma unroll
        for (int k = 0; k < N; k++) {
            to[k] = 0.0f;
#pragma unroll
            for (int j = 1; j < W; j++) {
                float seen = rows.value[j][k] - rows.r[j][k];
#pragma unroll
                for (int l = 0; l < D; l++) seen -= (l <= j ? rows.gram[j][l] : rows.gram[l][j]) * rows.z[D + l][k];
                to[k] -= y[j][k] * seen;
            }
        }
    }

    // Step i, whose new member is missing in `rows` but for its value and G.
    __device__ void step(window_rows<W, N> &rows, int i, const gate_row &g, const float (&d_o)[N]) const {
        float e[W][N], pull[W][N], sums[step_sums<W>] = {}, share[N], fresh_pull[N];
        get_row<N>(rows.r[D], fresh + i * V);
        {
            float y[W][N];
            later_pulls(y, i, g.u);
            later_share(share, rows, y);
            member_rows(e, i);
            const float rest = power2(g.u - g.seen);
#pragma unroll
            for (int k = 0; k < N; k++) fresh_pull[k] = weight(g, D) * e[D][k] + rest * y[D][k];
        }
#pragma unroll
        for (int j = 0; j < W; j++) {
            rows.weight[j] = weight(g, j);
            if (static_cast<float>(D - j) < g.pairs) sums[D * W] += dot(e[j], rows.r[j]);
#pragma unroll
            for (int k = 0; k < N; k++) {
                pull[j][k] = -rows.sight * rows.weight[j] * e[j][k];
                if (j < D) share[k] += e[j][k] * rows.z[D + j][k];
            }
        }
#pragma unroll
        for (int k = 0; k < N; k++) sums[W * W + D] += rows.keep * share[k];
#pragma unroll
        for (int j = 0; j < W; j++)
#pragma unroll
            for (int p = j == D; p < W; p++) {
                sums[j * W + p] = dot(pull[j], rows.z[D + j - p]);
                if (p > 0 && j < D && p <= j) sums[j * W + p] += dot(pull[j - p], rows.z[D + j]);
            }
        float last[N];
#pragma unroll
        for (int k = 0; k < N; k++) {
            last[k] = rows.weight[D] * rows.r[D][k];
#pragma unroll
            for (int n = 0; n < 2 * D; n++)
                rows.z[n][k] = rows.keep * rows.z[n][k] + (n < D ? 0.0f : rows.weight[n - D] * rows.r[n - D][k]);
        }
        sums[W * W] = dot(d_o, last);
#pragma unroll
        for (int p = 1; p < D; p++) sums[W * W + p] = dot(d_o, rows.z[2 * D - p]);
        add_sums(i, sums); // behind it no lane needs row i
        keep_row(rows.z[D], i - D, 0);
        keep_row(fresh_pull, i, 1);
        rows.next(last);
    }

    template <int first = 0> __device__ void add_sums(int i, const float *sums) const {
        constexpr int count = step_sums<W> - first < 32 ? step_sums<W> - first : 32;
        add_sum(i, first + lane, warp_sums<count>(sums + first, m.sums, lane));
        if constexpr (first + 32 < step_sums<W>) add_sums<first + 32>(i, sums);
    }
    // What the step needs that none before it did, into the first level of the cache, four steps ahead: a line a lane.
    // inside: rows of the tile before the end of the sequence.
    __device__ near_prefetch first_prefetch(int inside) const {
        constexpr int lines = V / 64, ahead = 4;
        const int step = tile_step(a, c, D + ahead), line = lane % lines * 64;
        const auto along = [](const __nv_bfloat16 *from, int64_t stride, int last) {
            return near_prefetch{reinterpret_cast<const char *>(from), stride * 2, last};
        };
        if (lane < W * lines)
            return along(members - lane * (N * W) + (D + D + ahead) * (V * W) + lane * 64, V * W, 63 - D - ahead);
        if (lane < (W + 1) * lines) return along(fresh - lane * N + (D + ahead) * V + line, V, 63 - ahead);
        if (lane < (W + 2) * lines) return along(a.v.row(b, step, h) + line, a.v.time, inside - 1 - ahead);
        if (lane < (W + 3) * lines && a.d_o.data)
            return along(a.d_o.row(b, step, h) + line, a.d_o.time, inside - 1 - ahead);
        return along(nullptr, 0, 0);
    }

    __device__ void add_sum(int i, int n, float sum) const {
        if (n == D * W)
            m.close[64 * (2 * W) + i] = sum;
        else if (n < W * W)
            m.close[(i - D + n / W) * W + n % W] += sum;
        else if (n < W * W + D)
            m.close[64 * W + i * W + n - W * W] = sum;
        else if (n == W * W + D)
            m.close[64 * (2 * W + 1) + i] = sum;
    }

    __device__ void run() const {
        window_rows<W, N> rows;
        const float *gram = a.gram + ((static_cast<int64_t>(b) * a.Hq + h / a.group) * a.chunks + c) * (64 * W);
        for (int n = lane; n < window_close(W); n += 32) m.close[n] = 0.0f;
        for (int r = lane; r < 64; r += 32) {
            const int64_t at = tile * 64 + r;
            m.gates[r] = make_float4(a.u[at], a.seen[at], a.w[at], a.pairs[at]);
        }
        __syncwarp();
#pragma unroll
        for (int j = 0; j < D; j++) {
            get_row<N>(rows.r[j], fresh + j * V);
            value_row(rows.value[j], j);
#pragma unroll
            for (int l = 0; l <= j; l++) rows.gram[j][l] = gram[j * W + j - l];
        }
#pragma unroll
        for (int n = 0; n < 2 * D * N; n++) rows.z[n / N][n % N] = 0.0f;
        {
            float y[W][N];
            later_pulls(y, D - 1, 0.0f);
#pragma unroll
            for (int j = 0; j < D; j++) keep_row(y[j + 1], j, 1);
        }
        const int first = tile_step(a, c, D), inside = min(64, a.T - first + D);
        const __nv_bfloat16 *value = a.v.row(b, first, h) + lane * N;
        const __nv_bfloat16 *d_o = a.d_o.data ? a.d_o.row(b, first, h) + lane * N : value;
        near_prefetch ahead = first_prefetch(inside);
        float u_before = 0.0f;
#pragma unroll 1
        for (int i = D; i < 64; i++) {
            const gate_row g = gate(i);
            ahead.step(i);
            rows.keep = power2(g.u - u_before), rows.sight = power2(g.seen - u_before);
            float reads[N] = {}, band[W];
#pragma unroll
            for (int k = 0; k < N; k++) rows.value[D][k] = 0.0f;
            if (i < inside) {
                get_row<N>(rows.value[D], value);
                if (a.d_o.data) get_row<N>(reads, d_o);
            }
#pragma unroll
            for (int p = 0; p < W; p += 4)
                *reinterpret_cast<float4 *>(band + p) = *reinterpret_cast<const float4 *>(gram + i * W + p);
#pragma unroll
            for (int j = 0; j < W; j++) rows.gram[D][j] = band[D - j];
            step(rows, i, g, reads);
            u_before = g.u, value += a.v.time, d_o += a.d_o.time;
        }
#pragma unroll
        for (int j = 0; j < D; j++) keep_row(rows.z[D + j], 64 - D + j, 0);
        __syncwarp();
        float *to = a.close + tile * window_close(W);
        for (int n = lane; n < window_close(W); n += 32) to[n] = m.close[n];
    }
};

// 16 warps a multiprocessor: four a scheduler, 128 registers.
template <int W, int V>
__global__ void __launch_bounds__(32, W == 4 ? 16 : 8) window_near_kernel(const __grid_constant__ window_task a) {
    __shared__ near_memory<W> memory;
    const near_block<W, V> block(a, memory);
    block.run();
}

template <int W, int V> fwa_status launch_near(cudaStream_t stream, const window_task &task) {
    const auto kernel = window_near_kernel<W, V>;
    FWA_LAUNCH(kernel, static_cast<unsigned>(task.B * task.H * task.chunks), 32, 0, stream, task);
    return FWA_OK;
}

} // namespace

namespace fwa {

fwa_status chunk_window_near(cudaStream_t stream, const window_task &task, int V) {
    if (task.window == 4) return V == 64 ? launch_near<4, 64>(stream, task) : launch_near<4, 128>(stream, task);
    return V == 64 ? launch_near<8, 64>(stream, task) : launch_near<8, 128>(stream, task);
}

} // namespace fwa
