// What the first loss of a bench's step must be. Its targets are random and know nothing of the tokens before them, so
// the mean loss of a row is log sum_i e^{l_i} - mean l_i over the ids i < vocab, where l = logit_scale n E^T are the
// logits of the initial embedding E. What the last block leaves is taken from the step for some rows; the final norm
// and the head are done again on the host in double.
#ifndef FWA_TRAIN_BENCH_GUESS_H
#define FWA_TRAIN_BENCH_GUESS_H

#include "train/trainer.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { FWA_GUESS_ROWS = 16 }; // worked on together

// Sums over some rows: of 1, of the loss expected, of its square, and of the variance between targets.
typedef struct fwa_bench_guess {
    double rows, loss, squares, spread;
} fwa_bench_guess;

// Not collective. Adds n [D,FWA_GUESS_ROWS]; E [>= vocab,D] of type `type`; of the model vocab, D and logit_scale.
FWA_MUST_CHECK fwa_status fwa_bench_guess_add(fwa_bench_guess *out, const double *n, const void *E, fwa_dtype type,
                                              const fwa_model_spec *model);
// Not collective. Copies the embedding to *E, which the caller frees: before the first step.
FWA_MUST_CHECK fwa_status fwa_bench_guess_embedding(const fwa_trainer *trainer, void **E);
// Collective. Of rows of the last micro-batch: the same on every rank.
FWA_MUST_CHECK fwa_status fwa_bench_guess_take(fwa_bench_guess *out, const fwa_trainer *trainer, const void *E);
// Not collective. FWA_FAULTY unless `loss`, the mean over `targets` targets, is the loss expected to 1 % and chance.
FWA_MUST_CHECK fwa_status fwa_bench_guess_check(const fwa_bench_guess *guess, double loss, double targets);

#ifdef __cplusplus
}
#endif
#endif
