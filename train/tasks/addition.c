// The addition task: operands drawn by counter, their sum, and both as tokens (docs/addition.md §1).
#include "train/tasks/addition.h"

#include <inttypes.h>
#include <stdlib.h>

#include "core/rng.h"
#include "core/shape.h"
#include "train/tasks/addition_packed.h"

#define MAX_WIDTH  FWA_ADDITION_MAX_WIDTH
#define MAX_LENGTH (3 * MAX_WIDTH + 15)

#define BRACKET_TOKENS 14 // of an example in brackets, besides its digits
#define PAPER_TOKENS   4  // and in the paper's format

// A number; digit[0] is the lowest.
typedef struct number {
    int64_t width;
    uint8_t digit[MAX_WIDTH + 1];
} number;

// An example in the making: token[0..length), the answer begins at `answer`.
typedef struct text {
    int64_t length, answer;
    int32_t token[MAX_LENGTH];
} text;

int64_t fwa_addition_pair_length(fwa_addition_format format, const int64_t width[2]) {
    const int64_t sum = fwa_max(width[0], width[1]) + 1;
    return width[0] + width[1] + sum + (format == FWA_ADDITION_BRACKET ? BRACKET_TOKENS : PAPER_TOKENS);
}

int64_t fwa_addition_length(fwa_addition_format format, int64_t width_max) {
    return fwa_addition_pair_length(format, (const int64_t[2]){width_max, width_max});
}

uint64_t fwa_addition_key(int64_t seed, fwa_split split) {
    return fwa_rng_u64((uint64_t)seed, fwa_rng_hash("addition"), (uint64_t)split);
}

// Draws of an example (its index is the stream): operand n takes number n (1 + MAX_WIDTH) for its width and those that
// follow for its digits, lowest first, so an operand depends on no other setting than its own width.
static uint64_t draw(uint64_t key, int64_t index, int operand, int64_t place, int64_t bound) {
    return fwa_rng_below(key, (uint64_t)index, (uint64_t)(operand * (1 + MAX_WIDTH) + place), (uint64_t)bound);
}

static int64_t draw_width(const fwa_addition_draws *from, int64_t index, int operand) {
    return from->width_min + (int64_t)draw(from->key, index, operand, 0, from->width_max - from->width_min + 1);
}

static void draw_widths(const fwa_addition_draws *from, int64_t index, int64_t width[2]) {
    width[0] = draw_width(from, index, 0);
    width[1] = from->format == FWA_ADDITION_PAPER ? width[0] : draw_width(from, index, 1);
}

// Digit i of an operand, 0 the lowest. The highest of several is 0 in the paper's format only.
static int draw_digit(const fwa_addition_draws *from, int64_t index, int operand, int64_t width, int64_t i) {
    const bool nonzero = i == width - 1 && width > 1 && from->format != FWA_ADDITION_PAPER;
    return nonzero + (int)draw(from->key, index, operand, 1 + i, nonzero ? 9 : 10);
}

static void draw_number(number *out, const fwa_addition_draws *from, int64_t index, int operand, int64_t width) {
    out->width = width;
    for (int64_t i = 0; i < width; i++) out->digit[i] = (uint8_t)draw_digit(from, index, operand, width, i);
}

// Whether the sum has one digit more than the wider operand: told by the highest pair of digits that is not 9.
static bool carries(const fwa_addition_draws *from, int64_t index, const int64_t width[2]) {
    for (int64_t i = fwa_max(width[0], width[1]) - 1; i >= 0; i--) {
        int sum = 0;
        for (int n = 0; n < 2; n++)
            if (i < width[n]) sum += draw_digit(from, index, n, width[n], i);
        if (sum != 9) return sum > 9;
    }
    return false;
}

// out = a + b with one digit more than the wider operand; the top one may be 0.
static void add(number *out, const number *a, const number *b) {
    int carry = 0;
    out->width = fwa_max(a->width, b->width) + 1;
    for (int64_t i = 0; i < out->width; i++) {
        const int sum = carry + (i < a->width ? a->digit[i] : 0) + (i < b->width ? b->digit[i] : 0);
        out->digit[i] = (uint8_t)(sum % 10);
        carry = sum / 10;
    }
}

static void put(text *to, int32_t token) {
    to->token[to->length++] = token;
}

static void put_bytes(text *to, const char *bytes) {
    for (; *bytes != '\0'; bytes++) put(to, (unsigned char)*bytes);
}

static void put_lowest_first(text *to, const number *n) {
    for (int64_t i = 0; i < n->width; i++) put(to, '0' + n->digit[i]);
}

