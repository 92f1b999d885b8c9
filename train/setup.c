// From a configuration to the objects of a run.
#include "train/setup.h"

#include <stdio.h>
#include <string.h>

#include "core/log.h"
#include "kernels/registry.h"
#include "train/ranks.h"

static void mixer_key(char *key, size_t size, const fwa_mixer_config *mixer, const char *field) {
    snprintf(key, size, "model.mixer.%s.%s", mixer->name, field);
}

// Lists the rules for a message.
static void rule_names(char *text, size_t size) {
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < fwa_rule_count() && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : "", fwa_rule_at(i)->name);
}

typedef struct rule_option {
    const char *field;
    unsigned switch_bit; // what the rule must understand
    unsigned input;      // or take
} rule_option;

static const rule_option rule_options[] = {
    {"shift", FWA_SWITCH_SHIFT, 0},
    {"read", FWA_SWITCH_READ, 0},
    {"step", FWA_SWITCH_STEP, 0},
    {"eps", FWA_SWITCH_STEP, 0},
    {"eta_max", FWA_SWITCH_STEP, 0},
    {"ridge", FWA_SWITCH_RIDGE, 0},
    {"eps_gamma", FWA_SWITCH_RIDGE, 0},
    {"detach_scale", FWA_SWITCH_RIDGE, 0},
    {"lambda_init", FWA_SWITCH_RIDGE, 0},
    {"lambda", FWA_SWITCH_RIDGE, 0},
    {"beta", 0, FWA_INPUT_BETA | FWA_INPUT_BETA_CHANNEL},
    {"beta_init", 0, FWA_INPUT_BETA | FWA_INPUT_BETA_CHANNEL},
    {"beta_range", 0, FWA_INPUT_BETA | FWA_INPUT_BETA_CHANNEL},
    {"window", FWA_SWITCH_WINDOW, 0},
    {"normalized_read", FWA_SWITCH_NORMALIZED_READ, 0},
    {"phi", FWA_SWITCH_PHI, 0},
    {"qk_norm", FWA_SWITCH_QK_NORM, 0},
    {"v_norm", FWA_SWITCH_QK_NORM, 0},
    {"decay", FWA_SWITCH_DECAY, 0},
    {"state", FWA_SWITCH_STATE_SPACE, 0},
    {"conv", FWA_SWITCH_CONV, 0},
    {"gate", FWA_SWITCH_GATE, 0},
    {"rotary", FWA_SWITCH_ROTARY, 0},
    {"beta_rank", 0, FWA_INPUT_BETA_CHANNEL},
};

static bool has_option(const fwa_rule *rule, const rule_option *option) {
    return (rule->switches & option->switch_bit) || (rule->inputs & option->input);
}

// Options that were written down although the rule does not have them are mistakes, not ornaments.
static void check_options(fwa_config *config, const fwa_mixer_config *mixer, const fwa_rule *rule) {
    char key[128], known[512] = "";
    size_t used = 0, count = sizeof rule_options / sizeof *rule_options;
    for (size_t i = 0; i < count && used < sizeof known; i++)
        if (has_option(rule, &rule_options[i]))
            used +=
                (size_t)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", rule_options[i].field);
    for (size_t i = 0; i < count; i++) {
        mixer_key(key, sizeof key, mixer, rule_options[i].field);
        if (!has_option(rule, &rule_options[i]) && fwa_config_changed(config, key))
            fwa_config_problem(config, key, "rule %s has no such option; it has: %s", rule->name,
                               used ? known : "none");
    }
}

static fwa_norm mixer_qk_norm(const fwa_mixer_config *mixer, const fwa_rule *rule) {
    return mixer->qk_norm ? (fwa_norm)(mixer->qk_norm - 1) : rule->default_qk_norm;
}

