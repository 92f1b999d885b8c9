// Chunk form of the window core, forward, the serial part (docs/kernels.md). With H = X S, coefficients Z_i of the rows
// of a tile behind step i, and C_l = Z_l at the last step that writes pair l, u_C(l) there:
//
//   r_ii = v_i - e^{seen_i} H_i - sum_{l <= i-W} e^{seen_i - u_C(l)} G_il C_l - sum_{l near} G_il Z_{i-1,l}
//   Z_i,l = gamma_i Z_{i-1,l} + w_i r_il      r_{i+1,j} = gamma_i r_ij + (1 - gamma_i) v_j - w_i sum_l G_jl r_il
//   o_i = e^{u_i} S^T q_i + sum_{l <= i-D} e^{u_i - u_C(l)} P_il C_l + sum_{l near} P_il Z_il
//   S' = h_C S + sum_l e^{u_C - u_C(l)} x_l C_l^T
//
// so that a step takes one sum over all earlier pairs, for its new member. Everything between products is fp32; S and
// keys are bf16 operands, C two bf16 parts in the reads. o and the leaving state are overwritten; S before every chunk
// and r_ii are kept as bf16 where a backward pass follows.
#include "kernels/cuda/chunk_window_serial.cuh"
#include "kernels/cuda/mixer_common.cuh"

