// Chunk form of the window core, backward, the serial part (docs/kernels.md), from the last chunk to the first. With
// e_ij = x_j . dS_i, the gradient of the coefficient of pair j behind step i, and D_j = sum_{i >= j} e^{seen_i -
// seen_j} w_i e_ij, the gradient of the residual of j at its first step, all in a column of V:
//
//   e_{i,i-D} = e^{u_C - u_i} (X dS')_{i-D} + sum_{t >= i} e^{u_t - u_i} P_{t,i-D} dO_t
//               - sum_{j > i} e^{seen_j - u_i} G_{i-D,j} D_j - sum_{j near} G_{i-D,j} (what steps > i add to D_j)
//   e_ij = P_ij dO_i + gamma_{i+1} e_{i+1,j} - w_{i+1} sum_l G_jl e_{i+1,l}      j > i - D
//   dv_j = sum_i w_i e_ij      dS = h_C dS' + Q^T diag(h) dO - X^T diag(e^seen) D
//
// so that a step takes one sum over all later pairs, for its oldest member. dS' behind every chunk and e are kept as
// bf16 for the chunk-parallel rest; dv, edge_v and the gradient of the first state are overwritten.
#include "kernels/cuda/chunk_window_serial.cuh"
#include "kernels/cuda/mixer_common.cuh"

