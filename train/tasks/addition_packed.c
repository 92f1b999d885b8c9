// Updates of addition examples as packed sequences.
#include "train/tasks/addition_packed.h"

#include <inttypes.h>

#include "core/shape.h"
#include "train/tasks/packing.h"

static fwa_status create_packing(fwa_packing *out, const fwa_addition_packed *p) {
    const fwa_addition_draws *draws = &p->draws[FWA_SPLIT_TRAIN];
    return fwa_packing_create(out, p->examples, fwa_addition_length(draws->format, draws->width_max) - 1, p->T);
}

static void lay_update(fwa_packing *packing, const fwa_addition_packed *p, fwa_split split, int64_t update) {
    for (int64_t i = 0; i < p->examples; i++)
        packing->length[i] = (int32_t)fwa_addition_places(&p->draws[split], update * p->examples + i);
    fwa_packing_lay(packing);
}

static const char *const split_name[2] = {[FWA_SPLIT_TRAIN] = "training", [FWA_SPLIT_VAL] = "validation"};

static fwa_status does_not_fit(const fwa_addition_packed *p, fwa_split split, int64_t update, int64_t rows,
                               const char *remedy) {
    FWA_FAIL(FWA_CONFIG,
             "train.global_batch is %" PRId64 ", but the %" PRId64 " example%s (task.examples) of %s update %" PRId64
             " need %" PRId64 " sequences of train.seq_len %" PRId64 "; %s",
             p->sequences, p->examples, fwa_plural(p->examples), split_name[split], update + 1, rows, p->T, remedy);
}

fwa_status fwa_addition_packed_check(const fwa_addition_packed *p, const int64_t updates[2]) {
    char remedy[160];
    fwa_packing packing;
    int64_t first = -1, first_rows = 0, most = 0;
    fwa_split first_split = FWA_SPLIT_TRAIN;
    FWA_TRY(create_packing(&packing, p));
    for (int split = 0; split < 2; split++)
        for (int64_t n = 0; n < updates[split]; n++) {
            lay_update(&packing, p, (fwa_split)split, n);
            most = fwa_max(most, packing.rows);
            if (packing.rows <= p->sequences || first >= 0) continue;
            first = n;
            first_rows = packing.rows;
            first_split = (fwa_split)split;
        }
    fwa_packing_destroy(&packing);
    if (first < 0) return FWA_OK;
    snprintf(remedy, sizeof remedy,
             "the smallest train.global_batch that holds every update of this run is %" PRId64
             " (or choose a larger train.seq_len)",
             most);
    return does_not_fit(p, first_split, first, first_rows, remedy);
}

// The part of an update that lies in rows first .. first+count-1.
static void write_rows(const fwa_packing *packing, const fwa_addition_packed *p, fwa_split split, int64_t update,
                       int64_t first, int64_t count, int32_t *tokens, int32_t *targets) {
    for (int64_t i = 0; i < count * p->T; i++) {
        tokens[i] = FWA_ADDITION_PAD;
        targets[i] = FWA_NO_TARGET;
    }
    for (int64_t i = 0; i < p->examples; i++) {
        const int64_t row = packing->row[i] - first, at = row * p->T + packing->start[i];
        if (row < 0 || row >= count) continue;
        fwa_addition_write(&p->draws[split], update * p->examples + i, packing->length[i], tokens + at, targets + at);
    }
}

static fwa_status fill(fwa_packing *packing, const fwa_addition_packed *p, fwa_split split, int64_t first,
                       int64_t count, int32_t *tokens, int32_t *targets) {
    int64_t taken;
    for (int64_t i = first; i < first + count; i += taken) {
        const int64_t update = i / p->sequences, row = i % p->sequences;
        taken = fwa_min(p->sequences - row, first + count - i);
        lay_update(packing, p, split, update);
        if (packing->rows > p->sequences)
            return does_not_fit(p, split, update, packing->rows, "choose a larger train.global_batch or train.seq_len");
        write_rows(packing, p, split, update, row, taken, tokens, targets);
        tokens += taken * p->T;
        targets += taken * p->T;
    }
    return FWA_OK;
}

fwa_status fwa_addition_packed_fill(const fwa_addition_packed *p, fwa_split split, int64_t first, int64_t count,
                                    int32_t *tokens, int32_t *targets) {
    fwa_packing packing;
    FWA_CHECK(first >= 0 && first / p->sequences < INT64_MAX / p->examples, FWA_USAGE,
              "sequence number %" PRId64 "; expected one >= 0 whose examples have numbers", first);
    FWA_TRY(create_packing(&packing, p));
    fwa_status status = fill(&packing, p, split, first, count, tokens, targets);
    fwa_packing_destroy(&packing);
    return status;
}
