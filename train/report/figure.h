// Figures of a report as SVG inside HTML: lines with bands, and rows of dots. Colours and fonts come from the page's
// style sheet, so that the same figure is right on a light screen, a dark one and paper.
#ifndef FWA_TRAIN_REPORT_FIGURE_H
#define FWA_TRAIN_REPORT_FIGURE_H

#include <stdio.h>

#include "train/report/curve.h"
#include "train/report/frame.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fwa_figure_line {
    fwa_curve curve;
    const char *name;  // in full, shown where the pointer rests
    const char *label; // beside the end of the curve; NULL: none
    int colour;        // -1: grey
    bool band;         // from low to high
    bool reference;    // dashed, without marks: no measurement
} fwa_figure_line;

typedef struct fwa_figure {
    int number; // its own on the page
    bool alone; // a file of its own, with its style; otherwise an element of the page
    const char *title, *x_title;
    const char *note; // NULL: none
    bool log;         // y
    bool marks;       // a dot a point: few of them
    bool settles;     // y: the range of what follows the first fifth; steeper starts are cut
    bool from_zero;   // y, for values that cannot be negative
    bool per_cent;    // y: 0 to 100
    fwa_figure_line *line;
    int lines;
} fwa_figure;

// Nothing where no line has two points, or one with marks.
void fwa_figure_lines(const fwa_figure *figure, FILE *out);

typedef struct fwa_figure_row {
    const char *name;
    int colour;
    const double *value; // [count] of its runs, NaN left out
    int count;
} fwa_figure_row;

typedef struct fwa_figure_list {
    const char *title, *note; // note NULL: none
    bool alone;
    const fwa_figure_row *row;
    int rows;
} fwa_figure_list;

// A row a group: the dot is the mean, the bar mean - to + standard deviation, the small dots single runs. The lowest
// mean is marked.
void fwa_figure_dots(const fwa_figure_list *list, FILE *out);

// Names in the style sheet of a line's colour and, beyond the first colours, of its dashes: "c2", "c2 d1"; -1: "cg".
const char *fwa_figure_class(int colour, char text[16]);

// "3.1416 ± 0.0021", with a NaN spread "3.1416"; very small and large ones as "2.72e-04".
void fwa_report_number(double mean, double spread, char text[64]);

#ifdef __cplusplus
}
#endif
#endif
