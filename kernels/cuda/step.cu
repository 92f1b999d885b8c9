// The scalars of a step, which live in device memory (contract: loss_accumulate, square_accumulate, step_finish in
// ops.def; fields of *state: ops.h).
//
//   loss_accumulate: loss_sum += sum_r loss[r], valid += #{targets >= 0};   square_accumulate: grad_square += sum x^2
//   step_finish: loss = loss_sum / valid, grad_norm = sqrt(grad_square) / valid, then skip, scale and counters
//
// Types: loss, x fp32, targets i32, sums f64. Any number of elements. The order of a sum depends on the number of
// elements alone: block b of a grid fixed by it adds elements b, b + blocks, ... per thread, then threads as a tree,
// and one last block adds the blocks in order. Cost: 4 (8) bytes an element read. step_finish: one thread.
#include <cmath>

#include "kernels/cuda/launch.cuh"

namespace {

using namespace fwa;

constexpr int threads = 256, unroll = 4;
constexpr int64_t most_blocks = 1024;

// A sum of values and a count beside it.
struct sums {
    double value, count;
};

struct square {
    const float *x;
    __device__ sums operator()(int64_t i) const {
        const double value = x[i];
        return {value * value, 0.0};
    }
};

struct token_loss {
    const float *loss;
    const int32_t *targets;
    __device__ sums operator()(int64_t i) const {
        return {loss[i], targets[i] >= 0 ? 1.0 : 0.0};
    }
};

// The threads of a block as a tree; the result on thread 0.
__device__ sums block_sums(sums own) {
    __shared__ sums shared[threads];
    shared[threadIdx.x] = own;
    for (int half = threads / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x >= half) continue;
        shared[threadIdx.x].value += shared[threadIdx.x + half].value;
        shared[threadIdx.x].count += shared[threadIdx.x + half].count;
    }
    return shared[0];
}

template <typename F> __global__ void __launch_bounds__(threads) sum_parts_kernel(sums *partial, F term, int64_t n) {
    const int64_t step = static_cast<int64_t>(gridDim.x) * threads;
    int64_t i = static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x;
    sums own = {0.0, 0.0};
    for (; i + (unroll - 1) * step < n; i += unroll * step) {
        sums term_at[unroll];
        for (int j = 0; j < unroll; j++) term_at[j] = term(i + j * step);
        for (int j = 0; j < unroll; j++) own.value += term_at[j].value, own.count += term_at[j].count;
    }
    for (; i < n; i += step) {
        const sums more = term(i);
        own.value += more.value, own.count += more.count;
    }
    const sums all = block_sums(own);
    if (threadIdx.x == 0) partial[blockIdx.x] = all;
}

// *value += and *count += the sums of the blocks; count may be absent.
__global__ void __launch_bounds__(threads) sum_finish_kernel(double *value, double *count, const sums *partial, int n) {
    sums own = {0.0, 0.0};
    for (int i = threadIdx.x; i < n; i += threads) own.value += partial[i].value, own.count += partial[i].count;
    const sums all = block_sums(own);
    if (threadIdx.x > 0) return;
    *value += all.value;
    if (count) *count += all.count;
}

template <typename F> fwa_status accumulate(fwa_stream *stream, double *value, double *count, F term, int64_t n) {
    if (n == 0) return FWA_OK;
    const auto blocks = static_cast<int>(fwa_min(fwa_ceil_div(n, threads * unroll), most_blocks));
    auto *partial = static_cast<sums *>(stream->workspace);
    sum_parts_kernel<<<static_cast<unsigned>(blocks), threads, 0, stream->handle>>>(partial, term, n);
    FWA_CUDA_LAUNCHED();
    sum_finish_kernel<<<1, threads, 0, stream->handle>>>(value, count, partial, blocks);
    FWA_CUDA_LAUNCHED();
    return FWA_OK;
}

template <typename T>
fwa_status loss_accumulate(fwa_stream *stream, fwa_step_state *state, fwa_tensor loss, fwa_tensor targets) {
    FWA_EXPECT_DIMS(loss, 1);
    const int64_t R = loss.shape[0];
    FWA_EXPECT_DENSE(loss, FWA_F32, 1, R);
    FWA_EXPECT_DENSE(targets, FWA_I32, 1, R);
    const token_loss term = {data_of<const float>(loss), data_of<const int32_t>(targets)};
    FWA_TRY(accumulate(stream, &state->loss_sum, &state->valid, term, R));
    return FWA_OK;
}

template <typename T> fwa_status square_accumulate(fwa_stream *stream, fwa_step_state *state, fwa_tensor x) {
    FWA_CHECK(x.dtype == FWA_F32 && fwa_tensor_dense(x), FWA_ERROR, "x: got %s%s, expected a dense f32 tensor",
              fwa_dtype_name(x.dtype), fwa_tensor_dense(x) ? "" : " with gaps");
    FWA_CHECK(x.data || fwa_tensor_count(x) == 0, FWA_ERROR, "x: got an absent tensor");
    FWA_TRY(accumulate(stream, &state->grad_square, nullptr, square{data_of<const float>(x)}, fwa_tensor_count(x)));
    return FWA_OK;
}

__device__ bool must_skip(const fwa_step_state &s, const fwa_step_options &options) {
    if (!(s.valid > 0) || !isfinite(s.loss) || !isfinite(s.grad_norm)) return true;
    const bool guarded = options.spike_factor > 0 && s.accepted >= options.guard_window;
    return guarded && !(s.grad_norm <= options.spike_factor * s.norm_mean);
}

// A skipped step leaves the running mean of the norm as it is.
__global__ void step_finish_kernel(fwa_step_state *state, fwa_step_options options) {
    fwa_step_state s = *state;
    s.loss = s.loss_sum / s.valid;
    s.grad_norm = sqrt(s.grad_square) / s.valid;
    s.skip = must_skip(s, options);
    if (s.skip) {
        s.grad_scale = 0;
        s.skipped++;
        s.skipped_in_a_row++;
    } else {
        const bool clipped = options.clip > 0 && s.grad_norm > options.clip;
        s.grad_scale = (clipped ? options.clip / s.grad_norm : 1) / s.valid;
        s.accepted++;
        s.skipped_in_a_row = 0;
        const int64_t window = options.guard_window < s.accepted ? options.guard_window : s.accepted;
        s.norm_mean += (s.grad_norm - s.norm_mean) / static_cast<double>(window < 1 ? 1 : window);
    }
    *state = s;
}

template <typename T>
fwa_status step_finish(fwa_stream *stream, fwa_step_state *state, const fwa_step_options *options) {
    step_finish_kernel<<<1, 1, 0, stream->handle>>>(state, *options);
    FWA_CUDA_LAUNCHED();
    return FWA_OK;
}

} // namespace

FWA_CUDA_ENTRIES(loss_accumulate, loss_accumulate,
                 (fwa_stream * stream, fwa_step_state *state, fwa_tensor loss, fwa_tensor targets),
                 (stream, state, loss, targets))
FWA_CUDA_ENTRIES(square_accumulate, square_accumulate, (fwa_stream * stream, fwa_step_state *state, fwa_tensor x),
                 (stream, state, x))
FWA_CUDA_ENTRIES(step_finish, step_finish,
                 (fwa_stream * stream, fwa_step_state *state, const fwa_step_options *options),
                 (stream, state, options))
