// What is in token shards: headers, documents and their lengths, frequent tokens, samples as text.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/shape.h"
#include "io/files.h"
#include "io/shards.h"
#include "io/utf8.h"
#include "train/arguments.h"
#include "train/data/data.h"
#include "train/progress.h"

#define BLOCK          2048 // tokens read at once
#define IDS            65536
#define GPT2_DOCUMENT  50256
#define TOP            10
#define BAR            40 // characters of the longest bar
#define SHOWN          24 // bytes of a token in the table
#define DEFAULT_FOLDER "data/gpt2"

typedef struct contents {
    fwa_shards *shards;
    const fwa_tokenizer *tokenizer; // NULL: ids are shown
    int64_t tokens, count[IDS];
    int32_t mark;   // what documents start with
    int64_t *start; // [documents], of the first token behind the mark; documents + 1 starts
    int64_t documents, capacity;
    bool whole; // the stream starts with a mark
} contents;

static int64_t length_of(const contents *c, int64_t document) {
    const bool last = document + 1 == c->documents;
    return (last ? c->tokens : c->start[document + 1] - 1) - c->start[document];
}

static fwa_status add_document(contents *c, int64_t start) {
    if (c->documents == c->capacity) {
        const int64_t capacity = 2 * c->capacity + 1024;
        int64_t *grown = realloc(c->start, (size_t)capacity * sizeof *grown);
        FWA_CHECK(grown, FWA_MEMORY, "no memory for %lld documents", (long long)capacity);
        c->start = grown;
        c->capacity = capacity;
    }
    c->start[c->documents++] = start;
    return FWA_OK;
}

static fwa_status scan(contents *c) {
    int32_t block[BLOCK];
    c->tokens = fwa_shards_tokens(c->shards);
    for (int64_t at = 0; at < c->tokens; at += BLOCK) {
        const int64_t here = fwa_min(BLOCK, c->tokens - at);
        fwa_shards_read(c->shards, at, here, block);
        for (int64_t i = 0; i < here; i++) {
            c->count[block[i]]++;
            if (block[i] == c->mark) FWA_TRY(add_document(c, at + i + 1));
        }
    }
    c->whole = c->documents > 0 && c->start[0] == 1;
    return FWA_OK;
}

// One line of text: control characters and what is not UTF-8 escaped, cut at `limit` bytes (0: all).
static void print_escaped(const char *text, size_t bytes, size_t limit) {
    for (size_t i = 0; i < bytes && (limit == 0 || i < limit);) {
        const unsigned char c = (unsigned char)text[i];
        const size_t length = fwa_utf8_bytes((const unsigned char *)text + i, bytes - i);
        const bool control = c < 0x20 || c == 0x7F || (c == 0xC2 && length == 2 && (unsigned char)text[i + 1] < 0xA0);
        if (c == '\n')
            printf("\\n");
        else if (c == '\t')
            printf("\\t");
        else if (length == 0 || control)
            printf("\\x%02X", c);
        else
            printf("%.*s", (int)length, text + i);
        i += length == 0 || control ? 1 : length;
    }
}

static void print_files(const contents *c) {
    char number[32];
    printf("file                                              tokens\n");
    for (int i = 0; i < fwa_shards_files(c->shards); i++) {
        int64_t tokens;
        const char *path = fwa_shards_path(c->shards, i, &tokens);
        printf("  %-36s  %18s\n", path, fwa_text_count(tokens, number));
    }
    printf("  %-36s  %18s  (header %d, version %d, uint16)\n", "all", fwa_text_count(c->tokens, number),
           FWA_SHARD_MAGIC, FWA_SHARD_VERSION);
}

