// Decoupled AdamW with clipping and the copy that products read, in one pass (contract: adamw, adamw_parts in ops.def
// and ops.h).
//
//   g = grad s;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  p -= r (m c1 / (sqrt(v c2) + eps) + decay p)
//   s = state->grad_scale, c_i = 1 / (1 - b_i^n), n = state->accepted, r = state->lr lr_scale;  copy = p
//
// Shapes: dense tensors of one count a part; master, grad, m, v fp32, copy T, fp32 or absent. Nothing is written where
// state->skip. Numerics: fp32, which multiplications are fused being said, bias corrections in f64; elements do not
// meet, so a list gives the bits of its tensors one by one. Cost: bound by memory, 28 bytes a parameter, 30 with a bf16
// copy. Mapping: the pieces of all parts lie in one row, of which every block takes a stretch; a thread of it updates
// packs of 4 parameters. The bias corrections are computed once a block.
#include "kernels/cuda/launch.cuh"

namespace {

using namespace fwa;

constexpr int threads = 256, N = 4, blocks_per_multiprocessor = 64;

struct bias {
    float mean, variance;
};

__device__ bias make_bias(const fwa_adamw_options &o, const fwa_step_state &state) {
    const auto updates = static_cast<double>(state.accepted);
    return {static_cast<float>(1 / (1 - pow(o.beta1, updates))), static_cast<float>(1 / (1 - pow(o.beta2, updates)))};
}

struct factors {
    float grad, beta1, beta2, one_minus_beta1, one_minus_beta2;
    float mean, variance; // bias corrections
    float eps, rate, decay;
};

__device__ factors make_factors(const fwa_adamw_options &o, const fwa_adamw_part &part, const fwa_step_state &state,
                                const bias &corrections) {
    return {
        .grad = static_cast<float>(state.grad_scale),
        .beta1 = static_cast<float>(o.beta1),
        .beta2 = static_cast<float>(o.beta2),
        .one_minus_beta1 = static_cast<float>(1 - o.beta1),
        .one_minus_beta2 = static_cast<float>(1 - o.beta2),
        .mean = corrections.mean,
        .variance = corrections.variance,
        .eps = static_cast<float>(o.eps),
        .rate = static_cast<float>(state.lr * o.lr_scale * part.lr_scale),
        .decay = static_cast<float>(o.decay * part.decay),
    };
}

template <typename T, int P>
__device__ void update(float *master, T *copy, const float *grad, float *m, float *v, const factors &f) {
    const auto gs = load<P>(grad);
    auto ps = load<P>(master), ms = load<P>(m), vs = load<P>(v);
    pack<T, P> second;
    for (int j = 0; j < P; j++) {
        const float g = gs.at[j] * f.grad;
        ms.at[j] = fmaf(f.beta1, ms.at[j], f.one_minus_beta1 * g);
        vs.at[j] = fmaf(f.beta2, vs.at[j], f.one_minus_beta2 * (g * g));
        const float step = fmaf(f.decay, ps.at[j], ms.at[j] * f.mean / (sqrtf(vs.at[j] * f.variance) + f.eps));
        ps.at[j] = fmaf(-f.rate, step, ps.at[j]);
        second.at[j] = from_float<T>(ps.at[j]);
    }
    store(master, ps), store(m, ms), store(v, vs);
    if (copy) store(copy, second);
}

__device__ bool aligned(const fwa_adamw_part &part) {
    uintptr_t all = 0;
    for (const void *data : {part.master, part.copy, part.m, part.v}) all |= reinterpret_cast<uintptr_t>(data);
    return (all | reinterpret_cast<uintptr_t>(part.grad)) % 16 == 0;
}

// The elements from .. to - 1 of a part, by all threads of the block.
template <typename T>
__device__ void update_piece(const fwa_adamw_part &part, int64_t from, int64_t to, const factors &f) {
    auto *master = static_cast<float *>(part.master), *m = static_cast<float *>(part.m);
    auto *v = static_cast<float *>(part.v);
    auto *copy = static_cast<T *>(part.copy);
    const auto *grad = static_cast<const float *>(part.grad);
    const bool packed = aligned(part);
#pragma unroll 1
    for (int64_t i = from + threadIdx.x * N; i < to; i += threads * N) {
        if (packed && i + N <= to) {
            update<T, N>(master + i, copy ? copy + i : nullptr, grad + i, m + i, v + i, f);
            continue;
        }
        for (int64_t j = i; j < to && j < i + N; j++)
            update<T, 1>(master + j, copy ? copy + j : nullptr, grad + j, m + j, v + j, f);
    }
}

__device__ int64_t pieces_of(const fwa_adamw_part &part) {
    return (part.count + FWA_ADAMW_PIECE - 1) / FWA_ADAMW_PIECE;
}

// The last part that begins at `piece` or before.
__device__ int find_part(const fwa_adamw_part *parts, int count, int64_t piece) {
    int low = 0, high = count;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (parts[middle].first <= piece)
            low = middle;
        else
            high = middle;
    }
    return low;
}

