// Rows of an embedding table by token, and the gradient of the table. w, dw [N,D], y, dy [R,D], tokens [R]. And where
// among the tokens documents start.
#include <string.h>

#include "kernels/cpu/arguments.h"
#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/parallel.h"

static fwa_status check_arguments(fwa_tensor table, fwa_tensor rows, fwa_tensor tokens) {
    FWA_EXPECT_DIMS(table, 2);
    FWA_EXPECT_DIMS(rows, 2);
    int64_t N = table.shape[0], D = table.shape[1], R = rows.shape[0];
    FWA_EXPECT(table, FWA_REAL_DTYPE, 2, N, D);
    FWA_EXPECT(rows, FWA_REAL_DTYPE, 2, R, D);
    FWA_EXPECT_DENSE(tokens, FWA_I32, 1, R);
    const int32_t *token = tokens.data;
    for (int64_t r = 0; r < R; r++)
        FWA_CHECK(token[r] >= 0 && token[r] < N, FWA_ERROR, "tokens[%lld]: got %d, expected 0 to %lld", (long long)r,
                  (int)token[r], (long long)N - 1);
    return FWA_OK;
}

fwa_status FWA_T(fwa_document_starts_cpu)(fwa_stream *stream, fwa_tensor reset, fwa_tensor tokens, int32_t token) {
    (void)stream;
    FWA_EXPECT_DIMS(tokens, 1);
    int64_t R = tokens.shape[0];
    FWA_EXPECT_DENSE(tokens, FWA_I32, 1, R);
    FWA_EXPECT_DENSE(reset, FWA_U8, 1, R);
    const int32_t *id = tokens.data;
    uint8_t *start = reset.data;
    for (int64_t r = 0; r < R; r++) start[r] = id[r] == token;
    return FWA_OK;
}

fwa_status FWA_T(fwa_embedding_forward_cpu)(fwa_stream *stream, fwa_tensor y, fwa_tensor w, fwa_tensor tokens) {
    (void)stream;
    FWA_TRY(check_arguments(w, y, tokens));
    int64_t R = y.shape[0], D = y.shape[1];
    const int32_t *token = tokens.data;
#pragma omp parallel for if (fwa_parallel(R * D))
    for (int64_t r = 0; r < R; r++) memcpy(fwa_row(y, r), fwa_row(w, token[r]), (size_t)D * sizeof(real));
    return FWA_OK;
}

// A thread owns columns, so that rows of equal tokens are added in the order of the rows.
fwa_status FWA_T(fwa_embedding_backward_cpu)(fwa_stream *stream, fwa_tensor dw, fwa_tensor dy, fwa_tensor tokens) {
    (void)stream;
    FWA_TRY(check_arguments(dw, dy, tokens));
    int64_t R = dy.shape[0], D = dy.shape[1];
    const int32_t *token = tokens.data;
#pragma omp parallel if (fwa_parallel(R * D))
    {
        int64_t begin, end;
        fwa_own_columns(D, &begin, &end);
        for (int64_t r = 0; r < R; r++) {
            real *restrict out = fwa_row(dw, token[r]);
            const real *in = fwa_row(dy, r);
            for (int64_t i = begin; i < end; i++) out[i] += in[i];
        }
    }
    return FWA_OK;
}
