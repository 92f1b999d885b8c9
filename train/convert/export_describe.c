// config.json of an export.
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "core/version.h"
#include "train/convert/export.h"
#include "train/tasks/addition.h"

// A value as the configuration prints it: a number, a truth value, a list, a text with or without quotes.
static json_t *value_of(const char *text) {
    char *end;
    if (!strcmp(text, "true") || !strcmp(text, "false")) return json_boolean(text[0] == 't');
    if (text[0] == '"') return json_loads(text, JSON_DECODE_ANY, NULL);
    if (text[0] == '[') {
        json_t *list = json_array();
        char *copy = strdup(text + 1), *rest = NULL;
        if (copy) copy[strcspn(copy, "]")] = '\0';
        for (char *item = copy ? strtok_r(copy, ", ", &rest) : NULL; item; item = strtok_r(NULL, ", ", &rest))
            json_array_append_new(list, value_of(item));
        free(copy);
        return list;
    }
    const long long integer = strtoll(text, &end, 10);
    if (end != text && *end == '\0') return json_integer(integer);
    const double real = strtod(text, &end);
    const bool number = end != text && *end == '\0' && strchr("-.0123456789", text[0]);
    return number ? json_real(real) : json_string(text);
}

// root.a.b = value for "a.b"; objects on the way are made. False without memory.
static bool set_path(json_t *root, const char *path, json_t *value) {
    const char *dot;
    for (; (dot = strchr(path, '.')); path = dot + 1) {
        char part[64];
        snprintf(part, sizeof part, "%.*s", (int)(dot - path), path);
        if (!json_object_get(root, part) && json_object_set_new(root, part, json_object()) != 0) return false;
        root = json_object_get(root, part);
    }
    return value && json_object_set_new(root, path, value) == 0;
}

static fwa_status add_config(json_t *root, const fwa_config *config) {
    fwa_config_entry *entries;
    int count;
    bool good = true;
    FWA_TRY(fwa_config_entries(config, &entries, &count));
    json_t *all = json_object();
    for (int i = 0; i < count; i++) good &= set_path(all, entries[i].key, value_of(entries[i].value));
    fwa_config_entries_free(entries, count);
    good &= json_object_set_new(root, "config", all) == 0;
    FWA_CHECK(good, FWA_MEMORY, "no memory for config.json");
    return FWA_OK;
}

// Names in the order of the enums in core/types.h.
static const char *const shifts[] = {"next_latent", "same_step"}, *const reads[] = {"after_write", "before_write"},
                         *const norms[] = {"rms", "l2", "none"}, *const phis[] = {"identity", "elu1", "relu", "silu"},
                         *const steps[] = {"normalized", "direct"}, *const ridges[] = {"coupled", "uncoupled", "none"},
                         *const decays[] = {"retnet", "lightning"},
                         *const sources[] = {"contextual", "constant", "fixed"};

static json_t *describe_mixer(const fwa_mixer_spec *m) {
    const fwa_mixer_options *o = &m->options;
    json_t *mixer = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "rule", m->rule->name, "shift",
                              shifts[o->shift], "read", reads[o->read], "qk_norm", norms[m->qk_norm], "v_norm",
                              norms[m->v_norm], "phi", phis[m->phi], "step", steps[o->step], "ridge", ridges[o->ridge],
                              "decay", decays[m->decay], "beta", sources[m->beta], "lambda", sources[m->lambda]);
    json_t *numbers =
        json_pack("{s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:I}", "eps", o->eps, "eps_gamma", o->eps_gamma, "eta_max",
                  o->eta_max, "eps_attn", o->eps_attn, "beta_range", m->beta_range, "window", (json_int_t)o->window,
                  "conv", (json_int_t)m->conv, "beta_rank", (json_int_t)m->beta_rank, "state", (json_int_t)m->state);
    json_t *flags =
        json_pack("{s:b, s:b, s:b}", "gate", m->gate, "rotary", m->rotary, "normalized_read", o->normalized_read);
    if (mixer && numbers && flags) {
        json_object_update(mixer, numbers);
        json_object_update(mixer, flags);
    }
    json_decref(numbers);
    json_decref(flags);
    return mixer;
}

static fwa_status add_mixers(json_t *root, const fwa_model_spec *spec) {
    json_t *mixers = json_object(), *layers = json_array();
    bool good = mixers && layers;
    for (int i = 0; i < spec->mixer_count && good; i++)
        good = json_object_set_new(mixers, spec->mixer[i].name, describe_mixer(&spec->mixer[i])) == 0;
    for (int64_t l = 0; l < spec->L && good; l++)
        good = json_array_append_new(layers, json_string(spec->mixer[spec->layer_mixer[l]].name)) == 0;
    good = json_object_set_new(root, "mixers", mixers) == 0 && good;
    good = json_object_set_new(root, "layer_mixers", layers) == 0 && good;
    FWA_CHECK(good, FWA_MEMORY, "no memory for config.json");
    return FWA_OK;
}

