// What the words of `fwa eval` ask for. Not collective.
#ifndef FWA_TRAIN_EVAL_REQUEST_H
#define FWA_TRAIN_EVAL_REQUEST_H

#include "io/config.h"
#include "train/arguments.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum fwa_eval_task { FWA_EVAL_PERPLEXITY, FWA_EVAL_CHOICES, FWA_EVAL_ADDITION } fwa_eval_task;

typedef struct fwa_eval_request {
    fwa_eval_task task;
    const char *const *words; // of the command line behind the checkpoint: files, patterns, and settings
    int word_count;
    const char *json, *scores; // files to write; NULL: none
    const char *tokenizer;     // NULL: none was named
    int64_t examples;          // at most (addition: of each width); 0: all, or the task's own number
    int64_t batch;
    int64_t shots, seed;     // mc
    bool cut;                // mc: contexts that are too long lose their beginning
    int64_t context, stride; // ppl: tokens of a window, new ones in each; 0 until fwa_eval_request_suit
    int64_t words_in_text;   // ppl: what word perplexity counts; 0: the words of the text
    const char *field;       // ppl: member of a JSONL line with its text
    int64_t low, high;       // addition: widths; 0: around the trained ones
    bool measured[2];        // addition, by fwa_addition_measure
    int64_t grid[3];         // addition: pairs of widths instead, from, to, step; 0: no grid
    bool greedy;             // addition: answers are decoded token by token, too
} fwa_eval_request;

extern const fwa_option fwa_eval_options[];
// Reads the words, argv[0] "eval", argv[1] a run or checkpoint; they stay the caller's. FWA_USAGE.
FWA_MUST_CHECK fwa_status fwa_eval_request_read(fwa_eval_request *out, fwa_arguments *arguments, int argc, char **argv);
// Fills in task, batch and the windows of ppl, where the words do not say, for a model of this configuration, with
// softmax attention in it or not. FWA_USAGE or FWA_CONFIG where they ask for what cannot be asked of it.
FWA_MUST_CHECK fwa_status fwa_eval_request_suit(fwa_eval_request *request, const fwa_arguments *arguments,
                                                const fwa_config *config, bool attention);

#ifdef __cplusplus
}
#endif
#endif
