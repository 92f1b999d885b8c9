// A checkpoint's model, ready to run forward.
#include "train/eval/loaded.h"

#include <ctype.h>
#include <string.h>

#include "io/checkpoint.h"
#include "train/run.h"
#include "train/setup.h"
#include "train/weights.h"

static const char *const allowed[] = {"run.backend=", "run.threads=", "train.precision="};

bool fwa_loaded_is_setting(const char *word) {
    size_t i = 0, dots = 0;
    for (; islower((unsigned char)word[i]) || word[i] == '_' || word[i] == '.'; i++) dots += word[i] == '.';
    return dots > 0 && word[i] == '=';
}

static fwa_status collect_settings(const char *settings[], int *count, const char *const *words, int word_count) {
    settings[(*count)++] = "run.backend=auto";
    settings[(*count)++] = "run.threads=auto";
    for (int i = 0; i < word_count; i++) {
        bool known = false;
        if (!fwa_loaded_is_setting(words[i])) continue;
        for (size_t j = 0; j < sizeof allowed / sizeof *allowed; j++)
            known = known || strncmp(words[i], allowed[j], strlen(allowed[j])) == 0;
        FWA_CHECK(known, FWA_USAGE,
                  "got '%s', expected run.backend=..., run.threads=... or train.precision=...: all else is the "
                  "checkpoint's",
                  words[i]);
        settings[(*count)++] = words[i];
    }
    return FWA_OK;
}

static bool has_attention(const fwa_model_spec *spec) {
    for (int l = 0; l < spec->L; l++)
        if (spec->mixer[spec->layer_mixer[l]].rule->state == FWA_STATE_CACHE) return true;
    return false;
}

static fwa_status build(fwa_loaded *l, fwa_checkpoint *checkpoint, const fwa_world *world, const char *const *settings,
                        int count) {
    fwa_model_spec spec;
    const fwa_checkpoint_state *state = fwa_checkpoint_get_state(checkpoint);
    l->step = state->step;
    FWA_TRY(fwa_config_parse(&l->config, state->config, l->path, settings, count));
    FWA_TRY(fwa_setup_model(&spec, l->config, fwa_source_vocab(l->config)));
    l->seq_len = fwa_source_length(l->config);
    l->attention = has_attention(&spec);
    FWA_TRY(fwa_setup_backend(&l->backend, l->config, world, false));
    l->backend->deterministic = true; // shapes are many: to measure each takes longer than it saves
    FWA_TRY(fwa_model_create(&l->model, &spec, l->backend, false));
    FWA_TRY(fwa_model_commit(l->model, l->backend, 0));
    return fwa_weights_read(l->model, l->backend, checkpoint, false);
}

fwa_status fwa_loaded_open(fwa_loaded *out, const fwa_world *world, const char *run_or_checkpoint,
                           const char *const *words, int count) {
    const char *settings[FWA_ARGUMENTS_MAX + 2];
    int setting_count = 0;
    fwa_checkpoint *checkpoint = NULL;
    memset(out, 0, sizeof *out);
    FWA_TRY(collect_settings(settings, &setting_count, words, count));
    FWA_TRY(fwa_run_find_checkpoint(run_or_checkpoint, out->path));
    FWA_TRY(fwa_checkpoint_open(&checkpoint, out->path));
    fwa_status status = build(out, checkpoint, world, settings, setting_count);
    fwa_checkpoint_close(checkpoint);
    if (status != FWA_OK) return fwa_error_pass(status, __FILE__, __LINE__, __func__);
    return FWA_OK;
}

void fwa_loaded_close(fwa_loaded *l) {
    fwa_model_destroy(l->model);
    if (l->backend) l->backend->destroy(l->backend);
    fwa_config_destroy(l->config);
    memset(l, 0, sizeof *l);
}

fwa_status fwa_loaded_tokenizer(fwa_tokenizer **out, const fwa_loaded *l, const char *source) {
    FWA_TRY(fwa_tokenizer_open(out, source));
    const int64_t ids = fwa_tokenizer_vocab(*out), known = l->model->spec.vocab;
    if (ids <= known) return FWA_OK;
    fwa_tokenizer_close(*out);
    *out = NULL;
    FWA_FAIL(FWA_CONFIG, "tokenizer %s has %lld ids, the model of %s knows %lld; name the one its data was made with",
             source, (long long)ids, l->path, (long long)known);
}
