// Curves and rows of dots as SVG.
#include "train/report/figure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/shape.h"
#include "train/report/axis.h"
#include "train/report/frame.h"
#include "train/report/style.h"
#include "train/sweep/table.h"

#define WIDTH      FWA_FIGURE_WIDTH
#define HEIGHT     250.0
#define LEFT       50.0
#define RIGHT      14.0
#define RIGHT_TEXT 100.0 // with labels beside the curves
#define TOP        10.0
#define BOTTOM     36.0
#define LABEL_STEP 12.5 // between two labels
#define ROW        22.0 // of dots
#define SAMPLE     20.0 // a piece of a line beside its label
#define SETTLED    0.2  // of the range of x: what comes before may be cut
#define WIDE       1e3  // of values that need a logarithmic axis
#define LONG       8    // points of a curve whose start may be cut

static void print_value(double value, char text[24]) {
    const double size = fabs(value);
    snprintf(text, 24, size >= 0.01 && size < 1e6 ? "%.4f" : "%.3g", value);
}

void fwa_report_number(double mean, double spread, char text[64]) {
    char number[24], width[24] = "";
    print_value(mean, number);
    if (isfinite(spread)) snprintf(width, sizeof width, fabs(mean) >= 0.01 && spread < 1e6 ? "%.4f" : "%.1e", spread);
    snprintf(text, 64, "%s%s%s", number, width[0] ? " ± " : "", width);
}

const char *fwa_figure_class(int colour, char text[16]) {
    if (colour < 0)
        strcpy(text, "cg");
    else if (colour < FWA_REPORT_COLOURS)
        snprintf(text, 16, "c%d", colour);
    else
        snprintf(text, 16, "c%d d%d", colour % FWA_REPORT_COLOURS, colour / FWA_REPORT_COLOURS % 3);
    return text;
}

// The box of a figure's curves and its scales.
typedef struct plot {
    double left, right, top, bottom;
    fwa_axis x, y;
    bool cut;     // something lies above
    bool samples; // colours alone do not tell lines apart
} plot;

static double place_x(const plot *p, double x) {
    return p->left + fwa_axis_place(&p->x, x) * (p->right - p->left);
}

// Above the box stays above, so that a line that is cut keeps its slope; what has no place at all is at the bottom.
static double place_y(const plot *p, double y) {
    const double share = fwa_axis_place(&p->y, y);
    return p->bottom - (share > 0.0 ? fmin(share, 20.0) : fmax(share, -20.0)) * (p->bottom - p->top);
}

static void draw_x_axis(const plot *p, const char *title, FILE *out) {
    char text[32];
    fwa_figure_stroke(p->left, p->bottom, p->right, p->bottom, "axis", out);
    for (int i = 0; i < p->x.ticks; i++) {
        const double x = place_x(p, p->x.tick[i]);
        fwa_figure_stroke(x, p->bottom, x, p->bottom + 4, "axis", out);
        fwa_figure_text(x, p->bottom + 16, "middle", "tick", fwa_axis_tick_text(&p->x, i, text), out);
    }
    fwa_figure_text(0.5 * (p->left + p->right), p->bottom + 31, "middle", "tick", title, out);
}

static void draw_axes(const plot *p, const char *x_title, FILE *out) {
    char text[32];
    for (int i = 0; i < p->y.ticks; i++) {
        const double y = place_y(p, p->y.tick[i]);
        fwa_figure_stroke(p->left, y, p->right, y, "grid", out);
        fwa_figure_text(p->left - 6, y + 4, "end", "tick", fwa_axis_tick_text(&p->y, i, text), out);
    }
    draw_x_axis(p, x_title, out);
}

static bool drawn(const fwa_figure *f, const fwa_figure_line *line) {
    return line->curve.count > (f->marks ? 0 : 1);
}

// What a line takes of the range of y at a point.
static void stretch(const fwa_figure *f, const fwa_figure_line *line, const fwa_curve_point *at, double *low,
                    double *high) {
    const double bottom = line->band ? at->low : at->y, top = line->band ? at->high : at->y;
    if (!f->log || bottom > 0.0) *low = fmin(*low, bottom);
    if (!f->log || at->y > 0.0) *low = fmin(*low, at->y);
    if (!f->log || top > 0.0) *high = fmax(*high, top);
}

