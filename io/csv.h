// Fields of comma-separated values (RFC 4180).
#ifndef FWA_IO_CSV_H
#define FWA_IO_CSV_H

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

void fwa_csv_field(const char *text, FILE *out); // in quotes where it needs them
void fwa_csv_number(double value, FILE *out);    // a comma and nine digits; NaN: nothing behind the comma

#ifdef __cplusplus
}
#endif
#endif
