// Chunk form of the additive core, the passes that carry a state alone (docs/kernels.md): the gradient of the state,
//
//   dS = h_C dS' + Q^T diag(h) dO                from the last chunk to the first
//
// which is kept as bf16 behind every chunk for the chunk-parallel rest, and, where a sequence is cut into segments,
// what each segment makes of an empty one, forward S' = h_C S + X^T diag(M_C) V. Overwritten. As in the forward pass a
// warpgroup holds 64 columns of V, transposed. Four blocks a multiprocessor; operands come a chunk ahead. Three slices
// of shared keys a block: chunk_additive_groups.cu.
#include "kernels/cuda/chunk_additive.cuh"

#include "kernels/cuda/chunk_join.cuh"
#include "kernels/cuda/mixer_common.cuh"

namespace {

using namespace fwa;

constexpr int threads = 128;

// What a pass carries: states forward, without a window, with one of up to 4 and of up to 8; gradients of states.
enum class carried { states, states_4, states_8, gradients };

template <int K> struct scan_memory {
    __nv_bfloat16 by[2][64 * K];     // x or q
    __nv_bfloat16 rows[2][64 * 64];  // of v or dO
    float weight[2][64], history[2]; // of the rows; h_C
};

template <int K, carried what> struct scan_block {
    const chunk_task &a;
    scan_memory<K> &m;
    int64_t head;
    int b, h, v, V;

    __device__ void load(int c) const {
        if constexpr (what == carried::gradients) {
            chunk_view d_o = a.d_o;
            if (d_o.data) d_o.data += v;
            load_steps<K, threads>(m.by[c % 2], threadIdx.x, a, a.q, b, h / a.group, c);
            load_steps<64, threads>(m.rows[c % 2], threadIdx.x, a, d_o, b, h, c);
        } else {
            load_keys<K, threads>(m.by[c % 2], threadIdx.x, a, b, h / a.group, c);
            load_values<threads>(m.rows[c % 2], threadIdx.x, a, V, v, b, h, c);
        }
        copy_commit();
    }
    // Rows before the chunk are steps of the one before: they have no gradient here.
    __device__ float weight(int c, int row) const {
        const int64_t at = (head * a.chunks + c) * 64;
        if constexpr (what == carried::gradients) return row < a.halo ? 0.0f : power2(a.u[at + row]);
        constexpr int W = what == carried::states ? 1 : what == carried::states_4 ? 4 : 8;
        const tile_mask<W> mask = {a.u + at, a.w + at, a.far + at, a.band + at};
        return mask.at(63, row, a.u[at + 63]);
    }
    __device__ float history(int c) const {
        return power2(a.u[(head * a.chunks + c) * 64 + 63]);
    }
};

// alone: of each segment from an empty state; leaves it in `starts`, and what is left of a state over the segment in
// `decays`.
template <int K, carried what, bool alone>
__global__ void __launch_bounds__(threads, 4) chunk_scan_kernel(const __grid_constant__ chunk_task a, int slices) {
    constexpr bool forward = what != carried::gradients;
    extern __shared__ __align__(1024) unsigned char memory[];
    auto &m = *reinterpret_cast<scan_memory<K> *>(memory);
    const int segments = alone ? asked_segments(a, forward) : a.segments;
    const int piece = static_cast<int>(blockIdx.x) / segments;
    const int segment = static_cast<int>(blockIdx.x) % segments + (forward ? 0 : a.segments - segments);
    const int head = piece / slices, v = piece % slices * 64, thread = static_cast<int>(threadIdx.x),
              warp = thread / 32;
    const scan_block<K, what> at = {a, m, head, head / a.H, head % a.H, v, slices * 64};
    const operand_tile tiles(m.by[0]);
    const int begin = segment * a.length, end = min(begin + a.length, a.chunks);
    float S[K / 2], weight = 0.0f, decay = 1.0f;
    if constexpr (alone)
        get_state<K>(S, chunk_state{}, 0, 0, 0);
    else
        get_state<K>(S, a.segments > 1 ? segment_state(a, segment, K, slices * 64) : a.dS_end, at.b, at.h,
                     v + warp * 16);
    at.load(forward ? begin : end - 1);
    if (thread < 64) weight = at.weight(forward ? begin : end - 1, thread);
    for (int i = begin; i < end; i++) {
        const int c = forward ? i : begin + end - 1 - i, next = forward ? c + 1 : c - 1, stage = c % 2;
        if (thread < 64) m.weight[stage][thread] = weight;
        if (thread == 64) m.history[stage] = at.history(c);
        copy_wait<0>();
        publish();
        __syncthreads();
        if (i + 1 < end) {
            at.load(next);
            if (thread < 64) weight = at.weight(next, thread);
        }
        uint32_t rows[4][4];
        if constexpr (!alone) {
            uint32_t kept[K / 16][4];
#pragma unroll
            for (int step = 0; step < K / 16; step++) fragment(kept[step], S, step);
            keep_blocks<K>(blocks_at<K>(a.d_states, a, head, c, slices * 64, v + warp * 16), kept);
        }
        transposed_fragments(rows, m.rows[stage], warp);
        scale_fragments(rows, m.weight[stage]);
        const float h_end = m.history[stage];
        if constexpr (alone) decay *= h_end;
#pragma unroll
        for (int k = 0; k < K / 2; k++) S[k] *= h_end;
        const operand_tile by(tiles, stage * (64 * K));
        products_begin();
#pragma unroll
        for (int step = 0; step < 4; step++) product<K, 1>(S, rows[step], by.mn(step * 16 * 64, 64), true);
        products_commit();
        products_wait<0>();
        products_done(S);
    }
    if constexpr (alone) {
        set_state<K>(S, segment_state(a, segment, K, slices * 64), at.b, at.h, v + warp * 16);
        if (v == 0 && thread == 0) a.decays[static_cast<int64_t>(head) * a.segments + segment] = decay;
    } else if (a.segments == 1 && a.dS0.data) {
        set_state<K>(S, a.dS0, at.b, at.h, v + warp * 16);
    }
}

template <int K, carried what, bool alone> fwa_status launch_scan(cudaStream_t stream, const chunk_task &task, int V) {
    constexpr int bytes = sizeof(scan_memory<K>);
    const int segments = alone ? asked_segments(task, what != carried::gradients) : task.segments;
    const int blocks = task.B * task.H * (V / 64) * segments;
    const auto kernel = chunk_scan_kernel<K, what, alone>;
    FWA_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    FWA_LAUNCH(kernel, static_cast<unsigned>(blocks), threads, bytes, stream, task, V / 64);
    return FWA_OK;
}

template <int K, carried what>
fwa_status find_starts(cudaStream_t stream, const chunk_task &task, const chunk_state &first,
                       const fwa_mixer_call *call, int V) {
    FWA_TRY((launch_scan<K, what, true>(stream, task, V)));
    FWA_TRY(receive_states(call));
    return chunk_join_segments(stream, task, first, what != carried::gradients, K, V, false);
}

template <int K> fwa_status starts(cudaStream_t stream, const chunk_task &task, const fwa_mixer_call *call, int V) {
    const int W = window_made(task.halo);
    return W == 1   ? find_starts<K, carried::states>(stream, task, task.S0, call, V)
           : W == 4 ? find_starts<K, carried::states_4>(stream, task, task.S0, call, V)
                    : find_starts<K, carried::states_8>(stream, task, task.S0, call, V);
}

} // namespace

namespace fwa {

fwa_status chunk_additive_ends(cudaStream_t stream, const chunk_task &task, const fwa_mixer_call *call, int K, int V) {
    if (task.segments == 1) return receive_states(call);
    return K == 64 ? find_starts<64, carried::gradients>(stream, task, task.dS_end, call, V)
                   : find_starts<128, carried::gradients>(stream, task, task.dS_end, call, V);
}

fwa_status chunk_additive_scan(cudaStream_t stream, const chunk_task &task, int K, int V) {
    if (task.d_o.data && chunk_additive_grouped(task, V)) return chunk_additive_scan_groups(stream, task, K, V);
    return K == 64 ? launch_scan<64, carried::gradients, false>(stream, task, V)
                   : launch_scan<128, carried::gradients, false>(stream, task, V);
}

fwa_status chunk_additive_starts(cudaStream_t stream, const chunk_task &task, const fwa_mixer_call *call, int K,
                                 int V) {
    if (task.segments == 1) return receive_states(call);
    return K == 64 ? starts<64>(stream, task, call, V) : starts<128>(stream, task, call, V);
}

} // namespace fwa
