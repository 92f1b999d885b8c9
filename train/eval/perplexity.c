// fwa eval --task ppl: perplexity of token shards and text, by token, byte and word.
//
// A document of n tokens x_0 ... x_{n-1} is scored in windows of T tokens: window k ends behind target
// e_k = min(T + k S, n - 1) and scores those of its targets that the window before did not, T of them in the first one
// and S in the others; S = T unless a smaller stride gives every target a longer past.
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/shape.h"
#include "io/files.h"
#include "io/jsonl.h"
#include "io/shards.h"
#include "io/utf8.h"
#include "train/eval/eval.h"
#include "train/tasks/task.h"
#include "train/validation.h"

// Tokens [start, start + count) of the stream; the first is no target.
typedef struct document {
    int64_t start, count;
    int64_t window; // number of its first window
} document;

typedef struct corpus {
    const fwa_world *world;
    const fwa_loaded *loaded;
    const fwa_eval_request *request;
    fwa_tokenizer *tokenizer; // NULL: bytes and words are not known
    fwa_paths files;
    fwa_shards *shards; // or
    fwa_tokens tokens;
    document *documents;
    int64_t count, capacity;
    int64_t T, S, windows;
    fwa_activations *acts;
    fwa_step_state *state;
    int32_t *batch[2]; // tokens, targets [m,T]
    double said;
} corpus;

static void close_corpus(corpus *c) {
    fwa_tokenizer_close(c->tokenizer);
    fwa_paths_free(&c->files);
    if (c->shards) fwa_shards_close(c->shards);
    fwa_activations_destroy(c->acts);
    if (c->state) c->loaded->backend->free(c->loaded->backend, c->state);
    free(c->tokens.at);
    free(c->documents);
    free(c->batch[0]);
    free(c->batch[1]);
}

static fwa_status add_document(corpus *c, int64_t start, int64_t count) {
    if (count < 2) return FWA_OK; // no target
    if (c->count == c->capacity) {
        const int64_t capacity = 2 * c->capacity + 64;
        document *grown = realloc(c->documents, (size_t)capacity * sizeof *grown);
        FWA_CHECK(grown, FWA_MEMORY, "no memory for %lld documents", (long long)capacity);
        c->documents = grown;
        c->capacity = capacity;
    }
    c->documents[c->count++] = (document){start, count, 0};
    return FWA_OK;
}

// A document's text behind a document mark.
static fwa_status add_text(corpus *c, const char *text, size_t bytes) {
    const size_t start = c->tokens.count;
    FWA_TRY(fwa_tokens_reserve(&c->tokens, 1));
    c->tokens.at[c->tokens.count++] = fwa_tokenizer_document(c->tokenizer);
    FWA_TRY(fwa_tokenizer_encode(c->tokenizer, text, bytes, &c->tokens));
    return add_document(c, (int64_t)start, (int64_t)(c->tokens.count - start));
}

static fwa_status check_utf8(const char *path, const fwa_text *text) {
    const size_t sound = fwa_utf8_sound(text->at, text->count);
    int64_t line = 1;
    for (size_t i = 0; i < sound; i++) line += text->at[i] == '\n';
    FWA_CHECK(sound == text->count, FWA_FORMAT, "%s:%lld: byte %zu of the file (0x%02X) is no UTF-8", path,
              (long long)line, sound, (unsigned char)text->at[sound]);
    return FWA_OK;
}

static fwa_status add_json(corpus *c, const char *path, int64_t number, const char *line, size_t bytes) {
    json_t *object;
    const json_t *text;
    fwa_status status = fwa_jsonl_text(path, number, line, bytes, c->request->field, &object, &text);
    if (status == FWA_OK && object) status = add_text(c, json_string_value(text), json_string_length(text));
    json_decref(object);
    return status;
}

static fwa_status add_lines(corpus *c, const char *path, FILE *file) {
    char *line = NULL;
    size_t capacity = 0;
    ssize_t bytes;
    fwa_status status = FWA_OK;
    for (int64_t number = 1; status == FWA_OK && (bytes = getline(&line, &capacity, file)) >= 0; number++)
        status = add_json(c, path, number, line, (size_t)bytes);
    free(line);
    return status;
}

static fwa_status add_whole(corpus *c, const char *path, FILE *file) {
    fwa_text text = {0};
    char block[4096];
    size_t bytes;
    fwa_status status = FWA_OK;
    while (status == FWA_OK && (bytes = fread(block, 1, sizeof block, file)) > 0)
        status = fwa_text_append(&text, block, bytes);
    if (status == FWA_OK) status = check_utf8(path, &text);
    if (status == FWA_OK) status = add_text(c, text.at, text.count);
    free(text.at);
    return status;
}