static void x_range(const fwa_figure *f, double *low, double *high) {
    *low = INFINITY;
    *high = -INFINITY;
    for (int l = 0; l < f->lines; l++) {
        if (!drawn(f, &f->line[l])) continue;
        *low = fmin(*low, f->line[l].curve.at[0].x);
        *high = fmax(*high, f->line[l].curve.at[f->line[l].curve.count - 1].x);
    }
}

static bool y_range(const fwa_figure *f, double from, double *low, double *high) {
    *low = INFINITY;
    *high = -INFINITY;
    for (int l = 0; l < f->lines; l++)
        for (int i = 0; drawn(f, &f->line[l]) && i < f->line[l].curve.count; i++)
            if (f->line[l].curve.at[i].x >= from) stretch(f, &f->line[l], &f->line[l].curve.at[i], low, high);
    return *low <= *high;
}

// Cuts a steep start of long curves; true where it did.
static bool cut_start(const fwa_figure *f, double x_low, double x_high, double low, double *high) {
    double settled_low, settled_high;
    int longest = 0;
    for (int l = 0; l < f->lines; l++) longest = fwa_max(longest, f->line[l].curve.count);
    if (!f->settles || longest < LONG || !y_range(f, x_low + SETTLED * (x_high - x_low), &settled_low, &settled_high) ||
        *high - low < 1.3 * (settled_high - settled_low))
        return false;
    *high = settled_high;
    return true;
}

static bool make_plot(const fwa_figure *f, plot *p) {
    double x_low, x_high, low, high;
    bool labels = false;
    *p = (plot){.left = LEFT, .right = WIDTH - RIGHT, .top = TOP, .bottom = HEIGHT - BOTTOM};
    for (int l = 0; l < f->lines; l++) {
        labels |= f->line[l].label != NULL;
        p->samples |= f->line[l].colour >= FWA_REPORT_COLOURS;
    }
    if (labels) p->right = WIDTH - RIGHT_TEXT - (p->samples ? SAMPLE : 0.0);
    x_range(f, &x_low, &x_high);
    if (!y_range(f, -INFINITY, &low, &high)) return false;
    if (!f->marks && x_low > 0.0 && x_low < 0.2 * x_high) x_low = 0.0;
    p->cut = cut_start(f, x_low, x_high, low, &high);
    const double room = f->log || f->per_cent ? 0.0 : 0.03 * (high - low);
    low = f->from_zero || f->per_cent ? 0.0 : low - room;
    high = f->per_cent ? 100.0 : high + room;
    fwa_axis_make(&p->x, x_low, x_high, false, labels ? 4 : 6);
    fwa_axis_make(&p->y, low, high, f->log, 5);
    return true;
}

static void draw_band(const plot *p, const fwa_curve *curve, const char *colour, FILE *out) {
    fprintf(out, "<path class=\"band %s\" d=\"", colour);
    for (int i = 0; i < curve->count; i++)
        fprintf(out, "%s%.1f %.1f", i ? "L" : "M", place_x(p, curve->at[i].x), place_y(p, curve->at[i].high));
    for (int i = curve->count - 1; i >= 0; i--)
        fprintf(out, "L%.1f %.1f", place_x(p, curve->at[i].x), place_y(p, curve->at[i].low));
    fputs("Z\"/>\n", out);
}

static void draw_dot(double x, double y, double radius, const char *kind, const char *colour, FILE *out) {
    fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" class=\"%s %s\"/>\n", x, y, radius, kind, colour);
}

// The mark of a line: a dot, a square, a diamond, as its dashes.
static void draw_mark(double x, double y, int colour, FILE *out) {
    char name[16];
    fwa_figure_class(colour, name);
    const int shape = colour < 0 ? 0 : colour / FWA_REPORT_COLOURS % 3;
    if (shape == 0)
        draw_dot(x, y, 2.6, "dot", name, out);
    else if (shape == 1)
        fprintf(out, "<path d=\"M%.1f %.1fh4.8v4.8h-4.8z\" class=\"dot %s\"/>\n", x - 2.4, y - 2.4, name);
    else
        fprintf(out, "<path d=\"M%.1f %.1fl3.4 3.4l-3.4 3.4l-3.4-3.4z\" class=\"dot %s\"/>\n", x, y - 3.4, name);
}

