// fwa eval RUN_OR_CHECKPOINT [--task ppl|mc|addition] [FILE ...] [key.path=value ...] ...
#include <stdlib.h>
#include <string.h>

#include "io/files.h"
#include "train/agreement.h"
#include "train/commands.h"
#include "train/eval/addition_grid.h"
#include "train/eval/eval.h"
#include "train/tasks/addition.h"

typedef fwa_status (*task_function)(fwa_world *world, const fwa_loaded *loaded, const fwa_eval_request *request);

static const struct {
    const char *name;
    task_function run;
} tasks[] = {{"ppl", fwa_eval_perplexity}, {"mc", fwa_eval_choices}, {"addition", fwa_eval_addition}};
#define TASKS (sizeof tasks / sizeof *tasks)

// Options that one task alone has.
static const struct {
    const char *option, *task;
} owned[] = {{"--widths", "addition"}, {"--grid", "addition"}, {"--greedy", "addition"}, {"--shots", "mc"},
             {"--seed", "mc"},         {"--scores", "mc"},     {"--cut", "mc"},          {"--context", "ppl"},
             {"--stride", "ppl"},      {"--words", "ppl"},     {"--field", "ppl"}};

static fwa_status check_owned(const fwa_arguments *a, const char *task) {
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        FWA_CHECK(!fwa_arguments_flag(a, owned[i].option) || strcmp(owned[i].task, task) == 0, FWA_USAGE,
                  "%s belongs to --task %s, got --task %s", owned[i].option, owned[i].task, task);
    return FWA_OK;
}

static fwa_status find_task(const char *name, task_function *run) {
    for (size_t i = 0; i < TASKS; i++) {
        if (strcmp(tasks[i].name, name) != 0) continue;
        *run = tasks[i].run;
        return FWA_OK;
    }
    FWA_FAIL(FWA_USAGE, "--task '%s': expected ppl, mc or addition", name);
}

// "33-48", "7", "upto", "exact", or one of each with a comma between.
static fwa_status parse_width(const char *word, size_t length, fwa_eval_request *r) {
    static const char *const names[2] = {[FWA_ADDITION_UPTO] = "upto", [FWA_ADDITION_EXACT] = "exact"};
    for (int m = 0; m < 2; m++)
        if (strlen(names[m]) == length && strncmp(word, names[m], length) == 0) {
            r->measured[m] = true;
            return FWA_OK;
        }
    char *end;
    r->low = r->high = strtoll(word, &end, 10);
    if (end != word && *end == '-') r->high = strtoll(end + 1, &end, 10);
    FWA_CHECK(end == word + length && end != word && r->low >= 1 && r->high >= r->low &&
                  r->high <= FWA_ADDITION_MAX_WIDTH,
              FWA_USAGE, "--widths '%.*s': expected A-B with 1 <= A <= B <= %d, for example 33-48, or upto, or exact",
              (int)length, word, FWA_ADDITION_MAX_WIDTH);
    return FWA_OK;
}

static fwa_status parse_widths(const char *text, fwa_eval_request *r) {
    while (text) {
        const size_t length = strcspn(text, ",");
        FWA_TRY(parse_width(text, length, r));
        text = text[length] ? text + length + 1 : NULL;
    }
    if (!r->measured[0] && !r->measured[1]) r->measured[0] = r->measured[1] = true;
    return FWA_OK;
}

// "4-48", or with a step "4-48:4".
static fwa_status parse_grid(const char *text, fwa_eval_request *r) {
    char *end;
    fwa_addition_grid grid;
    r->grid[0] = strtoll(text, &end, 10);
    const bool range = end != text && *end == '-';
    r->grid[1] = range ? strtoll(end + 1, &end, 10) : 0;
    r->grid[2] = range && *end == ':' ? strtoll(end + 1, &end, 10) : 1;
    FWA_CHECK(range && *end == '\0', FWA_USAGE, "--grid '%s': expected A-B or A-B:STEP, for example 4-48:4", text);
    return fwa_addition_grid_widths(&grid, r->grid[0], r->grid[1], r->grid[2]);
}

static fwa_status read_grid(const fwa_arguments *a, fwa_eval_request *r) {
    const char *text = fwa_arguments_value(a, "--grid", NULL);
    if (!text) return FWA_OK;
    FWA_TRY(parse_grid(text, r));
    FWA_CHECK(!fwa_arguments_flag(a, "--widths"), FWA_USAGE,
              "--grid and --widths: two measurements, whose tables are written one at a time");
    FWA_CHECK(!r->greedy, FWA_USAGE, "--greedy belongs to --widths, got --grid");
    FWA_CHECK(r->examples <= FWA_ADDITION_GRID_EXAMPLES, FWA_USAGE,
              "--examples %lld with --grid: expected at most %d a pair of widths", (long long)r->examples,
              FWA_ADDITION_GRID_EXAMPLES);
    return FWA_OK;
}