static fwa_status read_text(corpus *c) {
    for (int i = 0; i < c->files.count; i++) {
        const char *path = c->files.at[i];
        FWA_TRY(fwa_input_check(path, FWA_INPUT_TEXT));
        FILE *file = fopen(path, "r");
        FWA_CHECK(file, FWA_CONFIG, "cannot open %s: %s", path, strerror(errno));
        const bool lines = fwa_path_ends(path, ".jsonl") || fwa_path_ends(path, ".ndjson");
        fwa_status status = lines ? add_lines(c, path, file) : add_whole(c, path, file);
        const int failed = ferror(file) ? errno : 0;
        fclose(file);
        FWA_TRY(status);
        FWA_CHECK(!failed, FWA_IO, "cannot read %s: %s", path, strerror(failed));
    }
    return FWA_OK;
}

// All shards are one stream.
static fwa_status read_shards(corpus *c) {
    FWA_TRY(fwa_shards_open_files(&c->shards, &c->files, c->loaded->model->spec.vocab));
    return add_document(c, 0, fwa_shards_tokens(c->shards));
}

static int64_t windows_of(const corpus *c, const document *d) {
    return 1 + fwa_ceil_div(fwa_max(0, d->count - 1 - c->T), c->S);
}

static fwa_status read_all(corpus *c) {
    const fwa_eval_request *q = c->request;
    FWA_TRY(fwa_eval_files_find(&c->files, q, c->loaded->config));
    const bool shards = fwa_path_ends(c->files.at[0], ".bin");
    FWA_TRY(fwa_eval_tokenizer(&c->tokenizer, c->loaded->config, c->loaded->path, q, &c->files));
    FWA_TRY(shards ? read_shards(c) : read_text(c));
    FWA_CHECK(c->count > 0, FWA_FORMAT, "%s: no document has a token to score", c->files.at[0]);
    for (int64_t i = 0; i < c->count; i++) {
        c->documents[i].window = c->windows;
        c->windows += windows_of(c, &c->documents[i]);
    }
    if (q->examples > 0) c->windows = fwa_min(c->windows, q->examples);
    return FWA_OK;
}

static void read_tokens(const corpus *c, int64_t start, int64_t count, int32_t *out) {
    if (c->shards)
        fwa_shards_read(c->shards, start, count, out);
    else
        memcpy(out, c->tokens.at + start, (size_t)count * sizeof *out);
}

static const document *document_of(const corpus *c, int64_t window) {
    int64_t low = 0, high = c->count - 1;
    while (low < high) {
        const int64_t middle = (low + high + 1) / 2;
        if (c->documents[middle].window <= window)
            low = middle;
        else
            high = middle - 1;
    }
    return &c->documents[low];
}

// Targets [*from, *end) of the document are scored by its window k.
static void scored(const corpus *c, const document *d, int64_t k, int64_t *from, int64_t *end) {
    *from = k == 0 ? 1 : c->T + (k - 1) * c->S + 1;
    *end = fwa_min(c->T + k * c->S + 1, d->count);
}

static void fill_window(const corpus *c, int64_t window, int32_t *tokens, int32_t *targets) {
    const document *d = document_of(c, window);
    int64_t from, end;
    scored(c, d, window - d->window, &from, &end);
    const int64_t begin = fwa_max(0, end - 1 - c->T), n = end - 1 - begin; // tokens read
    read_tokens(c, d->start + begin, n, tokens);
    read_tokens(c, d->start + begin + 1, n, targets);
    for (int64_t t = 0; t < c->T; t++) {
        if (t >= n) tokens[t] = 0;
        if (t >= n || begin + 1 + t < from) targets[t] = FWA_NO_TARGET;
    }
}

static fwa_status load_windows(void *user, int64_t first, int64_t count) {
    corpus *c = user;
    fwa_eval_progress(c->world, &c->said, first, c->windows, "windows");
    for (int64_t i = 0; i < c->acts->ctx.B; i++) {
        int32_t *tokens = c->batch[0] + i * c->T, *targets = c->batch[1] + i * c->T;
        if (i < count) fill_window(c, first + i, tokens, targets);
        for (int64_t t = 0; i >= count && t < c->T; t++) {
            tokens[t] = 0;
            targets[t] = FWA_NO_TARGET;
        }
    }
    return fwa_model_load(c->acts, c->batch[0], c->batch[1]);
}

static fwa_status make_room(corpus *c) {
    fwa_backend *backend = c->loaded->backend;
    const int64_t B = fwa_min(c->request->batch, c->windows);
    FWA_TRY(fwa_activations_create(&c->acts, c->loaded->model, backend, B, c->T, false, (fwa_pieces){NULL, 0}));
    fwa_status status = fwa_activations_commit(c->acts);
    if (status == FWA_MEMORY) FWA_FAIL(FWA_MEMORY, "%s; lower --batch from %lld", fwa_error_message(), (long long)B);
    FWA_TRY(status);
    FWA_TRY(backend->alloc(backend, (void **)&c->state, sizeof *c->state));
    for (int i = 0; i < 2; i++) {
        c->batch[i] = malloc((size_t)(B * c->T) * sizeof(int32_t));
        FWA_CHECK(c->batch[i], FWA_MEMORY, "no memory for a batch of %lld windows", (long long)B);
    }
    return FWA_OK;
}

