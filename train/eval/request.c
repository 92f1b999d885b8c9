// The words of `fwa eval`.
#include "train/eval/request.h"

#include <stdlib.h>
#include <string.h>

#include "train/eval/addition_grid.h"
#include "train/eval/loaded.h"
#include "train/tasks/addition.h"

enum { TASKS = FWA_EVAL_ADDITION + 1 };
static const char *const tasks[TASKS] = {
    [FWA_EVAL_PERPLEXITY] = "ppl", [FWA_EVAL_CHOICES] = "mc", [FWA_EVAL_ADDITION] = "addition"};

const fwa_option fwa_eval_options[] = {
    {"--task", true},    {"--examples", true}, {"--batch", true},  {"--json", true},   {"--tokenizer", true},
    {"--shots", true},   {"--seed", true},     {"--scores", true}, {"--cut", false},   {"--context", true},
    {"--stride", true},  {"--words", true},    {"--field", true},  {"--widths", true}, {"--grid", true},
    {"--greedy", false}, {NULL, false}};

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

static fwa_status find_task(const char *name, fwa_eval_task *task) {
    for (int i = 0; i < TASKS; i++) {
        if (strcmp(tasks[i], name) != 0) continue;
        *task = (fwa_eval_task)i;
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
    static fwa_addition_grid grid; // large for a stack
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

fwa_status fwa_eval_request_read(fwa_eval_request *out, fwa_arguments *arguments, int argc, char **argv) {
    memset(out, 0, sizeof *out);
    FWA_TRY(fwa_arguments_parse(arguments, fwa_eval_options, argc, argv));
    FWA_CHECK(arguments->count >= 1, FWA_USAGE, "fwa eval: expected a run folder or checkpoint (fwa help eval)");
    return read_request(arguments, out);
}

static fwa_status fill_windows(fwa_eval_request *r, const fwa_config *config, bool attention) {
    const int64_t length = fwa_source_length(config);
    if (r->context == 0) r->context = length;
    if (r->stride == 0) r->stride = r->context;
    FWA_CHECK(r->stride <= r->context, FWA_USAGE, "--stride %lld: expected at most the %lld token%s of a window",
              (long long)r->stride, (long long)r->context, fwa_plural(r->context));
    FWA_CHECK(!attention || r->context <= length, FWA_USAGE,
              "--context %lld: the model's attention was trained on sequences of %lld token%s, expected no more",
              (long long)r->context, (long long)length, fwa_plural(length));
    return FWA_OK;
}

static fwa_status check_files(const fwa_eval_request *r, const fwa_config *config) {
    const char *first = NULL; // word that is no setting
    for (int i = 0; i < r->word_count && !first; i++)
        if (!fwa_loaded_is_setting(r->words[i])) first = r->words[i];
    FWA_CHECK(!first || r->task != FWA_EVAL_ADDITION, FWA_USAGE,
              "fwa eval --task addition: got '%s' behind the checkpoint, and its examples are drawn, not read", first);
    FWA_CHECK(first || r->task != FWA_EVAL_CHOICES, FWA_USAGE,
              "fwa eval --task mc: expected files with questions behind the checkpoint (*.jsonl, *.bin; docs/"
              "evaluation.md has the formats)");
    FWA_CHECK(first || r->task != FWA_EVAL_PERPLEXITY || config->data.val[0], FWA_USAGE,
              "fwa eval --task ppl: expected token shards or text behind the checkpoint, whose data.val is empty");
    return FWA_OK;
}

fwa_status fwa_eval_request_suit(fwa_eval_request *r, const fwa_arguments *a, const fwa_config *config,
                                 bool attention) {
    const bool addition = config->task.name == FWA_TASK_ADDITION;
    const char *task = fwa_arguments_value(a, "--task", tasks[addition ? FWA_EVAL_ADDITION : FWA_EVAL_PERPLEXITY]);
    FWA_TRY(find_task(task, &r->task));
    FWA_TRY(check_owned(a, task));
    FWA_CHECK(addition || r->task != FWA_EVAL_ADDITION, FWA_CONFIG,
              "--task addition: the model was trained on another task (ppl and mc measure language models)");
    FWA_CHECK(
        !r->grid[0] || config->task.format == FWA_ADDITION_BRACKET, FWA_CONFIG,
        "--grid: in task.format paper both operands have the same number of digits, and a grid has pairs of others");
    if (r->batch == 0) r->batch = r->task == FWA_EVAL_ADDITION ? 100 : 16;
    if (r->task == FWA_EVAL_PERPLEXITY) FWA_TRY(fill_windows(r, config, attention));
    return check_files(r, config);
}