static fwa_status read_request(const fwa_arguments *a, fwa_eval_request *r) {
    r->words = a->at + 1;
    r->word_count = a->count - 1;
    r->json = fwa_arguments_value(a, "--json", NULL);
    r->scores = fwa_arguments_value(a, "--scores", NULL);
    r->tokenizer = fwa_arguments_value(a, "--tokenizer", NULL);
    r->field = fwa_arguments_value(a, "--field", "text");
    r->cut = fwa_arguments_flag(a, "--cut");
    r->greedy = fwa_arguments_flag(a, "--greedy");
    FWA_TRY(parse_widths(fwa_arguments_value(a, "--widths", NULL), r));
    FWA_TRY(fwa_arguments_integer(a, "--examples", 0, 1, INT64_MAX / 2, &r->examples));
    FWA_TRY(read_grid(a, r));
    FWA_TRY(fwa_arguments_integer(a, "--batch", 0, 1, 1000000, &r->batch));
    FWA_TRY(fwa_arguments_integer(a, "--shots", 0, 0, 1000, &r->shots));
    FWA_TRY(fwa_arguments_integer(a, "--seed", 0, 0, INT64_MAX, &r->seed));
    FWA_TRY(fwa_arguments_integer(a, "--context", 0, 1, 1 << 24, &r->context));
    FWA_TRY(fwa_arguments_integer(a, "--stride", 0, 1, 1 << 24, &r->stride));
    return fwa_arguments_integer(a, "--words", 0, 1, INT64_MAX, &r->words_in_text);
}

static fwa_status evaluate(fwa_world *world, const fwa_loaded *l, const fwa_arguments *a, fwa_eval_request *r) {
    const bool addition = l->config->task.name == FWA_TASK_ADDITION;
    const char *task = fwa_arguments_value(a, "--task", addition ? "addition" : "ppl");
    task_function run;
    FWA_TRY(find_task(task, &run));
    FWA_TRY(check_owned(a, task));
    if (r->batch == 0) r->batch = run == fwa_eval_addition ? 100 : 16;
    for (int i = 0; i < r->word_count && run == fwa_eval_addition; i++)
        FWA_CHECK(fwa_loaded_is_setting(r->words[i]), FWA_USAGE,
                  "fwa eval --task addition: got '%s' behind the checkpoint, and its examples are drawn, not read",
                  r->words[i]);
    return run(world, l, r);
}

// Before the work whose results they get.
static fwa_status check_targets(const fwa_eval_request *r) {
    if (r->json) FWA_TRY(fwa_file_check_target("--json", r->json));
    return r->scores ? fwa_file_check_target("--scores", r->scores) : FWA_OK;
}

static const fwa_option options[] = {
    {"--task", true},    {"--examples", true}, {"--batch", true},  {"--json", true},   {"--tokenizer", true},
    {"--shots", true},   {"--seed", true},     {"--scores", true}, {"--cut", false},   {"--context", true},
    {"--stride", true},  {"--words", true},    {"--field", true},  {"--widths", true}, {"--grid", true},
    {"--greedy", false}, {NULL, false}};

static fwa_status read_words(fwa_arguments *arguments, fwa_eval_request *request, int argc, char **argv) {
    FWA_TRY(fwa_arguments_parse(arguments, options, argc, argv));
    FWA_CHECK(arguments->count >= 1, FWA_USAGE, "fwa eval: expected a run folder or checkpoint (fwa help eval)");
    return read_request(arguments, request);
}

fwa_status fwa_cmd_eval(fwa_world *world, int argc, char **argv) {
    fwa_arguments arguments;
    fwa_eval_request request;
    fwa_loaded loaded;
    memset(&request, 0, sizeof request);
    FWA_TRY(fwa_world_agree(world, read_words(&arguments, &request, argc, argv)));
    FWA_TRY(fwa_agree_options(world, options, &arguments));
    FWA_TRY(fwa_world_split(world, 1));
    FWA_TRY(fwa_world_agree(world, world->rank == 0 ? check_targets(&request) : FWA_OK));
    fwa_status status = fwa_loaded_open(&loaded, world, arguments.at[0], request.words, request.word_count);
    if (status == FWA_OK) status = evaluate(world, &loaded, &arguments, &request);
    fwa_loaded_close(&loaded);
    return status;
}
