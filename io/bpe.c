// Byte pair encoding in three sizes. Short pieces, nearly all there are: the best pair is looked for among all. Longer
// ones: pairs wait in a heap by (rank, position), so that n bytes take n log n. Pieces beyond a window: one window
// after the other, joined where the result is that of the whole.
//
// Why windows can be joined: let every merge be of tokens that earlier merges made, each token by one merge only. A
// sequence of tokens is the encoding of its text exactly if every two neighbours are the encoding of theirs, because
// the first merge that would cross a border between tokens is decided by the two tokens at this border alone.
#include "io/bpe.h"

#include <stdlib.h>
#include <string.h>

#define NO_RANK UINT32_MAX
#define SHORT   64 // bytes up to which looking at all pairs is faster than a heap
#define NOWHERE UINT32_MAX

typedef struct ranked_pair {
    uint32_t key; // left << 16 | right
    uint32_t rank;
} ranked_pair;

struct fwa_bpe {
    ranked_pair *pairs; // open hash; rank NO_RANK is a free slot
    uint32_t mask, shift;
    int32_t *merged;  // [rank]
    uint32_t *length; // [token], bytes
    int32_t byte_id[256];
    bool ordered; // windows may be joined
};

static uint32_t slot_of(const fwa_bpe *b, uint32_t key) {
    return (key * 2654435769u) >> b->shift;
}

static uint32_t pair_rank(const fwa_bpe *b, int32_t left, int32_t right) {
    const uint32_t key = (uint32_t)left << 16 | (uint32_t)right;
    for (uint32_t at = slot_of(b, key);; at = (at + 1) & b->mask) {
        if (b->pairs[at].rank == NO_RANK) return NO_RANK;
        if (b->pairs[at].key == key) return b->pairs[at].rank;
    }
}

static void add_pair(fwa_bpe *b, const fwa_merge *merge, uint32_t rank) {
    const uint32_t key = (uint32_t)merge->left << 16 | (uint32_t)merge->right;
    uint32_t at = slot_of(b, key);
    for (; b->pairs[at].rank != NO_RANK; at = (at + 1) & b->mask)
        if (b->pairs[at].key == key) return; // the first of two
    b->pairs[at] = (ranked_pair){key, rank};
}

// Whether every merge joins tokens that exist by then and makes one that does not. `made` [tokens] is zero.
static bool is_ordered(const fwa_vocabulary *v, bool *made) {
    for (int byte = 0; byte < 256; byte++) made[v->byte_id[byte]] = true;
    for (int32_t i = 0; i < v->merge_count; i++) {
        const fwa_merge *m = &v->merges[i];
        if (!made[m->left] || !made[m->right] || made[m->merged]) return false;
        made[m->merged] = true;
    }
    return true;
}

static fwa_status fill(fwa_bpe *b, const fwa_vocabulary *v) {
    uint32_t bits = 1;
    while (1u << bits < 3u * (uint32_t)v->merge_count) bits++;
    b->mask = (1u << bits) - 1;
    b->shift = 32 - bits;
    b->pairs = malloc(((size_t)b->mask + 1) * sizeof *b->pairs);
    b->merged = malloc(((size_t)v->merge_count + 1) * sizeof *b->merged);
    b->length = malloc((size_t)v->count * sizeof *b->length);
    bool *made = calloc((size_t)v->count, sizeof *made);
    if (!b->pairs || !b->merged || !b->length || !made) {
        free(made);
        FWA_FAIL(FWA_MEMORY, "no memory for %d merges", v->merge_count);
    }
    memset(b->pairs, 0xFF, ((size_t)b->mask + 1) * sizeof *b->pairs);
    for (int32_t i = 0; i < v->merge_count; i++) {
        add_pair(b, &v->merges[i], (uint32_t)i);
        b->merged[i] = v->merges[i].merged;
    }
    for (int32_t i = 0; i < v->count; i++) b->length[i] = v->start[i + 1] - v->start[i];
    memcpy(b->byte_id, v->byte_id, sizeof b->byte_id);
    b->ordered = is_ordered(v, made);
    free(made);
    return FWA_OK;
}

