// fwa data addition: examples of the addition task, a line each, as training draws them.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "train/arguments.h"
#include "train/data/data.h"
#include "train/tasks/addition.h"

#define MOST_TOKENS (3 * FWA_ADDITION_MAX_WIDTH + 15)

typedef struct addition_request {
    fwa_addition_draws draws;
    int64_t first, count;
    bool json;
} addition_request;

// An example with its begin and end token; its answer is token[answer .. length).
typedef struct example {
    int32_t token[MOST_TOKENS], target[MOST_TOKENS];
    int64_t length, answer;
} example;

static fwa_status read_request(const fwa_arguments *a, addition_request *r) {
    static const char *const formats[2] = {"bracket", "paper"}, *const splits[2] = {"train", "val"};
    fwa_addition_draws *draws = &r->draws;
    int paper, val;
    int64_t seed;
    FWA_CHECK(a->count == 0, FWA_USAGE, "fwa data addition: got '%s', expected options only (fwa help data)", a->at[0]);
    FWA_TRY(fwa_arguments_choice(a, "--format", formats, 0, &paper));
    FWA_TRY(fwa_arguments_choice(a, "--split", splits, 0, &val));
    FWA_TRY(fwa_arguments_integer(a, "--width-min", 1, 1, FWA_ADDITION_MAX_WIDTH, &draws->width_min));
    FWA_TRY(fwa_arguments_integer(a, "--width-max", 32, 1, FWA_ADDITION_MAX_WIDTH, &draws->width_max));
    FWA_CHECK(draws->width_min <= draws->width_max, FWA_USAGE,
              "--width-min %" PRId64 ": expected at most --width-max %" PRId64, draws->width_min, draws->width_max);
    FWA_TRY(fwa_arguments_integer(a, "--seed", 0, 0, INT64_MAX, &seed));
    FWA_TRY(fwa_arguments_integer(a, "--first", 0, 0, INT64_MAX / 2, &r->first));
    FWA_TRY(fwa_arguments_integer(a, "--examples", 10, 1, INT64_MAX / 2, &r->count));
    draws->format = paper ? FWA_ADDITION_PAPER : FWA_ADDITION_BRACKET;
    draws->key = fwa_addition_key(seed, val ? FWA_SPLIT_VAL : FWA_SPLIT_TRAIN);
    r->json = fwa_arguments_flag(a, "--json");
    return FWA_OK;
}

// Inputs and targets are shifted by one: the end token is a target only.
static void draw(const fwa_addition_draws *draws, int64_t number, example *e) {
    const int64_t T = fwa_addition_places(draws, number);
    fwa_addition_write(draws, number, T, e->token, e->target);
    e->token[T] = e->target[T - 1];
    e->length = T + 1;
    e->answer = 1;
    while (e->target[e->answer - 1] == FWA_NO_TARGET) e->answer++;
}

// Tokens [from, end), all of them bytes.
static void print_bytes(const example *e, int64_t from, int64_t end) {
    for (int64_t t = from; t < end; t++) putchar((char)e->token[t]);
}

static void print_json(const example *e, int64_t number) {
    printf("{\"number\": %" PRId64 ", \"question\": \"", number);
    print_bytes(e, 1, e->answer);
    printf("\", \"answer\": \"");
    print_bytes(e, e->answer, e->length - 1);
    printf("\", \"tokens\": [");
    for (int64_t t = 0; t < e->length; t++) printf("%s%d", t ? ", " : "", (int)e->token[t]);
    printf("], \"answer_at\": %" PRId64 "}\n", e->answer);
}

fwa_status fwa_data_run_addition(int argc, char **argv) {
    static const fwa_option options[] = {{"--format", true}, {"--width-min", true}, {"--width-max", true},
                                         {"--seed", true},   {"--split", true},     {"--first", true},
                                         {"--json", false},  {"--examples", true},  {NULL, false}};
    fwa_arguments arguments;
    addition_request request;
    FWA_TRY(fwa_arguments_parse(&arguments, options, argc, argv));
    FWA_TRY(read_request(&arguments, &request));
    example *e = calloc(1, sizeof *e);
    FWA_CHECK(e, FWA_MEMORY, "no memory for an example");
    for (int64_t i = 0; i < request.count && !ferror(stdout); i++) {
        draw(&request.draws, request.first + i, e);
        if (request.json)
            print_json(e, request.first + i);
        else {
            print_bytes(e, 1, e->length - 1);
            putchar('\n');
        }
    }
    free(e);
    return FWA_OK;
}