// With as many digits of numbers as reading them back takes: 15 make 0.1 of 0.1, 17 are always enough.
static char *dump(const json_t *root) {
    for (int digits = 15; digits <= 17; digits += 2) {
        char *text = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(digits));
        json_t *again = text ? json_loads(text, 0, NULL) : NULL;
        const bool same = again && json_equal(root, again);
        json_decref(again);
        if (same || digits == 17) return text;
        free(text);
    }
    return NULL;
}

static fwa_status print(json_t *root, fwa_status status, char **json) {
    *json = status == FWA_OK ? dump(root) : NULL;
    json_decref(root);
    FWA_TRY(status);
    FWA_CHECK(*json, FWA_MEMORY, "no memory for config.json");
    return FWA_OK;
}

fwa_status fwa_export_describe(const fwa_checkpoint_state *state, const fwa_config *config, const fwa_model_spec *spec,
                               char **json) {
    json_t *root =
        json_pack("{s:s, s:i, s:s, s:I, s:I}", "format", FWA_EXPORT_FORMAT, "version", FWA_EXPORT_VERSION, "made_by",
                  fwa_version_text(), "step", (json_int_t)state->step, "tokens", (json_int_t)state->tokens);
    json_t *sizes = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "layers", (json_int_t)spec->L, "d_model",
                              (json_int_t)spec->D, "heads", (json_int_t)spec->H, "head_dim", (json_int_t)spec->K, "ffn",
                              (json_int_t)spec->F, "vocab_size", (json_int_t)spec->N, "vocab", (json_int_t)spec->vocab);
    json_t *numbers = json_pack("{s:f, s:f, s:f, s:f, s:b, s:i}", "logit_scale", spec->logit_scale, "norm_eps",
                                FWA_NORM_EPS, "rotary_base", FWA_ROTARY_BASE, "lambda_scale", FWA_LAMBDA_SCALE,
                                "reset_documents", spec->reset_documents, "document", (int)spec->document);
    bool good =
        root && sizes && numbers && json_object_update(root, sizes) == 0 && json_object_update(root, numbers) == 0;
    json_decref(sizes);
    json_decref(numbers);
    fwa_status status = good ? add_mixers(root, spec)
                             : fwa_error_raise(FWA_MEMORY, __FILE__, __LINE__, __func__, "no memory for config.json");
    if (status == FWA_OK) status = add_config(root, config);
    return print(root, status, json);
}

fwa_status fwa_export_describe_llama(const fwa_checkpoint_state *state, const fwa_config *config,
                                     const fwa_model_spec *spec, const char *type, char **json) {
    json_t *root =
        json_pack("{s:[s], s:s, s:s, s:s, s:b, s:b, s:b, s:f, s:f}", "architectures", "LlamaForCausalLM", "model_type",
                  "llama", "hidden_act", "silu", "torch_dtype", type, "attention_bias", 0, "mlp_bias", 0,
                  "tie_word_embeddings", 1, "rms_norm_eps", FWA_NORM_EPS, "rope_theta", FWA_ROTARY_BASE);
    json_t *sizes = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "hidden_size", (json_int_t)spec->D,
                              "intermediate_size", (json_int_t)spec->F, "num_hidden_layers", (json_int_t)spec->L,
                              "num_attention_heads", (json_int_t)spec->H, "num_key_value_heads", (json_int_t)spec->H,
                              "head_dim", (json_int_t)spec->K, "vocab_size", (json_int_t)spec->vocab,
                              "max_position_embeddings", (json_int_t)fwa_source_length(config));
    json_t *own =
        json_pack("{s:s, s:i, s:s, s:I, s:I}", "format", FWA_EXPORT_FORMAT, "version", FWA_EXPORT_VERSION, "made_by",
                  fwa_version_text(), "step", (json_int_t)state->step, "tokens", (json_int_t)state->tokens);
    bool good = root && sizes && own && json_object_update(root, sizes) == 0;
    const int32_t end = config->task.name == FWA_TASK_ADDITION ? FWA_ADDITION_END : spec->document;
    if (good && spec->vocab > spec->document)
        good = json_object_set_new(root, "bos_token_id", json_integer(spec->document)) == 0 &&
               json_object_set_new(root, "eos_token_id", json_integer(end)) == 0;
    fwa_status status = good ? add_config(own, config)
                             : fwa_error_raise(FWA_MEMORY, __FILE__, __LINE__, __func__, "no memory for config.json");
    json_decref(sizes);
    if (good) json_object_set(root, "fwa", own);
    json_decref(own);
    return print(root, status, json);
}
