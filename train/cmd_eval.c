// fwa eval RUN_OR_CHECKPOINT [run.backend=B] [run.threads=N] [--task addition] [--widths A-B] [--examples N] [--batch
// N]
// [--json FILE]
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "core/shape.h"
#include "io/checkpoint.h"
#include "io/files.h"
#include "train/arguments.h"
#include "train/commands.h"
#include "train/evaluation.h"
#include "train/run.h"
#include "train/setup.h"
#include "train/weights.h"

#define MAX_WIDTHS 512

typedef struct request {
    int64_t low, high, examples, batch;
    const char *json;
    const char *settings[FWA_ARGUMENTS_MAX + 2]; // where to compute: not where the checkpoint was trained
    int setting_count;
} request;

// A checkpoint's model, ready to run.
typedef struct loaded {
    fwa_config *config;
    fwa_backend *backend;
    fwa_model *model;
    int64_t step;
} loaded;

static void unload(loaded *l) {
    fwa_model_destroy(l->model);
    if (l->backend) l->backend->destroy(l->backend);
    fwa_config_destroy(l->config);
}

static fwa_status build(loaded *l, fwa_checkpoint *checkpoint, const fwa_world *world, const request *r) {
    fwa_model_spec spec;
    const fwa_checkpoint_state *state = fwa_checkpoint_get_state(checkpoint);
    l->step = state->step;
    FWA_TRY(
        fwa_config_parse(&l->config, state->config, fwa_checkpoint_path(checkpoint), r->settings, r->setting_count));
    FWA_CHECK(l->config->task.name == FWA_TASK_ADDITION, FWA_CONFIG, "%s: was trained on another task than addition",
              fwa_checkpoint_path(checkpoint));
    FWA_TRY(fwa_setup_model(&spec, l->config, FWA_ADDITION_VOCAB));
    FWA_TRY(fwa_setup_backend(&l->backend, l->config, world, false));
    l->backend->deterministic = true; // every width has sizes of its own: to measure them takes longer than it saves
    FWA_TRY(fwa_model_create(&l->model, &spec, l->backend, false));
    FWA_TRY(fwa_model_commit(l->model, l->backend, 0));
    return fwa_weights_read(l->model, l->backend, checkpoint, false);
}

static fwa_status load(loaded *l, const fwa_world *world, const char *source, const request *r) {
    char path[2048];
    fwa_checkpoint *checkpoint = NULL;
    FWA_TRY(fwa_run_find_checkpoint(source, path));
    FWA_TRY(fwa_checkpoint_open(&checkpoint, path));
    fwa_status status = build(l, checkpoint, world, r);
    fwa_checkpoint_close(checkpoint);
    return status;
}

// Widths to report where none are asked for: all of a small range, beyond the trained range by half of it otherwise.
static void standard_widths(const fwa_config *config, request *r) {
    int64_t top = config->task.width_max;
    if (r->high > 0) return;
    r->low = top <= 8 ? 1 : fwa_min(top + 1, FWA_ADDITION_MAX_WIDTH);
    r->high = fwa_min(top + (top + 1) / 2, FWA_ADDITION_MAX_WIDTH);
}

static fwa_status parse_widths(const char *text, request *r) {
    char *end = NULL;
    if (!text) return FWA_OK;
    r->low = r->high = strtoll(text, &end, 10);
    if (end != text && *end == '-') r->high = strtoll(end + 1, &end, 10);
    FWA_CHECK(end != text && *end == '\0' && r->low >= 1 && r->high >= r->low && r->high <= FWA_ADDITION_MAX_WIDTH &&
                  r->high - r->low < MAX_WIDTHS,
              FWA_USAGE, "--widths '%s': expected A-B with 1 <= A <= B <= %d, for example 33-48", text,
              FWA_ADDITION_MAX_WIDTH);
    return FWA_OK;
}

static fwa_status read_settings(const fwa_arguments *arguments, request *r) {
    r->settings[r->setting_count++] = "run.backend=auto";
    r->settings[r->setting_count++] = "run.threads=auto";
    for (int i = 1; i < arguments->count; i++) {
        const char *word = arguments->at[i];
        FWA_CHECK(strncmp(word, "run.backend=", 12) == 0 || strncmp(word, "run.threads=", 12) == 0, FWA_USAGE,
                  "fwa eval: got '%s' behind the checkpoint, expected run.backend=... or run.threads=...: all else is "
                  "the checkpoint's",
                  word);
        r->settings[r->setting_count++] = word;
    }
    return FWA_OK;
}

