// A checkpoint's model, ready to run forward.
#include "train/eval/loaded.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
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

fwa_status fwa_loaded_config(fwa_config **out, const fwa_config *config, const char *const *words, int count) {
    const char *settings[FWA_ARGUMENTS_MAX + 2];
    int n = 0;
    *out = NULL;
    FWA_TRY(collect_settings(settings, &n, words, count));
    char *text = fwa_config_text(config);
    FWA_CHECK(text, FWA_MEMORY, "no memory for a configuration");
    fwa_status status = fwa_config_parse(out, text, config->run.name, settings, n);
    if (status == FWA_OK) status = fwa_config_finish(*out);
    if (status != FWA_OK) fwa_config_destroy(*out);
    if (status != FWA_OK) *out = NULL;
    free(text);
    return status;
}

bool fwa_loaded_has_attention(const fwa_model_spec *spec) {
    for (int l = 0; l < spec->L; l++)
        if (spec->mixer[spec->layer_mixer[l]].rule->state == FWA_STATE_CACHE) return true;
    return false;
}

// What a checkpoint is opened into.
typedef struct opening {
    fwa_loaded *loaded;
    const fwa_world *world;
    const char *settings[FWA_ARGUMENTS_MAX + 2];
    int count;
} opening;

static fwa_status build(void *user, fwa_checkpoint *checkpoint) {
    const opening *o = user;
    fwa_loaded *l = o->loaded;
    fwa_model_spec spec;
    const fwa_checkpoint_state *state = fwa_checkpoint_get_state(checkpoint);
    fwa_loaded_close(l); // of an attempt before
    snprintf(l->path, sizeof l->path, "%s", fwa_checkpoint_path(checkpoint));
    l->step = state->step;
    FWA_TRY(fwa_config_parse(&l->config, state->config, l->path, o->settings, o->count));
    FWA_TRY(fwa_setup_model(&spec, l->config, fwa_source_vocab(l->config)));
    l->seq_len = fwa_source_length(l->config);
    l->attention = fwa_loaded_has_attention(&spec);
    FWA_TRY(fwa_setup_backend(&l->backend, l->config, o->world, false));
    l->backend->deterministic = true; // shapes are many: to measure each takes longer than it saves
    FWA_TRY(fwa_model_create(&l->model, &spec, l->backend, false));
    FWA_TRY(fwa_model_commit(l->model, l->backend, 0));
    return fwa_weights_read(l->model, l->backend, checkpoint, false);
}

fwa_status fwa_loaded_open(fwa_loaded *out, fwa_world *world, const char *run_or_checkpoint, const char *const *words,
                           int count) {
    opening o = {.loaded = out, .world = world};
    memset(out, 0, sizeof *out);
    FWA_TRY(fwa_world_agree_late(world, collect_settings(o.settings, &o.count, words, count)));
    return fwa_run_read_checkpoint(world, run_or_checkpoint, build, &o);
}

void fwa_loaded_close(fwa_loaded *l) {
    fwa_model_destroy(l->model);
    if (l->backend) l->backend->destroy(l->backend);
    fwa_config_destroy(l->config);
    memset(l, 0, sizeof *l);
}

fwa_status fwa_loaded_tokenizer(fwa_tokenizer **out, const fwa_config *config, const char *model, const char *source) {
    FWA_TRY(fwa_tokenizer_open(out, source));
    const int64_t ids = fwa_tokenizer_vocab(*out), known = fwa_source_vocab(config);
    if (ids <= known) return FWA_OK;
    fwa_tokenizer_close(*out);
    *out = NULL;
    FWA_FAIL(FWA_CONFIG, "tokenizer %s has %lld ids, the model of %s knows %lld; name the one its data was made with",
             source, (long long)ids, model, (long long)known);
}
