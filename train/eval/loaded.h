// A checkpoint's model, ready to run forward: for `fwa eval` and `fwa generate`.
#ifndef FWA_TRAIN_EVAL_LOADED_H
#define FWA_TRAIN_EVAL_LOADED_H

#include <stdbool.h>

#include "dist/world.h"
#include "io/config.h"
#include "io/tokenizer.h"
#include "layers/model.h"
#include "train/arguments.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fwa_loaded {
    fwa_config *config;
    fwa_backend *backend;
    fwa_model *model;
    int64_t step;    // updates that it was trained for
    int64_t seq_len; // tokens of the sequences it was trained on
    bool attention;  // a layer has softmax attention: positions behind seq_len are new to it
    char path[2048]; // of the checkpoint
} fwa_loaded;

// Whether a word of the command line is a setting, "key.path=value".
bool fwa_loaded_is_setting(const char *word);
// Opens a run folder's newest sound checkpoint, or a checkpoint. `words`: settings among them say where and how to
// compute: run.backend, run.threads (of this machine unless given), train.precision; FWA_USAGE for others.
// Collective: all ranks open the same one. *out is closed after a failure, too.
FWA_MUST_CHECK fwa_status fwa_loaded_open(fwa_loaded *out, fwa_world *world, const char *run_or_checkpoint,
                                          const char *const *words, int count);
void fwa_loaded_close(fwa_loaded *loaded);
// The configuration under which fwa_loaded_open will open a checkpoint of `config` with the settings among `words`,
// owned by the caller; FWA_USAGE or FWA_CONFIG where it will refuse them. Not collective.
FWA_MUST_CHECK fwa_status fwa_loaded_config(fwa_config **out, const fwa_config *config, const char *const *words,
                                            int count);
bool fwa_loaded_has_attention(const fwa_model_spec *spec); // as `attention` above
// Opens `source` (io/tokenizer.h); FWA_CONFIG where it has ids that a model with this configuration, which messages
// call `model`, lacks. Not collective.
FWA_MUST_CHECK fwa_status fwa_loaded_tokenizer(fwa_tokenizer **out, const fwa_config *config, const char *model,
                                               const char *source);

#ifdef __cplusplus
}
#endif
#endif