static void draw_curve(const plot *p, const fwa_figure_line *line, bool marks, FILE *out) {
    char colour[16];
    const fwa_curve *curve = &line->curve;
    fwa_figure_class(line->colour, colour);
    fprintf(out, "<path class=\"curve %s%s\" d=\"", colour, line->reference ? " reference" : "");
    for (int i = 0; i < curve->count; i++)
        fprintf(out, "%s%.1f %.1f", i ? "L" : "M", place_x(p, curve->at[i].x), place_y(p, curve->at[i].y));
    fputs("\"><title>", out);
    fwa_html_text(line->name, out);
    fputs("</title></path>\n", out);
    for (int i = 0; marks && !line->reference && i < curve->count; i++)
        draw_mark(place_x(p, curve->at[i].x), place_y(p, curve->at[i].y), line->colour, out);
}

typedef struct label {
    double wanted, y;
    const fwa_figure_line *line;
} label;

static int by_height(const void *a, const void *b) {
    const label *one = a, *other = b;
    return (one->wanted > other->wanted) - (one->wanted < other->wanted);
}

// Labels stand where their curves end, or as near below each other as they can.
static void spread_labels(label *labels, int count, double top, double bottom) {
    for (int i = 0; i < count; i++)
        labels[i].y = fmax(fmax(labels[i].wanted, top), i ? labels[i - 1].y + LABEL_STEP : top);
    for (int i = count - 1; i >= 0; i--) {
        const double most = i + 1 < count ? labels[i + 1].y - LABEL_STEP : bottom;
        if (labels[i].y > most) labels[i].y = most;
    }
}

static void draw_sample(double x, double y, const fwa_figure *f, const fwa_figure_line *line, FILE *out) {
    char colour[16];
    fprintf(out, "<path class=\"curve %s%s\" d=\"M%.1f %.1fh%.0f\"/>\n", fwa_figure_class(line->colour, colour),
            line->reference ? " reference" : "", x, y, SAMPLE - 3.0);
    if (f->marks && !line->reference) draw_mark(x + 0.5 * (SAMPLE - 3.0), y, line->colour, out);
}

static void draw_label(const plot *p, const fwa_figure *f, const label *at, FILE *out) {
    const fwa_curve_point *end = &at->line->curve.at[at->line->curve.count - 1];
    const double x = place_x(p, end->x);
    char kind[32], colour[16];
    if (fabs(at->y - at->wanted) > 3.0 || x < p->right - 2.0)
        fwa_figure_stroke(x + 3.0, fmax(at->wanted, p->top), p->right + 5.0, at->y, "leader", out);
    if (p->samples) draw_sample(p->right + 6.0, at->y, f, at->line, out);
    snprintf(kind, sizeof kind, "label %s", fwa_figure_class(at->line->colour, colour));
    fwa_figure_text(p->right + 7.0 + (p->samples ? SAMPLE : 0.0), at->y + 4.0, "start", kind, at->line->label, out);
}

static void draw_labels(const plot *p, const fwa_figure *f, FILE *out) {
    label labels[FWA_REPORT_LINES + 1]; // and that of a reference
    int count = 0;
    for (int l = 0; l < f->lines && count <= FWA_REPORT_LINES; l++) {
        const fwa_figure_line *line = &f->line[l];
        if (!line->label || !drawn(f, line)) continue;
        labels[count++] = (label){place_y(p, line->curve.at[line->curve.count - 1].y), 0.0, line};
    }
    qsort(labels, (size_t)count, sizeof *labels, by_height);
    spread_labels(labels, count, p->top, p->bottom);
    for (int i = 0; i < count; i++) draw_label(p, f, &labels[i], out);
}

