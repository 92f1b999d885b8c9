// Learning-rate schedules: warm-up, then a straight or curved way down.
#include "train/schedule.h"

#include <math.h>

#include "core/shape.h"

// From `high` at update `first` to exactly `low` at update `last`; `shape` maps the share done to the share of the way.
static double descend(double high, double low, int64_t n, int64_t first, int64_t last, double (*shape)(double)) {
    if (n <= first) return high;
    if (n >= last) return low;
    return high + (low - high) * shape((double)(n - first) / (double)(last - first));
}

static double straight(double share) {
    return share;
}

static double half_cosine(double share) {
    return 0.5 * (1.0 - cos(acos(-1.0) * share));
}

double fwa_schedule_rate(const fwa_config *config, int64_t n) {
    const double lr = config->optimizer.lr, min_lr = config->schedule.min_lr;
    const int64_t steps = config->train.steps, warmup = fwa_max(config->schedule.warmup, 1);
    n = fwa_min(n, steps);
    if (n < warmup) return lr * (double)n / (double)warmup;
    switch ((fwa_schedule_kind)config->schedule.kind) {
    case FWA_SCHEDULE_COSINE:
        return descend(lr, min_lr, n, warmup, steps, half_cosine);
    case FWA_SCHEDULE_LINEAR:
        return descend(lr, min_lr, n, warmup, steps, straight);
    case FWA_SCHEDULE_WSD: {
        const int64_t decay = fwa_max((int64_t)llround(config->schedule.decay_fraction * (double)steps), 1);
        return descend(lr, min_lr, n, fwa_max(steps - decay, warmup), steps, straight);
    }
    case FWA_SCHEDULE_CONSTANT:
        break;
    }
    return lr;
}