static void put_highest_first(text *to, const number *n) {
    for (int64_t i = n->width - 1; i >= 0; i--) put(to, '0' + n->digit[i]);
}

// begin "[a] + [b] = [c]" end, every number lowest digit first, c without a leading zero.
static void write_bracket(text *to, const number *a, const number *b, number *sum) {
    if (sum->width > 1 && sum->digit[sum->width - 1] == 0) sum->width--;
    put(to, FWA_ADDITION_BEGIN);
    put_bytes(to, "[");
    put_lowest_first(to, a);
    put_bytes(to, "] + [");
    put_lowest_first(to, b);
    put_bytes(to, "] =");
    to->answer = to->length;
    put_bytes(to, " [");
    put_lowest_first(to, sum);
    put_bytes(to, "]");
    put(to, FWA_ADDITION_END);
}

// begin "a+b=" highest digit first, c of n + 1 digits lowest first, end.
static void write_paper(text *to, const number *a, const number *b, const number *sum) {
    put(to, FWA_ADDITION_BEGIN);
    put_highest_first(to, a);
    put_bytes(to, "+");
    put_highest_first(to, b);
    put_bytes(to, "=");
    to->answer = to->length;
    put_lowest_first(to, sum);
    put(to, FWA_ADDITION_END);
}

static void write_example(text *to, const fwa_addition_draws *from, int64_t index, const int64_t width[2]) {
    number a, b, sum;
    draw_number(&a, from, index, 0, width[0]);
    draw_number(&b, from, index, 1, width[1]);
    add(&sum, &a, &b);
    to->length = 0;
    if (from->format == FWA_ADDITION_PAPER)
        write_paper(to, &a, &b, &sum);
    else
        write_bracket(to, &a, &b, &sum);
}

int64_t fwa_addition_places(const fwa_addition_draws *from, int64_t index) {
    int64_t width[2];
    draw_widths(from, index, width);
    if (from->format == FWA_ADDITION_PAPER) return fwa_addition_length(from->format, width[0]) - 1;
    const int64_t sum = fwa_max(width[0], width[1]) + carries(from, index, width);
    return width[0] + width[1] + sum + BRACKET_TOKENS - 1;
}

static void write_tokens(const fwa_addition_draws *from, int64_t index, const int64_t width[2], int64_t T,
                         int32_t *tokens, int32_t *targets) {
    text example;
    write_example(&example, from, index, width);
    for (int64_t t = 0; t < T; t++) {
        const int64_t next = t + 1;
        tokens[t] = t < example.length ? example.token[t] : FWA_ADDITION_PAD;
        targets[t] = next >= example.answer && next < example.length ? example.token[next] : FWA_NO_TARGET;
    }
}

void fwa_addition_write(const fwa_addition_draws *from, int64_t index, int64_t T, int32_t *tokens, int32_t *targets) {
    int64_t width[2];
    draw_widths(from, index, width);
    write_tokens(from, index, width, T, tokens, targets);
}

static fwa_status check_widths(int64_t width_min, int64_t width_max) {
    FWA_CHECK(width_min >= 1 && width_min <= width_max && width_max <= MAX_WIDTH, FWA_CONFIG,
              "task.width_min is %" PRId64 " and task.width_max %" PRId64
              "; expected 1 <= width_min <= width_max <= %d",
              width_min, width_max, MAX_WIDTH);
    return FWA_OK;
}

static fwa_status check_example(int64_t T, int64_t need, int64_t width_max, int64_t index) {
    FWA_CHECK(T >= need, FWA_CONFIG,
              "a sequence has %" PRId64 " tokens; operands of %" PRId64 " digit%s need %" PRId64
              " (train.seq_len auto takes what is needed)",
              T, width_max, fwa_plural(width_max), need);
    FWA_CHECK(index >= 0, FWA_USAGE, "example number %" PRId64 "; expected one >= 0", index);
    return FWA_OK;
}

fwa_status fwa_addition_example(fwa_addition_format format, fwa_addition_measure measure, int64_t width_min,
                                int64_t width_max, uint64_t key, int64_t index, int64_t T, int32_t *tokens,
                                int32_t *targets) {
    if (measure == FWA_ADDITION_EXACT) width_min = width_max;
    FWA_TRY(check_widths(width_min, width_max));
    FWA_TRY(check_example(T, fwa_addition_length(format, width_max) - 1, width_max, index));
    const fwa_addition_draws from = {format, width_min, width_max, key};
    fwa_addition_write(&from, index, T, tokens, targets);
    return FWA_OK;
}

