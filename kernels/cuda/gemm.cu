// Matrix products through cuBLASLt (contract: gemm in ops.def).
//
//   d[M,N] = alpha op(a) op(b) + beta c,  op(a) [M,k], op(b) [k,N];  c absent: c = d
//
// Types: a, b act; d and c act or fp32; sums and scales fp32, in f32 without TF32 or any other shortening. Row-major
// with row strides: the library counts in columns, so it is given the transposed product b^T a^T. Any sizes >= 1, any
// alignment. Split sums are added by the library in fp32 through the workspace, never through memory that others write:
// the same algorithm gives the same bits.
//
// The algorithm of a kind of product (sizes, types, transposes, strides, alignment) is chosen once (product_choice.cu).
#include <cstring>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/product.cuh"

namespace {

using namespace fwa;

constexpr int64_t most_alignment = 256;

int64_t alignment(const void *data) {
    const auto address = static_cast<int64_t>(reinterpret_cast<std::uintptr_t>(data));
    int64_t bytes = most_alignment;
    while (address % bytes != 0) bytes /= 2;
    return bytes;
}

fwa_status run(fwa_stream *stream, const product *p, const product_operands &o) {
    FWA_BLAS_TRY(product_multiply(stream, p, o, &p->algorithm, p->workspace));
    return FWA_OK;
}

fwa_status run_new(fwa_stream *stream, const product_kind &kind, const product_operands &o) {
    product *p = nullptr;
    bool final = false;
    FWA_TRY(product_create(&p, kind));
    fwa_status status = product_choose(stream, p, o, &final);
    if (status == FWA_OK) status = run(stream, p, o);
    if (status == FWA_OK && final)
        products_keep(stream->products, p);
    else
        product_destroy(p);
    FWA_TRY(status);
    return FWA_OK;
}

fwa_status check_matrix(fwa_tensor t, const char *name, fwa_dtype dtype, int64_t rows, int64_t columns) {
    FWA_TRY(fwa_tensor_expect(t, name, dtype, 2, rows, columns));
    FWA_CHECK(rows <= 1 || t.stride[0] >= columns, FWA_ERROR, "%s: got row stride %lld, expected at least %lld", name,
              static_cast<long long>(t.stride[0]), static_cast<long long>(columns));
    FWA_CHECK(rows >= 1 && columns >= 1 && rows <= INT_MAX && columns <= INT_MAX, FWA_UNSUPPORTED,
              "%s: got [%lld, %lld]; products on CUDA take sizes from 1 to 2^31 - 1", name,
              static_cast<long long>(rows), static_cast<long long>(columns));
    return FWA_OK;
}

int64_t leading(fwa_tensor t) {
    return t.shape[0] > 1 ? t.stride[0] : t.shape[1];
}

template <typename T>
fwa_status gemm(fwa_stream *stream, fwa_tensor d, fwa_tensor a, bool ta, fwa_tensor b, bool tb, fwa_tensor c,
                double alpha, double beta) {
    constexpr fwa_dtype act = fwa::element<T>::dtype;
    FWA_EXPECT_DIMS(d, 2);
    FWA_EXPECT_DIMS(a, 2);
    const int64_t M = d.shape[0], N = d.shape[1], k = a.shape[ta ? 0 : 1];
    const fwa_dtype out = d.dtype == FWA_F32 ? FWA_F32 : act;
    FWA_TRY(check_matrix(d, "d", out, M, N));
    FWA_TRY(check_matrix(a, "a", act, ta ? k : M, ta ? M : k));
    FWA_TRY(check_matrix(b, "b", act, tb ? N : k, tb ? k : N));
    if (!fwa_tensor_present(c)) c = d;
    FWA_TRY(check_matrix(c, "c", out, M, N));
    const bool in_place = c.data == d.data;
    FWA_CHECK(!in_place || M <= 1 || c.stride[0] == d.stride[0], FWA_ERROR,
              "c: got d's memory with row stride %lld, expected d's %lld", static_cast<long long>(c.stride[0]),
              static_cast<long long>(d.stride[0]));
    product_kind kind = {};
    kind.M = M, kind.N = N, kind.k = k;
    kind.lda = leading(a), kind.ldb = leading(b), kind.ldc = leading(c), kind.ldd = leading(d);
    kind.align_a = alignment(a.data), kind.align_b = alignment(b.data);
    kind.align_c = alignment(c.data), kind.align_d = alignment(d.data);
    kind.act = act, kind.out = out, kind.ta = ta, kind.tb = tb, kind.in_place = in_place;
    const product_operands o = {a.data, b.data, c.data, d.data, static_cast<float>(alpha), static_cast<float>(beta)};
    const product *p = products_find(stream->products, kind);
    FWA_TRY(p ? run(stream, p, o) : run_new(stream, kind, o));
    return FWA_OK;
}

} // namespace

FWA_CUDA_ENTRIES(gemm, gemm,
                 (fwa_stream * stream, fwa_tensor d, fwa_tensor a, bool ta, fwa_tensor b, bool tb, fwa_tensor c,
                  double alpha, double beta),
                 (stream, d, a, ta, b, tb, c, alpha, beta))
