// What stands in the in/ group of a case, and its checks: tensors with their names and shapes, options, ranges.
#ifndef FWA_TRAIN_OP_INPUTS_H
#define FWA_TRAIN_OP_INPUTS_H

#include "train/op_case.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum fwa_op_type { FWA_OP_ACTIVATION, FWA_OP_MASTER, FWA_OP_FLAGS } fwa_op_type;

// A tensor of a call. Sizes as letters: B, T, H, K, V; q: query/key heads; n: tail rows that come in; m: that leave; C:
// V where beta is per channel, else no dimension.
typedef struct fwa_op_tensor {
    const char *name;       // in/<name> with grad/d<name>, or out/<name> with in/d<name>
    size_t value, gradient; // offsets in fwa_op_call; gradient 0: none
    const char *sizes;
    fwa_op_type type;
} fwa_op_tensor;

extern const fwa_op_tensor fwa_op_inputs[], fwa_op_outputs[]; // end with a NULL name

int fwa_op_shape(const fwa_op_call *op, const fwa_op_tensor *entry, int64_t shape[FWA_MAX_DIMS]); // dimensions
bool fwa_op_given(const fwa_case *c, const char *path);                 // there, and not empty
bool fwa_op_arrives(const fwa_case *c);                                 // some output's gradient is given
bool fwa_op_leaves(const fwa_op_call *op, const fwa_op_tensor *output); // this call has this output

FWA_MUST_CHECK fwa_status fwa_op_read_options(fwa_op_call *op, const fwa_case *c); // from attributes
FWA_MUST_CHECK fwa_status fwa_op_read_sizes(fwa_op_call *op, const fwa_case *c);   // from in/q, in/v, in/tail_x
// Every tensor of in/: known, of the right shape, finite, in its range; none missing.
FWA_MUST_CHECK fwa_status fwa_op_check_inputs(const fwa_op_call *op, const fwa_case *c);

#ifdef __cplusplus
}
#endif
#endif
