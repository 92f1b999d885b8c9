// Axes with round numbers.
#include "train/report/axis.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The smallest of 1, 2, 5 times a power of ten that is no smaller than `size`, or but little.
static double round_step(double size) {
    const double power = pow(10.0, floor(log10(size)));
    for (int i = 0; i < 3; i++) {
        const double step = power * (i == 0 ? 1.0 : i == 1 ? 2.0 : 5.0);
        if (step >= 0.75 * size) return step;
    }
    return 10.0 * power;
}

static void add_tick(fwa_axis *axis, double value) {
    const double slack = 1e-9 * (axis->high - axis->low);
    if (axis->ticks < FWA_AXIS_TICKS && value >= axis->low - slack && value <= axis->high + slack)
        axis->tick[axis->ticks++] = value;
}

static void tick_linear(fwa_axis *axis, int wanted) {
    const double step = round_step((axis->high - axis->low) / wanted);
    const double first = ceil(axis->low / step - 1e-9);
    axis->ticks = 0;
    for (int i = 0; i <= FWA_AXIS_TICKS; i++) add_tick(axis, (first + i) * step == 0 ? 0.0 : (first + i) * step);
}

// Ticks at each of `factors` times every power of ten, or with one factor at every n-th power where they are many.
static void tick_log(fwa_axis *axis, const double *factors, int count, int wanted) {
    const int first = (int)floor(log10(axis->low)), last = (int)ceil(log10(axis->high));
    const int skip = count == 1 ? (last - first) / (wanted + 1) + 1 : 1;
    axis->ticks = 0;
    for (int power = first; power <= last; power++)
        for (int f = 0; f < count && (power - first) % skip == 0; f++) add_tick(axis, factors[f] * pow(10.0, power));
}

void fwa_axis_make(fwa_axis *axis, double low, double high, bool log, int wanted) {
    static const double factors[] = {1.0, 2.0, 5.0};
    if (!(high > low)) {
        const double room = low != 0.0 ? 0.1 * fabs(low) : 1.0;
        high = low + room;
        low -= room;
    }
    axis->low = low;
    axis->high = high;
    axis->log = log && low > 0.0;
    axis->ticks = 0;
    if (axis->log) {
        tick_log(axis, factors, 1, wanted);
        if (axis->ticks < 3) tick_log(axis, factors, 3, wanted);
        if (axis->ticks >= 3 && axis->ticks <= 2 * wanted) return;
    }
    tick_linear(axis, wanted);
}

double fwa_axis_place(const fwa_axis *axis, double value) {
    if (!axis->log) return (value - axis->low) / (axis->high - axis->low);
    return value > 0.0 ? log(value / axis->low) / log(axis->high / axis->low) : -INFINITY;
}

// "5e-4" for what would begin with many zeros.
static bool print_small(double value, char text[32]) {
    const double size = fabs(value);
    if (size == 0.0 || size >= 1e-3) return false;
    const int power = (int)floor(log10(size) + 1e-9);
    snprintf(text, 32, "%.4ge%d", value / pow(10.0, power), power);
    return true;
}

static const char *print_in_unit(double value, double largest, const char *format, char text[32]) {
    static const char *const units[] = {"", " k", " M", " G", " T", " P"};
    int unit = 0;
    if (largest >= 1e4)
        for (; unit < 5 && largest >= 999.95; unit++) {
            value /= 1000.0;
            largest /= 1000.0;
        }
    const int length = snprintf(text, 24, format, value);
    if (value != 0.0) snprintf(text + length, 32 - (size_t)length, "%s", units[unit]);
    return text;
}

const char *fwa_axis_tick_text(const fwa_axis *axis, int tick, char text[32]) {
    const double value = axis->tick[tick];
    const double largest = axis->log ? value : fmax(fabs(axis->tick[0]), fabs(axis->tick[axis->ticks - 1]));
    const bool small = fabs(largest) < 1e-3 && print_small(value, text);
    return small ? text : print_in_unit(value, fabs(largest), "%.6g", text);
}

const char *fwa_axis_text(double value, char text[32]) {
    const double size = fabs(value);
    if (print_small(value, text)) return text;
    return print_in_unit(value, size, "%.4g", text);
}
