// What the files that read a sweep share. Private to io/sweep*.c.
#ifndef FWA_IO_SWEEP_BUILDER_H
#define FWA_IO_SWEEP_BUILDER_H

#include <stdbool.h>
#include <stdio.h>

#include "io/config_yaml.h"
#include "io/sweep.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FWA_SWEEP_AXES 32 // most columns

struct fwa_sweep_text {
    struct fwa_sweep_text *next;
    char text[];
};

// One value of a column, and what it sets.
typedef struct fwa_sweep_choice {
    const char *value;
    const fwa_yaml *node; // a scalar or list: the column's key gets it; a mapping: several settings
} fwa_sweep_choice;

typedef struct fwa_sweep_axis {
    const char *key;
    bool word; // values are mappings, the key is none of the configuration's
    fwa_sweep_choice *choices;
    int count;
} fwa_sweep_axis;

typedef struct fwa_sweep_builder {
    fwa_sweep *sweep;
    fwa_yaml *tree;
    fwa_sweep_axis axes[FWA_SWEEP_AXES]; // the file's axes, then keys of `include`, which have no choices
    int axis_count, column_count;
    const fwa_yaml *seeds, *exclude, *include; // lists; NULL: none
    FILE *problems;                            // a line each
    int problem_count;
    bool out_of_memory;
} fwa_sweep_builder;

// A string of the sweep's own; "" and out_of_memory where there is no memory.
const char *fwa_sweep_keep(fwa_sweep_builder *b, const char *format, ...) FWA_PRINTF(2, 3);
void fwa_sweep_problem(fwa_sweep_builder *b, const fwa_yaml *node, const char *format, ...) FWA_PRINTF(3, 4);
// A scalar or list of scalars as the value of a setting "key.path=value"; NULL for anything else.
const char *fwa_sweep_value(fwa_sweep_builder *b, const fwa_yaml *node);
// The column named `key`; -1: none.
int fwa_sweep_column(const fwa_sweep_builder *b, const char *key);
// Fills columns, points and groups. Problems are told, not returned.
void fwa_sweep_expand(fwa_sweep_builder *b);

#ifdef __cplusplus
}
#endif
#endif
