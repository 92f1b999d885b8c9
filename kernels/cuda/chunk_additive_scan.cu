// Chunk form of the additive core, backward, the serial part (docs/kernels.md): the gradient of the state,
//
//   dS = h_C dS' + Q^T diag(h) dO
//
// from the last chunk to the first; dS' behind every chunk is kept as bf16 for the chunk-parallel rest. Overwritten.
// As forward, a warpgroup holds 64 columns of V, transposed. Four blocks a multiprocessor; Q and dO come a chunk ahead.
#include "kernels/cuda/chunk_additive.cuh"

namespace {

using namespace fwa;

constexpr int threads = 128;

template <int K> struct scan_memory {
    __nv_bfloat16 q[2][64 * K];
    __nv_bfloat16 d_o[2][64 * 64];
    float history[2][64];
};

template <int K> __device__ void load(scan_memory<K> &m, const chunk_task &a, int b, int h, int v, int c) {
    chunk_view d_o = a.d_o;
    d_o.data += v;
    load_steps<K, threads>(m.q[c % 2], threadIdx.x, a, a.q, b, h / a.group, c);
    load_steps<64, threads>(m.d_o[c % 2], threadIdx.x, a, d_o, b, h, c);
    copy_commit();
}

// Rows before the chunk are steps of the one before.
__device__ float read_history(const chunk_task &a, int64_t head, int c, int row) {
    return row < a.halo ? 0.0f : power2(a.u[(head * a.chunks + c) * 64 + row]);
}

template <int K>
__global__ void __launch_bounds__(threads, 4) chunk_scan_kernel(const __grid_constant__ chunk_task a, int slices) {
    extern __shared__ __align__(1024) unsigned char memory[];
    auto &m = *reinterpret_cast<scan_memory<K> *>(memory);
    const int head = static_cast<int>(blockIdx.x) / slices, b = head / a.H, h = head % a.H;
    const int v = static_cast<int>(blockIdx.x) % slices * 64, thread = static_cast<int>(threadIdx.x),
              warp = thread / 32;
    const operand_tile q_tiles(m.q[0]);
    float dS[K / 2], history = 0.0f;
    get_state<K>(dS, a.dS_end, b, h, v + warp * 16);
    load(m, a, b, h, v, a.chunks - 1);
    if (thread < 64) history = read_history(a, head, a.chunks - 1, thread);
    for (int c = a.chunks - 1; c >= 0; c--) {
        const int stage = c % 2;
        if (thread < 64) m.history[stage][thread] = history;
        copy_wait<0>();
        publish();
        __syncthreads();
        if (c > 0) {
            load(m, a, b, h, v, c - 1);
            if (thread < 64) history = read_history(a, head, c - 1, thread);
        }
        uint32_t rows[4][4];
        {
            uint32_t kept[K / 16][4];
#pragma unroll
            for (int step = 0; step < K / 16; step++) fragment(kept[step], dS, step);
            keep_state<K>(state_at<K>(a.grads, a, head, c, slices * 64, v + warp * 16), kept);
        }
        transposed_fragments(rows, m.d_o[stage], warp);
        scale_fragments(rows, m.history[stage]);
        const float h_end = m.history[stage][63];
#pragma unroll
        for (int i = 0; i < K / 2; i++) dS[i] *= h_end;
        const operand_tile q(q_tiles, stage * (64 * K));
        products_begin();
#pragma unroll
        for (int step = 0; step < 4; step++) product<K, 1>(dS, rows[step], q.mn(step * 16 * 64, 64), true);
        products_commit();
        products_wait<0>();
        products_done(dS);
    }
    if (a.dS0.data) set_state<K>(dS, a.dS0, b, h, v + warp * 16);
}

template <int K> fwa_status launch_scan(cudaStream_t stream, const chunk_task &task, int V) {
    constexpr int bytes = sizeof(scan_memory<K>);
    FWA_CUDA_TRY(cudaFuncSetAttribute(chunk_scan_kernel<K>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    FWA_LAUNCH(chunk_scan_kernel<K>, static_cast<unsigned>(task.B * task.H * (V / 64)), threads, bytes, stream, task,
               V / 64);
    return FWA_OK;
}

} // namespace

namespace fwa {

fwa_status chunk_additive_scan(cudaStream_t stream, const chunk_task &task, int K, int V) {
    return K == 64 ? launch_scan<64>(stream, task, V) : launch_scan<128>(stream, task, V);
}

} // namespace fwa
