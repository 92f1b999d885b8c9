// Lines of JSONL, and numbers of JSON.
#include "io/jsonl.h"

#include <math.h>
#include <string.h>

#include "io/utf8.h"

bool fwa_jsonl_blank(const char *line, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if (!memchr(" \t\r\n", line[i], 4)) return false;
    return true;
}

fwa_status fwa_jsonl_text(const char *path, int64_t number, const char *line, size_t bytes, const char *field,
                          json_t **object, const json_t **text) {
    json_error_t error;
    const size_t mark = fwa_utf8_mark(number, line, bytes);
    *object = NULL;
    *text = NULL;
    if (fwa_jsonl_blank(line + mark, bytes - mark)) return FWA_OK;
    *object = json_loadb(line + mark, bytes - mark, JSON_ALLOW_NUL, &error);
    FWA_CHECK(*object, FWA_FORMAT, "%s:%lld: byte %d: %s; expected a JSON object a line, in UTF-8", path,
              (long long)number, error.position, error.text);
    *text = json_object_get(*object, field);
    FWA_CHECK(json_is_string(*text), FWA_FORMAT,
              "%s:%lld: expected an object with a string \"%s\", got %s; --field names the member with the text", path,
              (long long)number, field,
              !json_is_object(*object) ? "no object"
              : *text                  ? "another type"
                                       : "none of that name");
    return FWA_OK;
}

void fwa_json_real(double value, FILE *out) {
    if (isfinite(value))
        fprintf(out, "%.9g", value);
    else
        fputs("null", out);
}