// parts: NULL where there is only one, which is `single`.
template <typename T>
__global__ void __launch_bounds__(threads, 5)
    adamw_kernel(const fwa_adamw_part *parts, int count, fwa_adamw_part single, fwa_adamw_options options,
                 const fwa_step_state *state_memory) {
    __shared__ bias corrections;
    const fwa_step_state &state = *state_memory;
    if (state.skip) return;
    if (threadIdx.x == 0) corrections = make_bias(options, state);
    __syncthreads();
    const fwa_adamw_part &last = parts ? parts[count - 1] : single;
    const int64_t pieces = last.first + pieces_of(last);
    int64_t piece = pieces * blockIdx.x / gridDim.x;
    const int64_t end = pieces * (blockIdx.x + 1) / gridDim.x;
    int at = parts && piece < end ? find_part(parts, count, piece) : 0;
    for (; piece < end; at++) {
        const fwa_adamw_part part = parts ? parts[at] : single;
        const factors f = make_factors(options, part, state, corrections);
        const int64_t begin = (piece - part.first) * FWA_ADAMW_PIECE;
        const int64_t stop = part.first + pieces_of(part) < end ? part.first + pieces_of(part) : end;
        const int64_t limit = (stop - part.first) * FWA_ADAMW_PIECE;
        const int64_t to = limit < part.count ? limit : part.count;
        if (part.copy_type == FWA_F32)
            update_piece<float>(part, begin, to, f);
        else
            update_piece<T>(part, begin, to, f);
        piece = stop;
    }
}

template <typename T>
fwa_status launch(fwa_stream *stream, const fwa_adamw_part *parts, int count, const fwa_adamw_part &single,
                  int64_t elements, const fwa_adamw_options *options, const fwa_step_state *state) {
    const unsigned blocks = grid(stream, elements, FWA_ADAMW_PIECE, blocks_per_multiprocessor);
    adamw_kernel<T><<<blocks, threads, 0, stream->handle>>>(parts, count, single, *options, state);
    FWA_CUDA_LAUNCHED();
    return FWA_OK;
}

template <typename T>
fwa_status adamw(fwa_stream *stream, fwa_tensor master, fwa_tensor copy, fwa_tensor grad, fwa_tensor m, fwa_tensor v,
                 const fwa_adamw_options *options, const fwa_step_state *state) {
    fwa_adamw_part part;
    FWA_TRY(fwa_adamw_part_make(&part, nullptr, element<T>::dtype, master, copy, grad, m, v));
    if (part.count == 0) return FWA_OK;
    return launch<T>(stream, nullptr, 1, part, part.count, options, state);
}

template <typename T>
fwa_status adamw_parts(fwa_stream *stream, fwa_tensor parts, int64_t elements, const fwa_adamw_options *options,
                       const fwa_step_state *state) {
    const auto count = static_cast<int>(fwa_tensor_bytes(parts) / sizeof(fwa_adamw_part));
    if (count == 0 || elements == 0) return FWA_OK;
    return launch<T>(stream, data_of<const fwa_adamw_part>(parts), count, {}, elements, options, state);
}

} // namespace

FWA_CUDA_ENTRIES(adamw, adamw,
                 (fwa_stream * stream, fwa_tensor master, fwa_tensor copy, fwa_tensor grad, fwa_tensor m, fwa_tensor v,
                  const fwa_adamw_options *options, const fwa_step_state *state),
                 (stream, master, copy, grad, m, v, options, state))
FWA_CUDA_ENTRIES(adamw_parts, adamw_parts,
                 (fwa_stream * stream, fwa_tensor parts, int64_t elements, const fwa_adamw_options *options,
                  const fwa_step_state *state),
                 (stream, parts, elements, options, state))
