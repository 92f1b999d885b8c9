// Records between lines of name=value pairs and JSON.
#include "io/records.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "io/files.h"

#define FORMAT  "fwa-choices"
#define VERSION 1

static fwa_status out_of_memory(void) {
    FWA_FAIL(FWA_MEMORY, "records: out of memory");
}

// A whole number that is printed as it was read.
static bool is_number(const char *text) {
    char again[32];
    snprintf(again, sizeof again, "%lld", strtoll(text, NULL, 10));
    return strcmp(again, text) == 0;
}

// Adds the pair that starts at `at`, changing the text.
static fwa_status add_pair(json_t *object, char *at) {
    char *value = strchr(at, '=');
    FWA_CHECK(value && value > at, FWA_ERROR, "record: got '%s', expected name=value", at);
    *value++ = '\0';
    json_t *item = is_number(value) ? json_integer(strtoll(value, NULL, 10)) : json_string(value);
    return item && json_object_set_new(object, at, item) == 0 ? FWA_OK : out_of_memory();
}

static fwa_status print_record(FILE *out, char *record) {
    fwa_status status = FWA_OK;
    char *rest = NULL, *text = NULL;
    json_t *object = json_object();
    FWA_CHECK(object, FWA_MEMORY, "records: out of memory");
    for (char *pair = strtok_r(record, "\t", &rest); pair; pair = strtok_r(NULL, "\t", &rest))
        FWA_TRY_GOTO(add_pair(object, pair), done);
    text = json_dumps(object, 0);
    FWA_CHECK_GOTO(text, FWA_MEMORY, done, "records: out of memory");
    fputs(text, out);
done:
    free(text);
    json_decref(object);
    return status;
}

static fwa_status print_records(FILE *out, char *records) {
    char *rest = NULL;
    const char *before = "";
    fprintf(out, "{\"format\": \"" FORMAT "\", \"version\": %d, \"choices\": [", VERSION);
    for (char *record = strtok_r(records, "\n", &rest); record; record = strtok_r(NULL, "\n", &rest)) {
        fprintf(out, "%s\n", before);
        FWA_TRY(print_record(out, record));
        before = ",";
    }
    fprintf(out, "\n]}\n");
    return FWA_OK;
}

// Ends a text under way: it is the caller's, or gone with the failure.
static fwa_status finish(FILE *out, char **text, fwa_status status) {
    if (!fwa_stream_end(out, text) && status == FWA_OK) status = out_of_memory();
    if (status == FWA_OK) return FWA_OK;
    free(*text);
    *text = NULL;
    return status;
}

fwa_status fwa_records_to_json(const char *records, char **json) {
    size_t size = 0;
    char *copy = strdup(records);
    FILE *out = copy ? open_memstream(json, &size) : NULL;
    if (!out) free(copy);
    if (!out) return out_of_memory();
    fwa_status status = finish(out, json, copy[0] ? print_records(out, copy) : FWA_OK);
    free(copy);
    FWA_TRY(status);
    return FWA_OK;
}

static bool plain(const char *text) {
    return text && !strpbrk(text, "\t\n");
}

static fwa_status print_object(FILE *out, json_t *object, const char *place) {
    const char *name, *before = "";
    json_t *value;
    FWA_CHECK(json_is_object(object), FWA_FORMAT, "%s: a choice is no object", place);
    json_object_foreach(object, name, value) {
        FWA_CHECK(plain(name) && !strchr(name, '=') && (json_is_integer(value) || plain(json_string_value(value))),
                  FWA_FORMAT, "%s: choice \"%s\" is neither a whole number nor a line of text", place, name);
        if (json_is_integer(value))
            fprintf(out, "%s%s=%lld", before, name, (long long)json_integer_value(value));
        else
            fprintf(out, "%s%s=%s", before, name, json_string_value(value));
        before = "\t";
    }
    fputc('\n', out);
    return FWA_OK;
}

static fwa_status print_objects(FILE *out, const json_t *root, const char *place) {
    const char *format = json_string_value(json_object_get(root, "format"));
    const json_t *choices = json_object_get(root, "choices");
    json_int_t version = json_integer_value(json_object_get(root, "version"));
    FWA_CHECK(format && strcmp(format, FORMAT) == 0 && version == VERSION && json_is_array(choices), FWA_FORMAT,
              "%s: got format \"%s\", version %lld, expected \"" FORMAT "\", version %d", place,
              format ? format : "none", (long long)version, VERSION);
    for (size_t i = 0; i < json_array_size(choices); i++) FWA_TRY(print_object(out, json_array_get(choices, i), place));
    return FWA_OK;
}

fwa_status fwa_records_from_json(const char *json, const char *place, char **records) {
    size_t size = 0;
    json_error_t error;
    json_t *root = json[0] ? json_loads(json, JSON_REJECT_DUPLICATES, &error) : json_null();
    FWA_CHECK(root, FWA_FORMAT, "%s:%d: not JSON: %s", place, error.line, error.text);
    FILE *out = open_memstream(records, &size);
    fwa_status status = out ? FWA_OK : out_of_memory();
    if (out) status = finish(out, records, json[0] ? print_objects(out, root, place) : FWA_OK);
    json_decref(root);
    FWA_TRY(status);
    return FWA_OK;
}
