// One call of a mixing rule as a case file describes it: `fwa op`. The case's attributes become options, in/ becomes
// the call and the gradients that arrive; the answer has out/ and grad/ in f64. Not collective.
#ifndef FWA_TRAIN_OP_CASE_H
#define FWA_TRAIN_OP_CASE_H

#include "core/arena.h"
#include "io/case.h"
#include "kernels/registry.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fwa_op_call {
    const fwa_rule *rule;
    fwa_backend *backend; // the caller's
    const fwa_mixer *mixer;
    fwa_arena *arena;
    fwa_mixer_call call;
    fwa_mixer_grads grads;
} fwa_op_call;

// Attributes that a case may have besides `rule`; ends with NULL.
extern const char *const fwa_op_attributes[];

// The rule of the case and of --rule (NULL: not given). FWA_FORMAT where they differ or there is none. A case of
// "<rule>_normalized" is one of the rule with a normalised read.
FWA_MUST_CHECK fwa_status fwa_op_rule(const fwa_case *c, const char *name, const fwa_rule **rule);
// Options, sizes and tensors of the call; every input is checked: FWA_FORMAT names dataset, value and what is expected.
FWA_MUST_CHECK fwa_status fwa_op_open(fwa_op_call *op, const fwa_case *c, const fwa_rule *rule, fwa_backend *backend,
                                      fwa_form form, int64_t chunk);
// Forward, and backward where a gradient arrives. *answer is freed by the caller, after a failure too.
FWA_MUST_CHECK fwa_status fwa_op_run(fwa_op_call *op, const fwa_case *c, fwa_case *answer);
void fwa_op_close(fwa_op_call *op);

#ifdef __cplusplus
}
#endif
#endif
