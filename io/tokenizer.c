// A tokenizer: pieces of text, each a token by itself or encoded pair by pair; and back.
#include "io/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "io/bpe.h"
#include "io/pieces.h"
#include "io/vocabulary.h"

enum { BYTE_TOKENS = 257, BYTE_DOCUMENT = 256 };

struct fwa_tokenizer {
    fwa_vocabulary vocabulary;
    fwa_pattern *pattern;
    fwa_bpe *bpe;     // NULL: every byte is its own id
    uint8_t *reached; // [vocabulary]: encoding the token's own bytes gives this token
    char every_byte[256];
};

fwa_status fwa_tokens_reserve(fwa_tokens *tokens, size_t more) {
    if (tokens->capacity - tokens->count >= more) return FWA_OK;
    size_t capacity = tokens->capacity + tokens->capacity / 2;
    if (capacity < tokens->count + more) capacity = tokens->count + more;
    int32_t *at = realloc(tokens->at, capacity * sizeof *at);
    FWA_CHECK(at, FWA_MEMORY, "no memory for %zu tokens", capacity);
    tokens->at = at;
    tokens->capacity = capacity;
    return FWA_OK;
}

fwa_status fwa_text_append(fwa_text *text, const char *bytes, size_t count) {
    if (!text->at || text->capacity - text->count < count) {
        size_t capacity = text->capacity + text->capacity / 2;
        if (capacity < text->count + count) capacity = text->count + count;
        char *at = realloc(text->at, capacity + 1);
        FWA_CHECK(at, FWA_MEMORY, "no memory for %zu bytes of text", capacity);
        text->at = at;
        text->capacity = capacity;
    }
    if (count) memcpy(text->at + text->count, bytes, count);
    text->count += count;
    text->at[text->count] = '\0';
    return FWA_OK;
}

// Tokens that no merges lead to (special ones, or words added by hand) never stand for a piece.
static fwa_status find_reached(fwa_tokenizer *t) {
    const fwa_vocabulary *v = &t->vocabulary;
    fwa_tokens tokens = {0};
    fwa_status status = FWA_OK;
    t->reached = calloc((size_t)v->count, 1);
    FWA_CHECK(t->reached, FWA_MEMORY, "no memory for a tokenizer");
    for (int32_t id = 0; id < v->count && status == FWA_OK; id++) {
        tokens.count = 0;
        if (v->start[id] == v->start[id + 1]) continue;
        status =
            fwa_bpe_encode(t->bpe, v->bytes + v->start[id], v->start[id + 1] - v->start[id], FWA_BPE_WINDOW, &tokens);
        t->reached[id] = status == FWA_OK && tokens.count == 1 && tokens.at[0] == id;
    }
    free(tokens.at);
    return status;
}

static fwa_status open_folder(fwa_tokenizer *t, const char *folder) {
    FWA_TRY(fwa_vocabulary_read(&t->vocabulary, folder));
    FWA_TRY(fwa_pattern_create(&t->pattern));
    FWA_TRY(fwa_bpe_create(&t->bpe, &t->vocabulary));
    return find_reached(t);
}

fwa_status fwa_tokenizer_open(fwa_tokenizer **out, const char *source) {
    *out = NULL;
    fwa_tokenizer *t = calloc(1, sizeof *t);
    FWA_CHECK(t, FWA_MEMORY, "no memory for a tokenizer");
    for (int i = 0; i < 256; i++) t->every_byte[i] = (char)i;
    fwa_status status = strcmp(source, "bytes") == 0 ? FWA_OK : open_folder(t, source);
    if (status != FWA_OK) {
        fwa_tokenizer_close(t);
        return status;
    }
    *out = t;
    return FWA_OK;
}

void fwa_tokenizer_close(fwa_tokenizer *t) {
    if (!t) return;
    fwa_vocabulary_free(&t->vocabulary);
    fwa_pattern_destroy(t->pattern);
    fwa_bpe_destroy(t->bpe);
    free(t->reached);
    free(t);
}

int32_t fwa_tokenizer_vocab(const fwa_tokenizer *t) {
    return t->bpe ? t->vocabulary.count : BYTE_TOKENS;
}

int32_t fwa_tokenizer_document(const fwa_tokenizer *t) {
    return t->bpe ? t->vocabulary.document : BYTE_DOCUMENT;
}

static fwa_status encode_piece(const fwa_tokenizer *t, const char *piece, size_t bytes, fwa_tokens *out) {
    const int32_t id = fwa_vocabulary_find(&t->vocabulary, piece, bytes);
    if (id < 0 || !t->reached[id]) return fwa_bpe_encode(t->bpe, piece, bytes, FWA_BPE_WINDOW, out);
    FWA_TRY(fwa_tokens_reserve(out, 1));
    out->at[out->count++] = id;
    return FWA_OK;
}

static fwa_status encode_pieces(const fwa_tokenizer *t, fwa_pieces *pieces, const char *text, fwa_tokens *out) {
    for (;;) {
        size_t start, length;
        FWA_TRY(fwa_pieces_next(pieces, &start, &length));
        if (length == 0) return FWA_OK;
        FWA_TRY(encode_piece(t, text + start, length, out));
    }
}

static fwa_status encode_bytes(const char *text, size_t bytes, fwa_tokens *out) {
    FWA_TRY(fwa_tokens_reserve(out, bytes));
    for (size_t i = 0; i < bytes; i++) out->at[out->count++] = (unsigned char)text[i];
    return FWA_OK;
}

fwa_status fwa_tokenizer_encode(const fwa_tokenizer *t, const char *text, size_t bytes, fwa_tokens *out) {
    if (!t->bpe) return encode_bytes(text, bytes, out);
    const size_t before = out->count;
    fwa_pieces pieces;
    fwa_status status = fwa_pieces_begin(&pieces, t->pattern, text, bytes);
    if (status == FWA_OK) status = encode_pieces(t, &pieces, text, out);
    fwa_pieces_end(&pieces);
    if (status != FWA_OK) out->count = before;
    return status;
}

const char *fwa_tokenizer_token(const fwa_tokenizer *t, int32_t id, size_t *bytes) {
    static const char document[] = "<|endoftext|>";
    *bytes = 0;
    if (id < 0 || id >= fwa_tokenizer_vocab(t)) return NULL;
    if (t->bpe) {
        *bytes = t->vocabulary.start[id + 1] - t->vocabulary.start[id];
        return t->vocabulary.bytes + t->vocabulary.start[id];
    }
    *bytes = id == BYTE_DOCUMENT ? sizeof document - 1 : 1;
    return id == BYTE_DOCUMENT ? document : t->every_byte + id;
}

fwa_status fwa_tokenizer_decode(const fwa_tokenizer *t, const int32_t *ids, size_t count, fwa_text *out) {
    const size_t before = out->count;
    fwa_status status = FWA_OK;
    FWA_TRY(fwa_text_append(out, "", 0));
    for (size_t i = 0; i < count && status == FWA_OK; i++) {
        size_t bytes;
        const char *token = fwa_tokenizer_token(t, ids[i], &bytes);
        status = token ? fwa_text_append(out, token, bytes)
                       : fwa_error_raise(FWA_FORMAT, __FILE__, __LINE__, __func__,
                                         "token %d at position %zu: the tokenizer has ids 0 to %d; was this written "
                                         "with another one?",
                                         ids[i], i, fwa_tokenizer_vocab(t) - 1);
    }
    if (status != FWA_OK) {
        out->count = before;
        out->at[before] = '\0';
    }
    return status;
}
