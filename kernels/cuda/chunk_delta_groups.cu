// Chunk form of the delta core, forward, the serial part again (chunk_delta_forward.cu has the equations), for K = V =
// 128 where there are slices enough for three a multiprocessor: a block has three warpgroups that hold 64 columns of V
// each, transposed, and go from chunk to chunk, and one that feeds them.
#include "kernels/cuda/chunk_delta_feeder.cuh"
#include "kernels/cuda/mixer_common.cuh"

namespace {

using namespace fwa;

// A warpgroup with 64 columns of V. Made anew in every phase, so that nothing of it stays in registers.
template <int K> struct slice_group {
    const group_memory<K> &m;
    int group, warp;
    const group_slice &at;

    __device__ explicit slice_group(const group_memory<K> &memory)
        : m(memory), group(own_group()), warp(group % 4), at(memory.place(group / 4 - 1)) {
        group = group / 4 - 1;
    }
    __device__ static int own_group() { // that and the warp, for now
        int thread;
        asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
        return thread / 32;
    }
    // The compiler takes what a shuffle gives for the same in all lanes, and keeps descriptors out of vector registers.
    __device__ const head_tiles<K> &tiles() const {
        return m.head(__shfl_sync(everyone, at.slot, 0));
    }
    __device__ slice_tiles &own() const {
        return m.slice(group);
    }
    __device__ const state_gates &gates(int stage) const {
        return m.gates(at.slot).state[stage];
    }
};

// Columns 32 half .. of d (+)= a L^T, L lower triangular.
template <int half>
__device__ inline void lower_half(float (&d)[16], const uint32_t (&a)[4][4], const operand_tile &L, bool add) {
#pragma unroll
    for (int step = 0; step < half * 2 + 2; step++)
        product<32, 0>(d, a[step], L.k(half * 2048 + step * 16), add || step > 0);
}
// The same with a and L in two parts.
template <int half>
__device__ inline void lower_products(float (&d)[16], const split_rows<32> &a, const operand_tile &L, bool add) {
    const operand_tile low(L, 4096);
    lower_half<half>(d, a.high, L, add);
    lower_half<half>(d, a.high, low, true);
    lower_half<half>(d, a.low, L, true);
}
// d = S^T B^T for B [N,K], some columns of K at a time to spare registers; `kept`: where rows of S^T go in blocks, or
// null.
template <int K, int N, int columns>
__device__ inline void state_product(float (&d)[N / 2], const float (&S)[K / 2], const operand_tile &B, int row,
                                     uint4 *kept) {
    constexpr int steps = columns / 16;
#pragma unroll
    for (int k = 0; k < K; k += columns) {
        uint32_t rows[steps][4];
#pragma unroll
        for (int step = 0; step < steps; step++) fragment(rows[step], S, k / 16 + step);
        products_begin();
#pragma unroll
        for (int step = 0; step < steps; step++)
            product<N, 0>(d, rows[step], B.k(tile_column(k) + row * 64 + step * 16), k + step > 0);
        products_commit();
        if (kept) keep_blocks<K, steps>(kept, rows, k / 16);
        products_wait<0>();
        products_done(d);
    }
}

// V^T - diag(g) H in two parts, from H = S^T X^T, 16 steps at a time to spare registers
__device__ void right_hand_side(split_rows<32> &to, const float (&H)[32], const __nv_bfloat16 *values,
                                const float *seen, int warp) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const __nv_bfloat16 *from = values + swizzled<64>(lane / 16 * 8 + lane % 8, warp * 16 + lane / 8 % 2 * 8);
#pragma unroll
    for (int step = 0; step < 4; step++) {
        uint32_t v[4];
        load_matrix_transposed(v, from + step * 1024);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int e = step * 8 + i * 2;
            const float2 g = *reinterpret_cast<const float2 *>(seen + step * 16 + i / 2 * 8 + lane % 4 * 2);
            split_pair(to.high[step][i], to.low[step][i], __uint_as_float(v[i] << 16) - g.x * H[e],
                       __uint_as_float(v[i] & 0xffff0000u) - g.y * H[e + 1]);
        }
    }
}