fwa_status fwa_addition_pair(fwa_addition_format format, const int64_t width[2], uint64_t key, int64_t index, int64_t T,
                             int32_t *tokens, int32_t *targets) {
    const fwa_addition_draws from = {format, fwa_min(width[0], width[1]), fwa_max(width[0], width[1]), key};
    FWA_TRY(check_widths(from.width_min, from.width_max));
    FWA_CHECK(format == FWA_ADDITION_BRACKET || width[0] == width[1], FWA_CONFIG,
              "operands of %" PRId64 " and %" PRId64 " digits; in task.format paper both have the same number of them",
              width[0], width[1]);
    FWA_TRY(check_example(T, fwa_addition_pair_length(format, width) - 1, from.width_max, index));
    write_tokens(&from, index, width, T, tokens, targets);
    return FWA_OK;
}

static fwa_status fill_single(const fwa_source *source, fwa_split split, int64_t first, int64_t count, int32_t *tokens,
                              int32_t *targets) {
    const fwa_addition_packed *task = source->impl;
    FWA_CHECK(first >= 0, FWA_USAGE, "example number %" PRId64 "; expected one >= 0", first);
    for (int64_t i = 0; i < count; i++, tokens += source->T, targets += source->T)
        fwa_addition_write(&task->draws[split], first + i, source->T, tokens, targets);
    return FWA_OK;
}

static fwa_status fill_packed(const fwa_source *source, fwa_split split, int64_t first, int64_t count, int32_t *tokens,
                              int32_t *targets) {
    return fwa_addition_packed_fill(source->impl, split, first, count, tokens, targets);
}

static void addition_destroy(fwa_source *source) {
    if (source == NULL) return;
    free(source->impl);
    free(source);
}

static fwa_status check_config(const fwa_config *config, int64_t need) {
    const int64_t seq_len = config->train.seq_len, vocab = config->model.vocab_size;
    FWA_TRY(check_widths(config->task.width_min, config->task.width_max));
    FWA_CHECK(seq_len <= 0 || seq_len >= need, FWA_CONFIG,
              "train.seq_len is %" PRId64 "; operands of task.width_max %" PRId64 " digit%s need %" PRId64
              " (auto takes what is needed)",
              seq_len, config->task.width_max, fwa_plural(config->task.width_max), need);
    FWA_CHECK(vocab >= FWA_ADDITION_VOCAB, FWA_CONFIG,
              "model.vocab_size is %" PRId64 "; task addition needs at least %d (256 bytes, begin, end, pad)", vocab,
              FWA_ADDITION_VOCAB);
    return FWA_OK;
}

// What the configuration's run reads: each update once, and the batches of a validation.
static fwa_status check_packed(const fwa_addition_packed *task, const fwa_config *config) {
    const int64_t updates[2] = {config->train.steps, config->eval.every > 0 ? config->eval.batches : 0};
    return task->examples > 0 ? fwa_addition_packed_check(task, updates) : FWA_OK;
}

fwa_status fwa_source_addition_create(fwa_source **out, const fwa_config *config) {
    const fwa_addition_format format = (fwa_addition_format)config->task.format;
    const int64_t need = fwa_addition_length(format, config->task.width_max) - 1;
    fwa_status status = FWA_OK;
    *out = NULL;
    FWA_TRY(check_config(config, need));
    fwa_source *source = calloc(1, sizeof *source);
    fwa_addition_packed *task = calloc(1, sizeof *task);
    if (source == NULL || task == NULL) {
        free(source);
        free(task);
        FWA_FAIL(FWA_MEMORY, "no memory for the addition task");
    }
    *source = (fwa_source){.name = "addition",
                           .T = config->train.seq_len > 0 ? config->train.seq_len : need,
                           .vocab = FWA_ADDITION_VOCAB,
                           .sequences = {INT64_MAX, INT64_MAX},
                           .impl = task,
                           .fill = config->task.examples > 0 ? fill_packed : fill_single,
                           .destroy = addition_destroy};
    *task = (fwa_addition_packed){
        .examples = config->task.examples, .sequences = config->train.global_batch, .T = source->T};
    for (int split = 0; split < 2; split++)
        task->draws[split] = (fwa_addition_draws){format, config->task.width_min, config->task.width_max,
                                                  fwa_addition_key(config->run.seed, (fwa_split)split)};
    FWA_TRY_GOTO(check_packed(task, config), failed);
    *out = source;
    return FWA_OK;
failed:
    addition_destroy(source);
    return status;
}
