// The addition task's examples as text and tokens, for training and for evaluation by width (docs/addition.md).
#ifndef FWA_TRAIN_TASKS_ADDITION_H
#define FWA_TRAIN_TASKS_ADDITION_H

#include "train/tasks/task.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { FWA_ADDITION_BEGIN = 256, FWA_ADDITION_END = 257, FWA_ADDITION_PAD = 258, FWA_ADDITION_VOCAB = 259 };
#define FWA_ADDITION_MAX_WIDTH 1024

// How operand widths are drawn.
typedef enum fwa_addition_measure {
    FWA_ADDITION_UPTO, // bracket: each operand's width uniform in min..max, on its own; paper: one width for both
    FWA_ADDITION_EXACT // both operands have exactly `max` digits
} fwa_addition_measure;

// What an example is drawn from, besides its number.
typedef struct fwa_addition_draws {
    fwa_addition_format format;
    int64_t width_min, width_max; // 1 <= width_min <= width_max <= FWA_ADDITION_MAX_WIDTH
    uint64_t key;
} fwa_addition_draws;

// Tokens of the longest example: bracket 3n+15 with begin and end, paper 3n+5.
int64_t fwa_addition_length(fwa_addition_format format, int64_t width_max);

// Key of the examples of a split: splits differ by it alone.
uint64_t fwa_addition_key(int64_t seed, fwa_split split);

// Example number `index` under `key` into tokens, targets [T]: targets cover the answer and its end token; pads and the
// question have none. T >= fwa_addition_length - 1 (inputs and targets are shifted by one).
FWA_MUST_CHECK fwa_status fwa_addition_example(fwa_addition_format format, fwa_addition_measure measure,
                                               int64_t width_min, int64_t width_max, uint64_t key, int64_t index,
                                               int64_t T, int32_t *tokens, int32_t *targets);

// Tokens of the longest example whose operands have width[0] and width[1] digits; in the paper's format these are
// equal.
int64_t fwa_addition_pair_length(fwa_addition_format format, const int64_t width[2]);
// Example number `index` under `key` with operands of exactly these digits, T >= fwa_addition_pair_length - 1;
// otherwise as fwa_addition_example, whose FWA_ADDITION_EXACT it is where the widths are equal. FWA_CONFIG where in the
// paper's format they are not.
FWA_MUST_CHECK fwa_status fwa_addition_pair(fwa_addition_format format, const int64_t width[2], uint64_t key,
                                            int64_t index, int64_t T, int32_t *tokens, int32_t *targets);

// Places that example number `index` takes of a sequence, 1 less than it has tokens: inputs and targets are shifted by
// one. Draws few of the digits. index >= 0.
int64_t fwa_addition_places(const fwa_addition_draws *from, int64_t index);
// That example into tokens, targets [T], T >= its places, as fwa_addition_example does.
void fwa_addition_write(const fwa_addition_draws *from, int64_t index, int64_t T, int32_t *tokens, int32_t *targets);

#ifdef __cplusplus
}
#endif
#endif
