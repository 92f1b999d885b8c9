// fwa data tokenize INPUT ... --out FOLDER | inspect SHARD ... | addition
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/cores.h"
#include "train/arguments.h"
#include "train/commands.h"
#include "train/data/data.h"
#include "train/progress.h"

static bool is_jsonl(const char *path) {
    const char *dot = strrchr(path, '.');
    return dot && (strcmp(dot, ".jsonl") == 0 || strcmp(dot, ".ndjson") == 0);
}

static fwa_status choose_format(const fwa_arguments *a, fwa_tokenize_request *r) {
    static const char *const formats[2] = {"text", "jsonl"}, *const documents[2] = {"file", "line"};
    int jsonl, lines, standard = is_jsonl(a->at[0]);
    for (int i = 1; i < a->count && !fwa_arguments_value(a, "--format", NULL); i++)
        FWA_CHECK(is_jsonl(a->at[i]) == standard, FWA_USAGE,
                  "fwa data tokenize: %s and %s: expected all text or all JSONL (*.jsonl, *.ndjson), or --format",
                  a->at[0], a->at[i]);
    FWA_TRY(fwa_arguments_choice(a, "--format", formats, standard, &jsonl));
    FWA_TRY(fwa_arguments_choice(a, "--documents", documents, jsonl, &lines));
    FWA_CHECK(!jsonl || lines, FWA_USAGE, "--documents file: a line of JSONL is a document");
    r->jsonl = jsonl;
    r->lines = lines;
    return FWA_OK;
}

static fwa_status read_request(const fwa_arguments *a, fwa_tokenize_request *r) {
    FWA_CHECK(a->count > 0, FWA_USAGE, "fwa data tokenize: no input, expected text or JSONL files (fwa help data)");
    FWA_TRY(choose_format(a, r));
    r->inputs = a->at;
    r->input_count = a->count;
    r->out = fwa_arguments_value(a, "--out", NULL);
    FWA_CHECK(r->out && r->out[0], FWA_USAGE,
              "fwa data tokenize: expected --out FOLDER, for example --out data/tokens");
    r->field = fwa_arguments_value(a, "--field", "text");
    const char *val = fwa_arguments_value(a, "--val", "0.01");
    char *end;
    r->val = strtod(val, &end);
    FWA_CHECK(end != val && !*end && r->val >= 0.0 && r->val < 1.0, FWA_USAGE,
              "--val '%s': expected the share of documents for validation, 0 <= share < 1", val);
    FWA_TRY(fwa_arguments_integer(a, "--seed", 0, 0, INT64_MAX, &r->seed));
    FWA_TRY(fwa_arguments_integer(a, "--shard-tokens", 100000000, 1, INT32_MAX, &r->shard_tokens));
    return fwa_arguments_integer(a, "--threads", fwa_cores_granted(), 1, 1024, &r->threads);
}

static void print_result(const fwa_tokenize_request *r, const fwa_tokenize_result *result) {
    static const char *const name[2] = {"train", "val"};
    char documents[32], tokens[32], bytes[32], seconds[32];
    const int64_t all = result->tokens[0] + result->tokens[1];
    for (int s = 0; s < 2 && (s == 0 || r->val > 0.0); s++)
        printf("%-5s  %15s document%-1s  %18s token%-1s  %4lld file%s\n", name[s],
               fwa_text_count(result->documents[s], documents), fwa_plural(result->documents[s]),
               fwa_text_count(result->tokens[s], tokens), fwa_plural(result->tokens[s]), (long long)result->files[s],
               fwa_plural(result->files[s]));
    if (result->empty > 0)
        printf("left out: %lld document%s without text\n", (long long)result->empty, fwa_plural(result->empty));
    printf("%s of text in %s, %.1f MB/s on %lld thread%s, %.2f bytes a token; in %s\n",
           fwa_text_bytes(result->bytes, bytes), fwa_text_seconds(result->seconds, seconds),
           1e-6 * (double)result->bytes / result->seconds, (long long)r->threads, fwa_plural(r->threads),
           (double)result->bytes / (double)all, r->out);
}

fwa_status fwa_data_run_tokenize(int argc, char **argv) {
    static const fwa_option options[] = {
        {"--out", true}, {"--tokenizer", true}, {"--format", true},       {"--field", true},   {"--documents", true},
        {"--val", true}, {"--seed", true},      {"--shard-tokens", true}, {"--threads", true}, {NULL, false}};
    fwa_arguments arguments;
    fwa_tokenize_request request;
    fwa_tokenize_result result;
    fwa_tokenizer *tokenizer;
    FWA_TRY(fwa_arguments_parse(&arguments, options, argc, argv));
    FWA_TRY(read_request(&arguments, &request));
    FWA_TRY(fwa_tokenizer_open(&tokenizer, fwa_arguments_value(&arguments, "--tokenizer", "data/gpt2")));
    fwa_status status = fwa_data_tokenize(tokenizer, &request, &result);
    fwa_tokenizer_close(tokenizer);
    if (status == FWA_OK) print_result(&request, &result);
    return status;
}

fwa_status fwa_cmd_data(fwa_world *world, int argc, char **argv) {
    static struct {
        const char *word;
        char name[16];
        fwa_status (*run)(int, char **);
    } actions[] = {{"tokenize", "data tokenize", fwa_data_run_tokenize},
                   {"inspect", "data inspect", fwa_data_run_inspect},
                   {"addition", "data addition", fwa_data_run_addition}};
    FWA_CHECK(world->size == 1, FWA_USAGE, "fwa data: %d processes, expected one: start it without mpirun",
              world->size);
    FWA_CHECK(argc >= 2, FWA_USAGE, "fwa data: expected tokenize, inspect or addition (fwa help data)");
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++) {
        if (strcmp(argv[1], actions[i].word) != 0) continue;
        argv[1] = actions[i].name;
        return actions[i].run(argc - 1, argv + 1);
    }
    FWA_FAIL(FWA_USAGE, "fwa data '%s': expected tokenize, inspect or addition", argv[1]);
}
