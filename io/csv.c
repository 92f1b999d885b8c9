// Fields of comma-separated values.
#include "io/csv.h"

#include <math.h>
#include <string.h>

void fwa_csv_field(const char *text, FILE *out) {
    if (!strpbrk(text, ",\"\n\r")) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"') fputc('"', out);
        fputc(*text, out);
    }
    fputc('"', out);
}

void fwa_csv_number(double value, FILE *out) {
    fputc(',', out);
    if (!isnan(value)) fprintf(out, "%.9g", value);
}
