// What the tasks of `fwa eval` share: the files they read, the tokenizer, lines of progress.
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "io/files.h"
#include "train/eval/eval.h"

#define STANDARD_TOKENIZER "data/gpt2"
#define SILENCE            15.0 // seconds between lines

static fwa_status find(fwa_paths *files, const char *pattern) {
    return fwa_paths_find(files, pattern, "token shards (*.bin), text or JSONL; name files behind the run");
}

fwa_status fwa_eval_files_find(fwa_paths *files, const fwa_eval_request *request, const fwa_config *config) {
    memset(files, 0, sizeof *files);
    for (int i = 0; i < request->word_count; i++)
        if (!fwa_loaded_is_setting(request->words[i])) FWA_TRY(find(files, request->words[i]));
    if (request->task != FWA_EVAL_PERPLEXITY) return FWA_OK;
    if (files->count == 0) FWA_TRY(find(files, config->data.val));
    const char *first = files->at[0];
    for (int i = 1; i < files->count; i++)
        FWA_CHECK(fwa_path_ends(files->at[i], ".bin") == fwa_path_ends(first, ".bin"), FWA_USAGE,
                  "%s and %s: expected all token shards (*.bin) or all text", first, files->at[i]);
    return FWA_OK;
}

static bool hold_text(const fwa_paths *files) {
    for (int i = 0; i < files->count; i++)
        if (!fwa_path_ends(files->at[i], ".bin")) return true;
    return false;
}

fwa_status fwa_eval_tokenizer(fwa_tokenizer **out, const fwa_config *config, const char *model,
                              const fwa_eval_request *request, const fwa_paths *files) {
    const bool needed = hold_text(files);
    *out = NULL;
    if (request->tokenizer) return fwa_loaded_tokenizer(out, config, model, request->tokenizer);
    if (!needed && !fwa_path_exists(STANDARD_TOKENIZER)) return FWA_OK;
    fwa_status status = fwa_loaded_tokenizer(out, config, model, STANDARD_TOKENIZER);
    if (status == FWA_CONFIG && !needed) { // not the one of this model
        fwa_error_clear();
        return FWA_OK;
    }
    return status;
}

void fwa_eval_progress(const fwa_world *world, double *said, int64_t done, int64_t all, const char *what) {
    const double now = fwa_clock_seconds();
    if (*said == 0.0) *said = now;
    if (world->rank != 0 || now - *said < SILENCE) return;
    *said = now;
    fwa_log_info("scored %lld of %lld %s", (long long)done, (long long)all, what);
}
