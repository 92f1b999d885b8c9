// A figure of a report: shares over pairs of widths, a square of cells a configuration.
#ifndef FWA_TRAIN_REPORT_HEAT_H
#define FWA_TRAIN_REPORT_HEAT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fwa_heat_map {
    const char *name;        // above it; NULL: none
    int count;               // of widths
    const int64_t *width;    // [count]
    double *share;           // [count,count], 0 to 1; a row goes across
    int marked_from, marked; // a frame around the rows and columns of so many widths; 0: none
} fwa_heat_map;

typedef struct fwa_heat {
    const char *title, *note;
    bool alone; // a file of its own, with its style; otherwise an element of the page
    const fwa_heat_map *map;
    int maps;
} fwa_heat;

// The larger a share the stronger its cell's colour; cells that are large enough say it in per cent. Nothing where
// there are no maps.
void fwa_heat_draw(const fwa_heat *heat, FILE *out);

#ifdef __cplusplus
}
#endif
#endif
