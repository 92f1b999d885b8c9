// Shares over pairs of widths as SVG.
#include "train/report/heat.h"

#include <math.h>

#include "core/shape.h"
#include "train/report/frame.h"

#define LEFT    34.0  // of a map: the widths of its rows
#define ABOVE   24.0  // its name
#define BELOW   20.0  // the widths of its columns
#define SIDE    320.0 // of a map that is alone, at most
#define LEGEND  24.0
#define SWATCH  28.0 // of the legend
#define ROOM_X  24.0 // of a width below a map
#define ROOM_Y  12.0 // and beside it
#define READ    20.0 // a cell that has room for its number
#define TITLES  24   // widths of a map whose cells say their shares where the pointer rests
#define REVERSE 0.8  // share from which the number has the page's colour

typedef struct place {
    double x, y, side;
} place;

static void draw_cell(double x, double y, double width, double height, double share, FILE *out) {
    fprintf(out, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" class=\"heat\" fill-opacity=\"%.3f\"", x,
            y, width, height, share);
}

// 100 where all are right and 0 where none is, alone; a half is rounded up, as fwa eval does, though in binary it may
// be less.
static void draw_number(double x, double y, double share, FILE *out) {
    char text[16];
    snprintf(text, sizeof text, "%.0f",
             share > 0.0 && share < 1.0 ? fmin(fmax(round(100.0 * share + 1e-9), 1.0), 99.0) : 100.0 * share);
    fwa_figure_text(x, y + 4.0, "middle", share > REVERSE ? "cell in" : "cell", text, out);
}

static void draw_cells(const fwa_heat_map *m, const place *at, FILE *out) {
    const double size = at->side / m->count;
    for (int i = 0; i < m->count; i++)
        for (int j = 0; j < m->count; j++) {
            const double share = m->share[i * m->count + j], x = at->x + j * size, y = at->y + i * size;
            draw_cell(x, y, size, size, share, out);
            if (m->count > TITLES)
                fputs("/>\n", out);
            else
                fprintf(out, "><title>%lld and %lld digits: %.1f %%</title></rect>\n", (long long)m->width[i],
                        (long long)m->width[j], 100.0 * share);
            if (size >= READ) draw_number(x + 0.5 * size, y + 0.5 * size, share, out);
        }
}

static void draw_outline(double x, double y, double width, double height, const char *kind, FILE *out) {
    fprintf(out, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" class=\"%s\"/>\n", x, y, width, height,
            kind);
}

// Widths as far apart as their texts need.
static void draw_widths(const fwa_heat_map *m, const place *at, FILE *out) {
    const double size = at->side / m->count;
    const int across = (int)fmax(1.0, ceil(ROOM_X / size)), down = (int)fmax(1.0, ceil(ROOM_Y / size));
    char text[24];
    for (int i = 0; i < m->count; i++) {
        const double middle = (i + 0.5) * size;
        snprintf(text, sizeof text, "%lld", (long long)m->width[i]);
        if (i % across == 0) fwa_figure_text(at->x + middle, at->y + at->side + 15.0, "middle", "tick", text, out);
        if (i % down == 0) fwa_figure_text(at->x - 5.0, at->y + middle + 4.0, "end", "tick", text, out);
    }
}

static void draw_map(const fwa_heat_map *m, const place *at, FILE *out) {
    const double size = at->side / m->count;
    if (m->name) fwa_figure_text(at->x, at->y - 7.0, "start", "name", m->name, out);
    draw_cells(m, at, out);
    draw_outline(at->x, at->y, at->side, at->side, "panel", out);
    if (m->marked)
        draw_outline(at->x + m->marked_from * size, at->y + m->marked_from * size, m->marked * size, m->marked * size,
                     "marked", out);
    draw_widths(m, at, out);
}

static void draw_legend(double x, double y, FILE *out) {
    for (int i = 0; i <= 4; i++) {
        draw_cell(x + i * SWATCH, y, SWATCH, 0.5 * SWATCH, 0.25 * i, out);
        fputs("/>\n", out);
        draw_number(x + (i + 0.5) * SWATCH, y + 0.25 * SWATCH, 0.25 * i, out);
    }
    draw_outline(x, y, 5.0 * SWATCH, 0.5 * SWATCH, "panel", out);
}

void fwa_heat_draw(const fwa_heat *heat, FILE *out) {
    const int columns = heat->maps <= 1 ? 1 : heat->maps <= 4 ? 2 : 3;
    const int rows = (int)fwa_ceil_div(heat->maps, columns);
    const double column = FWA_FIGURE_WIDTH / columns, side = fmin(SIDE, column - LEFT - 8.0);
    const bool named = heat->maps && heat->map[0].name;
    const double row = (named ? ABOVE : 8.0) + side + BELOW;
    const fwa_figure_frame f = {
        .title = heat->title, .note = heat->note, .alone = heat->alone, .height = rows * row + LEGEND};
    if (!heat->maps) return;
    fwa_figure_open(&f, out);
    for (int i = 0; i < heat->maps; i++) {
        const place at = {i % columns * column + LEFT, (i / columns + 1) * row - BELOW - side, side};
        draw_map(&heat->map[i], &at, out);
    }
    draw_legend(LEFT, rows * row + 6.0, out);
    fwa_figure_close(&f, out);
}
