// Gates from a projection and their gradient (contract: sigmoid_gate_forward, sigmoid_gate_backward in ops.def).
//
//   y = scale sigmoid(x + bias);   dx = dy y (1 - y/scale),   dbias[h] += sum_r dx[r,h] before rounding
//
// Shapes: x, dx [R,H] in T (a piece of a packed projection: rows strided; absent where nothing is projected), y, dy
// [R,H], bias, dbias [H] in fp32, rows of y, dy may be strided; any R, H >= 1. Numerics: fp32, accurate exponential:
// gates steer decays. Cost: bound by memory: 4 + sizeof(T) bytes an element forward, 8 + sizeof(T) backward; the rows
// of x are short pieces, so whole 32-byte sectors move for them. Mapping: gates.cuh.
#include "kernels/cuda/gates.cuh"

namespace {

using namespace fwa;

template <typename T> struct gate_value {
    rows<float> y;
    rows<const T> x;
    const float *bias;
    float scale;
    __device__ void operator()(int64_t r, int64_t h) const {
        y.row(r)[h] = scale * sigmoid<float>((x.data ? to_float(x.row(r)[h]) : 0.0f) + bias[h]);
    }
};

template <typename T> struct gate_gradient {
    rows<T> dx;
    rows<const float> dy, y;
    float scale;
    __device__ float2 operator()(int64_t r, int64_t h) const {
        const float value = y.row(r)[h], gradient = dy.row(r)[h] * value * (1.0f - value / scale);
        if (dx.data) dx.row(r)[h] = from_float<T>(gradient);
        return {gradient, 0.0f};
    }
};

template <typename T>
fwa_status sigmoid_gate_forward(fwa_stream *stream, fwa_tensor y, fwa_tensor x, fwa_tensor bias, double scale) {
    FWA_EXPECT_DIMS(y, 2);
    const int64_t R = y.shape[0], H = y.shape[1];
    if (fwa_tensor_present(x)) FWA_EXPECT(x, element<T>::dtype, 2, R, H);
    FWA_EXPECT(y, FWA_F32, 2, R, H);
    FWA_EXPECT_DENSE(bias, FWA_F32, 1, H);
    const gate_value<T> set = {rows_of<float>(y), rows_of<const T>(x), data_of<const float>(bias),
                               static_cast<float>(scale)};
    FWA_TRY(gate_each(stream, set, R, H));
    return FWA_OK;
}

template <typename T>
fwa_status sigmoid_gate_backward(fwa_stream *stream, fwa_tensor dx, fwa_tensor dbias, fwa_tensor dy, fwa_tensor y,
                                 double scale) {
    FWA_EXPECT_DIMS(y, 2);
    const int64_t R = y.shape[0], H = y.shape[1];
    FWA_EXPECT(y, FWA_F32, 2, R, H);
    FWA_EXPECT(dy, FWA_F32, 2, R, H);
    if (fwa_tensor_present(dx)) FWA_EXPECT(dx, element<T>::dtype, 2, R, H);
    FWA_EXPECT_DENSE(dbias, FWA_F32, 1, H);
    const gate_gradient<T> term = {rows_of<T>(dx), rows_of<const float>(dy), rows_of<const float>(y),
                                   static_cast<float>(scale)};
    FWA_TRY(gate_sums(stream, data_of<float>(dbias), nullptr, term, R, H));
    return FWA_OK;
}

} // namespace

FWA_CUDA_ENTRIES(sigmoid_gate_forward, sigmoid_gate_forward,
                 (fwa_stream * stream, fwa_tensor y, fwa_tensor x, fwa_tensor bias, double scale),
                 (stream, y, x, bias, scale))
FWA_CUDA_ENTRIES(sigmoid_gate_backward, sigmoid_gate_backward,
                 (fwa_stream * stream, fwa_tensor dx, fwa_tensor dbias, fwa_tensor dy, fwa_tensor y, double scale),
                 (stream, dx, dbias, dy, y, scale))
