// Chunk form of the delta core, backward, the serial part (docs/kernels.md), from the last chunk to the first:
//
//   dR = P^T dO + diag(M_C) X dS'      U = dV = T^T dR      dS = h_C dS' + Q^T diag(h) dO - X^T diag(g) U
//
// dS' behind every chunk is kept as bf16 for the chunk-parallel rest; dv and the gradient of the first state are
// overwritten. As forward, a warpgroup holds 64 columns of V, transposed, and T, P, dR go in two parts.
#include "kernels/cuda/chunk_delta_serial.cuh"
#include "kernels/cuda/mixer_common.cuh"

namespace {

using namespace fwa;

// -diag(g) U as first operand
__device__ void seen_rows(uint32_t (&to)[4][4], const float (&U)[32], const float *seen) {
    const int t = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int i = 0; i < 16; i++) {
        const float2 g = *reinterpret_cast<const float2 *>(seen + i / 2 * 8 + t * 2);
        to[i / 4][i % 4] = bf16_pair(-g.x * U[i * 2], -g.y * U[i * 2 + 1]);
    }
}

template <int K>
__global__ void __launch_bounds__(serial_threads, serial_blocks)
    delta_scan_kernel(const __grid_constant__ delta_task a, const __grid_constant__ serial_pass pass) {
    extern __shared__ __align__(1024) unsigned char memory[];
    auto &m = *reinterpret_cast<serial_memory<K> *>(memory);
    serial_block<K> at(a, m, pass);
    float dS[K / 2];
    enter_segment<K>(dS, a, pass, at, a.dS_end, at.warp);
    at.clear_inverse();
    const int first = at.first_chunk(a), last = at.end_chunk(a) - 1;
    at.load_keys_queries(last);
    at.load_columns(a.d_o, last);
    at.load_inverse(last);
    at.load_gates(last);
    copy_commit();
#pragma unroll 1
    for (int c = last; c >= first; c--) {
        at.renew();
        copy_wait<0>();
        publish();
        __syncthreads();
        if (c > first) at.prefetch_chunk(a.d_o, c - 1);
        at.renew();
        at.reads();
        at.renew();
        const serial_operands<K> tiles(m);
        float U[32];
        {
            float dR[32];
            {
                uint32_t rows[K / 16][4];
#pragma unroll
                for (int step = 0; step < K / 16; step++) fragment(rows[step], dS, step);
                if (!pass.alone)
                    keep_blocks<K>(blocks_at<K>(a.d_states, tile_index(a, at.head, c), at.V, at.v + at.warp * 16),
                                   rows);
                products_begin();
#pragma unroll
                for (int step = 0; step < K / 16; step++)
                    product<64, 0>(dR, rows[step], tiles.x.k(step / 4 * 4096 + step % 4 * 16), step > 0);
                products_commit();
                products_wait<0>();
                products_done(dR);
            }
            scale_columns(dR, m.gates.leave);
            uint32_t d_o[4][4];
            transposed_fragments(d_o, m.rows, at.warp);
            publish();
            __syncthreads();
            products_begin();
            upper_product(dR, d_o, tiles.P_high, true);
            upper_product(dR, d_o, tiles.P_low, true);
            products_commit();
            products_wait<0>();
            products_done(dR);
            const split_rows<32> right(dR);
            products_begin();
            upper_product(U, right.high, tiles.T_high, false);
            upper_product(U, right.high, tiles.T_low, true);
            upper_product(U, right.low, tiles.T_high, true);
            products_commit();
            products_wait<0>();
            products_done(U);
        }
        uint32_t reading[4][4], seeing[4][4];
        transposed_fragments(reading, m.rows, at.warp);
        scale_fragments(reading, m.gates.history);
        seen_rows(seeing, U, m.gates.sight);
        const float h_end = m.gates.history[63];
#pragma unroll
        for (int i = 0; i < K / 2; i++) dS[i] *= h_end;
        products_begin();
#pragma unroll
        for (int step = 0; step < 4; step++) {
            product<K, 1>(dS, reading[step], tiles.q.mn(step * 16 * 64, 64), true);
            product<K, 1>(dS, seeing[step], tiles.x.mn(step * 16 * 64, 64), true);
        }
        products_commit();
        products_wait<0>();
        products_done(dS);
        __syncthreads();
        at.renew();
        if (c > first) {
            at.load_keys_queries(c - 1);
            at.load_columns(a.d_o, c - 1);
            at.load_inverse(c - 1);
            at.load_gates(c - 1);
        }
        copy_commit();
        if (!pass.alone) write_columns(m.p[0], U, a, a.dv, at.b, at.h, c, at.v, at.warp);
    }
    leave_segment<K>(dS, a, pass, at, a.dS0, at.segment - 1, at.warp);
}

template <int K> fwa_status launch_scan(cudaStream_t stream, const delta_task &task, bool alone, int V) {
    constexpr int bytes = sizeof(serial_memory<K>);
    const auto blocks = static_cast<unsigned>(task.segments * task.B * task.H * (V / 64));
    const serial_pass pass = {V, V / 64, alone};
    FWA_CUDA_TRY(cudaFuncSetAttribute(delta_scan_kernel<K>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    FWA_LAUNCH(delta_scan_kernel<K>, blocks, serial_threads, bytes, stream, task, pass);
    return FWA_OK;
}

fwa_status scan(cudaStream_t stream, const delta_task &task, bool alone, int K, int V) {
    return K == 64 ? launch_scan<64>(stream, task, alone, V) : launch_scan<128>(stream, task, alone, V);
}

} // namespace

namespace fwa {

fwa_status chunk_delta_ends(cudaStream_t stream, const delta_task &task, const fwa_mixer_call *call, int K, int V) {
    if (task.segments == 1) return receive_states(call);
    FWA_TRY(scan(stream, task, true, K, V));
    FWA_TRY(receive_states(call));
    return chunk_join_transitions(stream, task, true, K, V);
}

fwa_status chunk_delta_scan(cudaStream_t stream, const delta_task &task, int K, int V) {
    return scan(stream, task, false, K, V);
}

} // namespace fwa