// The numbers of a pair, by other instructions than elsewhere: those would be kept in registers from there on.
struct other_halves {
    __device__ static float low(uint32_t pair) {
        return __uint_as_float(__byte_perm(pair, 0, 0x1044));
    }
    __device__ static float high(uint32_t pair) {
        return __uint_as_float(__byte_perm(pair, 0, 0x3244));
    }
};

// There are no registers to keep S as bf16 from one product to the next, but the compiler would: for all it knows, S
// changes here.
template <int n> __device__ void forget_rounded(float (&S)[n], const group_pass &pass) {
    if (pass.V >= 0) return;
#pragma unroll
    for (int i = 0; i < n; i++) asm volatile("mov.f32 %0, 0f00000000;" : "=f"(S[i]));
}

// d = S^T B^T for rows `row` .. of B [64,K], with 16 columns of K under way and 16 being rounded: there are registers
// for no more.
template <int K, int N>
__device__ void spare_product(float (&d)[N / 2], const float (&S)[K / 2], const operand_tile &B, int row) {
    uint32_t rows[2][4];
#pragma unroll
    for (int step = 0; step < K / 16; step++) {
        fragment(rows[step % 2], S, step);
        products_begin();
        product<N, 0>(d, rows[step % 2], B.k(step / 4 * 4096 + step % 4 * 16 + row * 64), step > 0);
        products_commit();
        products_wait<1>();
    }
    products_wait<0>();
    products_done(d);
}

// O = diag(h) Q S + P R of 32 steps, on its way out.
template <int K, int half>
__device__ void read_half(const group_memory<K> &m, float (&S)[K / 2], const split_rows<32> &residual, int stage,
                          uint64_t *q_free) {
    const slice_group<K> own(m);
    float O[16];
    forget_rounded(S, m.pass);
    spare_product<K, 32>(O, S, operand_tile(own.tiles().q), half * 32);
    if (q_free) phase_arrive(q_free);
    scale_columns(O, own.gates(stage).history + half * 32);
    products_begin();
    lower_products<half>(O, residual, operand_tile(own.tiles().p[0]), true);
    products_commit();
    products_wait<0>();
    products_done(O);
    stage_columns(own.own().out, O, half * 32, own.warp);
}

