// Models in other programs' files: weights as safetensors beside a config.json (docs/export.md). Not collective.
#ifndef FWA_TRAIN_CONVERT_EXPORT_H
#define FWA_TRAIN_CONVERT_EXPORT_H

#include "io/checkpoint.h"
#include "io/config.h"
#include "io/safetensors.h"
#include "layers/spec.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FWA_EXPORT_FORMAT  "fwa-model" // member "format" of config.json
#define FWA_EXPORT_VERSION 1

typedef enum fwa_export_layout {
    FWA_EXPORT_OWN,  // parameters under their own names
    FWA_EXPORT_LLAMA // as the transformers library names those of LLaMA
} fwa_export_layout;

// config.json; the caller frees *json. What a model is stands in it resolved, what it was configured from beside it.
FWA_MUST_CHECK fwa_status fwa_export_describe(const fwa_checkpoint_state *state, const fwa_config *config,
                                              const fwa_model_spec *spec, char **json);
// The same for LLaMA's layout; `type`: of the weights, "float32".
FWA_MUST_CHECK fwa_status fwa_export_describe_llama(const fwa_checkpoint_state *state, const fwa_config *config,
                                                    const fwa_model_spec *spec, const char *type, char **json);

// FWA_CONFIG unless LLaMA's layout can hold the model: softmax with rotary positions in every layer, and SwiGLU.
FWA_MUST_CHECK fwa_status fwa_llama_check(const fwa_model_spec *spec);
// LLaMA's name for a parameter; false where it has none.
bool fwa_llama_name(const char *name, char out[FWA_SAFETENSORS_NAME]);
// The factor on a parameter in LLaMA's layout, which has none on logits: the final norm takes it. 1 for all others.
double fwa_llama_factor(const char *name, const fwa_model_spec *spec);

// A configuration, as text, from config.json of either layout. FWA_FORMAT, FWA_CONFIG say what cannot be taken. The
// caller frees *text.
FWA_MUST_CHECK fwa_status fwa_import_describe(const char *path, char **text, fwa_export_layout *layout, int64_t *step,
                                              int64_t *tokens);

#ifdef __cplusplus
}
#endif
#endif
