// Chunk form of the delta core, forward, the serial part (docs/kernels.md). With T = (I + A)^{-1} and P = (Q X^T) o M
// of a chunk, h_i = e^{u_i} and g_i what of the state the residual of step i sees:
//
//   R = T (V - diag(g) X S)      O = diag(h) Q S + P R      S' = h_C S + X^T diag(M_C) R
//
// S in fp32, as an operand in bf16; T, P, R and the right-hand side in two parts (chunk_delta.cuh). o and the leaving
// state are overwritten; S before every chunk and R are kept as bf16 where a backward pass follows. V is loaded as soon
// as the right-hand side has it, the rest behind the products of a chunk; a chunk ahead everything is fetched into the
// second level of the cache.
#include "kernels/cuda/chunk_delta_serial.cuh"
#include "kernels/cuda/mixer_common.cuh"

namespace {

using namespace fwa;

// V^T - diag(g) H, from H = S^T X^T
__device__ void right_hand_side(float (&H)[32], const __nv_bfloat16 *values, const float *seen, int warp) {
    uint32_t v[4][4];
    const int t = static_cast<int>(threadIdx.x) % 4;
    transposed_fragments(v, values, warp);
#pragma unroll
    for (int i = 0; i < 16; i++) {
        const float2 g = *reinterpret_cast<const float2 *>(seen + i / 2 * 8 + t * 2);
        const uint32_t pair = v[i / 4][i % 4];
        H[i * 2] = __uint_as_float(pair << 16) - g.x * H[i * 2];
        H[i * 2 + 1] = __uint_as_float(pair & 0xffff0000u) - g.y * H[i * 2 + 1];
    }
}

template <int K, bool alone>
__global__ void __launch_bounds__(serial_threads, serial_blocks)
    delta_forward_kernel(const __grid_constant__ delta_task a, const __grid_constant__ serial_pass pass) {
    extern __shared__ __align__(1024) unsigned char memory[];
    auto &m = *reinterpret_cast<serial_memory<K> *>(memory);
    serial_block<K> at(a, m, pass);
    chunk_view values = a.v;
    if (at.v >= at.V) values.data = nullptr;
    float S[K / 2];
    enter_segment<K>(S, a, pass, at, a.S0, at.warp);
    at.clear_inverse();
    at.load_keys_queries(at.first_chunk(a));
    at.load_columns(values, at.first_chunk(a));
    at.load_inverse(at.first_chunk(a));
    at.load_gates(at.first_chunk(a));
    copy_commit();
    const int end = at.end_chunk(a);
#pragma unroll 1
    for (int c = at.first_chunk(a); c < end; c++) {
        at.renew();
        copy_wait<0>();
        publish();
        __syncthreads();
        if (c + 1 < end) at.prefetch_chunk(values, c + 1);
        at.renew();
        if constexpr (!alone) at.reads();
        at.renew();
        float R[32];
        {
            float H[32];
            if (!alone && a.states) {
                uint32_t rows[K / 16][4];
#pragma unroll
                for (int step = 0; step < K / 16; step++) fragment(rows[step], S, step);
                keep_blocks<K>(blocks_at<K>(a.states, tile_index(a, at.head, c), at.V, at.v + at.warp * 16), rows);
            }
            state_product<K, 64>(H, S, serial_operands<K>(m).x);
            right_hand_side(H, m.rows, m.gates.sight, at.warp);
            publish();
            __syncthreads();
            if (c + 1 < end) at.load_columns(values, c + 1);
            const split_rows<32> right(H);
            const serial_operands<K> tiles(m);
            products_begin();
            lower_product(R, right.high, tiles.T_high, false);
            lower_product(R, right.high, tiles.T_low, true);
            lower_product(R, right.low, tiles.T_high, true);
            products_commit();
            products_wait<0>();
            products_done(R);
        }
        const split_rows<32> residual(R);
        if (!alone && a.residuals)
            keep_blocks<64>(blocks_at<64>(a.residuals, tile_index(a, at.head, c), at.V, at.v + at.warp * 16),
                            residual.high);
        at.renew();
        float O[32];
        if constexpr (!alone) {
            state_product<K, 32>(O, S, serial_operands<K>(m).q);
            scale_columns(O, m.gates.history);
            const serial_operands<K> tiles(m);
            products_begin();
            lower_product(O, residual.high, tiles.P_high, true);
            lower_product(O, residual.high, tiles.P_low, true);
            lower_product(O, residual.low, tiles.P_high, true);
            products_commit();
            products_wait<0>();
            products_done(O);
        }
        uint32_t leaving[4][4];
        leaving_rows<pair_halves>(leaving, residual, m.gates.leave);
        const float h_end = m.gates.history[63];
#pragma unroll
        for (int i = 0; i < K / 2; i++) S[i] *= h_end;
        const serial_operands<K> tiles(m);
        products_begin();
#pragma unroll
        for (int step = 0; step < 4; step++) product<K, 1>(S, leaving[step], tiles.x.mn(step * 16 * 64, 64), true);
        products_commit();
        products_wait<0>();
        products_done(S);
        __syncthreads();
        at.renew();
        if (c + 1 < end) {
            at.load_keys_queries(c + 1);
            at.load_inverse(c + 1);
            at.load_gates(c + 1);
        }
        copy_commit();
        if constexpr (!alone) write_columns(m.p[0], O, a, a.o, at.b, at.h, c, at.v, at.warp);
    }
    leave_segment<K>(S, a, pass, at, a.S_end, at.segment + 1, at.warp);
}

template <int K, bool alone>
fwa_status launch_forward(cudaStream_t stream, const delta_task &task, const serial_pass &pass) {
    constexpr int bytes = sizeof(serial_memory<K>);
    const auto kernel = delta_forward_kernel<K, alone>;
    const auto blocks = static_cast<unsigned>(task.segments * task.B * task.H * pass.slices);
    FWA_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    FWA_LAUNCH(kernel, blocks, serial_threads, bytes, stream, task, pass);
    return FWA_OK;
}

template <int K>
fwa_status find_starts(cudaStream_t stream, const delta_task &task, const fwa_mixer_call *call, int V) {
    const int slices = (V + K) / 64;
    FWA_TRY((chunk_delta_grouped(task, K, V, slices) ? chunk_delta_forward_groups(stream, task, slices, true)
                                                     : launch_forward<K, true>(stream, task, {V, slices, true})));
    FWA_TRY(receive_states(call));
    return chunk_join_transitions(stream, task, false, K, V);
}

} // namespace

namespace fwa {

fwa_status chunk_delta_starts(cudaStream_t stream, const delta_task &task, const fwa_mixer_call *call, int K, int V) {
    if (task.segments == 1) return receive_states(call);
    return K == 64 ? find_starts<64>(stream, task, call, V) : find_starts<128>(stream, task, call, V);
}

fwa_status chunk_delta_forward(cudaStream_t stream, const delta_task &task, int K, int V) {
    const serial_pass pass = {V, V / 64, false};
    if (chunk_delta_grouped(task, K, V, pass.slices))
        return chunk_delta_forward_groups(stream, task, pass.slices, false);
    return K == 64 ? launch_forward<64, false>(stream, task, pass) : launch_forward<128, false>(stream, task, pass);
}

} // namespace fwa
