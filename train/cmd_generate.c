// fwa generate RUN_OR_CHECKPOINT --prompt TEXT ...
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"
#include "io/files.h"
#include "io/utf8.h"
#include "train/commands.h"
#include "train/eval/memory_state.h"
#include "train/eval/sampler.h"
#include "train/progress.h"
#include "train/tasks/addition.h"

typedef struct request {
    const char *const *words; // settings
    int word_count;
    const char *prompt, *prompt_file, *state_in, *state_out, *tokenizer, *json;
    int64_t tokens, context; // to generate; that attention remembers, 0: as in training
    bool endless;            // the end of the text is a token like others
    bool mark;               // a fresh sequence starts with a document mark
    fwa_sampling sampling;
} request;

typedef struct session {
    const request *ask;
    fwa_loaded loaded;
    fwa_tokenizer *tokenizer;
    fwa_decoder *decoder;
    fwa_sampler sampler;
    int32_t end;      // ends the text
    bool ended;       // it came
    fwa_tokens taken; // of this call's prompt
    fwa_tokens made;
    double read_s, made_s; // until the first token was there, or all was read; from then on
    size_t used[2];        // bytes of the device when the first token was there, and at the end
} session;

static void close_session(session *s) {
    fwa_sampler_close(&s->sampler);
    fwa_decoder_destroy(s->decoder);
    fwa_tokenizer_close(s->tokenizer);
    fwa_loaded_close(&s->loaded);
    free(s->taken.at);
    free(s->made.at);
}

static fwa_status read_real(const fwa_arguments *a, const char *name, double standard, double low, double high,
                            double *out) {
    const char *text = fwa_arguments_value(a, name, NULL);
    char *end = NULL;
    *out = text ? strtod(text, &end) : standard;
    FWA_CHECK(!text || (end != text && !*end && *out >= low && *out <= high), FWA_USAGE,
              "%s '%s': expected a number from %g to %g", name, text, low, high);
    return FWA_OK;
}

static fwa_status read_request(const fwa_arguments *a, request *r) {
    int64_t seed;
    FWA_CHECK(a->count >= 1, FWA_USAGE, "fwa generate: expected a run folder or checkpoint (fwa help generate)");
    r->words = a->at + 1;
    r->word_count = a->count - 1;
    for (int i = 0; i < r->word_count; i++)
        FWA_CHECK(fwa_loaded_is_setting(r->words[i]), FWA_USAGE,
                  "fwa generate: got '%s' behind the checkpoint, expected settings; the text goes to --prompt",
                  r->words[i]);
    r->prompt = fwa_arguments_value(a, "--prompt", NULL);
    r->prompt_file = fwa_arguments_value(a, "--prompt-file", NULL);
    FWA_CHECK(!r->prompt || !r->prompt_file, FWA_USAGE, "--prompt and --prompt-file: expected one of them");
    r->state_in = fwa_arguments_value(a, "--state-in", NULL);
    r->state_out = fwa_arguments_value(a, "--state-out", NULL);
    r->tokenizer = fwa_arguments_value(a, "--tokenizer", NULL);
    r->json = fwa_arguments_value(a, "--json", NULL);
    if (r->state_out) FWA_TRY(fwa_file_check_target("--state-out", r->state_out));
    if (r->state_out) FWA_TRY(fwa_input_check(r->state_out, FWA_INPUT_FILE));
    if (r->json) FWA_TRY(fwa_file_check_target("--json", r->json));
    r->endless = fwa_arguments_flag(a, "--ignore-end");
    r->mark = !fwa_arguments_flag(a, "--no-mark");
    FWA_TRY(fwa_arguments_integer(a, "--tokens", 128, 0, INT64_MAX / 4, &r->tokens));
    FWA_TRY(fwa_arguments_integer(a, "--context", 0, 1, 1 << 24, &r->context));
    FWA_TRY(fwa_arguments_integer(a, "--top-k", 0, 0, 1 << 20, &r->sampling.top_k));
    FWA_TRY(fwa_arguments_integer(a, "--seed", 0, 0, INT64_MAX, &seed));
    r->sampling.seed = (uint64_t)seed;
    FWA_TRY(read_real(a, "--temperature", 1.0, 0.0, 1e6, &r->sampling.temperature));
    FWA_TRY(read_real(a, "--top-p", 1.0, 1e-9, 1.0, &r->sampling.top_p));
    return FWA_OK;
}