namespace {

using namespace fwa;

// Weights of complete pairs in the residual of each step's new member.
template <int K, int W> __device__ void place_gram(const window_block<K, W> &at, const float (&G)[32], float2 gates) {
    constexpr int D = W - 1;
    auto &m = at.m;
    const int own = at.warp * 16 + at.thread % 32 / 4, front = at.warp * 16;
    const float seen[2] = {m.seen[own], m.seen[own + 8]};
    // Rows of the block itself start D before it: whose pairs are not complete there.
    at.each_pair(G, 0, at.warp, [&](int i, int l, int high, int j, float x, float y) {
        const float first = x * power2(seen[high] - m.u[l + D]), second = y * power2(seen[high] - m.u[l + 1 + D]);
        if (j < at.warp)
            m.weights.set_far(at.warp, j, i % 16, l % 16 / 2, l + D < front ? first : 0.0f,
                              l + 1 + D < front ? second : 0.0f);
        const int n = l + D - front;
        if (j + 1 >= at.warp && n >= 0 && n < 16) m.weights.inner[i][n] = first;
        if (j + 1 >= at.warp && n >= -1 && n < 15) m.weights.inner[i][n + 1] = second;
    });
    for (int n = at.thread; n < 16 * D; n += window_threads) m.weights.inner[n / D][n % D] = 0.0f;
    at.place_steps(gates);
}

// V - diag(e^seen) H into the columns.
template <int K, int W> __device__ void place_sides(const window_block<K, W> &at, float (&H)[32]) {
    uint32_t v[4][4];
    transposed_fragments(v, at.m.rows, at.warp);
    const int t = at.thread % 4;
#pragma unroll
    for (int i = 0; i < 16; i++) {
        const int row = i / 2 * 8 + t * 2;
        const uint32_t pair = v[i / 4][i % 4];
        H[i * 2] = __uint_as_float(pair << 16) - power2(at.m.seen[row]) * H[i * 2];
        H[i * 2 + 1] = __uint_as_float(pair & 0xffff0000u) - power2(at.m.seen[row + 1]) * H[i * 2 + 1];
    }
    at.put_columns(H);
}

// Members of the window of a step in a column: residuals, coefficients, values; G of the members, its lower half.
template <int W> struct window_column {
    float r[W], z[W], value[W], gram[W][W];
    float last; // of the rows that are complete, whose pair is not

    // Behind a step that wrote this: to the window of the next, whose last member is missing. The newest comes last in
    // sums, as everywhere here.
    __device__ void next(const float (&written)[W], float keep, float lost) {
        constexpr int D = W - 1;
        float after[W];
#pragma unroll
        for (int j = 1; j < W; j++) {
            after[j] = keep * r[j] + lost * value[j];
#pragma unroll
            for (int l = 0; l < W; l++) after[j] -= (l <= j ? gram[j][l] : gram[l][j]) * written[l];
        }
#pragma unroll
        for (int j = 0; j < D; j++) {
            r[j] = after[j + 1], z[j] = z[j + 1], value[j] = value[j + 1];
#pragma unroll
            for (int l = 0; l <= j; l++) gram[j][l] = gram[j + 1][l + 1];
        }
    }
};

// A column through the 16 steps of block b. fresh: row 0 of this column; null: not kept. Rows before the
// chunk are steps that write nothing. Nothing is written to shared memory between the steps, so that loads can go
// ahead.
template <int K, int W, bool alone>
__device__ void solve_steps(const window_block<K, W> &at, window_column<W> &column, int b, int v,
                            __nv_bfloat16 *fresh) {
    constexpr int D = W - 1;
    auto &m = at.m;
    const int width = at.V;
    float complete[16];
    uint32_t reads[8];
    const bool keep = fresh;
    fresh += b * 16 * width;
#pragma unroll
    for (int k = 0; k < 16; k++) {
        const int i = b * 16 + k;
        const window_step<W> &step = m.steps[i];
        const float4 decays = step.decays();
        float side = at.side(b * 16, v, k), near = 0.0f, read = 0.0f, written[W];
        column.value[D] = __bfloat162float(at.value(b * 16, v, k));
#pragma unroll
        for (int n = 0; n < k; n++) side -= m.weights.inner[i][n] * complete[n];
#pragma unroll
        for (int j = 0; j < W; j++) column.gram[D][j] = m.gram[i][D - j];
#pragma unroll
        for (int j = 0; j < D; j++) near += column.gram[D][j] * column.z[j];
        column.r[D] = side - decays.y * near;
#pragma unroll
        for (int j = 0; j < W; j++) {
            written[j] = step.weight[j] * column.r[j];
            column.z[j] = j < D ? decays.x * column.z[j] + written[j] : written[j];
            if (!alone && j > 0) read += m.reads[i][D - j] * column.z[j];
        }
        complete[k] = column.z[0];
        if (keep) *fresh = __float2bfloat16(column.r[D]);
        fresh += width;
        if constexpr (!alone) {
            const uint32_t bits = __bfloat16_as_ushort(__float2bfloat16(read));
            reads[k / 2] = k % 2 ? reads[k / 2] | bits << 16 : bits;
        }
        column.next(written, decays.x, decays.w);
    }
#pragma unroll
    for (int k = 0; k < 16; k++)
        if constexpr (!alone)
            at.value(b * 16, v, k) = __ushort_as_bfloat16(static_cast<unsigned short>(reads[k / 2] >> k % 2 * 16));
            // From row 16 b - D - 1 on, an even one; what is behind counts as zeros until it is complete.
#pragma unroll
    for (int n = 0; n < 8 + (D + 1) / 2; n++) {
        const int row = b * 16 - D - 1 + n * 2;
        const float first = n == 0 ? column.last : n <= 8 ? complete[n * 2 - 1] : 0.0f;
        if (row >= 0) at.put_pair(b * 16 - 8, v, 7 - D + n * 2, first, n < 8 ? complete[n * 2] : 0.0f);
    }
    column.last = complete[15];
}

// All columns through a chunk.
template <int K, int W, bool alone> __device__ void solve_columns(const window_block<K, W> &at, int c) {
    constexpr int D = W - 1;
    const int thread = at.step_thread();
    const int64_t own = at.rows_at(c) + thread;
    __nv_bfloat16 *fresh = !alone && at.a.fresh ? at.a.fresh + own : nullptr;
    window_column<W> column = {};
#pragma unroll 1
    for (int b = 0; b < 4; b++) {
        if (b > 0) at.template far_sums<false>(b);
        __syncthreads();
        if (thread >= 0) solve_steps<K, W, alone>(at, column, b, thread, fresh);
        __syncthreads();
    }
    if (thread >= 0) {
#pragma unroll
        for (int j = 0; j < D; j += 2)
            at.put_pair(56, thread, 7 - D + j, j == 0 ? column.last : column.z[j - 1], column.z[j]);
    }
    __syncthreads();
}

// What is read of the state and of complete and other pairs: O^T.
template <int K, int W>
__device__ void read_columns(const window_block<K, W> &at, float (&O)[32], const float (&S)[K / 2]) {
    auto &m = at.m;
    state_product<K, 64>(O, S, operand_tile(m.q));
    uint32_t near[4][4];
    transposed_fragments(near, m.rows, at.warp);
    const int t = at.thread % 4;
#pragma unroll
    for (int i = 0; i < 16; i++) {
        const int row = i / 2 * 8 + t * 2;
        const uint32_t pair = near[i / 4][i % 4];
        O[i * 2] = __uint_as_float(pair << 16) + power2(m.u[row]) * O[i * 2];
        O[i * 2 + 1] = __uint_as_float(pair & 0xffff0000u) + power2(m.u[row + 1]) * O[i * 2 + 1];
    }
    split_rows<32> parts;
    at.complete_rows(parts);
    const operand_tile high(m.p[0]), low(m.p[1]);
    products_begin();
    lower_product(O, parts.high, high, true);
    lower_product(O, parts.high, low, true);
    lower_product(O, parts.low, high, true);
    products_commit();
    products_wait<0>();
    products_done(O);
}

template <int K, int W> __device__ void load_chunk(const window_block<K, W> &at, int c) {
    at.load_keys_queries(c);
    if (at.v < at.V)
        load_values<window_threads>(at.m.rows, at.thread, at.a, at.V, at.v, at.b, at.h, c);
    else
        load_steps<64, window_threads>(at.m.rows, at.thread, at.a, {}, at.b, at.h, c);
    copy_commit();
}

template <int K, int W, bool alone>
__global__ void __launch_bounds__(window_threads, W == 4 ? 3 : 2)
    window_forward_kernel(const __grid_constant__ window_task a, const __grid_constant__ serial_pass pass) {
    extern __shared__ __align__(1024) unsigned char memory[];
    auto &m = *reinterpret_cast<window_memory<K, W> *>(memory);
    window_block<K, W> at(a, m, pass);
    float S[K / 2];
    enter_segment<K>(S, a, pass, at, a.S0, at.warp);
    load_chunk(at, at.first_chunk(a));
    at.clear_edges();
    const int end = at.end_chunk(a);
#pragma unroll 1
    for (int c = at.first_chunk(a); c < end; c++) {
        at.renew();
        const float2 gates = at.template write_gates<false>(c);
        copy_wait<0>();
        publish();
        __syncthreads();
        if (c + 1 < end) at.prefetch_chunk(at.v < at.V ? a.v : chunk_view{}, c + 1);
        at.renew();
        if constexpr (alone) {
            float G[32];
            at.products_with_keys(G, m.x);
            place_gram(at, G, gates);
        } else {
            float G[32], P[32];
            products_begin();
            at.start_products_with_keys(P, m.q);
            at.start_products_with_keys(G, m.x);
            products_wait<1>();
            products_done(P);
            at.near_reads(P);
            products_wait<0>();
            products_done(G);
            place_gram(at, G, gates);
        }
        at.renew();
        {
            float H[32];
            if (!alone && a.states) at.keep_state(a.states, S, c);
            state_product<K, 64>(H, S, operand_tile(m.x));
            place_sides(at, H);
        }
        at.renew();
        solve_columns<K, W, alone>(at, c);
        at.renew();
        if constexpr (!alone) {
            float P[32];
            at.products_with_keys(P, m.q);
            at.far_reads(P);
        }
        publish();
        __syncthreads();
        at.renew();
        float O[32];
        if constexpr (!alone) read_columns(at, O, S);
        const float h_end = power2(m.u[63]);
#pragma unroll
        for (int i = 0; i < K / 2; i++) S[i] *= h_end;
        uint32_t leaving[4][4];
        at.scaled_rows(leaving, [&](int l) { return at.leave(l); });
        at.add_to_state(S, leaving, m.x);
        __syncthreads();
        at.renew();
        if (c + 1 < end) load_chunk(at, c + 1);
        if constexpr (!alone) write_columns(m.p[0], O, a, a.o, at.b, at.h, c, at.v, at.warp);
    }
    leave_segment<K>(S, a, pass, at, a.S_end, at.segment + 1, at.warp);
}

template <int K, int W, bool alone>
fwa_status launch_forward(cudaStream_t stream, const window_task &task, const serial_pass &pass) {
    constexpr int bytes = sizeof(window_memory<K, W>);
    const auto kernel = window_forward_kernel<K, W, alone>;
    const auto blocks = static_cast<unsigned>(task.segments * task.B * task.H * pass.slices);
    FWA_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    FWA_LAUNCH(kernel, blocks, window_threads, bytes, stream, task, pass);
    return FWA_OK;
}

template <int K, bool alone>
fwa_status pick_window(cudaStream_t stream, const window_task &task, const serial_pass &pass) {
    return task.window == 4 ? launch_forward<K, 4, alone>(stream, task, pass)
                            : launch_forward<K, 8, alone>(stream, task, pass);
}

} // namespace

namespace fwa {

fwa_status chunk_window_starts(cudaStream_t stream, const window_task &task, const fwa_mixer_call *call, int K, int V) {
    const serial_pass alone = {V, (V + K) / 64, true};
    if (task.segments == 1) return receive_states(call);
    FWA_TRY(K == 64 ? (pick_window<64, true>(stream, task, alone)) : (pick_window<128, true>(stream, task, alone)));
    FWA_TRY(receive_states(call));
    return chunk_join_transitions(stream, task, false, K, V);
}

fwa_status chunk_window_forward(cudaStream_t stream, const window_task &task, int K, int V) {
    const serial_pass pass = {V, V / 64, false};
    return K == 64 ? pick_window<64, false>(stream, task, pass) : pick_window<128, false>(stream, task, pass);
}

} // namespace fwa