static fwa_status open_corpus(corpus *c) {
    const fwa_eval_request *q = c->request;
    c->T = q->context;
    c->S = q->stride;
    FWA_TRY(read_all(c));
    return make_room(c);
}

// Bytes and words of what is scored.
typedef struct extent {
    int64_t bytes, words;
    bool inside; // a word goes on
} extent;

static fwa_status add_token(const corpus *c, extent *e, int32_t id) {
    size_t bytes;
    if (id == fwa_tokenizer_document(c->tokenizer)) {
        e->inside = false;
        return FWA_OK;
    }
    const char *text = fwa_tokenizer_token(c->tokenizer, id, &bytes);
    FWA_CHECK(text, FWA_FORMAT, "%s has token %d, which the tokenizer lacks (it has %d): name another with --tokenizer",
              c->files.at[0], id, fwa_tokenizer_vocab(c->tokenizer));
    for (size_t i = 0; i < bytes; i++) {
        const bool space = text[i] == ' ' || (text[i] >= '\t' && text[i] <= '\r');
        e->words += !space && !e->inside;
        e->inside = !space;
    }
    e->bytes += (int64_t)bytes;
    return FWA_OK;
}

static fwa_status measure_extent(const corpus *c, extent *e) {
    memset(e, 0, sizeof *e);
    for (int64_t i = 0; i < c->count && c->documents[i].window < c->windows; i++) {
        const document *d = &c->documents[i];
        int64_t from, end;
        scored(c, d, fwa_min(windows_of(c, d), c->windows - d->window) - 1, &from, &end);
        e->inside = false;
        for (int64_t t = 1; t < end; t++) {
            int32_t id;
            read_tokens(c, d->start + t, 1, &id);
            FWA_TRY(add_token(c, e, id));
        }
    }
    if (c->request->words_in_text > 0) e->words = c->request->words_in_text;
    return FWA_OK;
}

static void print_table(const corpus *c, double loss, double tokens, const extent *e) {
    printf("\n%s, step %lld; %lld window%s of %lld token%s", c->loaded->path, (long long)c->loaded->step,
           (long long)c->windows, fwa_plural(c->windows), (long long)c->T, fwa_plural(c->T));
    if (c->S < c->T) printf(", %lld new each", (long long)c->S);
    printf("\n  %-6s  %14.0f  perplexity %10.4f  (%.5f nats each)\n", "tokens", tokens, exp(loss / tokens),
           loss / tokens);
    if (e->bytes > 0)
        printf("  %-6s  %14lld  perplexity %10.4f  (%.5f bits each)\n", "bytes", (long long)e->bytes,
               exp(loss / (double)e->bytes), loss / (double)e->bytes / log(2.0));
    if (e->words > 0)
        printf("  %-6s  %14lld  perplexity %10.4f\n", "words", (long long)e->words, exp(loss / (double)e->words));
}

// A member behind others.
static void put(FILE *out, const char *name, double value) {
    fprintf(out, ", \"%s\": ", name);
    fwa_json_real(value, out);
}

static fwa_status write_json(const corpus *c, double loss, double tokens, const extent *e) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    FWA_CHECK(out, FWA_MEMORY, "%s: out of memory", c->request->json);
    fprintf(out,
            "{\"task\": \"ppl\", \"step\": %lld, \"windows\": %lld, \"context\": %lld, \"stride\": %lld, "
            "\"tokens\": %.0f",
            (long long)c->loaded->step, (long long)c->windows, (long long)c->T, (long long)c->S, tokens);
    put(out, "loss", loss / tokens);
    put(out, "perplexity", exp(loss / tokens));
    if (e->bytes > 0) {
        fprintf(out, ", \"bytes\": %lld", (long long)e->bytes);
        put(out, "bits_per_byte", loss / (double)e->bytes / log(2.0));
        put(out, "byte_perplexity", exp(loss / (double)e->bytes));
    }
    if (e->words > 0) {
        fprintf(out, ", \"words\": %lld", (long long)e->words);
        put(out, "word_perplexity", exp(loss / (double)e->words));
    }
    fprintf(out, "}\n");
    return fwa_write_stream(c->request->json, out, &text);
}

static fwa_status report(const corpus *c, double loss, double tokens) {
    extent e = {0};
    if (c->tokenizer) FWA_TRY(measure_extent(c, &e));
    print_table(c, loss, tokens, &e);
    return c->request->json ? write_json(c, loss, tokens, &e) : FWA_OK;
}

fwa_status fwa_eval_perplexity(fwa_world *world, const fwa_loaded *l, const fwa_eval_request *q) {
    corpus c = {.world = world, .loaded = l, .request = q};
    double loss = 0.0, tokens = 0.0;
    fwa_status status = fwa_world_agree_late(world, open_corpus(&c));
    if (status == FWA_OK) {
        const fwa_validation validation = {world, c.acts, c.state, load_windows, &c};
        status = fwa_validate(&validation, c.windows, &loss, &tokens);
    }
    if (status == FWA_OK) status = fwa_world_agree(world, world->rank == 0 ? report(&c, loss, tokens) : FWA_OK);
    close_corpus(&c);
    return status;
}