fwa_status fwa_bpe_create(fwa_bpe **out, const fwa_vocabulary *vocabulary) {
    *out = NULL;
    fwa_bpe *b = calloc(1, sizeof *b);
    FWA_CHECK(b, FWA_MEMORY, "no memory for a tokenizer");
    fwa_status status = fill(b, vocabulary);
    if (status != FWA_OK) {
        fwa_bpe_destroy(b);
        return status;
    }
    *out = b;
    return FWA_OK;
}

void fwa_bpe_destroy(fwa_bpe *b) {
    if (!b) return;
    free(b->pairs);
    free(b->merged);
    free(b->length);
    free(b);
}

// ids[0..n) of n <= SHORT bytes; returns how many are left.
static size_t merge_short(const fwa_bpe *b, const char *piece, size_t n, int32_t *ids) {
    uint32_t rank[SHORT];
    for (size_t i = 0; i < n; i++) ids[i] = b->byte_id[(unsigned char)piece[i]];
    for (size_t i = 0; i + 1 < n; i++) rank[i] = pair_rank(b, ids[i], ids[i + 1]);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best]) best = i;
        if (rank[best] == NO_RANK) break;
        ids[best] = b->merged[rank[best]];
        for (size_t i = best + 1; i + 1 < n; i++) ids[i] = ids[i + 1];
        for (size_t i = best; i + 2 < n; i++) rank[i] = rank[i + 1];
        n--;
        if (best + 1 < n) rank[best] = pair_rank(b, ids[best], ids[best + 1]);
        if (best > 0) rank[best - 1] = pair_rank(b, ids[best - 1], ids[best]);
    }
    return n;
}

// A piece as a list of tokens linked by the positions of their first bytes, and its pairs in a heap.
typedef struct linked {
    int32_t *id;             // [n], -1 where a token has been swallowed by the one on its left
    uint32_t *next, *before; // [n]
    uint64_t *heap;          // [2n], rank << 32 | position of the left token; may hold pairs that are gone
    size_t count;
} linked;

static void push(linked *l, uint64_t value) {
    size_t at = l->count++;
    for (; at > 0 && l->heap[(at - 1) / 2] > value; at = (at - 1) / 2) l->heap[at] = l->heap[(at - 1) / 2];
    l->heap[at] = value;
}

static uint64_t pop(linked *l) {
    const uint64_t first = l->heap[0], last = l->heap[--l->count];
    size_t at = 0;
    for (size_t child = 1; child < l->count; child = 2 * at + 1) {
        if (child + 1 < l->count && l->heap[child + 1] < l->heap[child]) child++;
        if (l->heap[child] >= last) break;
        l->heap[at] = l->heap[child];
        at = child;
    }
    l->heap[at] = last;
    return first;
}

static void push_pair(const fwa_bpe *b, linked *l, uint32_t at) {
    if (l->next[at] == NOWHERE) return;
    const uint32_t rank = pair_rank(b, l->id[at], l->id[l->next[at]]);
    if (rank != NO_RANK) push(l, (uint64_t)rank << 32 | at);
}

static void merge_linked(const fwa_bpe *b, linked *l) {
    while (l->count > 0) {
        const uint64_t value = pop(l);
        const uint32_t rank = (uint32_t)(value >> 32), at = (uint32_t)value, right = l->next[at];
        if (l->id[at] < 0 || right == NOWHERE || pair_rank(b, l->id[at], l->id[right]) != rank) continue;
        l->id[at] = b->merged[rank];
        l->id[right] = -1;
        l->next[at] = l->next[right];
        if (l->next[at] != NOWHERE) l->before[l->next[at]] = at;
        push_pair(b, l, at);
        if (l->before[at] != NOWHERE) push_pair(b, l, l->before[at]);
    }
}

