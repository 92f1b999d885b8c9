// The tasks of `fwa eval`: what is asked for, and how each task measures and reports. All are Collective; rank 0 prints
// a table and writes files, which are whole or not there.
#ifndef FWA_TRAIN_EVAL_EVAL_H
#define FWA_TRAIN_EVAL_EVAL_H

#include "io/paths.h"
#include "train/eval/loaded.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fwa_eval_request {
    const char *const *words; // of the command line behind the checkpoint: files, patterns, and settings
    int word_count;
    const char *json, *scores; // files to write; NULL: none
    const char *tokenizer;     // NULL: none was named
    int64_t examples;          // at most (addition: of each width); 0: all, or the task's own number
    int64_t batch;
    int64_t shots, seed;     // mc
    bool cut;                // mc: contexts that are too long lose their beginning
    int64_t context, stride; // ppl: tokens of a window, new ones in each; 0: those of training, the whole window
    int64_t words_in_text;   // ppl: what word perplexity counts; 0: the words of the text
    const char *field;       // ppl: member of a JSONL line with its text
    int64_t low, high;       // addition: widths; 0: around the trained ones
    bool measured[2];        // addition, by fwa_addition_measure
    int64_t grid[3];         // addition: pairs of widths instead, from, to, step; 0: no grid
    bool greedy;             // addition: answers are decoded token by token, too
} fwa_eval_request;

FWA_MUST_CHECK fwa_status fwa_eval_addition(fwa_world *world, const fwa_loaded *loaded,
                                            const fwa_eval_request *request);
// The same where the request has a grid.
FWA_MUST_CHECK fwa_status fwa_eval_grid(fwa_world *world, const fwa_loaded *loaded, const fwa_eval_request *request);
FWA_MUST_CHECK fwa_status fwa_eval_choices(fwa_world *world, const fwa_loaded *loaded, const fwa_eval_request *request);
FWA_MUST_CHECK fwa_status fwa_eval_perplexity(fwa_world *world, const fwa_loaded *loaded,
                                              const fwa_eval_request *request);

// What tasks share.
// Files that the words name which are no settings, patterns expanded. FWA_CONFIG for one that matches nothing. The
// caller frees *files, after a failure too. Not collective.
FWA_MUST_CHECK fwa_status fwa_eval_files_find(fwa_paths *files, const fwa_eval_request *request);
// Rank 0 logs "scored DONE of ALL WHAT" at most every quarter of a minute; *said is 0 at first. Not collective.
void fwa_eval_progress(const fwa_world *world, double *said, int64_t done, int64_t all, const char *what);
// The named tokenizer, or the standard one where the task cannot do without (`needed`) or it is there; *out is NULL
// where there is none. Not collective.
FWA_MUST_CHECK fwa_status fwa_eval_tokenizer(fwa_tokenizer **out, const fwa_loaded *loaded,
                                             const fwa_eval_request *request, bool needed);

#ifdef __cplusplus
}
#endif
#endif
