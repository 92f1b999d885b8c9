// The style sheet of a report: a light page, a dark one where the screen asks for it, and paper.
#ifndef FWA_TRAIN_REPORT_STYLE_H
#define FWA_TRAIN_REPORT_STYLE_H

#ifdef __cplusplus
extern "C" {
#endif

extern const char fwa_report_style[];
extern const char fwa_report_picture_style[]; // of a figure in a file of its own: light, for any program that draws SVG

#ifdef __cplusplus
}
#endif
#endif
