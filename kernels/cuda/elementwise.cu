// Operators on whole dense tensors: conversion and sum (contract: cast, add in ops.def).
//
//   cast: y_i = x_i rounded to y's type;   add: y_i += x_i, summed in fp32 and rounded once
//
// Types: f32 and bf16 in any combination for cast, either for add; any number of elements. Cost: bound by memory, each
// operand is read or written once. Mapping: one thread 8 neighbouring elements, single ones at the end or where the
// tensors are not aligned to 16 bytes.
#include "kernels/cuda/launch.cuh"

namespace {

using namespace fwa;

constexpr int threads = 256, N = 8;

// y_i = x_i, or y_i + x_i.
template <typename Y, typename X, bool SUM>
__global__ void __launch_bounds__(threads) combine_kernel(Y *y, const X *x, int64_t count, bool packed) {
    const int64_t begin = (static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x) * N;
    const int64_t step = static_cast<int64_t>(gridDim.x) * threads * N;
    for (int64_t i = begin; i < count; i += step) {
        if (packed && i + N <= count) {
            const auto xs = load<N>(x + i);
            pack<Y, N> ys = {};
            if (SUM) ys = load<N>(y + i);
            for (int j = 0; j < N; j++)
                ys.at[j] = from_float<Y>(SUM ? to_float(ys.at[j]) + to_float(xs.at[j]) : to_float(xs.at[j]));
            store(y + i, ys);
            continue;
        }
        for (int64_t j = i; j < count && j < i + N; j++)
            y[j] = from_float<Y>(SUM ? to_float(y[j]) + to_float(x[j]) : to_float(x[j]));
    }
}

template <typename Y, typename X, bool SUM> fwa_status combine(fwa_stream *stream, fwa_tensor y, fwa_tensor x) {
    const int64_t count = fwa_tensor_count(x);
    if (count == 0) return FWA_OK;
    const auto blocks = static_cast<unsigned>(fwa_min(fwa_ceil_div(count, threads * N), INT_MAX));
    const bool packed =
        reinterpret_cast<std::uintptr_t>(y.data) % 16 == 0 && reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0;
    combine_kernel<Y, X, SUM>
        <<<blocks, threads, 0, stream->handle>>>(data_of<Y>(y), data_of<const X>(x), count, packed);
    FWA_CUDA_LAUNCHED();
    return FWA_OK;
}

fwa_status check(fwa_tensor y, fwa_tensor x) {
    FWA_CHECK(fwa_tensor_count(y) == fwa_tensor_count(x), FWA_ERROR, "y: got %lld elements, expected x's %lld",
              static_cast<long long>(fwa_tensor_count(y)), static_cast<long long>(fwa_tensor_count(x)));
    FWA_CHECK(fwa_tensor_dense(y) && fwa_tensor_dense(x), FWA_ERROR, "got rows with gaps, expected dense tensors");
    FWA_CHECK((y.data && x.data) || fwa_tensor_count(x) == 0, FWA_ERROR, "got an absent tensor, expected x and y");
    FWA_CHECK((x.dtype == FWA_F32 || x.dtype == FWA_BF16) && (y.dtype == FWA_F32 || y.dtype == FWA_BF16),
              FWA_UNSUPPORTED, "got y %s, x %s; expected f32 or bf16 on CUDA", fwa_dtype_name(y.dtype),
              fwa_dtype_name(x.dtype));
    return FWA_OK;
}

// Both precisions convert between both types.
template <typename T> fwa_status cast(fwa_stream *stream, fwa_tensor y, fwa_tensor x) {
    FWA_TRY(check(y, x));
    if (y.dtype == x.dtype) {
        FWA_CUDA_TRY(cudaMemcpyAsync(y.data, x.data, fwa_tensor_bytes(x), cudaMemcpyDeviceToDevice, stream->handle));
    } else if (y.dtype == FWA_F32) {
        FWA_TRY((combine<float, __nv_bfloat16, false>(stream, y, x)));
    } else {
        FWA_TRY((combine<__nv_bfloat16, float, false>(stream, y, x)));
    }
    return FWA_OK;
}

template <typename T> fwa_status add(fwa_stream *stream, fwa_tensor y, fwa_tensor x) {
    FWA_TRY(check(y, x));
    FWA_CHECK(x.dtype == y.dtype, FWA_ERROR, "add: got %s += %s, expected equal types", fwa_dtype_name(y.dtype),
              fwa_dtype_name(x.dtype));
    if (x.dtype == FWA_F32)
        FWA_TRY((combine<float, float, true>(stream, y, x)));
    else
        FWA_TRY((combine<__nv_bfloat16, __nv_bfloat16, true>(stream, y, x)));
    return FWA_OK;
}

} // namespace

FWA_CUDA_ENTRIES(cast, cast, (fwa_stream * stream, fwa_tensor y, fwa_tensor x), (stream, y, x))
FWA_CUDA_ENTRIES(add, add, (fwa_stream * stream, fwa_tensor y, fwa_tensor x), (stream, y, x))
