// What figures of a report are made of: the frame around them, texts and strokes. Lengths are units of a box that is
// FWA_FIGURE_WIDTH wide and that the page scales to its column.
#ifndef FWA_TRAIN_REPORT_FRAME_H
#define FWA_TRAIN_REPORT_FRAME_H

#include <stdbool.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FWA_FIGURE_WIDTH 420.0

typedef struct fwa_figure_frame {
    const char *title, *note; // note NULL: none
    bool alone;               // a file of its own, with its style; otherwise an element of the page
    bool cut;                 // something lies above, which the note tells
    double height;
} fwa_figure_frame;

void fwa_figure_open(const fwa_figure_frame *frame, FILE *out);
void fwa_figure_close(const fwa_figure_frame *frame, FILE *out);
// `anchor` is SVG's: start, middle, end; `kind` a class of the style sheet.
void fwa_figure_text(double x, double y, const char *anchor, const char *kind, const char *text, FILE *out);
void fwa_figure_stroke(double x1, double y1, double x2, double y2, const char *kind, FILE *out);

// Text with what HTML would take for markup escaped; control characters and bytes that are not UTF-8 become U+FFFD.
void fwa_html_text(const char *text, FILE *out);

#ifdef __cplusplus
}
#endif
#endif
