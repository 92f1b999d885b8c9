// Log decays of heads: constants, or from a projection, with the gradient (contract: decay_fill, decay_gate_forward,
// decay_gate_backward in ops.def).
//
//   decay_fill: log_decay[r,h] = log(1 - 2^(-5-h)), or -factor 8 h / H
//   decay_gate: delta = softplus(x + dt_bias), log_decay = -e^{A_log} delta
//   dx = (ddelta - e^{A_log} dlog_decay) (1 - e^{-delta}),  ddt_bias[h] += sum_r dx before rounding,
//   dA_log[h] += sum_r dlog_decay log_decay
//
// Shapes: x, dx [R,H] in T (rows strided); log_decay, delta and their gradients [R,H] (rows may be strided), A_log,
// dt_bias and theirs [H] in fp32; ddelta may be absent. Any R, H >= 1. Numerics: fp32, accurate functions; constants in
// f64. Cost: bound by memory: 4, 8 + sizeof(T) and 12 + sizeof(T) bytes an element. Mapping: gates.cuh.
#include "kernels/cuda/gates.cuh"

namespace {

using namespace fwa;

struct constant_decay {
    rows<float> log_decay;
    fwa_decay decay;
    double factor, H;
    __device__ void operator()(int64_t r, int64_t h) const {
        const auto at = static_cast<double>(h);
        log_decay.row(r)[h] =
            static_cast<float>(decay == FWA_DECAY_RETNET ? log1p(-exp2(-5.0 - at)) : -factor * 8.0 * at / H);
    }
};

template <typename T> struct decay_value {
    rows<float> log_decay, delta;
    rows<const T> x;
    const float *A_log, *dt_bias;
    __device__ void operator()(int64_t r, int64_t h) const {
        const float in = to_float(x.row(r)[h]) + dt_bias[h];
        const float step = fmaxf(in, 0.0f) + log1pf(expf(-fabsf(in)));
        delta.row(r)[h] = step;
        log_decay.row(r)[h] = -expf(A_log[h]) * step;
    }
};

template <typename T> struct decay_gradient {
    rows<T> dx;
    rows<const float> dlog_decay, ddelta, delta;
    const float *A_log;
    __device__ float2 operator()(int64_t r, int64_t h) const {
        const float rate = expf(A_log[h]), d = dlog_decay.row(r)[h], step = delta.row(r)[h];
        const float more = ddelta.data ? ddelta.row(r)[h] : 0.0f;
        const float gradient = (more - rate * d) * -expm1f(-step);
        dx.row(r)[h] = from_float<T>(gradient);
        return {gradient, -d * step * rate};
    }
};

template <typename T> fwa_status decay_fill(fwa_stream *stream, fwa_tensor log_decay, fwa_decay decay, double factor) {
    FWA_EXPECT_DIMS(log_decay, 2);
    const int64_t R = log_decay.shape[0], H = log_decay.shape[1];
    FWA_EXPECT(log_decay, FWA_F32, 2, R, H);
    const constant_decay set = {rows_of<float>(log_decay), decay, factor, static_cast<double>(H)};
    FWA_TRY(gate_each(stream, set, R, H));
    return FWA_OK;
}

template <typename T>
fwa_status decay_gate_forward(fwa_stream *stream, fwa_tensor log_decay, fwa_tensor delta, fwa_tensor x,
                              fwa_tensor A_log, fwa_tensor dt_bias) {
    FWA_EXPECT_DIMS(x, 2);
    const int64_t R = x.shape[0], H = x.shape[1];
    FWA_EXPECT(x, element<T>::dtype, 2, R, H);
    FWA_EXPECT(log_decay, FWA_F32, 2, R, H);
    FWA_EXPECT(delta, FWA_F32, 2, R, H);
    FWA_EXPECT_DENSE(A_log, FWA_F32, 1, H);
    FWA_EXPECT_DENSE(dt_bias, FWA_F32, 1, H);
    const decay_value<T> set = {rows_of<float>(log_decay), rows_of<float>(delta), rows_of<const T>(x),
                                data_of<const float>(A_log), data_of<const float>(dt_bias)};
    FWA_TRY(gate_each(stream, set, R, H));
    return FWA_OK;
}

template <typename T>
fwa_status decay_gate_backward(fwa_stream *stream, fwa_tensor dx, fwa_tensor dA_log, fwa_tensor ddt_bias,
                               fwa_tensor dlog_decay, fwa_tensor ddelta, fwa_tensor delta, fwa_tensor A_log) {
    FWA_EXPECT_DIMS(delta, 2);
    const int64_t R = delta.shape[0], H = delta.shape[1];
    FWA_EXPECT(delta, FWA_F32, 2, R, H);
    FWA_EXPECT(dlog_decay, FWA_F32, 2, R, H);
    FWA_EXPECT(dx, element<T>::dtype, 2, R, H);
    FWA_EXPECT_DENSE(A_log, FWA_F32, 1, H);
    FWA_EXPECT_DENSE(dA_log, FWA_F32, 1, H);
    FWA_EXPECT_DENSE(ddt_bias, FWA_F32, 1, H);
    if (fwa_tensor_present(ddelta)) FWA_EXPECT(ddelta, FWA_F32, 2, R, H);
    const decay_gradient<T> term = {rows_of<T>(dx), rows_of<const float>(dlog_decay), rows_of<const float>(ddelta),
                                    rows_of<const float>(delta), data_of<const float>(A_log)};
    FWA_TRY(gate_sums(stream, data_of<float>(ddt_bias), data_of<float>(dA_log), term, R, H));
    return FWA_OK;
}

} // namespace

FWA_CUDA_ENTRIES(decay_fill, decay_fill, (fwa_stream * stream, fwa_tensor log_decay, fwa_decay decay, double factor),
                 (stream, log_decay, decay, factor))
FWA_CUDA_ENTRIES(decay_gate_forward, decay_gate_forward,
                 (fwa_stream * stream, fwa_tensor log_decay, fwa_tensor delta, fwa_tensor x, fwa_tensor A_log,
                  fwa_tensor dt_bias),
                 (stream, log_decay, delta, x, A_log, dt_bias))
FWA_CUDA_ENTRIES(decay_gate_backward, decay_gate_backward,
                 (fwa_stream * stream, fwa_tensor dx, fwa_tensor dA_log, fwa_tensor ddt_bias, fwa_tensor dlog_decay,
                  fwa_tensor ddelta, fwa_tensor delta, fwa_tensor A_log),
                 (stream, dx, dA_log, ddt_bias, dlog_decay, ddelta, delta, A_log))