// The chunks of a slice of V. `alone`: for what it leaves, no o and nothing kept.
template <int K, bool alone> __device__ void forward_slice(const delta_task &a, const group_memory<K> &m) {
    group_barriers &at = m.barriers();
    float S[K / 2];
    {
        const slice_group<K> own(m);
        enter_segment<K>(S, a, m.pass, own.at, a.S0, own.warp);
    }
    const int count = m.place(0).end - m.place(0).first;
#pragma unroll 1
    for (int n = 0; n < count; n++) {
        const int stage = n % 2;
        const bool last = n + 1 == count;
        float R[32];
        phase_wait(&at.x_full[stage], n / 2 % 2);
        {
            float H[32];
            {
                const slice_group<K> own(m);
                const int64_t tile = tile_index(a, own.at.head, own.at.first + n);
                uint4 *kept =
                    alone || !a.states ? nullptr : blocks_at<K>(a.states, tile, m.pass.V, own.at.v + own.warp * 16);
                state_product<K, 64, 64>(H, S, operand_tile(own.tiles().x[stage]), 0, kept);
            }
            phase_wait(&at.rows_full, n % 2);
            phase_wait(&at.T_full, n % 2);
            const slice_group<K> own(m);
            split_rows<32> right;
            right_hand_side(right, H, own.own().rows, own.gates(stage).sight, own.warp);
            const operand_tile T(own.tiles().inverse[0]);
            // The half that needs all of them first: fewer registers than both at once.
            auto &first = reinterpret_cast<float(&)[16]>(R), &second = reinterpret_cast<float(&)[16]>(R[16]);
            products_begin();
            lower_products<1>(second, right, T, false);
            products_commit();
            products_wait<0>();
            products_done(second);
            products_begin();
            lower_products<0>(first, right, T, false);
            products_commit();
            products_wait<0>();
            products_done(first);
        }
        if (!last) phase_arrive(&at.T_free);
        const split_rows<32> residual(R);
        if (!alone && a.residuals) {
            const slice_group<K> own(m);
            keep_blocks<64>(blocks_at<64>(a.residuals, tile_index(a, own.at.head, own.at.first + n), m.pass.V,
                                          own.at.v + own.warp * 16),
                            residual.high);
        }
        if constexpr (!alone) {
            // Of all heads: to wait for one costs registers.
            for (int slot = 0; slot <= m.place(m.pass.groups - 1).slot; slot++) phase_wait(&at.p_full[slot], n % 2);
            read_half<K, 0>(m, S, residual, stage, nullptr);
            read_half<K, 1>(m, S, residual, stage, last ? nullptr : &at.q_free);
            if (!last) phase_arrive(&at.p_free);
        }
        const slice_group<K> own(m);
        const operand_tile x(own.tiles().x[stage]);
        uint32_t leaving[4][4];
        leaving_rows<other_halves>(leaving, residual, own.gates(stage).leave);
        const float h_end = own.gates(stage).history[63];
#pragma unroll
        for (int i = 0; i < K / 2; i++) S[i] *= h_end;
        products_begin();
#pragma unroll
        for (int step = 0; step < 4; step++) product<K, 1>(S, leaving[step], x.mn(step * 16 * 64, 64), true);
        products_commit();
        if constexpr (!alone)
            copy_columns(own.own().out, a, a.o, own.at.b, own.at.h, own.at.first + n, own.at.v, own.warp);
        products_wait<0>();
        products_done(S);
        if (n + 2 < count) phase_arrive(&at.x_free[stage]);
    }
    const slice_group<K> own(m);
    leave_segment<K>(S, a, m.pass, own.at, a.S_end, own.at.segment + 1, own.warp);
}

template <int K, bool alone>
__global__ void __launch_bounds__(group_block_threads, 1)
    delta_forward_groups_kernel(const __grid_constant__ delta_task a, const __grid_constant__ group_pass pass,
                                const __grid_constant__ group_maps maps) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const group_memory<K> m(memory, pass);
    group_begin(a, m);
    if (threadIdx.x < group_threads) {
        registers_give<feeder_registers>();
        const group_slice &slice = m.place(0);
        group_feeder<K>(a, m, maps).template feed<!alone>(slice.first, slice.end - slice.first);
    } else {
        registers_take<slice_registers>();
        forward_slice<K, alone>(a, m);
    }
}

template <int K, bool alone> fwa_status launch_forward(cudaStream_t stream, const delta_task &task, int V, int slices) {
    const group_pass pass = group_pass_of(task, V, slices, alone);
    const auto kernel = delta_forward_groups_kernel<K, alone>;
    const auto blocks = static_cast<unsigned>(task.segments * pass.blocks);
    const auto threads = static_cast<unsigned>((pass.groups + 1) * group_threads);
    const int bytes = group_bytes<K>(pass);
    group_maps maps;
    FWA_TRY(group_maps_of(&maps, task, task.v, K, V));
    FWA_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, group_bytes_most));
    FWA_LAUNCH(kernel, blocks, threads, bytes, stream, task, pass, maps);
    return FWA_OK;
}

} // namespace

namespace fwa {

bool chunk_delta_grouped(const delta_task &task, int K, int V, int slices) {
    const int64_t all = static_cast<int64_t>(task.segments) * task.B * task.H * slices;
    return K == 128 && V == 128 && all > static_cast<int64_t>(groups_most - 1) * task.multiprocessors;
}

fwa_status chunk_delta_forward_groups(cudaStream_t stream, const delta_task &task, int slices, bool alone) {
    return alone ? launch_forward<128, true>(stream, task, 128, slices)
                 : launch_forward<128, false>(stream, task, 128, slices);
}

} // namespace fwa