static int compare(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

// Lengths in order; the caller frees them.
static fwa_status sort_lengths(const contents *c, int64_t **out) {
    int64_t *lengths = malloc((size_t)(c->documents ? c->documents : 1) * sizeof *lengths);
    FWA_CHECK(lengths, FWA_MEMORY, "no memory for the lengths of %lld documents", (long long)c->documents);
    for (int64_t i = 0; i < c->documents; i++) lengths[i] = length_of(c, i);
    qsort(lengths, (size_t)c->documents, sizeof *lengths, compare);
    *out = lengths;
    return FWA_OK;
}

// Rows for lengths in [2^k, 2^(k+1)), the first with 0 too.
static void print_histogram(const int64_t *lengths, int64_t n) {
    int64_t rows[64] = {0}, most = 1;
    int first = 63, last = 0;
    for (int64_t i = 0; i < n; i++) {
        int k = 0;
        while (lengths[i] >> (k + 1)) k++;
        rows[k]++;
        first = k < first ? k : first;
        last = k > last ? k : last;
    }
    for (int k = first; k <= last; k++) most = fwa_max(most, rows[k]);
    for (int k = first; k <= last; k++) {
        const int bar = (int)((rows[k] * BAR + most - 1) / most);
        printf("  %9lld - %-9lld  %10lld  %.*s\n", k ? 1LL << k : 0LL, (2LL << k) - 1, (long long)rows[k], bar,
               "########################################");
    }
}

static void print_documents(const contents *c, const int64_t *lengths) {
    char number[32];
    const int64_t n = c->documents;
    if (n == 0) {
        printf("\nno token %d, which marks documents: made with another --tokenizer?\n", c->mark);
        return;
    }
    printf("\n%s document%s, each behind token %d%s\n", fwa_text_count(n, number), fwa_plural(n), c->mark,
           c->whole ? "" : "; the first tokens go on with one that started before");
    const int64_t inside = c->tokens - c->start[0] + 1 - n;
    printf("length in tokens: shortest %lld, median %lld, mean %.1f, longest %lld\n", (long long)lengths[0],
           (long long)lengths[n / 2], (double)inside / (double)n, (long long)lengths[n - 1]);
    print_histogram(lengths, n);
}

// The most frequent ids; returns how many there are.
static int find_top(const contents *c, int32_t top[TOP]) {
    int found = 0;
    for (int32_t id = 0; id < IDS; id++) {
        if (c->count[id] == 0 || (found == TOP && c->count[id] <= c->count[top[TOP - 1]])) continue;
        int at = found < TOP ? found++ : TOP - 1;
        for (; at > 0 && c->count[top[at - 1]] < c->count[id]; at--) top[at] = top[at - 1];
        top[at] = id;
    }
    return found;
}

static void summarize_ids(const contents *c, int64_t *distinct, int32_t *largest, int64_t *lacking) {
    *distinct = *lacking = 0;
    *largest = -1;
    for (int32_t id = 0; id < IDS; id++) {
        if (c->count[id] == 0) continue;
        ++*distinct;
        *largest = id;
        if (c->tokenizer && id >= fwa_tokenizer_vocab(c->tokenizer)) *lacking += c->count[id];
    }
}

static void print_tokens(const contents *c) {
    int32_t top[TOP], largest;
    int64_t distinct, lacking;
    const int found = find_top(c, top);
    summarize_ids(c, &distinct, &largest, &lacking);
    printf("\n%lld different token%s, the largest id is %d; the most frequent:\n", (long long)distinct,
           fwa_plural(distinct), largest);
    for (int i = 0; i < found; i++) {
        size_t bytes = 0;
        const char *text = c->tokenizer ? fwa_tokenizer_token(c->tokenizer, top[i], &bytes) : NULL;
        printf("  %6d  %14lld  %6.2f %%", top[i], (long long)c->count[top[i]],
               100.0 * (double)c->count[top[i]] / (double)c->tokens);
        if (text) {
            printf("  \"");
            print_escaped(text, bytes, SHOWN);
            printf("\"");
        }
        printf("\n");
    }
    if (lacking > 0)
        printf("WARNING: %lld token%s with an id that the tokenizer lacks (it has %d): written with another one?\n",
               (long long)lacking, fwa_plural(lacking), fwa_tokenizer_vocab(c->tokenizer));
}

static fwa_status print_sample(const contents *c, int64_t number, int64_t start, int64_t length, bool cut) {
    fwa_text text = {0};
    int32_t *ids = calloc((size_t)length + 1, sizeof *ids);
    FWA_CHECK(ids, FWA_MEMORY, "no memory for %lld tokens", (long long)length);
    fwa_shards_read(c->shards, start, length, ids);
    printf("  %lld: ", (long long)number);
    fwa_status status = FWA_OK;
    for (int64_t i = 0; !c->tokenizer && i < length; i++) printf(" %d", ids[i]);
    for (int64_t i = 0; c->tokenizer && status == FWA_OK && i < length; i++) {
        size_t bytes;
        char name[32];
        const char *token = fwa_tokenizer_token(c->tokenizer, ids[i], &bytes);
        if (!token) bytes = (size_t)snprintf(name, sizeof name, "<%d>", ids[i]);
        status = fwa_text_append(&text, token ? token : name, bytes);
    }
    print_escaped(text.at, text.count, 0);
    printf("%s\n", cut ? " ..." : "");
    free(text.at);
    free(ids);
    return status;
}

// Documents, or places of a stream without marks, spread evenly.
static fwa_status print_samples(const contents *c, int64_t samples, int64_t length) {
    const int64_t units = c->documents ? c->documents : fwa_ceil_div(c->tokens, length);
    const int64_t shown = fwa_min(samples, units);
    if (shown > 0) printf("\n%s\n", c->documents ? "documents" : "tokens");
    for (int64_t i = 0; i < shown; i++) {
        const int64_t unit = i * units / shown, start = c->documents ? c->start[unit] : unit * length;
        const int64_t all = c->documents ? length_of(c, unit) : c->tokens - start, here = fwa_min(length, all);
        FWA_TRY(print_sample(c, c->documents ? unit : start, start, here, here < all));
    }
    return FWA_OK;
}

static fwa_status write_json(const char *path, const contents *c, const int64_t *lengths) {
    char *text = NULL;
    size_t size = 0;
    int64_t distinct, lacking;
    int32_t largest;
    const int64_t n = c->documents;
    FILE *out = open_memstream(&text, &size);
    FWA_CHECK(out, FWA_MEMORY, "%s: out of memory", path);
    summarize_ids(c, &distinct, &largest, &lacking);
    fprintf(out,
            "{\"files\": %d, \"tokens\": %" PRId64 ", \"documents\": %" PRId64 ", \"mark\": %d, \"distinct\": %" PRId64
            ", \"largest_id\": %d, \"lacking\": %" PRId64,
            fwa_shards_files(c->shards), c->tokens, n, c->mark, distinct, largest, lacking);
    if (n > 0)
        fprintf(out, ", \"shortest\": %" PRId64 ", \"median\": %" PRId64 ", \"longest\": %" PRId64, lengths[0],
                lengths[n / 2], lengths[n - 1]);
    fprintf(out, "}\n");
    return fwa_write_stream(path, out, &text);
}

static fwa_status inspect(contents *c, fwa_paths *paths, int64_t samples, int64_t length, const char *json) {
    int64_t *lengths = NULL;
    fwa_status status;
    FWA_TRY(fwa_shards_open_files(&c->shards, paths, IDS));
    FWA_TRY(scan(c));
    FWA_TRY(sort_lengths(c, &lengths));
    print_files(c);
    print_documents(c, lengths);
    print_tokens(c);
    FWA_TRY_GOTO(print_samples(c, samples, length), done);
    if (json) FWA_TRY_GOTO(write_json(json, c, lengths), done);
done:
    free(lengths);
    return status;
}

fwa_status fwa_data_run_inspect(int argc, char **argv) {
    static const fwa_option options[] = {
        {"--tokenizer", true}, {"--samples", true}, {"--length", true}, {"--json", true}, {NULL, false}};
    fwa_arguments arguments;
    int64_t samples, length;
    fwa_paths paths = {0};
    fwa_tokenizer *tokenizer = NULL;
    FWA_TRY(fwa_arguments_parse(&arguments, options, argc, argv));
    FWA_CHECK(arguments.count > 0, FWA_USAGE, "fwa data inspect: expected token shards (fwa help data)");
    FWA_TRY(fwa_arguments_integer(&arguments, "--samples", 3, 0, 1000000, &samples));
    FWA_TRY(fwa_arguments_integer(&arguments, "--length", 48, 1, 4096, &length));
    const char *standard = fwa_path_exists(DEFAULT_FOLDER) ? DEFAULT_FOLDER : NULL;
    const char *source = fwa_arguments_value(&arguments, "--tokenizer", standard);
    const char *json = fwa_arguments_value(&arguments, "--json", NULL);
    if (json) FWA_TRY(fwa_file_check_target("--json", json));
    if (source) FWA_TRY(fwa_tokenizer_open(&tokenizer, source));
    fwa_status status = FWA_ERROR;
    contents *c = calloc(1, sizeof *c);
    FWA_CHECK_GOTO(c, FWA_MEMORY, done, "no memory to inspect shards");
    c->tokenizer = tokenizer;
    c->mark = tokenizer ? fwa_tokenizer_document(tokenizer) : GPT2_DOCUMENT;
    for (int i = 0; i < arguments.count; i++)
        FWA_TRY_GOTO(fwa_paths_find(&paths, arguments.at[i], "token shards (*.bin)"), done);
    status = inspect(c, &paths, samples, length, json);
done:
    if (c) {
        fwa_shards_close(c->shards);
        free(c->start);
    }
    free(c);
    fwa_paths_free(&paths);
    fwa_tokenizer_close(tokenizer);
    return status;
}
