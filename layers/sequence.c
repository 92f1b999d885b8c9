// Halos of pieces of sequences, in hops: in hop j a rank sends to the rank j further on, and gets from the one j before
// it, the rows that lie (j-1)T to jT rows in front of the receiver's piece.
#include "layers/sequence.h"

// Room of one message in scratch, and three of them: to send, to receive, to add up in.
typedef struct buffers {
    char *send, *receive, *sum;
} buffers;

static size_t message_bytes(const fwa_layer_context *ctx, int64_t wanted, size_t row_bytes) {
    const int64_t rows = ctx->B * fwa_min(wanted, ctx->T);
    return (size_t)fwa_round_up(rows * (int64_t)row_bytes, 256);
}

size_t fwa_halo_scratch(const fwa_layer_context *ctx, int64_t wanted, size_t row_bytes) {
    return fwa_sequence_cut(ctx) ? 3 * message_bytes(ctx, wanted, row_bytes) : 0;
}

static fwa_status take_buffers(const fwa_layer_context *ctx, fwa_tensor x, int64_t wanted, fwa_tensor scratch,
                               buffers *out) {
    const size_t row = (size_t)x.shape[2] * fwa_dtype_size(x.dtype), each = message_bytes(ctx, wanted, row);
    FWA_CHECK(scratch.data && fwa_tensor_bytes(scratch) >= 3 * each, FWA_ERROR,
              "halo: got %zu bytes of scratch, expected %zu", scratch.data ? fwa_tensor_bytes(scratch) : 0, 3 * each);
    char *base = scratch.data;
    *out = (buffers){base, base + each, base + 2 * each};
    return FWA_OK;
}

// Rows that hop j moves.
static int64_t hop_rows(const fwa_layer_context *ctx, int64_t wanted, int64_t j) {
    return fwa_max(0, fwa_min(ctx->T, wanted - (j - 1) * ctx->T));
}

// Rows [first, first + rows) of each sequence of t [B,.,C] to or from a dense message [B,rows,C].
static fwa_status move_rows(const fwa_layer_context *ctx, fwa_tensor t, int64_t first, int64_t rows, void *message,
                            bool pack) {
    fwa_backend *backend = ctx->backend;
    const size_t size = fwa_dtype_size(t.dtype), row = (size_t)t.shape[2] * size, stride = (size_t)t.stride[1] * size;
    for (int64_t b = 0; b < t.shape[0]; b++) {
        char *here = (char *)t.data + (size_t)(b * t.stride[0] + first * t.stride[1]) * size;
        char *there = (char *)message + (size_t)(b * rows) * row;
        FWA_TRY(pack ? backend->copy_rows(backend, backend->stream, there, row, here, stride, row, (size_t)rows)
                     : backend->copy_rows(backend, backend->stream, here, stride, there, row, row, (size_t)rows));
    }
    return FWA_OK;
}

static fwa_status check_halo(const fwa_layer_context *ctx, fwa_tensor halo, fwa_tensor x, int64_t wanted) {
    const int64_t rows = fwa_halo_rows(ctx, wanted);
    FWA_CHECK(x.ndim == 3 && x.shape[0] == ctx->B && x.shape[1] == ctx->T, FWA_ERROR,
              "halo: got rows of another shape, expected [%lld, %lld, C]", (long long)ctx->B, (long long)ctx->T);
    if (rows == 0 && !fwa_tensor_present(halo)) return FWA_OK;
    FWA_CHECK(halo.ndim == 3 && halo.shape[0] == ctx->B && halo.shape[1] >= rows && halo.shape[2] == x.shape[2] &&
                  halo.dtype == x.dtype && fwa_tensor_dense(halo),
              FWA_ERROR, "halo: got a tensor of another shape or type, expected [%lld, >= %lld, %lld] %s",
              (long long)ctx->B, (long long)rows, (long long)x.shape[2], fwa_dtype_name(x.dtype));
    return FWA_OK;
}

