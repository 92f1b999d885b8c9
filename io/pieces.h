// Cuts text into the pieces that byte pair encoding works on, by GPT-2's pattern: contractions, and runs of letters,
// digits, other characters and white space. Classes of characters are those of PCRE2's version of Unicode. Private to
// io/.
#ifndef FWA_IO_PIECES_H
#define FWA_IO_PIECES_H

#include "core/status.h"
#include "core/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fwa_pattern fwa_pattern; // compiled once, read-only

FWA_MUST_CHECK fwa_status fwa_pattern_create(fwa_pattern **out);
void fwa_pattern_destroy(fwa_pattern *pattern);

// One pass over a text.
typedef struct fwa_pieces {
    const fwa_pattern *pattern;
    const char *text; // what is matched: the caller's, or `masked`
    char *masked;     // a copy with bytes that are not UTF-8 replaced; owned
    size_t bytes, at;
    void *match; // owned
} fwa_pieces;

// `text` must stay until fwa_pieces_end, which is called after a failure too.
FWA_MUST_CHECK fwa_status fwa_pieces_begin(fwa_pieces *pieces, const fwa_pattern *pattern, const char *text,
                                           size_t bytes);
// The next piece is text[*start .. *start + *length); *length 0 at the end.
FWA_MUST_CHECK fwa_status fwa_pieces_next(fwa_pieces *pieces, size_t *start, size_t *length);
void fwa_pieces_end(fwa_pieces *pieces);

#ifdef __cplusplus
}
#endif
#endif
