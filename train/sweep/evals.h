// Evaluations that follow the training of a sweep's points, each once a point. Not collective.
#ifndef FWA_TRAIN_SWEEP_EVALS_H
#define FWA_TRAIN_SWEEP_EVALS_H

#include "train/arguments.h"
#include "train/sweep/runs.h"
#include "train/sweep/word_list.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { FWA_SWEEP_EVALS_MAX = 16, FWA_SWEEP_EVAL_NAME = 96 };

typedef struct fwa_sweep_eval {
    fwa_word_list words;            // for fwa eval, behind the run folder
    char file[FWA_SWEEP_EVAL_NAME]; // of its result in a run folder, made of the words alone
} fwa_sweep_eval;

typedef struct fwa_sweep_evals {
    fwa_sweep_eval at[FWA_SWEEP_EVALS_MAX];
    int count;
    bool wants_gpus; // fwa_sweep_evals_check found one still to be made that can run on a GPU alone
} fwa_sweep_evals;

// Those of every --eval, in order. FWA_USAGE where one is given twice.
FWA_MUST_CHECK fwa_status fwa_sweep_evals_read(fwa_sweep_evals *evals, const fwa_arguments *arguments);
// Refuses, with the point, what fwa eval would refuse of it without reading its model or a file's content: FWA_USAGE or
// FWA_CONFIG; FWA_FORMAT for a damaged tokenizer; FWA_UNSUPPORTED where one that is still to be made finds no backend,
// `here` on this machine, otherwise in this program. Starts no device, but may start threads.
FWA_MUST_CHECK fwa_status fwa_sweep_evals_check(fwa_sweep_evals *evals, const fwa_sweep_runs *runs,
                                                const fwa_world *world, bool here);
void fwa_sweep_evals_free(fwa_sweep_evals *evals);
// "eval-widths=33-48.json" of "--widths 33-48", "eval.json" of no words: other words, other name. Letters, digits and
// - + . stay, : becomes _; where that does not tell the words, digits of a hash of them follow.
void fwa_sweep_eval_name(const fwa_word_list *words, char file[FWA_SWEEP_EVAL_NAME]);
// Whether evaluation number `index` is still to be made of a finished point: its result is not there, or of an earlier
// step. An eval.json, whose words nobody knows, stands for the only evaluation.
bool fwa_sweep_eval_due(const fwa_sweep_evals *evals, int index, const fwa_sweep_run *run);

#ifdef __cplusplus
}
#endif
#endif
