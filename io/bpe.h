// Byte pair encoding of one piece of text: the pair of neighbours whose merge comes first in the list is merged, the
// leftmost of equals first, until no pair has a merge. Read-only once made. Private to io/.
#ifndef FWA_IO_BPE_H
#define FWA_IO_BPE_H

#include "io/tokenizer.h"
#include "io/vocabulary.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fwa_bpe fwa_bpe;

// Bytes of a piece that are encoded at once, the longer ones in windows of this size.
#define FWA_BPE_WINDOW ((size_t)65536)

// Keeps what it needs of `vocabulary`.
FWA_MUST_CHECK fwa_status fwa_bpe_create(fwa_bpe **out, const fwa_vocabulary *vocabulary);
void fwa_bpe_destroy(fwa_bpe *bpe);
// Appends the tokens of piece[0..bytes). The result does not depend on `window` (> 0), time and memory do: of n bytes
// n log(window), and 28 times the window.
FWA_MUST_CHECK fwa_status fwa_bpe_encode(const fwa_bpe *bpe, const char *piece, size_t bytes, size_t window,
                                         fwa_tokens *out);

#ifdef __cplusplus
}
#endif
#endif
