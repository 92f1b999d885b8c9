// The next token from logits.
#include "train/eval/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/rng.h"
#include "core/shape.h"

fwa_status fwa_sampler_open(fwa_sampler *s, const fwa_sampling *how, int64_t ids) {
    *s = (fwa_sampler){.how = *how, .ids = ids};
    s->weights = malloc((size_t)ids * sizeof *s->weights);
    s->heap = malloc((size_t)ids * sizeof *s->heap);
    FWA_CHECK(s->weights && s->heap, FWA_MEMORY, "no memory to draw from %lld ids", (long long)ids);
    return FWA_OK;
}

void fwa_sampler_close(fwa_sampler *s) {
    free(s->weights);
    free(s->heap);
    memset(s, 0, sizeof *s);
}

static fwa_status find_best(const double *logits, int64_t n, int64_t position, int32_t *best) {
    double top = -INFINITY;
    *best = -1;
    for (int64_t i = 0; i < n; i++) {
        FWA_CHECK(!isnan(logits[i]), FWA_NONFINITE, "the logit of token %lld is NaN at position %lld", (long long)i,
                  (long long)position);
        if (logits[i] <= top) continue;
        top = logits[i];
        *best = (int32_t)i;
    }
    FWA_CHECK(*best >= 0 && isfinite(top), FWA_NONFINITE, "the largest logit is %g at position %lld", top,
              (long long)position);
    return FWA_OK;
}

// Whether a stands in front of b.
static bool before(const fwa_sampler *s, int32_t a, int32_t b) {
    return s->weights[a] > s->weights[b] || (s->weights[a] == s->weights[b] && a < b);
}

static void sink(fwa_sampler *s, int64_t i, int64_t size) {
    int32_t *heap = s->heap, id = heap[i];
    for (int64_t child; (child = 2 * i + 1) < size; i = child) {
        if (child + 1 < size && before(s, heap[child + 1], heap[child])) child++;
        if (!before(s, heap[child], id)) break;
        heap[i] = heap[child];
    }
    heap[i] = id;
}

// Orders the most probable ids at the end of the heap, best last: `most` of them, fewer where they reach `mass`.
// Returns their number and the sum of their weights.
static int64_t order_best(fwa_sampler *s, int64_t most, double mass, double *sum) {
    int64_t size = s->ids, found = 0;
    for (int64_t i = 0; i < size; i++) s->heap[i] = (int32_t)i;
    for (int64_t i = size / 2; i-- > 0;) sink(s, i, size);
    *sum = 0.0;
    while (found < most && *sum < mass) {
        const int32_t id = s->heap[0];
        s->heap[0] = s->heap[--size];
        sink(s, 0, size);
        s->heap[size] = id;
        *sum += s->weights[id];
        found++;
    }
    return found;
}

// The id at which weights, summed in the order of the heap's end, pass `goal`.
static int32_t walk_best(const fwa_sampler *s, int64_t count, double goal) {
    const int32_t *best = s->heap + s->ids - 1; // downwards
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++) {
        sum += s->weights[best[-i]];
        if (sum > goal) return best[-i];
    }
    return best[1 - count];
}

static int32_t walk_all(const fwa_sampler *s, double goal) {
    double sum = 0.0;
    int32_t last = 0;
    for (int64_t i = 0; i < s->ids; i++) {
        if (s->weights[i] <= 0.0) continue;
        sum += s->weights[i];
        last = (int32_t)i;
        if (sum > goal) break;
    }
    return last;
}

// The first ids of those in order that have the share top_p of `sum`; *sum becomes theirs.
static int64_t cut_share(const fwa_sampler *s, int64_t count, double *sum) {
    const double goal = s->how.top_p * *sum;
    double kept = 0.0;
    int64_t n = 0;
    while (n < count && (n == 0 || kept < goal)) kept += s->weights[s->heap[s->ids - 1 - n++]];
    *sum = kept;
    return n;
}

fwa_status fwa_sampler_draw(fwa_sampler *s, const double *logits, int64_t position, int32_t *id) {
    const fwa_sampling *how = &s->how;
    int32_t best;
    FWA_TRY(find_best(logits, s->ids, position, &best));
    *id = best;
    if (how->temperature == 0.0) return FWA_OK;
    double sum = 0.0;
    for (int64_t i = 0; i < s->ids; i++) {
        s->weights[i] = exp((logits[i] - logits[best]) / how->temperature);
        sum += s->weights[i];
    }
    const double u = fwa_rng_uniform(how->seed, fwa_rng_hash("generate"), (uint64_t)position);
    const int64_t k = how->top_k > 0 ? fwa_min(how->top_k, s->ids) : s->ids;
    if (k == s->ids && how->top_p >= 1.0) {
        *id = walk_all(s, u * sum);
        return FWA_OK;
    }
    int64_t count = order_best(s, k, k == s->ids ? how->top_p * sum : INFINITY, &sum);
    if (k < s->ids && how->top_p < 1.0) count = cut_share(s, count, &sum);
    *id = walk_best(s, count, u * sum);
    return FWA_OK;
}