// One hop: `bytes` of the message to rank + step, as many from rank - step; nothing where there is no such rank.
static fwa_status swap(const fwa_layer_context *ctx, const buffers *at, int64_t bytes, int64_t step, bool *received) {
    fwa_comm *sp = ctx->sp;
    const int64_t to = sp->rank + step, from = sp->rank - step;
    const bool sends = to >= 0 && to < sp->size;
    *received = from >= 0 && from < sp->size;
    if (!sends && !*received) return FWA_OK;
    return sp->exchange(sp, ctx->backend->stream, sends ? at->send : NULL, sends ? bytes : 0, sends ? (int)to : 0,
                        *received ? at->receive : NULL, *received ? bytes : 0, *received ? (int)from : 0);
}

fwa_status fwa_halo_forward(const fwa_layer_context *ctx, fwa_tensor halo, fwa_tensor x, int64_t wanted,
                            fwa_tensor scratch) {
    fwa_backend *backend = ctx->backend;
    const int64_t rows = fwa_halo_rows(ctx, wanted), N = fwa_tensor_present(halo) ? halo.shape[1] : 0;
    buffers at;
    FWA_TRY(check_halo(ctx, halo, x, wanted));
    FWA_TRY(take_buffers(ctx, x, wanted, scratch, &at));
    if (N > rows) FWA_TRY(backend->fill(backend, backend->stream, halo.data, 0, fwa_tensor_bytes(halo)));
    const int64_t row = x.shape[2] * (int64_t)fwa_dtype_size(x.dtype);
    for (int64_t j = 1; j < ctx->sp->size && hop_rows(ctx, wanted, j) > 0; j++) {
        const int64_t m = hop_rows(ctx, wanted, j);
        bool received;
        if (ctx->sp->rank + j < ctx->sp->size) FWA_TRY(move_rows(ctx, x, ctx->T - m, m, at.send, true));
        FWA_TRY(swap(ctx, &at, ctx->B * m * row, j, &received));
        if (received) FWA_TRY(move_rows(ctx, halo, N - (j - 1) * ctx->T - m, m, at.receive, false));
    }
    return FWA_OK;
}

// The last m rows of dx += the message.
static fwa_status add_rows(const fwa_layer_context *ctx, fwa_tensor dx, int64_t m, const buffers *at) {
    const int64_t count = ctx->B * m * dx.shape[2];
    FWA_TRY(move_rows(ctx, dx, ctx->T - m, m, at->sum, true));
    FWA_TRY(ctx->backend->ops->add(ctx->backend->stream, fwa_tensor_1d(at->sum, dx.dtype, count),
                                   fwa_tensor_1d(at->receive, dx.dtype, count)));
    return move_rows(ctx, dx, ctx->T - m, m, at->sum, false);
}

fwa_status fwa_halo_backward(const fwa_layer_context *ctx, fwa_tensor dx, fwa_tensor dhalo, int64_t wanted,
                             fwa_tensor scratch) {
    const int64_t N = fwa_tensor_present(dhalo) ? dhalo.shape[1] : 0;
    buffers at;
    FWA_TRY(check_halo(ctx, dhalo, dx, wanted));
    FWA_TRY(take_buffers(ctx, dx, wanted, scratch, &at));
    const int64_t row = dx.shape[2] * (int64_t)fwa_dtype_size(dx.dtype);
    for (int64_t j = 1; j < ctx->sp->size && hop_rows(ctx, wanted, j) > 0; j++) {
        const int64_t m = hop_rows(ctx, wanted, j);
        bool received;
        if (ctx->sp->rank - j >= 0) FWA_TRY(move_rows(ctx, dhalo, N - (j - 1) * ctx->T - m, m, at.send, true));
        FWA_TRY(swap(ctx, &at, ctx->B * m * row, -j, &received));
        if (received) FWA_TRY(add_rows(ctx, dx, m, &at));
    }
    return FWA_OK;
}
