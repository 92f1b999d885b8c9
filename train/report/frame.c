// What figures of a report are made of.
#include "train/report/frame.h"

#include <string.h>

#include "io/utf8.h"
#include "train/report/style.h"

#define WIDTH FWA_FIGURE_WIDTH
#define HEAD  26.0 // of a figure that stands alone: its title
#define FOOT  18.0 // and its note

void fwa_html_text(const char *text, FILE *out) {
    const size_t bytes = strlen(text);
    for (size_t at = 0, n; at < bytes; at += n) {
        const unsigned char c = (unsigned char)text[at];
        const size_t whole = fwa_utf8_bytes((const unsigned char *)text + at, bytes - at);
        n = whole ? whole : 1;
        if (!whole || (c < 0x20 && c != '\t' && c != '\n') || c == 0x7F)
            fputs("\xEF\xBF\xBD", out);
        else if (strchr("&<>\"'", c))
            fprintf(out, "&#%d;", c);
        else
            fwrite(text + at, 1, n, out);
    }
}

void fwa_figure_text(double x, double y, const char *anchor, const char *kind, const char *text, FILE *out) {
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" class=\"%s\">", x, y, anchor, kind);
    fwa_html_text(text, out);
    fputs("</text>\n", out);
}

void fwa_figure_stroke(double x1, double y1, double x2, double y2, const char *kind, FILE *out) {
    fprintf(out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"%s\"/>\n", x1, y1, x2, y2, kind);
}

static void print_note(const fwa_figure_frame *f, FILE *out) {
    if (f->note) fwa_html_text(f->note, out);
    if (f->cut) fputs(f->note ? " The start lies above the figure." : "The start lies above the figure.", out);
}

void fwa_figure_open(const fwa_figure_frame *f, FILE *out) {
    const bool noted = f->note || f->cut;
    if (!f->alone) {
        fputs("<figure><figcaption>", out);
        fwa_html_text(f->title, out);
        fprintf(out, "</figcaption>\n<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"", WIDTH, f->height);
    } else {
        const double height = f->height + HEAD + (noted ? FOOT : 0.0);
        fprintf(out,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"-4 %.0f %.0f "
                "%.0f\" role=\"img\" aria-label=\"",
                2.0 * WIDTH + 16.0, 2.0 * height, -HEAD, WIDTH + 8.0, height);
    }
    fwa_html_text(f->title, out);
    fputs("\">\n", out);
    if (!f->alone) return;
    fprintf(out, "<style>%s</style>\n<rect class=\"paper\" x=\"-4\" y=\"%.0f\" width=\"100%%\" height=\"100%%\"/>\n",
            fwa_report_picture_style, -HEAD);
    fwa_figure_text(0.0, -8.0, "start", "title", f->title, out);
    if (!noted) return;
    fprintf(out, "<text x=\"0\" y=\"%.0f\" class=\"tick\">", f->height + 12.0);
    print_note(f, out);
    fputs("</text>\n", out);
}

void fwa_figure_close(const fwa_figure_frame *f, FILE *out) {
    fputs("</svg>\n", out);
    if (f->alone) return;
    if (f->note || f->cut) {
        fputs("<p class=\"note\">", out);
        print_note(f, out);
        fputs("</p>\n", out);
    }
    fputs("</figure>\n", out);
}
