// Files of a report.
#include "train/report/output.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "io/files.h"

fwa_status fwa_report_output_check(const char *option, const char *path, const char *begin, const char *kind) {
    char there[16] = "";
    FILE *file = fwa_path_is_file(path) ? fopen(path, "r") : NULL;
    if (!file) return FWA_OK;
    const size_t n = fread(there, 1, strlen(begin), file);
    fclose(file);
    FWA_CHECK(n == 0 || strcasecmp(there, begin) == 0, FWA_USAGE,
              "%s: %s is there and is not %s: name another, or remove it", option, path, kind);
    return FWA_OK;
}

fwa_status fwa_report_output_open(fwa_report_output *o, const char *path) {
    *o = (fwa_report_output){.path = path};
    o->out = open_memstream(&o->text, &o->bytes);
    FWA_CHECK(o->out, FWA_MEMORY, "no memory for %s", path);
    return FWA_OK;
}

fwa_status fwa_report_output_close(fwa_report_output *o, fwa_status status) {
    const bool whole = fwa_stream_end(o->out, &o->text);
    if (status == FWA_OK && !whole)
        status = fwa_error_raise(FWA_MEMORY, __FILE__, __LINE__, __func__, "no memory for %s", o->path);
    if (status == FWA_OK && o->bytes > 0) status = fwa_write_bytes(o->path, o->text, o->bytes);
    free(o->text);
    return status;
}
