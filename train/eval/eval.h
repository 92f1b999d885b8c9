// The tasks of `fwa eval`: how each measures and reports. All are Collective; rank 0 prints
// a table and writes files, which are whole or not there.
#ifndef FWA_TRAIN_EVAL_EVAL_H
#define FWA_TRAIN_EVAL_EVAL_H

#include "io/paths.h"
#include "train/eval/loaded.h"
#include "train/eval/request.h"

#ifdef __cplusplus
extern "C" {
#endif

FWA_MUST_CHECK fwa_status fwa_eval_addition(fwa_world *world, const fwa_loaded *loaded,
                                            const fwa_eval_request *request);
// The same where the request has a grid.
FWA_MUST_CHECK fwa_status fwa_eval_grid(fwa_world *world, const fwa_loaded *loaded, const fwa_eval_request *request);
FWA_MUST_CHECK fwa_status fwa_eval_choices(fwa_world *world, const fwa_loaded *loaded, const fwa_eval_request *request);
FWA_MUST_CHECK fwa_status fwa_eval_perplexity(fwa_world *world, const fwa_loaded *loaded,
                                              const fwa_eval_request *request);

// What tasks share.
// Files that the words name which are no settings, patterns expanded; without any, perplexity has those of data.val.
// FWA_CONFIG for a pattern that matches nothing, FWA_USAGE for perplexity of shards and text. The caller frees *files,
// after a failure too. Not collective.
FWA_MUST_CHECK fwa_status fwa_eval_files_find(fwa_paths *files, const fwa_eval_request *request,
                                              const fwa_config *config);
// Rank 0 logs "scored DONE of ALL WHAT" at most every quarter of a minute; *said is 0 at first. Not collective.
void fwa_eval_progress(const fwa_world *world, double *said, int64_t done, int64_t all, const char *what);
// The named tokenizer, or the standard one where it is there or one of the files is text; *out is NULL where there is
// none. `config` and `model` as of fwa_loaded_tokenizer. Not collective.
FWA_MUST_CHECK fwa_status fwa_eval_tokenizer(fwa_tokenizer **out, const fwa_config *config, const char *model,
                                             const fwa_eval_request *request, const fwa_paths *files);

#ifdef __cplusplus
}
#endif
#endif
