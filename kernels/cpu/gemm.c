// d[M,N] = alpha op(a) op(b) + beta c through BLAS; row strides are the leading dimensions.
#include <limits.h>
#include <string.h>

#include "kernels/cpu/arguments.h"
#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/parallel.h"

static fwa_status check_matrix(fwa_tensor t, const char *name, int64_t rows, int64_t columns) {
    FWA_TRY(fwa_tensor_expect(t, name, FWA_REAL_DTYPE, 2, rows, columns));
    FWA_CHECK(rows <= 1 || t.stride[0] >= columns, FWA_ERROR, "%s: got row stride %lld, expected at least %lld", name,
              (long long)t.stride[0], (long long)columns);
    FWA_CHECK(rows <= INT_MAX && columns <= INT_MAX && t.stride[0] <= INT_MAX, FWA_UNSUPPORTED,
              "%s: got [%lld, %lld], row stride %lld; BLAS counts in 32 bits", name, (long long)rows,
              (long long)columns, (long long)t.stride[0]);
    return FWA_OK;
}

// BLAS wants a leading dimension of at least the row length, also where there is one row only.
static int leading(fwa_tensor t) {
    return (int)fwa_max(fwa_max(t.stride[0], t.shape[1]), 1);
}

static void copy_rows(fwa_tensor to, fwa_tensor from) {
    for (int64_t r = 0; r < to.shape[0]; r++)
        memcpy(fwa_row(to, r), fwa_row(from, r), (size_t)to.shape[1] * sizeof(real));
}

// d = beta d, where beta 0 clears whatever stood there.
static void scale_rows(fwa_tensor d, real beta) {
    for (int64_t r = 0; r < d.shape[0]; r++) {
        real *row = fwa_row(d, r);
        for (int64_t i = 0; i < d.shape[1]; i++) row[i] = beta == 0 ? 0 : beta * row[i];
    }
}

fwa_status FWA_T(fwa_gemm_cpu)(fwa_stream *stream, fwa_tensor d, fwa_tensor a, bool ta, fwa_tensor b, bool tb,
                               fwa_tensor c, double alpha, double beta) {
    (void)stream;
    FWA_EXPECT_DIMS(d, 2);
    FWA_EXPECT_DIMS(a, 2);
    int64_t M = d.shape[0], N = d.shape[1], inner = a.shape[ta ? 0 : 1];
    FWA_TRY(check_matrix(d, "d", M, N));
    FWA_TRY(check_matrix(a, "a", ta ? inner : M, ta ? M : inner));
    FWA_TRY(check_matrix(b, "b", tb ? N : inner, tb ? inner : N));
    bool other = fwa_tensor_present(c) && c.data != d.data;
    if (fwa_tensor_present(c)) {
        FWA_TRY(check_matrix(c, "c", M, N));
        FWA_CHECK(other || M <= 1 || c.stride[0] == d.stride[0], FWA_ERROR,
                  "c: got d's memory with row stride %lld, expected d's %lld", (long long)c.stride[0],
                  (long long)d.stride[0]);
    }
    if (M == 0 || N == 0) return FWA_OK;
    if (other && beta != 0) copy_rows(d, c);
    if (inner == 0) {
        scale_rows(d, (real)beta);
        return FWA_OK;
    }
    if (M == 1 && !ta && tb) { // a token's row: reads b once, where a product of matrices would copy it first
        FWA_BLAS(gemv)
        (CblasRowMajor, CblasNoTrans, (int)N, (int)inner, (real)alpha, b.data, leading(b), a.data, 1, (real)beta,
         d.data, 1);
        return FWA_OK;
    }
    FWA_BLAS(gemm)
    (CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, (int)M, (int)N, (int)inner,
     (real)alpha, a.data, leading(a), b.data, leading(b), (real)beta, d.data, leading(d));
    return FWA_OK;
}
