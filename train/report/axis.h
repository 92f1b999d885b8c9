// Axes with round numbers.
#ifndef FWA_TRAIN_REPORT_AXIS_H
#define FWA_TRAIN_REPORT_AXIS_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FWA_AXIS_TICKS 16

typedef struct fwa_axis {
    double low, high; // low < high, positive where log
    bool log;
    double tick[FWA_AXIS_TICKS]; // ascending, within low and high
    int ticks;
} fwa_axis;

// An axis that holds low .. high with about `wanted` ticks at 1, 2 or 5 times a power of ten; the ends are the data's
// own, a little wider where they are the same. Logarithmic ones tick at powers of ten, at 1, 2, 5 times one where there
// are few of those, and as linear ones where the range is narrower still.
void fwa_axis_make(fwa_axis *axis, double low, double high, bool log, int wanted);
// 0 at low, 1 at high.
double fwa_axis_place(const fwa_axis *axis, double value);
// "0", "0.25", "20 M", "5e-4": as short as it can be without losing digits of a tick. Linear ticks of one axis have one
// unit.
const char *fwa_axis_tick_text(const fwa_axis *axis, int tick, char text[32]);
// A number of any size with four digits.
const char *fwa_axis_text(double value, char text[32]);

#ifdef __cplusplus
}
#endif
#endif
