// GPT-2's splitting pattern on PCRE2.
#include "io/pieces.h"

#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "io/utf8.h"

// Unicode's White_Space property; \s would take U+180E as well. Runs of one class never need to give a character back,
// so they are possessive; only white space leaves its last character to a word behind it.
#define SPACE "\\t-\\r\\x{85}\\p{Z}"
#define PATTERN                                                                                                        \
    "'(?:[stmd]|re|ve|ll)| ?\\p{L}++| ?\\p{N}++| ?[^" SPACE "\\p{L}\\p{N}]++|[" SPACE "]+(?![^" SPACE "])|[" SPACE "]"

// What an invalid byte counts as: one byte that is neither space, letter nor digit.
#define MASK '\x01'

struct fwa_pattern {
    pcre2_code *code;
};

fwa_status fwa_pattern_create(fwa_pattern **out) {
    *out = NULL;
    int error;
    size_t place;
    fwa_pattern *p = calloc(1, sizeof *p);
    FWA_CHECK(p, FWA_MEMORY, "no memory for a tokenizer");
    p->code = pcre2_compile((PCRE2_SPTR)PATTERN, PCRE2_ZERO_TERMINATED,
                            PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED | PCRE2_NO_UTF_CHECK, &error, &place, NULL);
    if (!p->code) {
        free(p);
        FWA_FAIL(FWA_ERROR, "PCRE2 does not take the tokenizer's pattern: error %d at character %zu", error, place);
    }
    (void)pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE); // where it is not available, matching is interpreted
    *out = p;
    return FWA_OK;
}

void fwa_pattern_destroy(fwa_pattern *p) {
    if (!p) return;
    pcre2_code_free(p->code);
    free(p);
}

// The first byte at or behind `at` that is in no character; `bytes` if there is none.
static size_t find_invalid(const unsigned char *text, size_t at, size_t bytes) {
    while (at < bytes) {
        uint64_t word;
        if (bytes - at >= sizeof word) {
            memcpy(&word, text + at, sizeof word);
            if ((word & 0x8080808080808080u) == 0) {
                at += sizeof word;
                continue;
            }
        }
        const size_t length = fwa_utf8_bytes(text + at, bytes - at);
        if (length == 0) return at;
        at += length;
    }
    return bytes;
}

fwa_status fwa_pieces_begin(fwa_pieces *p, const fwa_pattern *pattern, const char *text, size_t bytes) {
    *p = (fwa_pieces){.pattern = pattern, .text = text, .bytes = bytes};
    const unsigned char *from = (const unsigned char *)text;
    p->match = pcre2_match_data_create(1, NULL);
    FWA_CHECK(p->match, FWA_MEMORY, "no memory to tokenize");
    size_t at = find_invalid(from, 0, bytes);
    if (at == bytes) return FWA_OK;
    p->masked = malloc(bytes);
    FWA_CHECK(p->masked, FWA_MEMORY, "no memory for %zu bytes of text", bytes);
    memcpy(p->masked, text, bytes);
    for (; at < bytes; at = find_invalid(from, at + 1, bytes)) p->masked[at] = MASK;
    p->text = p->masked;
    return FWA_OK;
}

fwa_status fwa_pieces_next(fwa_pieces *p, size_t *start, size_t *length) {
    *start = p->at;
    *length = 0;
    if (p->at == p->bytes) return FWA_OK;
    int found = pcre2_match(p->pattern->code, (PCRE2_SPTR)p->text, p->bytes, p->at, PCRE2_NO_UTF_CHECK, p->match, NULL);
    const PCRE2_SIZE *bounds = pcre2_get_ovector_pointer(p->match);
    FWA_CHECK(found > 0 && bounds[1] > p->at, FWA_MEMORY, "PCRE2 cannot split %zu bytes of text: error %d",
              p->bytes - p->at, found);
    *length = bounds[1] - p->at;
    p->at = bounds[1];
    return FWA_OK;
}

void fwa_pieces_end(fwa_pieces *p) {
    free(p->masked);
    pcre2_match_data_free(p->match);
    *p = (fwa_pieces){0};
}