static fwa_status encode_heap(const fwa_bpe *b, const char *piece, size_t n, fwa_tokens *out) {
    FWA_CHECK(n < NOWHERE, FWA_MEMORY, "no memory for a piece of %zu bytes without a break", n);
    linked l = {malloc(n * sizeof *l.id), malloc(n * sizeof *l.next), malloc(n * sizeof *l.before),
                malloc(2 * n * sizeof *l.heap), 0};
    fwa_status status;
    FWA_CHECK_GOTO(l.id && l.next && l.before && l.heap, FWA_MEMORY, done,
                   "no memory for a piece of %zu bytes without a break", n);
    FWA_TRY_GOTO(fwa_tokens_reserve(out, n), done);
    for (size_t i = 0; i < n; i++) {
        l.id[i] = b->byte_id[(unsigned char)piece[i]];
        l.next[i] = i + 1 < n ? (uint32_t)i + 1 : NOWHERE;
        l.before[i] = i > 0 ? (uint32_t)i - 1 : NOWHERE;
    }
    for (size_t i = 0; i < n; i++) push_pair(b, &l, (uint32_t)i);
    merge_linked(b, &l);
    for (size_t i = 0; i < n; i++)
        if (l.id[i] >= 0) out->at[out->count++] = l.id[i];
done:
    free(l.id);
    free(l.next);
    free(l.before);
    free(l.heap);
    return status;
}

static fwa_status encode_window(const fwa_bpe *b, const char *piece, size_t n, fwa_tokens *out) {
    if (n > SHORT) return encode_heap(b, piece, n, out);
    FWA_TRY(fwa_tokens_reserve(out, n));
    out->count += merge_short(b, piece, n, out->at + out->count);
    return FWA_OK;
}

// Whether tokens left and right, whose bytes start at `text`, are the encoding of these bytes.
static fwa_status are_neighbours(const fwa_bpe *b, const char *text, int32_t left, int32_t right, fwa_tokens *work,
                                 bool *yes) {
    work->count = 0;
    FWA_TRY(encode_window(b, text, (size_t)b->length[left] + b->length[right], work));
    *yes = work->count == 2 && work->at[0] == left && work->at[1] == right;
    return FWA_OK;
}

// The tokens of `out` from `first` on encode piece[0..start). A window starts `step` tokens before the end of what is
// encoded and replaces these; where it does not fit what stands in front, the next one starts earlier and ends later,
// at last it is the whole piece.
static fwa_status encode_windows(const fwa_bpe *b, const char *piece, size_t n, size_t window, fwa_tokens *out,
                                 fwa_tokens *work) {
    const size_t first = out->count, least = 4;
    size_t start = 0, done = 0, size = window, step = least;
    while (done < n) {
        for (size_t i = 0; i < step && out->count > first; i++) start -= b->length[out->at[--out->count]];
        const size_t joint = out->count, end = size < n - done ? done + size : n;
        FWA_TRY(encode_window(b, piece + start, end - start, out));
        bool fits = true;
        if (joint > first) {
            const int32_t left = out->at[joint - 1];
            FWA_TRY(are_neighbours(b, piece + start - b->length[left], left, out->at[joint], work, &fits));
        }
        if (fits) {
            start = done = end;
            size = window;
            step = least;
        } else {
            out->count = joint;
            size *= 2;
            step *= 2;
        }
    }
    return FWA_OK;
}

fwa_status fwa_bpe_encode(const fwa_bpe *b, const char *piece, size_t bytes, size_t window, fwa_tokens *out) {
    if (bytes <= window || !b->ordered) return encode_window(b, piece, bytes, out);
    fwa_tokens work = {0};
    fwa_status status = encode_windows(b, piece, bytes, window, out, &work);
    free(work.at);
    return status;
}