static fwa_status read_stream(const char *path, fwa_text *text) {
    const bool standard = strcmp(path, "-") == 0;
    if (!standard) FWA_TRY(fwa_input_check(path, FWA_INPUT_STREAM));
    FILE *file = standard ? stdin : fopen(path, "r");
    FWA_CHECK(file, FWA_CONFIG, "--prompt-file: cannot open %s: %s", path, strerror(errno));
    char block[4096];
    size_t bytes;
    fwa_status status = FWA_OK;
    while (status == FWA_OK && (bytes = fread(block, 1, sizeof block, file)) > 0)
        status = fwa_text_append(text, block, bytes);
    const int failed = ferror(file) ? errno : 0;
    if (file != stdin) fclose(file);
    FWA_TRY(status);
    FWA_CHECK(!failed, FWA_IO, "--prompt-file: cannot read %s: %s", path, strerror(failed));
    return FWA_OK;
}

static fwa_status encode(session *s, const fwa_text *text, const char *name) {
    const size_t sound = fwa_utf8_sound(text->at, text->count);
    FWA_CHECK(sound == text->count, FWA_FORMAT, "%s: byte %zu (0x%02X) is no UTF-8", name, sound,
              (unsigned char)text->at[sound]);
    return fwa_tokenizer_encode(s->tokenizer, text->at, text->count, &s->taken);
}

static fwa_status read_prompt(session *s) {
    const request *r = s->ask;
    fwa_text text = {0};
    fwa_status status = FWA_OK;
    if (!r->state_in && r->mark) {
        FWA_TRY(fwa_tokens_reserve(&s->taken, 1));
        s->taken.at[s->taken.count++] = fwa_tokenizer_document(s->tokenizer);
    }
    if (r->prompt_file)
        status = read_stream(r->prompt_file, &text);
    else if (r->prompt)
        status = fwa_text_append(&text, r->prompt, strlen(r->prompt));
    if (status == FWA_OK && text.count > 0) status = encode(s, &text, r->prompt ? "--prompt" : r->prompt_file);
    free(text.at);
    return status;
}

// The bytes that addition is made of need no files.
static fwa_status open_tokenizer(session *s) {
    const bool addition = s->loaded.config->task.name == FWA_TASK_ADDITION;
    const char *source = s->ask->tokenizer ? s->ask->tokenizer : addition ? "bytes" : "data/gpt2";
    FWA_TRY(fwa_loaded_tokenizer(&s->tokenizer, s->loaded.config, s->loaded.path, source));
    s->end = addition ? FWA_ADDITION_END : fwa_tokenizer_document(s->tokenizer);
    const int64_t ids = fwa_tokenizer_vocab(s->tokenizer);
    return fwa_sampler_open(&s->sampler, &s->ask->sampling, s->end < ids ? ids : s->end + 1);
}

static fwa_status check_room(const session *s) {
    const fwa_memory *m = s->decoder->memory;
    const int64_t wanted = m->held + (int64_t)s->decoder->pending.count + (int64_t)s->taken.count +
                           (s->ask->tokens > 0 ? s->ask->tokens - 1 : 0);
    const bool first = fwa_decoder_position(s->decoder) + (int64_t)s->taken.count > 0;
    FWA_CHECK(first || s->ask->tokens == 0, FWA_USAGE,
              "nothing to go on from: expected --prompt, --prompt-file, --state-in, or no --no-mark");
    FWA_CHECK(m->capacity == 0 || s->loaded.model->spec.reset_documents || wanted <= m->capacity, FWA_CONFIG,
              "the text so far and --tokens %lld are %lld tokens, and this model's attention remembers %lld, %s; lower "
              "--tokens, shorten the prompt or raise --context",
              (long long)s->ask->tokens, (long long)wanted, (long long)m->capacity,
              s->ask->context > 0 ? "as --context says" : "what it was trained on");
    return FWA_OK;
}

static fwa_status open_session(session *s, fwa_world *world, const char *run) {
    const request *r = s->ask;
    FWA_TRY(fwa_loaded_open(&s->loaded, world, run, r->words, r->word_count));
    FWA_TRY(open_tokenizer(s));
    FWA_TRY(fwa_decoder_create(&s->decoder, &s->loaded, 1, r->context > 0 ? r->context : s->loaded.seq_len));
    if (r->state_in) FWA_TRY(fwa_memory_state_load(s->decoder, r->state_in));
    FWA_TRY(read_prompt(s));
    return check_room(s);
}

// What a token says, as soon as it is there.
static void print_token(const session *s, int32_t id) {
    size_t bytes = 0;
    const char *text = fwa_tokenizer_token(s->tokenizer, id, &bytes);
    if (!text || id == s->end) return;
    fwrite(text, 1, bytes, stdout);
    if (isatty(STDOUT_FILENO)) fflush(stdout);
}