static void draw_box(const plot *p, const fwa_figure *f, FILE *out) {
    char colour[16];
    fprintf(out, "<clipPath id=\"box%d\"><rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/></clipPath>\n",
            f->number, p->left, p->top - 4.0, p->right - p->left + 4.0, p->bottom - p->top + 8.0);
    fprintf(out, "<g clip-path=\"url(#box%d)\">\n", f->number);
    for (int l = 0; l < f->lines; l++)
        if (drawn(f, &f->line[l]) && f->line[l].band)
            draw_band(p, &f->line[l].curve, fwa_figure_class(f->line[l].colour, colour), out);
    for (int pass = 0; pass < 2; pass++) // grey below
        for (int l = 0; l < f->lines; l++)
            if (drawn(f, &f->line[l]) && (f->line[l].colour >= 0) == (pass == 1))
                draw_curve(p, &f->line[l], f->marks, out);
    fputs("</g>\n", out);
}

void fwa_figure_lines(const fwa_figure *figure, FILE *out) {
    plot p;
    if (!make_plot(figure, &p)) return;
    const fwa_figure_frame f = {
        .title = figure->title, .note = figure->note, .alone = figure->alone, .cut = p.cut, .height = HEIGHT};
    fwa_figure_open(&f, out);
    draw_axes(&p, figure->x_title, out);
    draw_box(&p, figure, out);
    draw_labels(&p, figure, out);
    fwa_figure_close(&f, out);
}

static void draw_row(const plot *p, const fwa_figure_row *row, double y, bool best, FILE *out) {
    char colour[16], text[64];
    double mean, spread;
    fwa_figure_class(row->colour, colour);
    fwa_figure_text(p->left - 10.0, y + 4.0, "end", best ? "name best" : "name", row->name, out);
    if (!fwa_sweep_mean(row->value, row->count, &mean, &spread)) return;
    if (!isnan(spread)) {
        fprintf(out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"bar %s\"/>\n",
                place_x(p, mean - spread), y, place_x(p, mean + spread), y, colour);
        for (int i = 0; i < row->count; i++)
            if (!isnan(row->value[i])) draw_dot(place_x(p, row->value[i]), y, 3.0, "single", colour, out);
    }
    draw_dot(place_x(p, mean), y, 4.0, "dot", colour, out);
    fwa_report_number(mean, spread, text);
    fwa_figure_text(WIDTH - 2.0, y + 4.0, "end", best ? "name best" : "name", text, out);
}

void fwa_figure_dots(const fwa_figure_list *list, FILE *out) {
    const fwa_figure_row *row = list->row;
    const int rows = list->rows;
    double low = INFINITY, high = -INFINITY, least = INFINITY, mean, spread;
    int best = -1;
    for (int r = 0; r < rows; r++) {
        if (!fwa_sweep_mean(row[r].value, row[r].count, &mean, &spread)) continue;
        if (mean < least) best = r;
        least = fmin(least, mean);
        if (isnan(spread)) spread = 0.0;
        low = fmin(low, mean - spread);
        high = fmax(high, mean + spread);
        for (int i = 0; i < row[r].count; i++) {
            low = fmin(low, row[r].value[i]); // fmin and fmax pass NaN by
            high = fmax(high, row[r].value[i]);
        }
    }
    if (best < 0) return;
    plot p = {.left = 112.0, .right = WIDTH - 122.0, .top = TOP, .bottom = TOP + rows * ROW};
    const double room = 0.04 * (high - low);
    const bool log = low > 0.0 && high > WIDE * low;
    fwa_axis_make(&p.x, log ? 0.7 * low : low - room, log ? 1.4 * high : high + room, log, log ? 5 : 3);
    const fwa_figure_frame f = {
        .title = list->title, .note = list->note, .alone = list->alone, .height = p.bottom + 22.0};
    fwa_figure_open(&f, out);
    for (int i = 0; i < p.x.ticks; i++) {
        const double x = place_x(&p, p.x.tick[i]);
        fwa_figure_stroke(x, p.top, x, p.bottom, "grid", out);
    }
    fwa_figure_stroke(p.left, p.bottom, p.right, p.bottom, "axis", out);
    for (int i = 0; i < p.x.ticks; i++) {
        char text[32];
        fwa_figure_text(place_x(&p, p.x.tick[i]), p.bottom + 16.0, "middle", "tick", fwa_axis_tick_text(&p.x, i, text),
                        out);
    }
    for (int r = 0; r < rows; r++) draw_row(&p, &row[r], p.top + (r + 0.5) * ROW, r == best && rows > 1, out);
    fwa_figure_close(&f, out);
}