static void fill_mixer(fwa_mixer_spec *spec, const fwa_mixer_config *mixer, const fwa_rule *rule) {
    memset(spec, 0, sizeof *spec);
    snprintf(spec->name, sizeof spec->name, "%s", mixer->name);
    unsigned has = rule->switches;
    fwa_mixer_options options = fwa_mixer_options_default(rule);
    options.chunk = mixer->chunk;
    if ((has & FWA_SWITCH_SHIFT) && mixer->shift) options.shift = (fwa_shift)(mixer->shift - 1);
    if (has & FWA_SWITCH_READ) options.read = (fwa_read)mixer->read;
    if (has & FWA_SWITCH_STEP) {
        options.step = (fwa_step_kind)mixer->step;
        options.eps = mixer->eps;
        options.eta_max = mixer->eta_max;
    }
    if (has & FWA_SWITCH_RIDGE) {
        options.ridge = (fwa_ridge)mixer->ridge;
        options.eps_gamma = mixer->eps_gamma;
        if (mixer->detach_scale) options.detach_scale = mixer->detach_scale == 2;
    }
    if (has & FWA_SWITCH_NORMALIZED_READ) options.normalized_read = mixer->normalized_read;
    if ((has & FWA_SWITCH_WINDOW) && mixer->window) options.window = mixer->window;
    spec->rule = rule;
    spec->options = options;
    spec->qk_norm = has & FWA_SWITCH_QK_NORM ? mixer_qk_norm(mixer, rule) : FWA_NORM_NONE;
    spec->v_norm = has & FWA_SWITCH_QK_NORM ? (fwa_norm)mixer->v_norm : FWA_NORM_NONE;
    spec->phi = has & FWA_SWITCH_PHI ? (fwa_phi)mixer->phi : FWA_PHI_IDENTITY;
    spec->conv = has & FWA_SWITCH_CONV ? mixer->conv : 0;
    spec->gate = (has & FWA_SWITCH_GATE) && mixer->gate;
    spec->rotary = (has & FWA_SWITCH_ROTARY) && mixer->rotary != 1;
    spec->beta_rank = rule->inputs & FWA_INPUT_BETA_CHANNEL ? mixer->beta_rank : 0;
    spec->beta_range = mixer->beta_range ? (double)mixer->beta_range : rule->default_beta_range;
    spec->beta = (fwa_gate_source)mixer->beta;
    spec->lambda = (fwa_gate_source)mixer->lambda;
    spec->beta_init = mixer->beta_init;
    spec->lambda_init = mixer->lambda_init;
    spec->decay = (fwa_decay)mixer->decay;
    spec->state = has & FWA_SWITCH_STATE_SPACE ? mixer->state : 0;
}

static void setup_mixer(fwa_mixer_spec *spec, fwa_config *config, const fwa_mixer_config *mixer) {
    char key[128], names[256];
    const fwa_rule *rule = fwa_rule_find(mixer->rule);
    mixer_key(key, sizeof key, mixer, "rule");
    if (!rule) {
        rule_names(names, sizeof names);
        fwa_config_problem(config, key, "'%s' is not a rule; known rules: %s", mixer->rule, names);
        return;
    }
    check_options(config, mixer, rule);
    fill_mixer(spec, mixer, rule);
    if (spec->rotary && config->model.head_dim % 2)
        fwa_config_problem(
            config, "model.head_dim",
            "%lld is odd, but rule %s rotates pairs of channels; choose an even size, or set rotary to false",
            (long long)config->model.head_dim, rule->name);
    if (spec->beta_rank > 0 && spec->beta != FWA_GATE_CONTEXTUAL) {
        mixer_key(key, sizeof key, mixer, "beta_rank");
        fwa_config_problem(config, key, "%lld: only a contextual beta has a projection; set it to 0",
                           (long long)spec->beta_rank);
    }
    if (mixer->normalized_read && mixer->phi != FWA_PHI_ELU1 && mixer->phi != FWA_PHI_RELU) {
        mixer_key(key, sizeof key, mixer, "normalized_read");
        fwa_config_problem(config, key, "needs features >= 0: set phi to elu1 or relu");
    }
}

static void document_problems(const fwa_model_spec *spec, fwa_config *config) {
    const bool addition = config->task.name == FWA_TASK_ADDITION;
    if (spec->reset_documents && !addition && spec->N <= spec->document)
        fwa_config_problem(config, "data.reset_documents",
                           "true: documents start with id %d (GPT-2's mark), which a vocabulary of %lld does not have; "
                           "set it to false",
                           spec->document, (long long)spec->N);
    if (config->task.examples > 0 && !addition)
        fwa_config_problem(config, "task.examples", "%lld: only examples of addition are packed; set it to 0",
                           (long long)config->task.examples);
    else if (config->task.examples > 0 && !spec->reset_documents)
        fwa_config_problem(config, "task.examples",
                           "%lld: an example would see those in front of it in its sequence; set data.reset_documents "
                           "to true, or this to 0 for one example a sequence",
                           (long long)config->task.examples);
}