static double share(const fwa_addition_score *score, int measure) {
    return 100.0 * (double)score->right[measure] / (double)score->examples;
}

static void print_table(const fwa_addition_score *scores, int count, const fwa_config *config) {
    double mean[2] = {0.0, 0.0};
    printf("\naddition, %s format, trained on widths %lld-%lld; exact match of the answer, %lld examples a width\n",
           config->task.format == FWA_ADDITION_PAPER ? "paper" : "bracket", (long long)config->task.width_min,
           (long long)config->task.width_max, (long long)scores[0].examples);
    printf("  width     upto    exact\n");
    for (int i = 0; i < count; i++) {
        printf("  %5lld  %6.1f%%  %6.1f%%\n", (long long)scores[i].width, share(&scores[i], FWA_ADDITION_UPTO),
               share(&scores[i], FWA_ADDITION_EXACT));
        for (int m = 0; m < 2; m++) mean[m] += share(&scores[i], m) / count;
    }
    printf("   mean  %6.1f%%  %6.1f%%\n", mean[FWA_ADDITION_UPTO], mean[FWA_ADDITION_EXACT]);
    printf("upto: operand widths drawn from 1..width; exact: both operands have exactly that width\n");
}

static fwa_status write_json(const char *path, const fwa_addition_score *scores, int count, const loaded *l) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    FWA_CHECK(out, FWA_MEMORY, "%s: out of memory", path);
    fprintf(out, "{\"task\": \"addition\", \"step\": %lld, \"widths\": [", (long long)l->step);
    for (int i = 0; i < count; i++)
        fprintf(out, "%s\n  {\"width\": %lld, \"examples\": %lld, \"upto\": %.6f, \"exact\": %.6f}", i ? "," : "",
                (long long)scores[i].width, (long long)scores[i].examples, share(&scores[i], 0) / 100.0,
                share(&scores[i], 1) / 100.0);
    fprintf(out, "\n]}\n");
    fclose(out);
    fwa_status status = fwa_write_text(path, text);
    free(text);
    return status;
}

static fwa_status evaluate(fwa_world *world, loaded *l, request *r) {
    fwa_addition_score scores[MAX_WIDTHS];
    int count = 0;
    standard_widths(l->config, r);
    for (int64_t width = r->low; width <= r->high; width++)
        FWA_TRY(fwa_evaluate_addition(world, l->model, l->backend, l->config, width, r->examples, r->batch,
                                      &scores[count++]));
    fwa_status status = FWA_OK;
    if (world->rank == 0) print_table(scores, count, l->config);
    if (world->rank == 0 && r->json) status = write_json(r->json, scores, count, l);
    return fwa_world_agree(world, status);
}

fwa_status fwa_cmd_eval(fwa_world *world, int argc, char **argv) {
    static const fwa_option options[] = {{"--task", true},  {"--widths", true}, {"--examples", true},
                                         {"--batch", true}, {"--json", true},   {NULL, false}};
    fwa_arguments arguments;
    request r;
    loaded l;
    memset(&r, 0, sizeof r);
    memset(&l, 0, sizeof l);
    FWA_TRY(fwa_arguments_parse(&arguments, options, argc, argv));
    FWA_CHECK(arguments.count >= 1, FWA_USAGE, "fwa eval: expected a run folder or checkpoint (fwa help eval)");
    FWA_TRY(read_settings(&arguments, &r));
    const char *task = fwa_arguments_value(&arguments, "--task", "addition");
    FWA_CHECK(strcmp(task, "addition") == 0, FWA_USAGE, "--task '%s': expected addition", task);
    FWA_TRY(parse_widths(fwa_arguments_value(&arguments, "--widths", NULL), &r));
    FWA_TRY(fwa_arguments_integer(&arguments, "--examples", 1000, 1, 100000000, &r.examples));
    FWA_TRY(fwa_arguments_integer(&arguments, "--batch", 100, 1, 1000000, &r.batch));
    r.json = fwa_arguments_value(&arguments, "--json", NULL);
    FWA_TRY(fwa_world_split(world, 1));
    fwa_status status = fwa_world_agree(world, load(&l, world, arguments.at[0], &r));
    if (status == FWA_OK) status = evaluate(world, &l, &r);
    unload(&l);
    return status;
}
