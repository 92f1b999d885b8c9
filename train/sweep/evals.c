// The evaluations of a sweep, their files, and which are still to be made.
#include "train/sweep/evals.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "core/rng.h"
#include "io/files.h"
#include "train/eval/eval.h"
#include "train/setup.h"

enum { READABLE = 60 }; // bytes of a name that show the words

// A name in the making; `clear` as long as it tells the words.
typedef struct slug {
    char text[READABLE + 1];
    size_t length;
    bool clear;
} slug;

static void add(slug *s, char c) {
    if (s->length == READABLE) {
        s->clear = false;
        return;
    }
    s->text[s->length++] = c;
    s->text[s->length] = '\0';
}

static void add_word(slug *s, const char *word) {
    for (; *word; word++) {
        const bool stays = isalnum((unsigned char)*word) || strchr("-+.,=", *word);
        s->clear &= stays || *word == ':';
        add(s, stays ? *word : '_');
    }
}

// Words as they were given, with single blanks.
static uint64_t hash_of(const fwa_word_list *words) {
    char text[4096] = "";
    size_t used = 0;
    for (int i = 0; i < words->count && used < sizeof text; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s ", words->at[i]);
    return fwa_rng_hash(text);
}

void fwa_sweep_eval_name(const fwa_word_list *words, char file[FWA_SWEEP_EVAL_NAME]) {
    slug s = {.clear = true};
    bool option_before = false; // which this word may be the value of
    for (int i = 0; i < words->count; i++) {
        const char *word = words->at[i];
        const bool option = strncmp(word, "--", 2) == 0;
        s.clear &= option || option_before;
        add(&s, i == 0 ? '-' : !option && option_before ? '=' : ',');
        add_word(&s, option ? word + 2 : word);
        option_before = option && !strchr(word, '=');
    }
    if (s.clear)
        snprintf(file, FWA_SWEEP_EVAL_NAME, "eval%s.json", s.text);
    else
        snprintf(file, FWA_SWEEP_EVAL_NAME, "eval%s-%08x.json", s.text, (unsigned)hash_of(words));
}

static fwa_status add_eval(fwa_sweep_evals *evals, const char *text) {
    FWA_CHECK(evals->count < FWA_SWEEP_EVALS_MAX, FWA_USAGE, "--eval: more than %d of them", FWA_SWEEP_EVALS_MAX);
    fwa_sweep_eval *eval = &evals->at[evals->count++];
    FWA_TRY(fwa_word_list_read(&eval->words, "--eval", text));
    fwa_sweep_eval_name(&eval->words, eval->file);
    for (int i = 0; i + 1 < evals->count; i++)
        FWA_CHECK(strcmp(evals->at[i].file, eval->file) != 0, FWA_USAGE, "--eval '%s' is given twice", text);
    return FWA_OK;
}

fwa_status fwa_sweep_evals_read(fwa_sweep_evals *evals, const fwa_arguments *arguments) {
    memset(evals, 0, sizeof *evals);
    for (int i = 0; i < arguments->options; i++)
        if (strcmp(arguments->name[i], "--eval") == 0) FWA_TRY(add_eval(evals, arguments->value[i]));
    return FWA_OK;
}

// A file that every point can read: what is read once only has nothing left for the second.
static fwa_status check_file(const char *path) {
    FWA_TRY(fwa_input_check(path, FWA_INPUT_FILE));
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    FWA_CHECK(file >= 0, FWA_CONFIG, "cannot open %s: %s", path, strerror(errno));
    close(file);
    return FWA_OK;
}

// What an evaluation is checked against.
typedef struct subject {
    const fwa_config *config;
    const char *point;
    bool attention, here;
    bool tokenizer; // no point before has read one for as many ids
    bool due;       // the evaluation is still to be made
} subject;

// Files that are there, and a tokenizer for them.
static fwa_status check_files(const fwa_eval_request *request, const subject *s) {
    fwa_paths files;
    fwa_tokenizer *tokenizer = NULL;
    fwa_status status = fwa_eval_files_find(&files, request, s->config);
    for (int i = 0; i < files.count && status == FWA_OK; i++) status = check_file(files.at[i]);
    if (status == FWA_OK && s->tokenizer && request->task != FWA_EVAL_ADDITION)
        status = fwa_eval_tokenizer(&tokenizer, s->config, s->point, request, &files);
    fwa_tokenizer_close(tokenizer);
    fwa_paths_free(&files);
    return status;
}

// Settings among the words, and where one is still to be made a backend for them.
static fwa_status check_settings(const fwa_eval_request *request, const subject *s, bool *wants_gpus) {
    fwa_config *config = NULL;
    FWA_TRY(fwa_loaded_config(&config, s->config, request->words, request->word_count));
    const fwa_status status = s->due ? fwa_setup_backend_check(config, s->here) : FWA_OK;
    if (s->due)
        *wants_gpus |= config->run.backend == FWA_CHOOSE_CUDA ||
                       (config->run.backend == FWA_CHOOSE_AUTO && config->train.precision == FWA_PRECISION_BF16);
    fwa_config_destroy(config);
    return status;
}

static fwa_status check_eval(const fwa_sweep_eval *eval, const subject *s, bool *wants_gpus) {
    char *argv[FWA_WORD_LIST_MAX + 2] = {"eval", "POINT"};
    fwa_arguments arguments;
    fwa_eval_request request;
    memcpy(argv + 2, eval->words.at, (size_t)eval->words.count * sizeof *argv);
    FWA_TRY(fwa_eval_request_read(&request, &arguments, eval->words.count + 2, argv));
    FWA_CHECK(!request.json, FWA_USAGE, "--json %s: the sweep itself names the files of results", request.json);
    FWA_CHECK(!request.scores, FWA_USAGE, "--scores %s: every point would write this file; fwa eval makes it of one",
              request.scores);
    FWA_TRY(fwa_eval_request_suit(&request, &arguments, s->config, s->attention));
    FWA_TRY(check_settings(&request, s, wants_gpus));
    return check_files(&request, s);
}

static fwa_status check_point(fwa_sweep_evals *evals, const fwa_sweep_run *run, fwa_config *config, subject *s) {
    fwa_model_spec spec;
    FWA_TRY(fwa_setup_model(&spec, config, fwa_source_vocab(config)));
    s->attention = fwa_loaded_has_attention(&spec);
    for (int e = 0; e < evals->count; e++) {
        s->due = run->state == FWA_SWEEP_FINISHED ? fwa_sweep_eval_due(evals, e, run) : run->state != FWA_SWEEP_RUNNING;
        FWA_TRY(check_eval(&evals->at[e], s, &evals->wants_gpus));
    }
    return FWA_OK;
}

fwa_status fwa_sweep_evals_check(fwa_sweep_evals *evals, const fwa_sweep_runs *runs, const fwa_world *world,
                                 bool here) {
    int64_t ids = 0; // of the point before
    for (int i = 0; i < runs->count && evals->count; i++) {
        const fwa_sweep_run *run = &runs->run[i];
        fwa_config *config = NULL;
        fwa_status status = fwa_sweep_config(runs, run->point, world, &config);
        if (status == FWA_OK) {
            subject s = {.config = config, .point = run->point->name, .here = here};
            s.tokenizer = fwa_source_vocab(config) != ids;
            ids = fwa_source_vocab(config);
            status = check_point(evals, run, config, &s);
        }
        fwa_config_destroy(config);
        FWA_CHECK(status == FWA_OK, status, "--eval, point %d, %s: %s", i + 1, run->point->name, fwa_error_message());
    }
    return FWA_OK;
}

void fwa_sweep_evals_free(fwa_sweep_evals *evals) {
    for (int i = 0; i < evals->count; i++) fwa_word_list_free(&evals->at[i].words);
    memset(evals, 0, sizeof *evals);
}

// Whether the file is there, and of the step that the point has reached where it says one.
static bool is_made(const fwa_sweep_run *run, const char *file) {
    char path[FWA_PATH_MAX];
    const int length = snprintf(path, sizeof path, "%s/%s", run->path, file);
    if (length >= (int)sizeof path || !fwa_path_exists(path)) return false;
    json_t *root = json_load_file(path, 0, NULL);
    const json_t *step = json_object_get(root, "step");
    const bool made = !json_is_integer(step) || json_integer_value(step) >= run->step;
    json_decref(root);
    return made;
}

bool fwa_sweep_eval_due(const fwa_sweep_evals *evals, int index, const fwa_sweep_run *run) {
    return !is_made(run, evals->at[index].file) && !(evals->count == 1 && is_made(run, "eval.json"));
}
