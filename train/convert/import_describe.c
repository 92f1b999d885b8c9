// config.json of an export, or of a LLaMA model, as a configuration.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "io/files.h"
#include "train/convert/export.h"

static const json_t *member(const json_t *root, const char *name) {
    return json_object_get(root, name);
}

static bool has_text(const json_t *root, const char *name, const char *text) {
    const char *value = json_string_value(member(root, name));
    return value && !strcmp(value, text);
}

// JSON is YAML, too: the configuration's own reader checks it.
static fwa_status take_own(const char *path, const json_t *root, char **text, int64_t *step, int64_t *tokens) {
    const json_int_t version = json_integer_value(member(root, "version"));
    const json_t *config = member(root, "config");
    FWA_CHECK(version == FWA_EXPORT_VERSION, FWA_FORMAT, "%s: version %lld, this program reads %d", path,
              (long long)version, FWA_EXPORT_VERSION);
    FWA_CHECK(json_is_object(config), FWA_FORMAT, "%s: has no object \"config\"", path);
    FWA_CHECK(json_is_integer(member(root, "step")) && json_is_integer(member(root, "tokens")), FWA_FORMAT,
              "%s: \"step\" and \"tokens\": expected whole numbers", path);
    *step = json_integer_value(member(root, "step"));
    *tokens = json_integer_value(member(root, "tokens"));
    FWA_CHECK(*step >= 0 && *tokens >= 0, FWA_FORMAT, "%s: step %lld and tokens %lld: expected none below 0", path,
              (long long)*step, (long long)*tokens);
    *text = json_dumps(config, JSON_COMPACT | JSON_REAL_PRECISION(17));
    FWA_CHECK(*text, FWA_MEMORY, "no memory for the configuration of %s", path);
    return FWA_OK;
}

static fwa_status integer_of(const char *path, const json_t *root, const char *name, int64_t *out) {
    const json_t *value = member(root, name);
    FWA_CHECK(json_is_integer(value) && json_integer_value(value) > 0, FWA_FORMAT,
              "%s: \"%s\": expected a whole number above 0", path, name);
    *out = json_integer_value(value);
    return FWA_OK;
}

static fwa_status number_is(const char *path, const json_t *value, const char *name, double wanted, double standard) {
    const double got = json_is_number(value) ? json_number_value(value) : standard;
    FWA_CHECK(fabs(got - wanted) <= 1e-9 * wanted, FWA_CONFIG, "%s: \"%s\" is %g, but models here have %g", path, name,
              got, wanted);
    return FWA_OK;
}

static fwa_status is_false(const char *path, const json_t *root, const char *name) {
    const json_t *value = member(root, name);
    FWA_CHECK(!value || json_is_false(value) || json_is_null(value), FWA_CONFIG,
              "%s: \"%s\" is set, but models here have no such thing", path, name);
    return FWA_OK;
}

// What LLaMA models may be and those of this program are not.
static fwa_status check_llama(const char *path, const json_t *root, int64_t heads) {
    const json_t *kv = member(root, "num_key_value_heads"), *rope = member(root, "rope_parameters");
    const json_t *theta = member(rope, "rope_theta");
    FWA_CHECK(!kv || json_integer_value(kv) == heads, FWA_CONFIG,
              "%s: %lld key-value head%s for %lld: heads here have keys and values of their own", path,
              (long long)json_integer_value(kv), fwa_plural(json_integer_value(kv)), (long long)heads);
    FWA_CHECK(!member(root, "hidden_act") || has_text(root, "hidden_act", "silu"), FWA_CONFIG,
              "%s: \"hidden_act\" is not silu", path);
    FWA_CHECK(json_is_true(member(root, "tie_word_embeddings")), FWA_CONFIG,
              "%s: \"tie_word_embeddings\" is not true: models here have one embedding for both ends", path);
    FWA_TRY(is_false(path, root, "attention_bias"));
    FWA_TRY(is_false(path, root, "mlp_bias"));
    FWA_TRY(is_false(path, root, "rope_scaling"));
    FWA_CHECK(!rope || !member(rope, "rope_type") || has_text(rope, "rope_type", "default"), FWA_CONFIG,
              "%s: \"rope_type\" is not default", path);
    FWA_TRY(number_is(path, theta ? theta : member(root, "rope_theta"), "rope_theta", FWA_ROTARY_BASE, 10000.0));
    return number_is(path, member(root, "rms_norm_eps"), "rms_norm_eps", FWA_NORM_EPS, 1e-6);
}

static fwa_status take_llama(const char *path, const json_t *root, char **text) {
    int64_t D, F, L, H, N, T, K = json_integer_value(member(root, "head_dim"));
    FWA_TRY(integer_of(path, root, "hidden_size", &D));
    FWA_TRY(integer_of(path, root, "intermediate_size", &F));
    FWA_TRY(integer_of(path, root, "num_hidden_layers", &L));
    FWA_TRY(integer_of(path, root, "num_attention_heads", &H));
    FWA_TRY(integer_of(path, root, "vocab_size", &N));
    FWA_TRY(integer_of(path, root, "max_position_embeddings", &T));
    FWA_TRY(check_llama(path, root, H));
    const int length = asprintf(text,
                                "model: {layers: %lld, d_model: %lld, heads: %lld, head_dim: %lld, ffn: %lld, "
                                "vocab_size: %lld, logit_scale: 1, mixer: {main: {rule: softmax, rotary: true}}}\n"
                                "task: {name: lm}\n"
                                "train: {steps: 1, seq_len: %lld, micro_batch: 1, global_batch: 1, precision: f32}\n"
                                "schedule: {warmup: 0}\n"
                                "eval: {every: 0}\n",
                                (long long)L, (long long)D, (long long)H, (long long)(K > 0 ? K : D / H), (long long)F,
                                (long long)N, (long long)T);
    if (length < 0) *text = NULL;
    FWA_CHECK(*text, FWA_MEMORY, "no memory for the configuration of %s", path);
    return FWA_OK;
}

static fwa_status describe(const char *path, const json_t *root, char **text, fwa_export_layout *layout, int64_t *step,
                           int64_t *tokens) {
    const json_t *own = member(root, "fwa");
    *layout = has_text(root, "format", FWA_EXPORT_FORMAT) ? FWA_EXPORT_OWN : FWA_EXPORT_LLAMA;
    if (*layout == FWA_EXPORT_OWN) return take_own(path, root, text, step, tokens);
    FWA_CHECK(has_text(root, "model_type", "llama"), FWA_FORMAT,
              "%s: expected \"format\": \"" FWA_EXPORT_FORMAT "\" of fwa export, or \"model_type\": \"llama\"", path);
    return own ? take_own(path, own, text, step, tokens) : take_llama(path, root, text);
}

fwa_status fwa_import_describe(const char *path, char **text, fwa_export_layout *layout, int64_t *step,
                               int64_t *tokens) {
    json_error_t error;
    *text = NULL;
    *step = *tokens = 0;
    FWA_CHECK(fwa_path_exists(path), FWA_CONFIG, "%s: there is no such file; expected a folder of fwa export", path);
    FWA_TRY(fwa_input_check(path, FWA_INPUT_FILE));
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    FWA_CHECK(root, FWA_FORMAT, "%s:%d: not JSON: %s", path, error.line, error.text);
    fwa_status status = describe(path, root, text, layout, step, tokens);
    json_decref(root);
    return status;
}
