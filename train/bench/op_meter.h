// Bytes and floating-point operations of operators, counted from the arguments of their calls: what an operator must
// move and compute, not what a kernel happens to. Each tensor counts once where it is read and once where it is
// written; of elementwise work only bytes count, of products also 2 M N k. Not collective; one backend at a time.
#ifndef FWA_TRAIN_BENCH_OP_METER_H
#define FWA_TRAIN_BENCH_OP_METER_H

#include "kernels/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fwa_cost {
    double bytes, flops;
} fwa_cost;

// From start to stop every call through backend->ops passes by here. `add` is told the cost of each call that
// succeeded, and which operator it was (kernels/registry.h).
FWA_MUST_CHECK fwa_status fwa_op_meter_start(fwa_backend *backend, void (*add)(void *user, int op, fwa_cost cost),
                                             void *user);
void fwa_op_meter_stop(fwa_backend *backend); // puts the backend's own operators back

#ifdef __cplusplus
}
#endif
#endif
