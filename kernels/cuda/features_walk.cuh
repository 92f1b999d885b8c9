// The quick kernel of features_backward.cu: W <= 4, heads of up to 32 packs of 4 channels, aligned rows.
//
// A lane group walks runs of one head backwards in time, 4 steps at once, beginning with the W - 1 steps after the end
// of the run: du_t is added to the W sums that become dx_t .. dx_{t-W+1}, so no du is stored. Inputs stay in registers
// as floats, in a ring of 8 steps; a thread sends what it will need two batches later to its own place in shared
// memory. The 4 sums of a head's dot products go around the group together. With s = silu(u), slope = silu'(u), and n =
// s rstd: du = a A - b B, where A = e slope, B = s slope, a = rstd, b = rstd^3 factor sum(e s). dw sums stay in
// registers over all runs of a group, then go to the workspace and are added in order.
#ifndef FWA_KERNELS_CUDA_FEATURES_WALK_CUH
#define FWA_KERNELS_CUDA_FEATURES_WALK_CUH

#include "kernels/cuda/features.cuh"

namespace fwa {

constexpr int back_threads = 128, back_blocks = 3; // of a launch; blocks that must fit a multiprocessor
template <typename T> constexpr int back_stages = sizeof(T) == 2 ? 3 : 2; // batches in shared memory or on their way
constexpr int back_columns = 4, ring = 8; // channels of a lane; steps of its inputs in registers

template <typename T> struct walk_gradients {
    sequences<T> dx, dhalo;
    const T *dy;
    const float *rstd;
    float *partial;
};

// One run of a lane group: steps [begin, end) of sequence b, channels from c.
struct walk_place {
    int64_t b, h, c;
    int begin, end;
    bool active; // the others only take part in sums
};

template <typename T, int N, int TAPS, walk_kind KIND> struct backward_walk {
    static constexpr bool LEAN = KIND != WALK_GENERAL, RESETS = KIND != WALK_LEAN && TAPS > 1;

    const conv_input<T> &in;
    const walk_gradients<T> &out;
    const fwa_feature_options &options;
    const walk_norm &norm;
    walk_place at;
    walk_column<const T> from_x, from_dy;
    walk_column<const float> from_rstd;
    walk_column<T> to_dx;
    int lanes, quarter, part;
    float w[TAPS][N], dw[TAPS][N], x[ring][N], dx[batch][N];
    // Of this thread and of batches to come: inputs of steps t - TAPS + 1 and before, gradients of t and before, rstd
    // of t - part.
    pieces<T, N> (*staged)[2 * batch][back_threads];
    pieces<float, 1> (*staged_rstd)[back_threads];
    int stage;           // of the next batch
    unsigned next_flags; // its resets

    // Sends for the batch that begins with step t, unless it is none of the run's: they end with step `low`.
    __device__ void fetch(int t, int low, int to) {
        const int last = static_cast<int>(in.steps) - 1;
        auto *at_x = &staged[to][0][threadIdx.x];
        if (t >= low) {
            if (t - (TAPS - 1) - (batch - 1) >= 0 && t <= last) {
#pragma unroll
                for (int j = 0; j < batch; j++) {
                    copy_ahead<T, N>(at_x + j * back_threads, from_x.step(t - (TAPS - 1) - j));
                    copy_ahead<T, N>(at_x + (batch + j) * back_threads, from_dy.step(t - j));
                }
            } else {
#pragma unroll
                for (int j = 0; j < batch; j++) {
                    const int step = min(t - (TAPS - 1) - j, last);
                    const bool exists = in.exists(step);
                    copy_ahead<T, N>(at_x + j * back_threads, in.place(at.b, exists ? step : 0) + at.c, exists);
                    copy_ahead<T, N>(at_x + (batch + j) * back_threads, from_dy.step(min(max(t - j, 0), last)));
                }
            }
            if (norm.present)
                copy_ahead<float, 1>(&staged_rstd[to][threadIdx.x], from_rstd.step(min(max(t - part, 0), last)));
        }
        end_copies();
    }

    __device__ void fetch_resets(int t) {
        if (!RESETS) return;
        const int steps = static_cast<int>(in.steps);
        next_flags = in.reset ? reset_flags(in.reset + at.b * in.steps, t, steps, lanes) : 0;
    }

    // dx of steps t .. t - 3; before the run it is complete only where the run is the first one.
    __device__ void write(int t, const pieces<T, N> (&done)[batch]) const {
        if (!at.active) return;
        if (t - (batch - 1) >= at.begin) {
#pragma unroll
            for (int j = 0; j < batch; j++) store(to_dx.step(t - j), done[j]);
            return;
        }
#pragma unroll
        for (int j = 0; j < batch; j++) {
            if (t - j >= at.begin)
                store(to_dx.step(t - j), done[j]);
            else if (out.dhalo.data && t - j < 0 && t - j >= 1 - in.W)
                store(out.dhalo.at(at.b, in.W - 1 + t - j) + at.c, done[j]);
        }
    }

    // Steps t .. t - 3; x[(BASE + j) % ring] = x_{t-j}. OWN: steps of the run, not those after it.
    template <int BASE, bool OWN> __device__ void steps(int t, int low) {
        constexpr int stages = back_stages<T>;
        await_copies<stages - 2>();
        float e[batch][N], own_scale, scale[batch], dot[batch], A[batch][N], B[batch][N];
        int seen[batch];
        pieces<T, N> done[batch];
        const unsigned bits = RESETS ? reset_bits(next_flags, lanes) : 0;
        const bool own = t - part >= at.begin && t - part < in.steps;
        own_scale = !own ? 0.0f : 1.0f;
        if (own && norm.present) own_scale = __uint_as_float(staged_rstd[stage][threadIdx.x].at[0]);
#pragma unroll
        for (int j = 0; j < batch; j++) {
            unpack(x[(BASE + TAPS - 1 + j) & (ring - 1)], staged[stage][j][threadIdx.x]);
            unpack(e[j], staged[stage][batch + j][threadIdx.x]);
            scale[j] = lanes_get(own_scale, j * quarter, lanes);
            seen[j] = TAPS - 1;
            if (RESETS) seen[j] = reset_reach(bits >> j);
        }
        fetch(t - (stages - 1) * batch, low, stage > 0 ? stage - 1 : stages - 1);
        stage = stage + 1 < stages ? stage + 1 : 0;
        fetch_resets(t - batch);
#pragma unroll
        for (int j = 0; j < batch; j++) {
            dot[j] = 0.0f;
#pragma unroll
            for (int i = 0; i < N; i++) {
                float u = 0.0f;
#pragma unroll
                for (int back = TAPS - 1; back >= 0; back--)
                    if (!RESETS || back <= seen[j]) u += w[back][i] * x[(BASE + j + back) & (ring - 1)][i];
                float s, slope;
                if (LEAN) {
                    const float gate = quick_reciprocal(1.0f + power2(u));
                    s = u * gate;
                    slope = s * (ln_2 * gate - ln_2) + gate;
                } else {
                    const float gate = options.silu ? sigmoid<T>(u) : 1.0f;
                    s = u * gate;
                    slope = options.silu ? silu_slope(u, gate) : 1.0f;
                    if (options.phi != FWA_PHI_IDENTITY) e[j][i] *= phi_slope(options.phi, s * scale[j]);
                }
                dot[j] += e[j][i] * s;
                A[j][i] = e[j][i] * slope, B[j][i] = s * slope;
            }
        }
        float pull = 0.0f;
        if (norm.present) {
            if (!at.active)
                for (int j = 0; j < batch; j++) dot[j] = 0.0f;
            pull = lanes_sum4(dot, lanes) * norm.factor * (own_scale * own_scale * own_scale);
        }
#pragma unroll
        for (int j = 0; j < batch; j++) {
            const float pull_j = norm.present ? lanes_get(pull, j * quarter, lanes) : 0.0f;
#pragma unroll
            for (int i = 0; i < N; i++) {
                const float du = scale[j] * A[j][i] - pull_j * B[j][i];
#pragma unroll
                for (int back = 0; back < TAPS; back++) {
                    const float add = !RESETS || back <= seen[j] ? du : 0.0f;
                    float *sum = &dx[(j + back) & (batch - 1)][i];
                    *sum = back == TAPS - 1 ? w[back][i] * add : *sum + w[back][i] * add;
                    if (OWN) dw[back][i] += x[(BASE + j + back) & (ring - 1)][i] * add;
                }
            }
            float value[N];
#pragma unroll
            for (int i = 0; i < N; i++) value[i] = LEAN ? -ln_2 * dx[j][i] : dx[j][i];
            done[j] = repack<T>(value);
        }
        if (OWN) write(t, done);
    }

    __device__ void run(int batches) {
#pragma unroll
        for (int j = 0; j < batch; j++)
#pragma unroll
            for (int i = 0; i < N; i++) dx[j][i] = 0.0f;
        constexpr int stages = back_stages<T>, before = TAPS > 1 ? batch : 0;
        const int low = at.end - 1 - (batches - 1) * batch;
        int t = at.end - 1 + before;
#pragma unroll
        for (int n = 0, to = stage; n < stages - 1; n++, to = to + 1 < stages ? to + 1 : 0)
            fetch(t - n * batch, low, to);
        fetch_resets(t);
        if (TAPS > 1) {
#pragma unroll
            for (int j = 0; j < TAPS - 1; j++) {
                const int step = min(t - j, static_cast<int>(in.steps) - 1);
                unpack(x[(batch + j) & (ring - 1)], in.template words<N>(at.b, step, at.c));
            }
            steps<batch, false>(t, low);
            t -= batch;
        }
        for (int n = 0; n < batches; n += 2) {
            steps<0, true>(t, low);
            if (n + 1 == batches) break;
            steps<batch, true>(t - batch, low);
            t -= 2 * batch;
        }
    }
};

// partial[slots][P*W]: lane groups take the heads of `slots` runs at once; in round r of `rounds` slot i has run i + r
// slots.
template <typename T, int N, int TAPS, walk_kind KIND>
__global__ void __launch_bounds__(back_threads, back_blocks)
    features_walk_backward_kernel(walk_gradients<T> out, conv_input<T> in, fwa_feature_options options, walk_norm norm,
                                  walk_shape shape, int64_t slots, int rounds) {
    __shared__ pieces<T, N> staged[back_stages<T>][2 * batch][back_threads];
    __shared__ pieces<float, 1> staged_rstd[back_stages<T>][back_threads];
    const int64_t group = (static_cast<int64_t>(blockIdx.x) * back_threads + threadIdx.x) / shape.lanes;
    const int lane = static_cast<int>(threadIdx.x) % shape.lanes;
    int64_t slot, h;
    divide(group, in.H, &slot, &h);
    const bool inside = slot < slots && lane * N < in.K;
    const int64_t c = inside ? h * in.K + lane * N : 0;
    const int64_t P = in.H * in.K;
    backward_walk<T, N, TAPS, KIND> walk = {in, out, options, norm};
    walk.lanes = shape.lanes, walk.quarter = shape.lanes / batch, walk.part = lane / walk.quarter;
    const auto w = load_taps<N, TAPS>(in, c);
#pragma unroll
    for (int back = 0; back < TAPS; back++)
#pragma unroll
        for (int i = 0; i < N; i++) walk.w[back][i] = w.at[back][i] * walk_scale<KIND>, walk.dw[back][i] = 0.0f;
    walk.staged = staged, walk.staged_rstd = staged_rstd, walk.stage = 0;
    const int batches = shape.run / batch + (out.dhalo.data ? 1 : 0);
    for (int round = 0; round < rounds; round++) {
        int64_t b, run;
        divide(slot + round * slots, shape.runs, &b, &run);
        const bool exists = slot < slots && b < in.B;
        if (!__any_sync(everyone, exists)) break;
        walk.at = {exists ? b : 0, h, c, static_cast<int>(run) * shape.run, 0, exists && inside};
        walk.at.end = min(walk.at.begin + shape.run, static_cast<int>(in.steps));
        b = walk.at.b;
        walk.from_x = walk_along(in.x.at(b, 0) + c, shape.x_bytes);
        walk.from_dy = walk_along(out.dy + b * in.steps * P + c, shape.row_bytes);
        walk.from_rstd = walk_along(out.rstd + b * in.steps * in.H + h, step_bytes<float>(in.H));
        walk.to_dx = walk_along(out.dx.at(b, 0) + c, shape.grad_bytes);
        walk.run(batches);
    }
    if (!inside || !in.w) return;
    float *to = out.partial + slot * in.H * in.K * in.W + c * in.W;
#pragma unroll
    for (int back = 0; back < TAPS; back++)
#pragma unroll
        for (int j = 0; j < N; j++)
            if (back < in.W) to[j * in.W + in.W - 1 - back] = walk.dw[back][j];
}

template <typename T, walk_kind KIND> auto *pick_backward_walk(int W) {
    return W == 1 ? features_walk_backward_kernel<T, back_columns, 1, KIND>
                  : features_walk_backward_kernel<T, back_columns, 4, KIND>;
}

template <typename T> auto *pick_backward_walk(int W, walk_kind kind) {
    if constexpr (sizeof(T) == 2) {
        if (kind == WALK_LEAN) return pick_backward_walk<T, WALK_LEAN>(W);
        if (kind == WALK_LEAN_RESETS) return pick_backward_walk<T, WALK_LEAN_RESETS>(W);
    }
    return pick_backward_walk<T, WALK_GENERAL>(W);
}

// Whether the quick kernel takes these: one set of dw sums must fit the workspace.
template <typename T> bool walks_back(const conv_input<T> &in, int64_t stride, bool aligned) {
    return aligned && in.W <= 4 && in.K % back_columns == 0 && in.K <= 32 * back_columns && walk_fits(in, stride) &&
           partial_rows(1, in.H * in.K * in.W) >= 1;
}

template <typename T>
fwa_status walk_back(fwa_stream *stream, walk_gradients<T> out, float *dw, const conv_input<T> &in,
                     const fwa_feature_options *options) {
    const walk_kind kind = walk_kind_of<T>(options, in.reset);
    const int lanes = fwa_max(batch, lanes_for(in.K / back_columns));
    const int64_t resident = static_cast<int64_t>(stream->multiprocessors) * back_blocks * back_threads;
    int64_t slots = fwa_max(resident / lanes / in.H, 1);
    if (in.w) slots = partial_rows(slots, in.H * in.K * in.W);
    walk_shape shape = make_walk(in.B * in.H, in.steps, lanes, slots * in.H, 12);
    shape.x_bytes = step_bytes<T>(in.x.t), shape.row_bytes = step_bytes<T>(in.H * in.K);
    shape.grad_bytes = step_bytes<T>(out.dx.t);
    const int64_t rounds = fwa_ceil_div(in.B * shape.runs, slots);
    slots = fwa_ceil_div(in.B * shape.runs, rounds);
    const int64_t blocks = fwa_ceil_div(slots * in.H * lanes, back_threads);
    FWA_CHECK(blocks <= INT_MAX && rounds <= INT_MAX, FWA_UNSUPPORTED, "dx: got %lld channels, too many for one launch",
              static_cast<long long>(in.H * in.K));
    out.partial = static_cast<float *>(stream->workspace);
    auto *kernel = pick_backward_walk<T>(in.W, kind);
    kernel<<<static_cast<unsigned>(blocks), back_threads, 0, stream->handle>>>(
        out, in, *options, walk_norm_of(*options, in.K, kind != WALK_GENERAL), shape, slots, static_cast<int>(rounds));
    FWA_CUDA_LAUNCHED();
    if (in.w) FWA_TRY(reduce_rows(stream, dw, out.partial, slots, in.H * in.K * in.W));
    return FWA_OK;
}

} // namespace fwa
#endif
