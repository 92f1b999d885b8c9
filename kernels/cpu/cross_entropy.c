// Softmax cross-entropy with its gradient in place, and the sum over a micro-batch. logits [R,N], targets, prediction
// [R].
//   loss = log sum_{i<vocab} e^{l_i - m} + m - l_target, m = max l;  d l_i = e^{l_i - m} / sum - [i = target].
// Sums run in double over blocks of 1024 terms, so that single precision keeps its accuracy for any vocabulary.
#include <string.h>

#include "kernels/cpu/arguments.h"
#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vexp.h"

#define BLOCK 1024

static real largest(const real *l, int64_t n) {
    real m = -(real)INFINITY;
#pragma omp simd reduction(max : m)
    for (int64_t i = 0; i < n; i++) m = l[i] > m ? l[i] : m;
    return m;
}

// First index whose value is m; 0 where there is none (all NaN). Blocks are searched as vectors.
static int32_t first_equal(const real *l, int64_t n, real m) {
    for (int64_t block = 0; block < n; block += BLOCK) {
        int64_t end = fwa_min(n, block + BLOCK);
        int found = 0;
#pragma omp simd reduction(| : found)
        for (int64_t i = block; i < end; i++) found |= l[i] == m;
        for (int64_t i = block; found && i < end; i++)
            if (l[i] == m) return (int32_t)i;
    }
    return 0;
}

static double sum_exponentials(const real *l, int64_t n, real m) {
    double total = 0;
    for (int64_t block = 0; block < n; block += BLOCK) {
        int64_t end = fwa_min(n, block + BLOCK);
        real sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = block; i < end; i++) sum += fwa_exp(l[i] - m);
        total += (double)sum;
    }
    return total;
}

// The same, leaving the exponentials in l.
static double replace_by_exponentials(real *l, int64_t n, real m) {
    double total = 0;
    for (int64_t block = 0; block < n; block += BLOCK) {
        int64_t end = fwa_min(n, block + BLOCK);
        real sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = block; i < end; i++) {
            real e = fwa_exp(l[i] - m);
            l[i] = e;
            sum += e;
        }
        total += (double)sum;
    }
    return total;
}

static real row_loss(real *l, int64_t vocab, int32_t target, real m, bool gradient) {
    double at_target = (double)l[target];
    double total = gradient ? replace_by_exponentials(l, vocab, m) : sum_exponentials(l, vocab, m);
    if (gradient) {
        real scale = (real)(1 / total);
#pragma omp simd
        for (int64_t i = 0; i < vocab; i++) l[i] *= scale;
        l[target] -= 1;
    }
    return (real)(log(total) + ((double)m - at_target));
}

fwa_status FWA_T(fwa_cross_entropy_cpu)(fwa_stream *stream, fwa_tensor loss, fwa_tensor prediction, fwa_tensor logits,
                                        fwa_tensor targets, int64_t vocab, bool gradient) {
    (void)stream;
    FWA_EXPECT_DIMS(logits, 2);
    int64_t R = logits.shape[0], N = logits.shape[1];
    FWA_EXPECT(logits, FWA_REAL_DTYPE, 2, R, N);
    FWA_EXPECT_DENSE(loss, FWA_REAL_DTYPE, 1, R);
    FWA_EXPECT_DENSE(targets, FWA_I32, 1, R);
    bool predict = fwa_tensor_present(prediction);
    if (predict) FWA_EXPECT_DENSE(prediction, FWA_I32, 1, R);
    FWA_CHECK(vocab >= 1 && vocab <= N, FWA_ERROR, "vocab: got %lld, expected 1 to %lld", (long long)vocab,
              (long long)N);
    const int32_t *target = targets.data;
    for (int64_t r = 0; r < R; r++)
        FWA_CHECK(target[r] < vocab, FWA_ERROR, "targets[%lld]: got %d, expected less than %lld", (long long)r,
                  (int)target[r], (long long)vocab);
#pragma omp parallel for if (fwa_parallel(4 * R * vocab))
    for (int64_t r = 0; r < R; r++) {
        real *l = fwa_row(logits, r);
        bool counts = target[r] >= 0;
        real m = counts || predict ? largest(l, vocab) : 0;
        if (predict) ((int32_t *)prediction.data)[r] = first_equal(l, vocab, m);
        ((real *)loss.data)[r] = counts ? row_loss(l, vocab, target[r], m, gradient) : 0;
        int64_t zero_from = counts ? vocab : 0;
        if (gradient) memset(l + zero_from, 0, (size_t)(N - zero_from) * sizeof(real));
    }
    return FWA_OK;
}

fwa_status FWA_T(fwa_loss_accumulate_cpu)(fwa_stream *stream, fwa_step_state *state, fwa_tensor loss,
                                          fwa_tensor targets) {
    (void)stream;
    FWA_EXPECT_DIMS(loss, 1);
    int64_t R = loss.shape[0];
    FWA_EXPECT_DENSE(loss, FWA_REAL_DTYPE, 1, R);
    FWA_EXPECT_DENSE(targets, FWA_I32, 1, R);
    double sum = 0;
    int64_t valid = 0;
    for (int64_t r = 0; r < R; r++) {
        sum += (double)((const real *)loss.data)[r];
        valid += ((const int32_t *)targets.data)[r] >= 0;
    }
    state->loss_sum += sum;
    state->valid += (double)valid;
    return FWA_OK;
}