namespace {

using namespace fwa;

// Weights of later pairs in the gradient of each step's oldest member. Steps count from the last.
template <int K, int W> __device__ void place_gram(const window_block<K, W> &at, float2 gates) {
    constexpr int D = W - 1;
    float G[32];
    auto &m = at.m;
    at.products_with_keys(G, m.x);
    const int own = at.warp * 16 + at.thread % 32 / 4;
    const float u[2] = {m.u[own + D], m.u[own + 8 + D]};
    at.each_pair(G, at.warp, 3, [&](int l, int j, int high, int column, float x, float y) {
        const int step = 63 - D - l, b = max(step, 0) / 16; // where the pair of row l is the oldest
        const float2 seen = *reinterpret_cast<const float2 *>(m.seen + j);
        const float first = x * power2(seen.x - u[high]), second = y * power2(seen.y - u[high]);
        if (column > at.warp && j >= 64 - b * 16)
            m.weights.set_far(b, 3 - column, step % 16, j % 16 / 2, first, second);
        const int n = 63 - j - b * 16;
        if (column <= at.warp + 1 && step >= 0 && n >= 0 && n < 16) m.weights.inner[step][n] = first;
        if (column <= at.warp + 1 && step >= 0 && n >= 1 && n < 17) m.weights.inner[step][n - 1] = second;
    });
    for (int n = at.thread; n < 16 * D; n += window_threads) // steps before the chunk
        m.weights.inner[63 - n / 16][n % 16] = 0.0f;
    at.place_steps(gates);
}

// Members of the window of a step in a column: gradients of their coefficients, what later steps add to those of their
// first residuals, to those of their values; G of the members, its lower half.
template <int W> struct window_column {
    float e[W], later[W], value[W], gram[W][W]; // later, value: from 1 on

    // Before a step with these decays: to the window of the step before, whose first member is missing. The newest
    // comes last in sums, as everywhere here.
    __device__ void next(const float (&weighted)[W], float keep, float sight) {
        constexpr int D = W - 1;
        float before[W], pull[W];
#pragma unroll
        for (int j = 0; j < W; j++) pull[j] = sight * weighted[j];
#pragma unroll
        for (int j = 0; j < D; j++) {
            before[j] = keep * e[j];
#pragma unroll
            for (int l = D; l >= 0; l--) before[j] -= (l <= j ? gram[j][l] : gram[l][j]) * pull[l];
        }
#pragma unroll
        for (int j = D; j > 0; j--) {
            e[j] = before[j - 1];
            later[j] = j > 1 ? pull[j - 1] + keep * later[j - 1] : pull[0];
            value[j] = j > 1 ? value[j - 1] + weighted[j - 1] : weighted[0];
#pragma unroll
            for (int l = j; l > 0; l--) gram[j][l] = gram[j - 1][l - 1];
        }
    }
};

// Row r of dv of the tile where it is kept in fp32.
template <int K, int W> __device__ void keep_edge(const window_block<K, W> &at, int c, int r, int v, float dv) {
    const window_task &a = at.a;
    const int edge = edge_row(a, c, r, 0);
    if (edge < 0) return;
    const int64_t row = (static_cast<int64_t>(at.head) * a.chunks + c) * (2 * a.halo + 1) + edge;
    a.edge_v[row * at.V + at.v + v] = dv;
}

// The other rows of dv, which are in the place of dO.
template <int K, int W> __device__ void write_values(const window_block<K, W> &at, int c) {
    const window_task &a = at.a;
    if (!a.dv.data) return;
    const int first = at.thread / 8, column = at.thread % 8 * 8;
    const int end = min(a.T - tile_step(a, c, 0), c + 1 < a.chunks ? 64 - a.halo : 64);
    __nv_bfloat16 *to = a.dv.row(at.b, tile_step(a, c, first), at.h) + at.v + column;
#pragma unroll
    for (int row = first; row < 64; row += 16, to += 16 * a.dv.time)
        if (row >= a.halo && row < end)
            *reinterpret_cast<uint4 *>(to) = *reinterpret_cast<const uint4 *>(at.m.rows + swizzled<64>(row, column));
}

__device__ uint32_t bf16_bits(float x) {
    return __bfloat16_as_ushort(__float2bfloat16(x));
}

// W values of bf16.
template <int W> __device__ void put_members(__nv_bfloat16 *to, const float (&e)[W]) {
    if constexpr (W == 4)
        *reinterpret_cast<uint2 *>(to) = make_uint2(bf16_pair(e[0], e[1]), bf16_pair(e[2], e[3]));
    else
        *reinterpret_cast<uint4 *>(to) =
            make_uint4(bf16_pair(e[0], e[1]), bf16_pair(e[2], e[3]), bf16_pair(e[4], e[5]), bf16_pair(e[6], e[7]));
}

// A column through 16 steps, block b from behind. Rows before the chunk are steps that wrote nothing. Nothing is
// written to shared memory between the steps, so that loads can go ahead.
template <int K, int W>
__device__ void scan_steps(const window_block<K, W> &at, window_column<W> &column, int c, int b, int v,
                           __nv_bfloat16 *members) {
    constexpr int D = W - 1;
    auto &m = at.m;
    const int width = at.V;
    float complete[16];
    uint32_t values[8];
    const int first = 48 - b * 16;
    const bool keep = members;
    members += (63 - b * 16) * (width * W);
#pragma unroll
    for (int k = 0; k < 16; k++) {
        const int i = first + 15 - k, oldest = max(i - D, 0);
        const window_step<W> &step = m.steps[i];
        const float4 decays = step.decays();
        const float d_o = __bfloat162float(at.value(first, v, 15 - k));
        float side = k + D < 16 ? at.side(first, v, 15 - D - k) : at.side(max(first - 8, 0), v, b < 3 ? 23 - D - k : 0),
              weighted[W];
#pragma unroll
        for (int n = 0; n < k; n++) side -= m.weights.inner[63 - i][n] * complete[n];
#pragma unroll
        for (int j = D; j >= 0; j--) {
            column.gram[j][0] = m.gram[oldest][j];
            if (j > 0) side -= column.gram[j][0] * column.later[j], column.e[j] += m.reads[i][D - j] * d_o;
        }
        column.e[0] = side;
#pragma unroll
        for (int j = 0; j < W; j++) {
            weighted[j] = step.weight[j] * column.e[j];
        }
        if (keep) put_members<W>(members, column.e);
        members -= width * W;
        complete[k] = weighted[D] + decays.z * column.later[D];
        const float dv = column.value[D] + weighted[D];
        if (keep && ((k < D && b == 0) || (k >= 16 - D && b == 3))) keep_edge(at, c, i, v, dv);
        values[k / 2] = k % 2 ? values[k / 2] | bf16_bits(dv) << 16 : bf16_bits(dv);
        column.next(weighted, decays.x, decays.y);
    }
#pragma unroll
    for (int k = 0; k < 16; k++) {
        if (k % 2 > 0) at.put_pair(first, v, 15 - k, complete[k], complete[k - 1]);
        at.value(first, v, 15 - k) = __ushort_as_bfloat16(static_cast<unsigned short>(values[k / 2] >> k % 2 * 16));
    }
}

// All columns through a chunk, from the last step on.
template <int K, int W> __device__ void scan_columns(const window_block<K, W> &at, int c, bool alone) {
    constexpr int D = W - 1;
    const int64_t own = at.rows_at(c);
    const int thread = at.step_thread();
    __nv_bfloat16 *members = alone ? nullptr : at.a.members + (own + thread) * W;
    window_column<W> column = {};
    __syncthreads();
    if (thread >= 0) {
#pragma unroll
        for (int j = 1; j < W; j++) {
            column.e[j] = at.side(56, thread, 7 - D + j);
#pragma unroll
            for (int l = 1; l <= j; l++) column.gram[j][l] = at.m.gram[63 - D + l][j - l];
        }
    }
#pragma unroll 1
    for (int b = 0; b < 4; b++) {
        if (b > 0) at.template far_sums<true>(b);
        __syncthreads();
        if (thread >= 0) scan_steps(at, column, c, b, thread, members);
        __syncthreads();
    }
}

// Gradients of coefficients from the state behind the chunk and from reads of complete pairs, into the columns; dS
// becomes that before the chunk but for what residuals see of it.
template <int K, int W> __device__ void place_sides(const window_block<K, W> &at, float (&dS)[K / 2]) {
    auto &m = at.m;
    const int t = at.thread % 4;
    float E[32];
    state_product<K, 64>(E, dS, operand_tile(m.x));
#pragma unroll
    for (int i = 0; i < 32; i++) E[i] *= at.leave(i / 4 * 8 + t * 2 + i % 2);
    uint32_t d_o[4][4];
    transposed_fragments(d_o, m.rows, at.warp);
    const operand_tile high(m.p[0]), low(m.p[1]);
    products_begin();
    upper_product(E, d_o, high, true);
    upper_product(E, d_o, low, true);
    products_commit();
    products_wait<0>();
    products_done(E);
    at.put_columns(E);
    const float h_end = power2(m.u[63]);
#pragma unroll
    for (int i = 0; i < K / 2; i++) dS[i] *= h_end;
#pragma unroll
    for (int step = 0; step < 4; step++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int row = step * 16 + i / 2 * 8 + t * 2;
            const auto h = [&](int r) { return r < W - 1 ? 0.0f : power2(m.u[r]); };
            d_o[step][i] = scaled(d_o[step][i], make_float2(h(row), h(row + 1)));
        }
    }
    at.add_to_state(dS, d_o, m.q);
}

