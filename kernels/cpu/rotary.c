// Rotary embedding: pairs (i, i + K/2) of every head turn by (position + t) base^(-2i/K). x, y [B,T,H,K].
//
// The angles of a block of steps come from one exact cosine and sine per pair, turned on step by step in double: the
// error stays below 64 roundings of double, and no cosine is taken per element.
#include "kernels/cpu/arguments.h"
#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/parallel.h"

#define STEPS 64
#define PAIRS 128

typedef struct angles {
    double cosine[PAIRS], sine[PAIRS];           // of the current step
    double step_cosine[PAIRS], step_sine[PAIRS]; // of one step
} angles;

static void turn_start(angles *turn, int64_t first_pair, int64_t pairs, int64_t K, double base, int64_t position,
                       double sign) {
    for (int64_t i = 0; i < pairs; i++) {
        double frequency = sign * pow(base, -2.0 * (double)(first_pair + i) / (double)K);
        turn->cosine[i] = cos((double)position * frequency);
        turn->sine[i] = sin((double)position * frequency);
        turn->step_cosine[i] = cos(frequency);
        turn->step_sine[i] = sin(frequency);
    }
}

static void turn_on(angles *turn, int64_t pairs) {
#pragma omp simd
    for (int64_t i = 0; i < pairs; i++) {
        double c = turn->cosine[i], s = turn->sine[i];
        turn->cosine[i] = c * turn->step_cosine[i] - s * turn->step_sine[i];
        turn->sine[i] = c * turn->step_sine[i] + s * turn->step_cosine[i];
    }
}

// One head vector; `low` and `high` are the halves.
static void rotate(real *y_low, real *y_high, const real *low, const real *high, const angles *turn, int64_t pairs) {
#pragma omp simd
    for (int64_t i = 0; i < pairs; i++) {
        real a = low[i], b = high[i], c = (real)turn->cosine[i], s = (real)turn->sine[i];
        y_low[i] = a * c - b * s;
        y_high[i] = a * s + b * c;
    }
}

static void rotate_step(fwa_tensor y, fwa_tensor x, int64_t t, int64_t first_pair, int64_t pairs, const angles *turn) {
    int64_t half = x.shape[3] / 2;
    for (int64_t b = 0; b < x.shape[0]; b++) {
        for (int64_t h = 0; h < x.shape[2]; h++) {
            const real *in = fwa_row_at(x, b, t) + h * x.stride[2] + first_pair;
            real *out = fwa_row_at(y, b, t) + h * y.stride[2] + first_pair;
            rotate(out, out + half, in, in + half, turn, pairs);
        }
    }
}

fwa_status FWA_T(fwa_rotary_cpu)(fwa_stream *stream, fwa_tensor y, fwa_tensor x, int64_t position, double base,
                                 bool inverse) {
    (void)stream;
    FWA_EXPECT_DIMS(x, 4);
    int64_t B = x.shape[0], T = x.shape[1], H = x.shape[2], K = x.shape[3];
    FWA_EXPECT(x, FWA_REAL_DTYPE, 4, B, T, H, K);
    FWA_EXPECT(y, FWA_REAL_DTYPE, 4, B, T, H, K);
    FWA_CHECK(K % 2 == 0, FWA_ERROR, "x: got head size %lld, expected an even one", (long long)K);
    int64_t blocks = fwa_ceil_div(T, STEPS);
#pragma omp parallel for if (fwa_parallel(B * T * H * K))
    for (int64_t block = 0; block < blocks; block++) {
        angles turn;
        for (int64_t first = 0; first < K / 2; first += PAIRS) {
            int64_t pairs = fwa_min(PAIRS, K / 2 - first), end = fwa_min(T, (block + 1) * STEPS);
            turn_start(&turn, first, pairs, K, base, position + block * STEPS, inverse ? -1 : 1);
            for (int64_t t = block * STEPS; t < end; t++) {
                rotate_step(y, x, t, first, pairs, &turn);
                turn_on(&turn, pairs);
            }
        }
    }
    return FWA_OK;
}