static fwa_status make_token(session *s) {
    int32_t id;
    FWA_TRY(fwa_decoder_ask(s->decoder));
    FWA_TRY(fwa_sampler_draw(&s->sampler, s->decoder->logits, fwa_decoder_position(s->decoder), &id));
    FWA_TRY(fwa_tokens_reserve(&s->made, 1));
    s->made.at[s->made.count++] = id;
    s->ended = id == s->end && !s->ask->endless;
    print_token(s, id);
    return fwa_decoder_take(s->decoder, &id, 1);
}

static fwa_status generate(session *s) {
    fwa_backend *backend = s->loaded.backend;
    size_t total;
    const double start = fwa_clock_seconds();
    if (s->taken.count > 0) FWA_TRY(fwa_decoder_take(s->decoder, s->taken.at, (int64_t)s->taken.count));
    FWA_TRY(backend->stream_synchronize(backend, backend->stream));
    s->read_s = fwa_clock_seconds() - start;
    while ((int64_t)s->made.count < s->ask->tokens && !s->ended) {
        FWA_TRY(make_token(s));
        if (s->made.count > 1) continue;
        s->read_s = fwa_clock_seconds() - start;
        FWA_TRY(backend->memory(backend, &s->used[0], &total));
    }
    s->made_s = fwa_clock_seconds() - start - s->read_s;
    if (s->made.count > 0) printf("\n");
    FWA_CHECK(fflush(stdout) == 0 && !ferror(stdout), FWA_IO, "cannot write to standard output");
    return backend->memory(backend, &s->used[1], &total);
}

// Tokens a second behind the first.
static double made_rate(const session *s) {
    return s->made.count > 1 && s->made_s > 0.0 ? (double)(s->made.count - 1) / s->made_s : 0.0;
}

static void log_result(const session *s) {
    char memory[32], used[32];
    fwa_log_info("read %zu token%s in %.2f s; made %zu, %.1f tokens/s%s; %s a sequence, %s in use", s->taken.count,
                 fwa_plural((int64_t)s->taken.count), s->read_s, s->made.count, made_rate(s),
                 s->ended ? ", to the end of the text" : "",
                 fwa_text_bytes((int64_t)fwa_memory_bytes(s->decoder->memory), memory),
                 fwa_text_bytes((int64_t)s->used[1], used));
}

static fwa_status write_json(const session *s) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    FWA_CHECK(out, FWA_MEMORY, "%s: out of memory", s->ask->json);
    fprintf(out,
            "{\"position\": %lld, \"ended\": %s, \"read\": %zu, \"read_seconds\": %.6f, \"made\": %zu, "
            "\"made_seconds\": %.6f, \"made_tokens_per_s\": %.3f, \"memory_bytes\": %zu, \"used_bytes_first\": %zu, "
            "\"used_bytes_last\": %zu, \"tokens\": [",
            (long long)fwa_decoder_position(s->decoder), s->ended ? "true" : "false", s->taken.count, s->read_s,
            s->made.count, s->made_s, made_rate(s), fwa_memory_bytes(s->decoder->memory), s->used[0], s->used[1]);
    for (size_t i = 0; i < s->made.count; i++) fprintf(out, "%s%d", i ? ", " : "", s->made.at[i]);
    fprintf(out, "]}\n");
    return fwa_write_stream(s->ask->json, out, &text);
}

static fwa_status run(session *s, fwa_world *world, const char *run_or_checkpoint) {
    FWA_TRY(open_session(s, world, run_or_checkpoint));
    FWA_TRY(generate(s));
    log_result(s);
    if (s->ask->state_out) FWA_TRY(fwa_memory_state_save(s->decoder, s->ask->state_out));
    return s->ask->json ? write_json(s) : FWA_OK;
}

fwa_status fwa_cmd_generate(fwa_world *world, int argc, char **argv) {
    static const fwa_option options[] = {{"--prompt", true},      {"--prompt-file", true}, {"--tokens", true},
                                         {"--temperature", true}, {"--top-k", true},       {"--top-p", true},
                                         {"--seed", true},        {"--state-in", true},    {"--state-out", true},
                                         {"--tokenizer", true},   {"--context", true},     {"--no-mark", false},
                                         {"--ignore-end", false}, {"--json", true},        {NULL, false}};
    fwa_arguments arguments;
    request r;
    session s;
    memset(&r, 0, sizeof r);
    memset(&s, 0, sizeof s);
    FWA_CHECK(world->size == 1, FWA_USAGE, "fwa generate: %d processes, expected one: start it without mpirun",
              world->size);
    FWA_TRY(fwa_arguments_parse(&arguments, options, argc, argv));
    FWA_TRY(read_request(&arguments, &r));
    s.ask = &r;
    fwa_status status = run(&s, world, arguments.at[0]);
    close_session(&s);
    return status;
}
