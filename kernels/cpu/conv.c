// The convolution of conv.h, in tiles of channels: the weights of a tile are transposed to [W][channels] so that loops
// over channels are vector loops, and taps that a step must not see read a row of zeros.
#include "core/shape.h"
#include "kernels/cpu/arguments.h"
#include "kernels/cpu/conv.h"

#define TILE    256  // channels at most
#define WEIGHTS 1024 // of a tile, [W][WEIGHTS / W]
#define ROWS    128  // steps whose share of dw is summed apart

typedef real tile_weights[WEIGHTS];

static const real zeros[TILE];

// Inputs of step t >= -(W-1) from channel c on.
static const real *input(const fwa_conv *conv, int64_t b, int64_t t, int64_t c) {
    if (t >= 0) return fwa_row_at(conv->x, b, t) + c;
    return fwa_tensor_present(conv->halo) ? fwa_row_at(conv->halo, b, conv->W - 1 + t) + c : zeros;
}

// How many steps before t step t sees, at most W-1.
static int64_t reach(const fwa_conv *conv, int64_t b, int64_t t) {
    if (!fwa_tensor_present(conv->reset)) return conv->W - 1;
    const uint8_t *reset = (const uint8_t *)conv->reset.data + b * conv->T;
    for (int64_t back = 0; back < conv->W - 1 && back <= t; back++)
        if (reset[t - back]) return back;
    return conv->W - 1;
}

// past[i]: what w[:,i] meets at step t.
static void gather_past(const fwa_conv *conv, int64_t b, int64_t t, int64_t c, const real *past[]) {
    int64_t W = conv->W, seen = reach(conv, b, t);
    for (int64_t back = 0; back < W; back++) past[W - 1 - back] = back <= seen ? input(conv, b, t - back, c) : zeros;
}

// future[i]: dy of the step at which w[:,i] met step t >= -(W-1).
static void gather_future(const fwa_conv *conv, int64_t b, int64_t t, int64_t c, fwa_tensor dy, const real *future[]) {
    int64_t W = conv->W;
    for (int64_t ahead = 0; ahead < W; ahead++) {
        int64_t at = t + ahead;
        bool met = at >= 0 && at < conv->T && reach(conv, b, at) >= ahead;
        future[W - 1 - ahead] = met ? fwa_row_at(dy, b, at) + c : zeros;
    }
}

// Channels of the tile that begins at c.
static int64_t tile_size(const fwa_conv *conv, int64_t c, int64_t end) {
    return fwa_min(fwa_min(TILE, WEIGHTS / conv->W), end - c);
}

static void load_weights(const fwa_conv *conv, int64_t c, int64_t n, tile_weights w) {
    const int64_t stride = WEIGHTS / conv->W;
    const real *from = (const real *)conv->w.data + c * conv->W;
    for (int64_t k = 0; k < n; k++)
        for (int64_t i = 0; i < conv->W; i++) w[i * stride + k] = from[k * conv->W + i];
}

// out = sum_i w[i] rows[i]; out may be one of the rows. Inlined with W constant for the usual width.
static inline void weighted_sum(real *out, const real *const rows[], const real *w, int64_t n, int64_t W) {
    const int64_t stride = WEIGHTS / W;
#pragma omp simd
    for (int64_t k = 0; k < n; k++) {
        real sum = w[k] * rows[0][k];
        for (int i = 1; i < W; i++) sum += w[i * stride + k] * rows[i][k];
        out[k] = sum;
    }
}

static inline void add_products(real *sum, const real *dy, const real *const rows[], int64_t n, int64_t W) {
    const int64_t stride = WEIGHTS / W;
#pragma omp simd
    for (int64_t k = 0; k < n; k++)
        for (int i = 0; i < W; i++) sum[i * stride + k] += dy[k] * rows[i][k];
}

static void apply(real *out, const real *const rows[], const real *w, int64_t n, int64_t W) {
    if (W == 4)
        weighted_sum(out, rows, w, n, 4);
    else
        weighted_sum(out, rows, w, n, W);
}

static void collect(real *sum, const real *dy, const real *const rows[], int64_t n, int64_t W) {
    if (W == 4)
        add_products(sum, dy, rows, n, 4);
    else
        add_products(sum, dy, rows, n, W);
}

void FWA_T(fwa_conv_forward)(const fwa_conv *conv, int64_t b, int64_t begin, int64_t end, fwa_tensor y) {
    tile_weights w;
    const real *past[FWA_CONV_WIDTH_MAX];
    for (int64_t c = 0, n; c < conv->P; c += n) {
        n = tile_size(conv, c, conv->P);
        load_weights(conv, c, n, w);
        for (int64_t t = begin; t < end; t++) {
            gather_past(conv, b, t, c, past);
            apply(fwa_row_at(y, b, t) + c, past, w, n, conv->W);
        }
    }
}

// Adds what steps [begin, end) give to dw and turns their dy into dx. Step t reads dy of t and later steps only, so
// going forward in time dx may take the place of dy.
static void backward_steps(const fwa_conv *conv, int64_t b, int64_t begin, int64_t end, int64_t c, int64_t n,
                           const real *w, fwa_tensor d, fwa_tensor dw) {
    const int64_t W = conv->W, stride = WEIGHTS / W;
    tile_weights sum;
    const real *rows[FWA_CONV_WIDTH_MAX];
    for (int64_t i = 0; i < W; i++)
        for (int64_t k = 0; k < n; k++) sum[i * stride + k] = 0;
    for (int64_t t = begin; t < end; t++) {
        real *row = fwa_row_at(d, b, t) + c;
        gather_past(conv, b, t, c, rows);
        collect(sum, row, rows, n, W);
        gather_future(conv, b, t, c, d, rows);
        apply(row, rows, w, n, W);
    }
    real *out = (real *)dw.data + c * W;
    for (int64_t k = 0; k < n; k++)
        for (int64_t i = 0; i < W; i++) out[k * W + i] += sum[i * stride + k];
}

void FWA_T(fwa_conv_backward)(const fwa_conv *conv, int64_t begin, int64_t end, fwa_tensor d, fwa_tensor dw,
                              fwa_tensor dhalo) {
    tile_weights w;
    const real *rows[FWA_CONV_WIDTH_MAX];
    for (int64_t c = begin, n; c < end; c += n) {
        n = tile_size(conv, c, end);
        load_weights(conv, c, n, w);
        for (int64_t b = 0; b < conv->B; b++) {
            for (int64_t h = 0; h < conv->W - 1 && fwa_tensor_present(dhalo); h++) {
                gather_future(conv, b, h - (conv->W - 1), c, d, rows);
                apply(fwa_row_at(dhalo, b, h) + c, rows, w, n, conv->W);
            }
            for (int64_t t = 0; t < conv->T; t += ROWS)
                backward_steps(conv, b, t, fwa_min(conv->T, t + ROWS), c, n, w, d, dw);
        }
    }
}
