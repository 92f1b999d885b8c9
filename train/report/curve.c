// Thinned curves.
#include "train/report/curve.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/shape.h"
#include "train/report/scores.h"

static double value_of(const fwa_metrics_row *row, fwa_report_measure measure) {
    switch (measure) {
    case FWA_REPORT_LOSS:
        return row->loss;
    case FWA_REPORT_VAL_LOSS:
        return row->val_loss;
    case FWA_REPORT_PERPLEXITY:
        return exp(row->val_loss);
    case FWA_REPORT_LR:
        return row->lr;
    case FWA_REPORT_GRAD_NORM:
        return fabs(row->grad_norm); // negative where a skipped step had none
    case FWA_REPORT_SPEED:
        return row->tokens_per_s;
    default:
        return NAN;
    }
}

double fwa_report_end(const fwa_report_run *run, fwa_report_measure measure) {
    if (measure == FWA_REPORT_VAL_LOSS) return run->last_val_loss;
    if (measure == FWA_REPORT_PERPLEXITY) return exp(run->last_val_loss);
    return value_of(fwa_report_last(run), measure);
}

static bool by_width(fwa_report_measure measure) {
    return measure == FWA_REPORT_UPTO || measure == FWA_REPORT_EXACT;
}

static int64_t points_of(const fwa_report_run *run, fwa_report_measure measure) {
    return by_width(measure) ? run->score_count : run->count;
}

// What a curve is of.
typedef struct view {
    fwa_report_measure measure;
    bool by_updates;
} view;

// Point i of a run; false where it has no finite value.
static bool point_of(const fwa_report_run *run, const view *v, int64_t i, fwa_curve_point *point) {
    double error = 0.0;
    if (by_width(v->measure)) {
        const fwa_report_estimate share =
            fwa_report_share_at(run, v->measure == FWA_REPORT_EXACT, run->scores[i].width);
        point->x = (double)run->scores[i].width;
        point->y = 100.0 * share.value;
        if (isfinite(share.error)) error = 100.0 * share.error;
    } else {
        point->x = (double)(v->by_updates ? run->rows[i].step : run->rows[i].tokens);
        point->y = value_of(&run->rows[i], v->measure);
    }
    point->low = point->y - error;
    point->high = point->y + error;
    return isfinite(point->y);
}

// What falls into one stretch of x.
typedef struct bin {
    double x, y, low, high; // sums, and the range
    int64_t count;
} bin;

// The range of x over a group's points.
static bool range_of(const fwa_report_run *run, int runs, const view *v, double *low, double *high) {
    fwa_curve_point at;
    *low = INFINITY;
    *high = -INFINITY;
    for (int r = 0; r < runs; r++)
        for (int64_t i = 0; i < points_of(&run[r], v->measure); i++) {
            if (!point_of(&run[r], v, i, &at)) continue;
            *low = fmin(*low, at.x);
            *high = fmax(*high, at.x);
        }
    return *low <= *high;
}

static void fill_bins(bin *bins, int count, const fwa_report_run *run, const view *v, double low, double high) {
    fwa_curve_point at;
    memset(bins, 0, (size_t)count * sizeof *bins);
    for (int64_t i = 0; i < points_of(run, v->measure); i++) {
        if (!point_of(run, v, i, &at)) continue;
        bin *b = &bins[high > low ? fwa_min((int)((at.x - low) / (high - low) * count), count - 1) : 0];
        b->low = b->count ? fmin(b->low, at.low) : at.low;
        b->high = b->count ? fmax(b->high, at.high) : at.high;
        b->x += at.x;
        b->y += at.y;
        b->count++;
    }
}

// One stretch of all runs of a group: bins[r * stride].
static bool join_bins(const bin *bins, int runs, int stride, fwa_curve_point *point) {
    double squares = 0.0;
    int n = 0;
    *point = (fwa_curve_point){0.0, 0.0, 0.0, 0.0};
    for (int r = 0; r < runs; r++) {
        const bin *b = &bins[(size_t)r * (size_t)stride];
        if (!b->count) continue;
        point->x += b->x / (double)b->count;
        point->y += b->y / (double)b->count;
        point->low = b->low;
        point->high = b->high;
        n++;
    }
    if (!n) return false;
    point->x /= n;
    point->y /= n;
    if (runs == 1) return true;
    for (int r = 0; r < runs; r++) {
        const bin *b = &bins[(size_t)r * (size_t)stride];
        if (b->count) squares += pow(b->y / (double)b->count - point->y, 2);
    }
    const double spread = n > 1 ? sqrt(squares / (n - 1)) : 0.0;
    point->low = point->y - spread;
    point->high = point->y + spread;
    return true;
}

static void make_curve(fwa_curve *curve, bin *bins, const fwa_report_run *run, int runs, const view *v, int points) {
    double low, high;
    if (!range_of(run, runs, v, &low, &high)) return;
    for (int r = 0; r < runs; r++) fill_bins(&bins[(size_t)r * (size_t)points], points, &run[r], v, low, high);
    for (int i = 0; i < points; i++) curve->count += join_bins(&bins[i], runs, points, &curve->at[curve->count]);
}

fwa_status fwa_report_curve(fwa_curve *curve, const fwa_report *report, int group, fwa_report_measure measure,
                            int points) {
    const fwa_report_group *g = &report->group[group];
    curve->count = 0;
    curve->at = calloc((size_t)points, sizeof *curve->at);
    bin *bins = calloc((size_t)g->count * (size_t)points, sizeof *bins);
    bool good = curve->at && bins;
    const view v = {measure, report->by_updates};
    if (good) make_curve(curve, bins, &report->run[g->first], g->count, &v, points);
    free(bins);
    if (!good) fwa_curve_free(curve);
    FWA_CHECK(good, FWA_MEMORY, "no memory for a curve of %d points", points);
    return FWA_OK;
}

void fwa_curve_free(fwa_curve *curve) {
    free(curve->at);
    *curve = (fwa_curve){NULL, 0};
}
