// The configuration: YAML files with `base:`, dotted overrides, one schema table.
//
// The schema (io/config_schema.def) gives parsing, --print-config and docs/configuration.md. All mistakes of a run are
// collected and reported together with file:line, the allowed values and the nearest key. Enum fields hold the index
// into the schema's list of names: the order of the enum in core/types.h or below, behind `auto` where the list has it.
// Not collective.
#ifndef FWA_IO_CONFIG_H
#define FWA_IO_CONFIG_H

#include <stdio.h>

#include <stdbool.h>

#include "core/status.h"
#include "core/types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FWA_CONFIG_TEXT   256 // bytes of a string value
#define FWA_CONFIG_MIXERS 8   // entries of model.mixer
#define FWA_CONFIG_LAYERS 256 // entries of model.mixers

typedef enum fwa_backend_choice { FWA_CHOOSE_AUTO, FWA_CHOOSE_CPU, FWA_CHOOSE_CUDA } fwa_backend_choice;
typedef enum fwa_task_kind { FWA_TASK_LM, FWA_TASK_ADDITION } fwa_task_kind;
typedef enum fwa_addition_format { FWA_ADDITION_PAPER, FWA_ADDITION_BRACKET } fwa_addition_format;
typedef enum fwa_precision { FWA_PRECISION_F32, FWA_PRECISION_BF16, FWA_PRECISION_F64 } fwa_precision;
typedef enum fwa_schedule_kind {
    FWA_SCHEDULE_COSINE,
    FWA_SCHEDULE_WSD,
    FWA_SCHEDULE_LINEAR,
    FWA_SCHEDULE_CONSTANT
} fwa_schedule_kind;
typedef enum fwa_sp_strategy { FWA_SP_AUTO, FWA_SP_RING, FWA_SP_GATHER } fwa_sp_strategy;

typedef struct fwa_mixer_config {
    char name[32]; // key under model.mixer
    char rule[32];
    int shift;                                 // 0 auto (the rule's default), else fwa_shift + 1
    int qk_norm;                               // 0 auto (the rule's default), else fwa_norm + 1
    int read, v_norm, phi, step, ridge, decay; // enums of core/types.h
    int beta, lambda;                          // fwa_gate_source
    double beta_init, lambda_init, eps, eps_gamma, eta_max;
    int64_t window, chunk, conv; // window 0: the rule's default
    int64_t beta_rank;           // 0: full
    int beta_range;              // 0 auto (the rule's default), 1, 2
    int64_t state;
    bool gate;
    int rotary; // 0 auto (true where the rule has them), 1 false, 2 true
    bool normalized_read;
    int detach_scale; // 0 auto (the rule's default), 1 false, 2 true
} fwa_mixer_config;

typedef struct fwa_config {
    struct {
        char name[FWA_CONFIG_TEXT], dir[FWA_CONFIG_TEXT];
        int64_t seed;
        int backend;
        int64_t threads;
    } run; // threads 0: auto
    struct {
        int64_t layers, d_model, heads, head_dim, ffn, vocab_size;
        double logit_scale; // < 0: auto = 1024 / d_model
        int mixers_count;
        char mixers[FWA_CONFIG_LAYERS][32]; // pattern of entry names, repeated over layers
        int mixer_count;
        fwa_mixer_config mixer[FWA_CONFIG_MIXERS];
    } model;
    struct {
        int name, format;
        int64_t width_min, width_max, examples;
    } task; // examples 0: one a sequence
    struct {
        char train[FWA_CONFIG_TEXT], val[FWA_CONFIG_TEXT];
        bool reset_documents;
    } data;
    struct {
        int64_t steps, seq_len, micro_batch, global_batch;
        int precision;
        int64_t stop_after;
    } train; // seq_len 0: auto; stop_after 0: off
    struct {
        double lr, beta1, beta2, eps, weight_decay, clip;
        bool width_scale;
    } optimizer; // YAML: betas: [b1, b2]
    struct {
        int kind;
        int64_t warmup;
        double min_lr;
        double decay_fraction;
    } schedule; // decay_fraction: of wsd
    struct {
        int64_t sp, zero;
        int sp_strategy;
    } parallel;
    struct {
        int64_t every, keep_last, keep_every;
        bool background;
    } checkpoint; // 0: off
    struct {
        int64_t every, batches;
    } eval;
    struct {
        int64_t every;
    } log;
    struct {
        double spike_factor;
        int64_t window, max_skips;
    } guard;
    struct {
        double timeout_s, first_timeout_s;
    } comm;
    struct {
        bool deterministic;
        int64_t profile;
    } debug;

    struct fwa_config_origin *origin; // where each value came from, and the problems found; owned
} fwa_config;

