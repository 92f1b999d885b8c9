// Text to token ids and back: GPT-2's byte-level BPE, or plain bytes.
//
// A tokenizer is read-only once open: any number of threads may use it at the same time. Text is bytes with a length,
// NUL bytes included. Every byte sequence can be encoded, and decoding gives back exactly these bytes. What is not
// UTF-8 is split as if each such byte were a character that is neither letter, digit nor space, and encoded as the byte
// it is; valid text gets GPT-2's own ids. Text that spells a special token, "<|endoftext|>", is ordinary text. Not
// collective.
#ifndef FWA_IO_TOKENIZER_H
#define FWA_IO_TOKENIZER_H

#include "core/status.h"
#include "core/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fwa_tokenizer fwa_tokenizer;

// Growing arrays. All zero is empty; the owner frees them. Nothing is lost where they cannot grow.
typedef struct fwa_tokens {
    int32_t *at;
    size_t count, capacity;
} fwa_tokens;
typedef struct fwa_text {
    char *at; // bytes[count], with a NUL behind them that does not count
    size_t count, capacity;
} fwa_text;

// `source` is "bytes" (ids 0..255, document mark 256) or a folder with GPT-2's encoder.json and vocab.bpe, or the same
// files as vocab.json and merges.txt. FWA_CONFIG where they are missing; FWA_FORMAT, naming file and entry, where ids
// are not 0..n-1 with n <= 65536, a byte or <|endoftext|> has no id, or a merge makes no token.
FWA_MUST_CHECK fwa_status fwa_tokenizer_open(fwa_tokenizer **out, const char *source);
void fwa_tokenizer_close(fwa_tokenizer *tokenizer);    // NULL is fine
int32_t fwa_tokenizer_vocab(const fwa_tokenizer *);    // ids are below it: 50257, or 257
int32_t fwa_tokenizer_document(const fwa_tokenizer *); // stands in front of every document: 50256, or 256
// Appends the ids of text[0..bytes) to *out, which does not change on failure. Encoding a text in parts gives the ids
// of the whole where each part but the first starts with ASCII white space and follows something else. Time is
// proportional to the length, also for text without a space; FWA_MEMORY is the only failure.
FWA_MUST_CHECK fwa_status fwa_tokenizer_encode(const fwa_tokenizer *, const char *text, size_t bytes, fwa_tokens *out);
// The bytes of one token, valid as long as the tokenizer; NULL for an id that it lacks.
const char *fwa_tokenizer_token(const fwa_tokenizer *, int32_t id, size_t *bytes);
// Appends the bytes of ids[0..count) to *out, which does not change on failure. FWA_FORMAT names id and position where
// the tokenizer lacks an id.
FWA_MUST_CHECK fwa_status fwa_tokenizer_decode(const fwa_tokenizer *, const int32_t *ids, size_t count, fwa_text *out);

// Room for `more` elements behind count.
FWA_MUST_CHECK fwa_status fwa_tokens_reserve(fwa_tokens *tokens, size_t more);
FWA_MUST_CHECK fwa_status fwa_text_append(fwa_text *text, const char *bytes, size_t count);

#ifdef __cplusplus
}
#endif
#endif
