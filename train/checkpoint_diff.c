// Two checkpoints side by side, one tensor in memory at a time.
#include "train/checkpoint_diff.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/config.h"

typedef struct comparison {
    fwa_checkpoint *a, *b;
    double tolerance;
    FILE *out;
    int equal, close, different; // tensors
    bool state_differs;
} comparison;

static int find(const fwa_checkpoint *checkpoint, const char *name) {
    for (int i = 0; i < fwa_checkpoint_count(checkpoint); i++)
        if (strcmp(fwa_checkpoint_name(checkpoint, i), name) == 0) return i;
    return -1;
}

// Both hold all values, dense.
static void compare_values(comparison *c, const char *part, const fwa_named_tensor *a, const fwa_named_tensor *b) {
    const int64_t count = fwa_tensor_count(a->tensor);
    int64_t differ = 0, at = 0;
    double most = 0.0, squares = 0.0, size = 0.0;
    for (int64_t i = 0; i < count; i++) {
        const double x = fwa_tensor_real(a->tensor, i), y = fwa_tensor_real(b->tensor, i), apart = fabs(x - y);
        size += y * y;
        if (x == y && signbit(x) == signbit(y)) continue;
        differ++;
        squares += apart * apart;
        if (!(apart <= most)) {
            most = apart;
            at = i;
        }
    }
    const double error = differ ? sqrt(squares) / (size > 0.0 ? sqrt(size) : 1.0) : 0.0;
    c->equal += differ == 0;
    c->close += differ > 0 && error <= c->tolerance;
    if (differ == 0 || error <= c->tolerance) return;
    c->different++;
    fprintf(c->out,
            "%s/%s: differs in %" PRId64 " of %" PRId64 " value%s, relative RMS %.3g; most at %" PRId64
            ": %.9g and %.9g\n",
            part, a->name, differ, count, fwa_plural(count), error, at, fwa_tensor_real(a->tensor, at),
            fwa_tensor_real(b->tensor, at));
}

static fwa_status compare_part(comparison *c, fwa_checkpoint_part part, int ia, int ib) {
    const char *name = fwa_checkpoint_part_name(part);
    const fwa_named_tensor *a = fwa_checkpoint_about(c->a, ia), *b = fwa_checkpoint_about(c->b, ib);
    const bool in_a = fwa_checkpoint_has(c->a, part, ia), in_b = fwa_checkpoint_has(c->b, part, ib);
    if (!in_a && !in_b) return FWA_OK;
    if (in_a != in_b || !fwa_named_tensor_alike(a, b)) {
        char one[96], other[96];
        c->different++;
        fprintf(c->out, "%s/%s: %s and %s\n", name, a->name, in_a ? fwa_tensor_text(a->tensor, one) : "none",
                in_b ? fwa_tensor_text(b->tensor, other) : "none");
        return FWA_OK;
    }
    fwa_named_tensor one, other;
    FWA_TRY(fwa_checkpoint_read_whole(c->a, part, ia, &one));
    const fwa_status status = fwa_checkpoint_read_whole(c->b, part, ib, &other);
    if (status == FWA_OK) compare_values(c, name, &one, &other);
    free(one.tensor.data);
    free(other.tensor.data);
    return status;
}

static fwa_status compare_tensors(comparison *c) {
    for (int i = 0; i < fwa_checkpoint_count(c->a); i++) {
        const int other = find(c->b, fwa_checkpoint_name(c->a, i));
        if (other < 0) {
            c->different++;
            fprintf(c->out, "%s: in the first alone\n", fwa_checkpoint_name(c->a, i));
            continue;
        }
        for (int part = 0; part < FWA_PART_COUNT; part++) FWA_TRY(compare_part(c, (fwa_checkpoint_part)part, i, other));
    }
    for (int i = 0; i < fwa_checkpoint_count(c->b); i++) {
        if (find(c->a, fwa_checkpoint_name(c->b, i)) >= 0) continue;
        c->different++;
        fprintf(c->out, "%s: in the second alone\n", fwa_checkpoint_name(c->b, i));
    }
    return FWA_OK;
}

static void compare_integer(comparison *c, const char *name, int64_t a, int64_t b) {
    if (a == b) return;
    c->state_differs = true;
    fprintf(c->out, "%s: %" PRId64 " and %" PRId64 "\n", name, a, b);
}

static void compare_real(comparison *c, const char *name, double a, double b) {
    if (a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= c->tolerance * fabs(b)) return;
    c->state_differs = true;
    fprintf(c->out, "%s: %.17g and %.17g\n", name, a, b);
}

static void compare_state(comparison *c) {
    const fwa_checkpoint_state *a = fwa_checkpoint_get_state(c->a), *b = fwa_checkpoint_get_state(c->b);
    compare_integer(c, "step", a->step, b->step);
    compare_integer(c, "tokens", a->tokens, b->tokens);
    compare_integer(c, "accepted", a->accepted, b->accepted);
    compare_integer(c, "skipped", a->skipped, b->skipped);
    compare_integer(c, "skipped_in_a_row", a->skipped_in_a_row, b->skipped_in_a_row);
    compare_real(c, "norm_mean", a->norm_mean, b->norm_mean);
    compare_integer(c, "seed", a->seed, b->seed);
    compare_integer(c, "epoch", a->epoch, b->epoch);
    compare_real(c, "best_val_loss", a->best_val_loss, b->best_val_loss);
    if (a->data_fingerprint == b->data_fingerprint) return;
    c->state_differs = true;
    fprintf(c->out, "data_fingerprint: %016" PRIx64 " and %016" PRIx64 "\n", a->data_fingerprint, b->data_fingerprint);
}

// What defines the run; keys that may change when a run goes on are left out.
static fwa_status compare_configs(comparison *c) {
    const char *const text[2] = {fwa_checkpoint_get_state(c->a)->config, fwa_checkpoint_get_state(c->b)->config};
    fwa_config *config[2] = {NULL, NULL};
    char *lines = NULL;
    fwa_status status;
    FWA_TRY_GOTO(fwa_config_parse(&config[0], text[0], fwa_checkpoint_path(c->a), NULL, 0), done);
    FWA_TRY_GOTO(fwa_config_parse(&config[1], text[1], fwa_checkpoint_path(c->b), NULL, 0), done);
    FWA_TRY_GOTO(fwa_config_compare(config[0], config[1], &lines), done);
    c->state_differs |= lines[0] != '\0';
    fputs(lines, c->out);
done:
    free(lines);
    fwa_config_destroy(config[0]);
    fwa_config_destroy(config[1]);
    return status;
}

fwa_status fwa_checkpoint_diff(fwa_checkpoint *a, fwa_checkpoint *b, double tolerance, FILE *out, bool *same) {
    comparison c = {.a = a, .b = b, .tolerance = tolerance, .out = out};
    compare_state(&c);
    FWA_TRY(compare_configs(&c));
    FWA_TRY(compare_tensors(&c));
    fprintf(out, "%d tensor%s equal bit for bit", c.equal, c.equal == 1 ? " is" : "s are");
    if (c.close) fprintf(out, ", %d within a relative RMS of %g", c.close, tolerance);
    fprintf(out, ", %d differ\n", c.different);
    *same = !c.state_differs && c.different == 0;
    return FWA_OK;
}