typedef struct fwa_setting {
    const char *text; // "key.path=value"
    const char *file; // where it stands; NULL: on the command line
    int line;
} fwa_setting;

// Reads `path` and its bases, then overrides "key.path=value" in order ("model.mixer.rule=x" sets it in every entry).
// Problems are collected, not returned: call fwa_config_finish once further checks are done. FWA_CONFIG / FWA_FORMAT
// only where `path` cannot be read or is not YAML (exit code 2 either way). Caller: fwa_config_destroy.
FWA_MUST_CHECK fwa_status fwa_config_load(fwa_config **out, const char *path, const char *const *overrides, int count);
// The same with settings that stand in a file of their own: problems with them name that place.
FWA_MUST_CHECK fwa_status fwa_config_load_settings(fwa_config **out, const char *path, const fwa_setting *settings,
                                                   int count);
// The same from text (a checkpoint's); `name` stands in messages.
FWA_MUST_CHECK fwa_status fwa_config_parse(fwa_config **out, const char *text, const char *name,
                                           const char *const *overrides, int count);
void fwa_config_destroy(fwa_config *config);

// Adds a problem with the value at `key`; the message gets "file:line: key: " in front.
void fwa_config_problem(fwa_config *config, const char *key, const char *format, ...) FWA_PRINTF(3, 4);
// Whether the value at `key` is another than the schema's default.
bool fwa_config_changed(const fwa_config *config, const char *key);
// FWA_CONFIG with every problem, one a line, if there are any.
FWA_MUST_CHECK fwa_status fwa_config_finish(fwa_config *config);

// The resolved configuration as YAML that fwa_config_load reads back to the same values; every key, in schema order.
FWA_MUST_CHECK fwa_status fwa_config_print(const fwa_config *config, FILE *out);
// The same as a string; the caller frees it. NULL when out of memory.
char *fwa_config_text(const fwa_config *config);
// 64-bit hash of the keys that define the run: all but those that fwa_config_compare allows to differ; train.steps
// counts, and of data.* the part behind the folder. 0 only when out of memory.
uint64_t fwa_config_hash(const fwa_config *config);
// Differences between two configurations that a resumed run must not have, one "key: old -> new" a line into *lines
// (caller frees; "" if none). Allowed to differ: log, eval, checkpoint, parallel, run.backend, run.threads, run.dir,
// run.name, comm, debug, train.stop_after, train.micro_batch, data.*'s folder part, and train.steps if it grows.
FWA_MUST_CHECK fwa_status fwa_config_compare(const fwa_config *old_config, const fwa_config *new_config, char **lines);

// One key of a configuration, written as in YAML.
typedef struct fwa_config_entry {
    char *key;    // "train.steps", "model.mixer.main.rule"; owned
    char *value;  // owned
    bool changed; // another than the schema's default
} fwa_config_entry;

// Every key in schema order, the settings of each mixer included. The caller: fwa_config_entries_free.
FWA_MUST_CHECK fwa_status fwa_config_entries(const fwa_config *config, fwa_config_entry **entries, int *count);
void fwa_config_entries_free(fwa_config_entry *entries, int count);

// docs/configuration.md: every key with type, default, allowed values and meaning.
FWA_MUST_CHECK fwa_status fwa_config_reference(FILE *out);

#ifdef __cplusplus
}
#endif
#endif
