// Log-probabilities of the ends of token sequences, in batches shared out over the ranks.
#ifndef FWA_TRAIN_EVAL_SCORE_H
#define FWA_TRAIN_EVAL_SCORE_H

#include "train/eval/loaded.h"

#ifdef __cplusplus
extern "C" {
#endif

// tokens[first .. count) are scored, each given all before it; 1 <= first < count. All ids are below the vocabulary.
typedef struct fwa_score_request {
    const int32_t *tokens;
    int64_t count, first;
} fwa_score_request;

typedef struct fwa_score {
    double logprob; // natural logarithm, summed over the scored tokens
    double greedy;  // 1 where each of them is the most probable one, else 0
} fwa_score;

// Collective. scores[0 .. count), the same on every rank. Sequences of similar length share a batch of `batch` at
// most, padded on the right; a score depends on its own sequence alone, up to the rounding of matrix products of other
// shapes. Rank 0 logs progress where it takes long.
FWA_MUST_CHECK fwa_status fwa_score_all(fwa_world *world, const fwa_loaded *loaded, const fwa_score_request *requests,
                                        int64_t count, int64_t batch, fwa_score *scores);

#ifdef __cplusplus
}
#endif
#endif
