// A table of operators, made from ops.def, that counts the call's cost and passes it on.
#include "train/bench/op_meter.h"

#include <string.h>

#include "core/shape.h"

enum {
#define FWA_OP(backends, name, parameters, arguments) OP_##name,
#include "kernels/ops.def"
#undef FWA_OP
    MOST_ARGUMENTS = 24
};

// A call's arguments in the order of ops.def, the stream being number 0: tensors, and numbers and flags, each at its
// place.
typedef struct call {
    fwa_tensor tensor[MOST_ARGUMENTS];
    double number[MOST_ARGUMENTS];
} call;

static struct {
    fwa_backend *backend;
    const fwa_ops *ops; // the backend's own
    void (*add)(void *user, int op, fwa_cost cost);
    void *user;
} meter;

static double bytes_of(fwa_tensor t) {
    return t.data ? (double)fwa_tensor_bytes(t) : 0.0;
}

// The rows of `table` that `rows` rows can reach.
static double gathered_bytes(fwa_tensor table, fwa_tensor rows) {
    const double row = (double)fwa_dtype_size(table.dtype) * (double)table.shape[1];
    return row * (double)fwa_min(table.shape[0], rows.shape[0]);
}

// (stream, d, a, ta, b, tb, c, alpha, beta)
static fwa_cost cost_of_product(const call *c) {
    const fwa_tensor d = c->tensor[1], a = c->tensor[2], b = c->tensor[4];
    const fwa_tensor added = fwa_tensor_present(c->tensor[6]) ? c->tensor[6] : d;
    const double k = (double)a.shape[c->number[3] != 0 ? 0 : 1];
    return (fwa_cost){.bytes = bytes_of(d) + bytes_of(a) + bytes_of(b) + (c->number[8] != 0 ? bytes_of(added) : 0.0),
                      .flops = 2.0 * (double)d.shape[0] * (double)d.shape[1] * k};
}

// What is both read and written, besides, and lookups that touch a part of a table.
static double correction(int op, const call *c) {
    const fwa_tensor *t = c->tensor;
    const bool shared = meter.backend->compute == meter.backend->master;
    switch (op) {
    case OP_embedding_forward: // (stream, y, w, tokens)
        return gathered_bytes(t[2], t[1]) - bytes_of(t[2]);
    case OP_embedding_backward: // (stream, dw, dy, tokens)
        return 2.0 * gathered_bytes(t[1], t[2]) - bytes_of(t[1]);
    case OP_rmsnorm_backward: // (stream, dx, dw, dy, x, w, rstd, accumulate)
        return c->number[7] != 0 ? bytes_of(t[1]) : 0.0;
    case OP_value_scale_backward: // (stream, dx, ...)
    case OP_add:                  // (stream, y, x)
        return bytes_of(t[1]);
    case OP_cross_entropy: // (stream, loss, prediction, logits, targets, vocab, gradient)
        return c->number[6] != 0 ? bytes_of(t[3]) : 0.0;
    case OP_adamw: // (stream, master, copy, grad, m, v, options, state)
        return bytes_of(t[1]) + bytes_of(t[4]) + bytes_of(t[5]);
    case OP_adamw_parts: // (stream, parts, elements, options, state): masters, m, v read and written, grad; a copy
        return c->number[2] * (7.0 * (double)fwa_dtype_size(meter.backend->master) +
                               (shared ? 0.0 : (double)fwa_dtype_size(meter.backend->compute)));
    default:
        return 0.0;
    }
}

static fwa_status done(int op, const call *c, fwa_status status) {
    FWA_TRY(status);
    fwa_cost cost = {.bytes = correction(op, c), .flops = 0.0};
    for (int i = 0; i < MOST_ARGUMENTS; i++) cost.bytes += bytes_of(c->tensor[i]);
    meter.add(meter.user, op, op == OP_gemm ? cost_of_product(c) : cost);
    return FWA_OK;
}

static const fwa_tensor nothing = {.data = NULL};

#define TENSOR(x) _Generic((x), fwa_tensor : (x), default : nothing)
#define NUMBER(x) _Generic((x), bool : (x), int32_t : (x), int64_t : (x), double : (x), default : 0.0)