static void model_problems(fwa_model_spec *spec, fwa_config *config, int64_t vocab) {
    memset(spec, 0, sizeof *spec);
    spec->L = config->model.layers;
    spec->D = config->model.d_model;
    spec->H = config->model.heads;
    spec->K = config->model.head_dim;
    spec->F = config->model.ffn;
    spec->N = config->model.vocab_size;
    spec->vocab = vocab;
    spec->reset_documents = config->data.reset_documents;
    spec->document = fwa_source_document(config);
    document_problems(spec, config);
    spec->logit_scale = config->model.logit_scale < 0 ? 1024.0 / (double)spec->D : config->model.logit_scale;
    spec->mixer_count = config->model.mixer_count;
    if (spec->vocab > spec->N)
        fwa_config_problem(config, "model.vocab_size", "%lld is smaller than the %lld ids of the task",
                           (long long)spec->N, (long long)spec->vocab);
    for (int i = 0; i < spec->mixer_count; i++) setup_mixer(&spec->mixer[i], config, &config->model.mixer[i]);
    if (config->model.mixers_count == 0) return; // the configuration has said so
    for (int l = 0; l < spec->L && l < FWA_MAX_LAYERS; l++) {
        const char *name = config->model.mixers[l % config->model.mixers_count];
        for (int i = 0; i < spec->mixer_count; i++)
            if (strcmp(name, config->model.mixer[i].name) == 0) spec->layer_mixer[l] = i;
    }
}

fwa_status fwa_setup_model(fwa_model_spec *spec, fwa_config *config, int64_t vocab) {
    model_problems(spec, config, vocab);
    return fwa_config_finish(config);
}

static void layout_problems(fwa_config *config, const fwa_world *world) {
    int64_t ranks = world->dp_size, sp = config->parallel.sp, G = config->train.global_batch,
            m = config->train.micro_batch, T = fwa_source_length(config);
    if (sp > 1 && T % sp)
        fwa_config_problem(config, "parallel.sp",
                           "sequences of %lld token%s cannot be cut into %lld pieces of one size; choose a divisor, or "
                           "another train.seq_len",
                           (long long)T, fwa_plural(T), (long long)sp);
    if (config->parallel.sp_strategy == FWA_SP_GATHER)
        fwa_config_problem(config, "parallel.sp_strategy",
                           "gather: states of rules go from piece to piece in a ring, and only keys and values of "
                           "attention are gathered, which needs no setting; set it to auto or ring");
    if (config->parallel.zero > 1)
        fwa_config_problem(config, "parallel.zero",
                           "%lld: gradients and values are not sharded; set it to 1 (optimizer state) or 0",
                           (long long)config->parallel.zero);
    bool sound = m > 0 && G % m == 0; // otherwise the configuration has said so
    if (sound && G % (ranks * m))
        fwa_config_problem(
            config, "train.global_batch",
            "%lld sequence%s cannot be divided into micro-batches of %lld on %lld %srank%s (%lld a round); choose a "
            "multiple, or another train.micro_batch",
            (long long)G, fwa_plural(G), (long long)m, (long long)ranks, sp > 1 ? "data " : "", fwa_plural(ranks),
            (long long)ranks * m);
}

fwa_status fwa_setup_layout(fwa_config *config, const fwa_world *world) {
    layout_problems(config, world);
    return fwa_config_finish(config);
}

// A sound folder below another: parts between single slashes, none of them . or ..
static bool stays_inside(const char *name) {
    for (;; name++) {
        const size_t length = strcspn(name, "/");
        if (length == 0 || (length <= 2 && strspn(name, ".") >= length)) return false;
        name += length;
        if (!*name) return true;
    }
}

static void name_problems(fwa_config *config) {
    const char *name = config->run.name; // empty where the configuration could not read it and has said so
    if (!name[0] || stays_inside(name)) return;
    fwa_config_problem(config, "run.name",
                       "got \"%s\", expected a folder inside run.dir: a name, or names with a single / between them, "
                       "without . and ..; run.dir may be any folder",
                       name);
}

