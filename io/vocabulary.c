// Reads encoder.json and vocab.bpe. Both spell a byte as a printable character: itself where it is printable in
// Latin-1, the code points from 256 on, in order, for the other bytes.
#include "io/vocabulary.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>
#include <xxhash.h>

#include "io/files.h"

#define SPELLED      512 // code points that may stand for a byte are below
#define MAX_TOKENS   65536
#define DOCUMENT     "<|endoftext|>"
#define VOCAB_HINT   "copy GPT-2's encoder.json and vocab.bpe anew"
#define SHOWN_LENGTH 40 // of an entry in a message

// byte_of[code point]: the byte that it spells, or -1.
static void make_spelling(int byte_of[SPELLED]) {
    for (int i = 0; i < SPELLED; i++) byte_of[i] = -1;
    for (int byte = 0, next = 256; byte < 256; byte++) {
        bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
        byte_of[printable ? byte : next++] = byte;
    }
}

// Bytes that text[0..count), UTF-8, spells, into `out` (count bytes are enough); -1 if a character spells none.
static int64_t unspell(const int byte_of[SPELLED], const char *text, size_t count, char *out) {
    int64_t length = 0;
    for (size_t i = 0; i < count; length++) {
        unsigned c = (unsigned char)text[i++];
        if (c >= 0xC0 && c < 0xE0 && i < count) c = (c & 31u) << 6 | ((unsigned char)text[i++] & 63u);
        if (c >= SPELLED || byte_of[c] < 0) return -1;
        out[length] = (char)byte_of[c];
    }
    return length;
}

// A slot holds the upper half of the hash and id + 1.
int32_t fwa_vocabulary_find(const fwa_vocabulary *v, const char *bytes, size_t count) {
    const uint64_t hash = XXH3_64bits(bytes, count);
    for (uint32_t at = (uint32_t)hash & v->slot_mask;; at = (at + 1) & v->slot_mask) {
        if (v->slots[at] == 0) return -1;
        if ((v->slots[at] ^ hash) >> 32 != 0) continue;
        const uint32_t id = (uint32_t)v->slots[at] - 1, start = v->start[id];
        if (v->start[id + 1] - start == count && memcmp(v->bytes + start, bytes, count) == 0) return (int32_t)id;
    }
}

static void insert(fwa_vocabulary *v, int32_t id) {
    const uint64_t hash = XXH3_64bits(v->bytes + v->start[id], v->start[id + 1] - v->start[id]);
    uint32_t at = (uint32_t)hash & v->slot_mask;
    while (v->slots[at] != 0) at = (at + 1) & v->slot_mask;
    v->slots[at] = hash >> 32 << 32 | ((uint32_t)id + 1);
}

// The names of the tokens in the order of their ids: names[count], borrowed from `root`.
static fwa_status sort_names(const char *path, json_t *root, const char **names, size_t count) {
    const char *name;
    json_t *value;
    json_object_foreach(root, name, value) {
        FWA_CHECK(json_is_integer(value) && json_integer_value(value) >= 0 &&
                      (uint64_t)json_integer_value(value) < count,
                  FWA_FORMAT,
                  "%s: the id of \"%.*s\" is %" PRId64
                  ": expected a whole number below %zu, the number of tokens; " VOCAB_HINT,
                  path, SHOWN_LENGTH, name, (int64_t)json_integer_value(value), count);
        const char **place = &names[json_integer_value(value)];
        FWA_CHECK(!*place, FWA_FORMAT, "%s: \"%.*s\" and \"%.*s\" have the same id %" PRId64 "; " VOCAB_HINT, path,
                  SHOWN_LENGTH, *place, SHOWN_LENGTH, name, (int64_t)json_integer_value(value));
        *place = name;
    }
    return FWA_OK;
}

// Bytes of every token; those whose name spells no bytes are special and stand for their name.
static fwa_status fill_tokens(fwa_vocabulary *v, const char *path, const char **names) {
    int byte_of[SPELLED];
    size_t total = 0;
    uint32_t slots = 1;
    make_spelling(byte_of);
    for (int32_t id = 0; id < v->count; id++) total += strlen(names[id]);
    FWA_CHECK(total < UINT32_MAX, FWA_FORMAT, "%s: %zu bytes of tokens: expected less than 4 GiB", path, total);
    while (slots < 2u * (uint32_t)v->count) slots *= 2;
    v->slot_mask = slots - 1;
    v->bytes = malloc(total + 1);
    v->start = calloc((size_t)v->count + 1, sizeof *v->start);
    v->slots = calloc(slots, sizeof *v->slots);
    FWA_CHECK(v->bytes && v->start && v->slots, FWA_MEMORY, "no memory for the tokens of %s", path);
    for (int32_t id = 0; id < v->count; id++) {
        char *to = v->bytes + v->start[id];
        const size_t length = strlen(names[id]);
        int64_t bytes = strcmp(names[id], DOCUMENT) == 0 ? -1 : unspell(byte_of, names[id], length, to);
        if (bytes < 0) memcpy(to, names[id], length);
        v->start[id + 1] = v->start[id] + (uint32_t)(bytes < 0 ? (int64_t)length : bytes);
        if (strcmp(names[id], DOCUMENT) == 0)
            v->document = id;
        else
            insert(v, id);
    }
    return FWA_OK;
}