// EACH(M, a, b, ...): M(a), M(b), ... for up to 24 arguments.
#define EACH_1(M, x)       M(x)
#define EACH_2(M, x, ...)  M(x), EACH_1(M, __VA_ARGS__)
#define EACH_3(M, x, ...)  M(x), EACH_2(M, __VA_ARGS__)
#define EACH_4(M, x, ...)  M(x), EACH_3(M, __VA_ARGS__)
#define EACH_5(M, x, ...)  M(x), EACH_4(M, __VA_ARGS__)
#define EACH_6(M, x, ...)  M(x), EACH_5(M, __VA_ARGS__)
#define EACH_7(M, x, ...)  M(x), EACH_6(M, __VA_ARGS__)
#define EACH_8(M, x, ...)  M(x), EACH_7(M, __VA_ARGS__)
#define EACH_9(M, x, ...)  M(x), EACH_8(M, __VA_ARGS__)
#define EACH_10(M, x, ...) M(x), EACH_9(M, __VA_ARGS__)
#define EACH_11(M, x, ...) M(x), EACH_10(M, __VA_ARGS__)
#define EACH_12(M, x, ...) M(x), EACH_11(M, __VA_ARGS__)
#define EACH_13(M, x, ...) M(x), EACH_12(M, __VA_ARGS__)
#define EACH_14(M, x, ...) M(x), EACH_13(M, __VA_ARGS__)
#define EACH_15(M, x, ...) M(x), EACH_14(M, __VA_ARGS__)
#define EACH_16(M, x, ...) M(x), EACH_15(M, __VA_ARGS__)
#define EACH_17(M, x, ...) M(x), EACH_16(M, __VA_ARGS__)
#define EACH_18(M, x, ...) M(x), EACH_17(M, __VA_ARGS__)
#define EACH_19(M, x, ...) M(x), EACH_18(M, __VA_ARGS__)
#define EACH_20(M, x, ...) M(x), EACH_19(M, __VA_ARGS__)
#define EACH_21(M, x, ...) M(x), EACH_20(M, __VA_ARGS__)
#define EACH_22(M, x, ...) M(x), EACH_21(M, __VA_ARGS__)
#define EACH_23(M, x, ...) M(x), EACH_22(M, __VA_ARGS__)
#define EACH_24(M, x, ...) M(x), EACH_23(M, __VA_ARGS__)
#define PICK(_1, _2, _3, _4, _5, _6, _7, _8, _9, _10, _11, _12, _13, _14, _15, _16, _17, _18, _19, _20, _21, _22, _23, \
             _24, each, ...)                                                                                           \
    each
#define EACH(M, ...)                                                                                                   \
    PICK(__VA_ARGS__, EACH_24, EACH_23, EACH_22, EACH_21, EACH_20, EACH_19, EACH_18, EACH_17, EACH_16, EACH_15,        \
         EACH_14, EACH_13, EACH_12, EACH_11, EACH_10, EACH_9, EACH_8, EACH_7, EACH_6, EACH_5, EACH_4, EACH_3, EACH_2,  \
         EACH_1, none)                                                                                                 \
    (M, __VA_ARGS__)
#define TENSORS(...)                                                                                                   \
    { EACH(TENSOR, __VA_ARGS__) }
#define NUMBERS(...)                                                                                                   \
    { EACH(NUMBER, __VA_ARGS__) }

#define FWA_OP(backends, name, parameters, arguments)                                                                  \
    static fwa_status metered_##name parameters {                                                                      \
        const call listed = {.tensor = TENSORS arguments, .number = NUMBERS arguments};                                \
        return done(OP_##name, &listed, meter.ops->name arguments);                                                    \
    }
#include "kernels/ops.def"
#undef FWA_OP

static const fwa_ops metered = {
#define FWA_OP(backends, name, parameters, arguments) .name = metered_##name,
#include "kernels/ops.def"
#undef FWA_OP
};

fwa_status fwa_op_meter_start(fwa_backend *backend, void (*add)(void *user, int op, fwa_cost cost), void *user) {
    FWA_CHECK(!meter.backend, FWA_ERROR, "the %s backend's operators are counted already", meter.backend->name);
    meter.backend = backend;
    meter.ops = backend->ops;
    meter.add = add;
    meter.user = user;
    backend->ops = &metered;
    return FWA_OK;
}

void fwa_op_meter_stop(fwa_backend *backend) {
    if (meter.backend != backend) return;
    backend->ops = meter.ops;
    memset(&meter, 0, sizeof meter);
}