fwa_status fwa_setup_check(fwa_config *config, const fwa_world *world) {
    fwa_model_spec spec;
    name_problems(config);
    layout_problems(config, world);
    model_problems(&spec, config, fwa_source_vocab(config));
    return fwa_config_finish(config);
}

// Why run.backend auto does not take a GPU, where this build could.
static void log_no_gpu(void) {
    char text[256];
    if (!fwa_backend_built(FWA_BACKEND_CUDA)) return;
    if (fwa_backend_describe(FWA_BACKEND_CUDA, 0, text, sizeof text) == FWA_OK) return;
    fwa_log_info("run.backend auto takes the cpu: %s", fwa_error_message());
    fwa_error_clear();
}

static const char *const precision_names[] = {"f32", "bf16", "f64"};
static const fwa_dtype precision_types[] = {FWA_F32, FWA_BF16, FWA_F64};

static fwa_backend_kind choose_backend(const fwa_config *config) {
    if (config->run.backend == FWA_CHOOSE_CUDA) return FWA_BACKEND_CUDA;
    return config->run.backend == FWA_CHOOSE_AUTO && fwa_backend_built(FWA_BACKEND_CUDA) &&
                   fwa_backend_device_count(FWA_BACKEND_CUDA) > 0
               ? FWA_BACKEND_CUDA
               : FWA_BACKEND_CPU;
}

static fwa_status check_precision(fwa_config *config, fwa_backend_kind kind) {
    const fwa_dtype precision = precision_types[config->train.precision];
    if (kind == FWA_BACKEND_CUDA && precision == FWA_F64)
        fwa_config_problem(
            config, "train.precision",
            "f64 runs on the cpu backend, and this run is on the cuda backend; set run.backend to cpu, or "
            "train.precision to bf16 or f32");
    if (kind == FWA_BACKEND_CPU && precision == FWA_BF16) {
        fwa_config_problem(config, "train.precision",
                           "bf16 needs the cuda backend, and this run is on the cpu%s; on a cpu use "
                           "train.precision=f32",
                           config->run.backend == FWA_CHOOSE_AUTO ? " (no usable GPU was found)" : "");
    }
    return fwa_config_finish(config);
}

fwa_status fwa_setup_backend_check(fwa_config *config, bool here) {
    char device[256];
    if (!here && config->run.backend == FWA_CHOOSE_AUTO) return FWA_OK;
    const fwa_backend_kind kind = choose_backend(config);
    FWA_TRY(check_precision(config, kind));
    if (kind == FWA_BACKEND_CPU || (!here && fwa_backend_built(kind))) return FWA_OK;
    return fwa_backend_describe(kind, 0, device, sizeof device);
}

fwa_status fwa_setup_backend(fwa_backend **out, fwa_config *config, const fwa_world *world, bool plan_only) {
    const fwa_backend_kind kind = choose_backend(config);
    const fwa_dtype precision = precision_types[config->train.precision];
    const int threads = config->run.threads > 0 ? (int)config->run.threads : world->cores;
    const bool usable = kind == FWA_BACKEND_CUDA && fwa_backend_device_count(kind) > 0;
    if (plan_only && (!usable || precision == FWA_F64)) {
        if (world->rank == 0 && (kind == FWA_BACKEND_CUDA || precision == FWA_BF16))
            fwa_log_info("no usable GPU here: the memory of mixing rules is planned as on the cpu");
        return fwa_backend_create_plan(out, precision, threads);
    }
    FWA_TRY(check_precision(config, kind));
    int device = 0;
    if (usable && !plan_only) FWA_TRY(fwa_ranks_device(world, fwa_backend_device_count(kind), &device));
    FWA_TRY(fwa_backend_create(out, kind, precision, device, threads));
    (*out)->deterministic = config->debug.deterministic;
    fwa_status status = fwa_backend_complete(*out);
    if (status != FWA_OK) {
        (*out)->destroy(*out);
        *out = NULL;
        return fwa_error_pass(status, __FILE__, __LINE__, __func__);
    }
    if (world->rank == 0 && kind == FWA_BACKEND_CPU && config->run.backend == FWA_CHOOSE_AUTO) log_no_gpu();
    if (world->rank == 0)
        fwa_log_info("backend %s, precision %s, %d thread%s a rank", (*out)->name,
                     precision_names[config->train.precision], (*out)->threads, fwa_plural((*out)->threads));
    return FWA_OK;
}
