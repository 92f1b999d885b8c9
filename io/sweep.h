// A sweep file: a base configuration and the points to train. Not collective.
//
//   base: ../lm/small.yaml               relative to this file
//   name: rules                          default: the file's name without .yaml
//   set: {train.steps: 500}              settings of every point
//   axes:
//     model.mixer.rule: [falcon1, falcon3a]        a key and its values, or
//     row:                                         a word, and values that are several settings at once
//       .1: {model.mixer.qk_norm: l2, model.mixer.step: direct}
//       .2: {model.mixer.qk_norm: l2}
//   exclude: [{model.mixer.rule: falcon1, row: .1}]  points that agree with a line are left out
//   include: [{model.mixer.rule: softmax}]           further points, beside the product of the axes
//   seeds: [0, 1, 2]                                 each point once a seed; default: the configuration's own
//
// Points stand in the order of the axes, the first one slowest, then those of `include`; seeds change fastest.
#ifndef FWA_IO_SWEEP_H
#define FWA_IO_SWEEP_H

#include "core/status.h"
#include "core/types.h"
#include "io/config.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FWA_SWEEP_POINTS 10000 // most points of a sweep
#define FWA_SWEEP_NAME   200   // most bytes of a point's name

typedef struct fwa_sweep_point {
    const char *name;      // "rule=falcon1,row=.2,seed=0": no two points share it
    const char **value;    // [column_count] as written; NULL: the point does not say
    const char *seed;      // NULL: the configuration's own
    fwa_setting *settings; // to be laid over the base, in order
    int setting_count;
    int group; // the same for points that differ in the seed only
    int line;  // of its axes or of its line in `include`
} fwa_sweep_point;

typedef struct fwa_sweep {
    char *path;              // of the file itself
    const char *name, *base; // `base` as a path from the working folder
    const char **column;     // what the values of points are called: "rule", or the whole key where that is not clear
    int column_count;        // axes, then keys that only `include` uses
    fwa_setting *common;     // of every point, before its own: what stands under `set`
    int common_count;        //
    fwa_sweep_point *points; //
    int count, groups;       //
    struct fwa_sweep_text *text; // owns the strings
} fwa_sweep;

// FWA_CONFIG with every mistake, one a line with file:line; FWA_FORMAT where it is not YAML, FWA_CONFIG where it cannot
// be read. Keys and values are looked at by fwa_config_load_settings, not here. Caller: fwa_sweep_destroy.
FWA_MUST_CHECK fwa_status fwa_sweep_load(fwa_sweep **out, const char *path);
void fwa_sweep_destroy(fwa_sweep *sweep);

#ifdef __cplusplus
}
#endif
#endif