template <int K, int W> __device__ void load_chunk(const window_block<K, W> &at, chunk_view d_o, int c) {
    at.load_keys_queries(c);
    if (d_o.data) d_o.data += at.v;
    load_steps<64, window_threads>(at.m.rows, at.thread, at.a, d_o, at.b, at.h, c);
    copy_commit();
}

template <int K, int W>
__global__ void __launch_bounds__(window_threads, W == 4 ? 3 : 2)
    window_scan_kernel(const __grid_constant__ window_task a, const __grid_constant__ serial_pass pass) {
    extern __shared__ __align__(1024) unsigned char memory[];
    auto &m = *reinterpret_cast<window_memory<K, W> *>(memory);
    window_block<K, W> at(a, m, pass);
    float dS[K / 2];
    enter_segment<K>(dS, a, pass, at, a.dS_end, at.warp);
    const int first = at.first_chunk(a), last = at.end_chunk(a) - 1;
    load_chunk(at, a.d_o, last);
    at.clear_edges();
#pragma unroll 1
    for (int c = last; c >= first; c--) {
        at.renew();
        const float2 gates = at.template write_gates<true>(c);
        copy_wait<0>();
        publish();
        __syncthreads();
        if (c > first) at.prefetch_chunk(a.d_o, c - 1);
        at.renew();
        {
            float P[32];
            at.products_with_keys(P, m.q);
            at.near_reads(P);
            at.renew();
            at.far_reads(P);
        }
        publish();
        __syncthreads();
        at.renew();
        if (!pass.alone) at.keep_state(a.d_states, dS, c);
        place_sides(at, dS);
        __syncthreads();
        at.renew();
        place_gram(at, gates);
        at.renew();
        scan_columns(at, c, pass.alone);
        at.renew();
        if (!pass.alone) write_values(at, c);
        uint32_t seeing[4][4];
        at.scaled_rows(seeing, [&](int l) { return -power2(m.seen[l]); });
        at.add_to_state(dS, seeing, m.x);
        __syncthreads();
        at.renew();
        if (c > first) load_chunk(at, a.d_o, c - 1);
    }
    leave_segment<K>(dS, a, pass, at, a.dS0, at.segment - 1, at.warp);
}

template <int K, int W> fwa_status launch_scan(cudaStream_t stream, const window_task &task, bool alone, int V) {
    constexpr int bytes = sizeof(window_memory<K, W>);
    const auto kernel = window_scan_kernel<K, W>;
    FWA_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    const auto blocks = static_cast<unsigned>(task.segments * task.B * task.H * (V / 64));
    const serial_pass pass = {V, V / 64, alone};
    FWA_LAUNCH(kernel, blocks, window_threads, bytes, stream, task, pass);
    return FWA_OK;
}

fwa_status scan(cudaStream_t stream, const window_task &task, bool alone, int K, int V) {
    if (task.window == 4)
        return K == 64 ? launch_scan<64, 4>(stream, task, alone, V) : launch_scan<128, 4>(stream, task, alone, V);
    return K == 64 ? launch_scan<64, 8>(stream, task, alone, V) : launch_scan<128, 8>(stream, task, alone, V);
}

} // namespace

namespace fwa {

fwa_status chunk_window_ends(cudaStream_t stream, const window_task &task, const fwa_mixer_call *call, int K, int V) {
    if (task.segments == 1) return receive_states(call);
    FWA_TRY(scan(stream, task, true, K, V));
    FWA_TRY(receive_states(call));
    return chunk_join_transitions(stream, task, true, K, V);
}

fwa_status chunk_window_scan(cudaStream_t stream, const window_task &task, int K, int V) {
    return scan(stream, task, false, K, V);
}

} // namespace fwa