static fwa_status check_tokens(fwa_vocabulary *v, const char *path) {
    FWA_CHECK(v->document >= 0, FWA_FORMAT, "%s: has no " DOCUMENT ", which stands in front of documents; " VOCAB_HINT,
              path);
    for (int byte = 0; byte < 256; byte++) {
        const char text = (char)byte;
        v->byte_id[byte] = fwa_vocabulary_find(v, &text, 1);
        FWA_CHECK(v->byte_id[byte] >= 0, FWA_FORMAT,
                  "%s: has no token for byte 0x%02X: expected one for each of the "
                  "256 bytes; " VOCAB_HINT,
                  path, byte);
    }
    return FWA_OK;
}

static fwa_status read_tokens(fwa_vocabulary *v, const char *path) {
    json_error_t error;
    const char **names = NULL;
    fwa_status status;
    FWA_TRY(fwa_input_check(path, FWA_INPUT_FILE));
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    FWA_CHECK(root, FWA_FORMAT, "%s:%d: %s; " VOCAB_HINT, path, error.line, error.text);
    const size_t count = json_object_size(root);
    FWA_CHECK_GOTO(json_is_object(root) && count > 0 && count <= MAX_TOKENS, FWA_FORMAT, done,
                   "%s: expected an object of 1 to %d tokens with their ids, got %zu; " VOCAB_HINT, path, MAX_TOKENS,
                   count);
    v->count = (int32_t)count;
    names = calloc(count, sizeof *names);
    FWA_CHECK_GOTO(names, FWA_MEMORY, done, "no memory for %zu names of %s", count, path);
    FWA_TRY_GOTO(sort_names(path, root, names, count), done);
    FWA_TRY_GOTO(fill_tokens(v, path, names), done);
    FWA_TRY_GOTO(check_tokens(v, path), done);
done:
    free(names);
    json_decref(root);
    return status;
}

// One line "LEFT RIGHT" of spelled tokens; `bytes` has room for it.
static fwa_status read_merge(fwa_vocabulary *v, const int byte_of[SPELLED], const char *path, int number,
                             const char *line, size_t length, char *bytes) {
    const char *space = memchr(line, ' ', length);
    int64_t left = -1, right = -1;
    fwa_merge merge = {-1, -1, -1};
    if (space) {
        left = unspell(byte_of, line, (size_t)(space - line), bytes);
        if (left > 0) right = unspell(byte_of, space + 1, length - (size_t)(space - line) - 1, bytes + left);
    }
    if (left > 0 && right > 0) {
        merge.left = fwa_vocabulary_find(v, bytes, (size_t)left);
        merge.right = fwa_vocabulary_find(v, bytes + left, (size_t)right);
        merge.merged = fwa_vocabulary_find(v, bytes, (size_t)(left + right));
    }
    FWA_CHECK(merge.left >= 0 && merge.right >= 0 && merge.merged >= 0, FWA_FORMAT,
              "%s:%d: got \"%.*s\": expected two tokens with one space between them that make a third; do both files "
              "belong together? " VOCAB_HINT,
              path, number, (int)(length < SHOWN_LENGTH ? length : SHOWN_LENGTH), line);
    v->merges[v->merge_count++] = merge;
    return FWA_OK;
}

static fwa_status read_lines(fwa_vocabulary *v, const char *path, const char *text) {
    int byte_of[SPELLED], number = 1;
    int32_t lines = 1;
    make_spelling(byte_of);
    for (const char *c = text; *c; c++) lines += *c == '\n';
    char *bytes = malloc(strlen(text) + 1);
    v->merges = malloc((size_t)lines * sizeof *v->merges);
    fwa_status status;
    FWA_CHECK_GOTO(bytes && v->merges, FWA_MEMORY, done, "no memory for the merges of %s", path);
    status = FWA_OK;
    for (const char *line = text, *end; *line; line = end + (*end == '\n'), number++) {
        end = line + strcspn(line, "\n");
        const size_t length = (size_t)(end - line) - (end > line && end[-1] == '\r');
        if (length == 0 || (number == 1 && strncmp(line, "#version", 8) == 0)) continue;
        FWA_TRY_GOTO(read_merge(v, byte_of, path, number, line, length, bytes), done);
    }
done:
    free(bytes);
    return status;
}

// The file in `folder` with one of two names.
static fwa_status locate(char path[FWA_PATH_MAX], const char *folder, const char *name, const char *other) {
    FWA_TRY(fwa_path_format(path, "%s/%s", folder, other));
    if (fwa_path_exists(path)) return FWA_OK;
    FWA_TRY(fwa_path_format(path, "%s/%s", folder, name));
    FWA_CHECK(fwa_path_exists(path), FWA_CONFIG,
              "the tokenizer's folder %s has no %s (or %s): expected GPT-2's encoder.json and vocab.bpe there; give "
              "another folder, or bytes, with --tokenizer",
              folder, name, other);
    return FWA_OK;
}

fwa_status fwa_vocabulary_read(fwa_vocabulary *v, const char *folder) {
    char tokens[FWA_PATH_MAX], merges[FWA_PATH_MAX], *text = NULL;
    memset(v, 0, sizeof *v);
    v->document = -1;
    FWA_TRY(locate(tokens, folder, "encoder.json", "vocab.json"));
    FWA_TRY(locate(merges, folder, "vocab.bpe", "merges.txt"));
    FWA_TRY(read_tokens(v, tokens));
    FWA_TRY(fwa_read_text(merges, &text));
    fwa_status status = read_lines(v, merges, text);
    free(text);
    return status;
}

void fwa_vocabulary_free(fwa_vocabulary *v) {
    free(v->bytes);
    free(v->start);
    free(v->slots);
    free(v->merges);
    memset(v, 0, sizeof *v);
}
