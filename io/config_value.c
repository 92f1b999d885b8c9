// One value: from a YAML node into a field, from a field to YAML, and what its key expects in words.
#include "io/config_schema.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "io/files.h"

static const char automatic[] = "auto or ";

static bool has_auto(const fwa_key *key) {
    return !strncmp(key->allowed, automatic, strlen(automatic));
}

static const char *interval_of(const fwa_key *key) {
    return key->allowed + (has_auto(key) ? strlen(automatic) : 0);
}

// Whether x lies in "[low, high)" and the like.
static bool inside(const char *interval, double x) {
    char *end;
    double low = strtod(interval + 1, &end);
    double high = strtod(end + 1, &end);
    return (interval[0] == '[' ? x >= low : x > low) && (*end == ']' ? x <= high : x < high);
}

// -?digits, in 64 bits.
static bool read_integer(const char *text, int64_t *value) {
    const char *digits = text + (*text == '-');
    if (!*digits || digits[strspn(digits, "0123456789")]) return false;
    errno = 0;
    *value = strtoll(text, NULL, 10);
    return errno == 0;
}

// A finite decimal number; strtod's names and hexadecimal are not.
static bool read_real(const char *text, double *value) {
    char *end;
    if (!*text || text[strspn(text, "0123456789+-.eE")]) return false;
    *value = strtod(text, &end) + 0.0; // -0 is 0
    return end != text && !*end && isfinite(*value);
}

// Valid UTF-8 without control characters and line breaks: what stays itself inside a YAML string.
static bool is_printable(const char *text) {
    const unsigned char *p = (const unsigned char *)text;
    while (*p) {
        int more = *p < 0x80 ? 0 : *p < 0xC2 ? -1 : *p < 0xE0 ? 1 : *p < 0xF0 ? 2 : *p < 0xF5 ? 3 : -1;
        static const uint32_t smallest[] = {0x20, 0xA0, 0x800, 0x10000};
        if (more < 0) return false;
        uint32_t code = more ? *p & (0x3Fu >> more) : *p;
        p++;
        for (int i = 0; i < more; i++, p++) {
            if ((*p & 0xC0) != 0x80) return false;
            code = code << 6 | (*p & 0x3Fu);
        }
        bool surrogate = code >= 0xD800 && code < 0xE000;
        bool special = code == 0x7F || code == 0x2028 || code == 0x2029 || code == 0xFEFF || (code | 1) == 0xFFFF;
        if (code < smallest[more] || code > 0x10FFFF || surrogate || special) return false;
    }
    return true;
}

static bool set_text(const fwa_key *key, char *field, const char *text) {
    if ((!*text && !*key->allowed) || strlen(text) >= key->size || !is_printable(text)) return false;
    memset(field, 0, key->size);
    snprintf(field, key->size, "%s", text);
    return true;
}

static bool set_number(const fwa_key *key, void *field, const fwa_yaml *node) {
    bool integer = key->kind == FWA_KEY_INT;
    int64_t i = 0;
    double x = -1.0;
    if (!has_auto(key) || strcmp(node->text, "auto") != 0) {
        if (node->quoted || !(integer ? read_integer(node->text, &i) : read_real(node->text, &x))) return false;
        if (!inside(interval_of(key), integer ? (double)i : x)) return false;
    }
    if (integer)
        *(int64_t *)field = i;
    else
        *(double *)field = x;
    return true;
}

static bool set_bool(bool *field, const fwa_yaml *node) {
    bool yes = !strcmp(node->text, "true");
    if (node->quoted || (!yes && strcmp(node->text, "false") != 0)) return false;
    *field = yes;
    return true;
}

static bool set_enum(const fwa_key *key, int *field, const char *text) {
    char name[32];
    for (int i = 0; fwa_key_name(key->allowed, i, name); i++)
        if (!strcmp(name, text)) {
            *field = i;
            return true;
        }
    return false;
}

static bool set_pair(const fwa_key *key, double *field, const fwa_yaml *list) {
    double pair[2];
    int count = 0;
    for (const fwa_yaml *c = list->child; c; c = c->next, count++) {
        if (count == 2 || c->kind != FWA_YAML_SCALAR || c->quoted || !read_real(c->text, &pair[count])) return false;
        if (!inside(key->allowed, pair[count])) return false;
    }
    if (count != 2) return false;
    memcpy(field, pair, sizeof pair);
    return true;
}

static bool set_names(fwa_config *config, const fwa_yaml *list) {
    int count = 0;
    for (const fwa_yaml *c = list->child; c; c = c->next, count++)
        if (count == FWA_CONFIG_LAYERS || c->kind != FWA_YAML_SCALAR ||
            strlen(c->text) >= sizeof config->model.mixers[0])
            return false;
    if (!count) return false;
    memset(config->model.mixers, 0, sizeof config->model.mixers);
    config->model.mixers_count = 0;
    for (const fwa_yaml *c = list->child; c; c = c->next)
        memcpy(config->model.mixers[config->model.mixers_count++], c->text, strlen(c->text));
    return true;
}

static bool set(const fwa_key *key, void *base, const fwa_yaml *node) {
    void *field = (char *)base + key->offset;
    bool list = key->kind == FWA_KEY_PAIR || key->kind == FWA_KEY_NAMES;
    if (node->kind != (list ? FWA_YAML_LIST : FWA_YAML_SCALAR) || fwa_yaml_is_null(node)) return false;
    switch (key->kind) {
    case FWA_KEY_TEXT:
        return set_text(key, field, node->text);
    case FWA_KEY_INT:
    case FWA_KEY_REAL:
        return set_number(key, field, node);
    case FWA_KEY_BOOL:
        return set_bool(field, node);
    case FWA_KEY_ENUM:
        return set_enum(key, field, node->text);
    case FWA_KEY_PAIR:
        return set_pair(key, field, node);
    case FWA_KEY_NAMES:
        return set_names(base, node);
    }
    return false;
}

void fwa_key_expected(const fwa_key *key, const char *quote, FILE *out) {
    char name[32];
    switch (key->kind) {
    case FWA_KEY_TEXT:
        fprintf(out, "printable text of %d to %zu bytes", *key->allowed ? 0 : 1, key->size - 1);
        return;
    case FWA_KEY_INT:
    case FWA_KEY_REAL:
        if (has_auto(key)) fprintf(out, "%sauto%s or ", quote, quote);
        fprintf(out, "%s in %s", key->kind == FWA_KEY_INT ? "an integer" : "a number", interval_of(key));
        return;
    case FWA_KEY_BOOL:
        fprintf(out, "%strue%s or %sfalse%s", quote, quote, quote, quote);
        return;
    case FWA_KEY_ENUM:
        fputs("one of ", out);
        for (int i = 0; fwa_key_name(key->allowed, i, name); i++)
            fprintf(out, "%s%s%s%s", i ? ", " : "", quote, name, quote);
        return;
    case FWA_KEY_PAIR:
        fprintf(out, "a list of two numbers in %s", key->allowed);
        return;
    case FWA_KEY_NAMES:
        fprintf(out, "a list of 1 to %d entries of model.mixer", FWA_CONFIG_LAYERS);
        return;
    }
}

static void print_got(const fwa_yaml *node, FILE *out) {
    if (node->kind == FWA_YAML_MAP) {
        fputs("a mapping", out);
    } else if (fwa_yaml_is_null(node)) {
        fputs("no value", out);
    } else if (node->kind == FWA_YAML_SCALAR) {
        const char *quote = node->quoted || !node->text[0] ? "\"" : "";
        fprintf(out, "%s%.60s%s%s", quote, node->text, strlen(node->text) > 60 ? "..." : "", quote);
    } else {
        fputc('[', out);
        int count = 0;
        for (const fwa_yaml *c = node->child; c && count < 4; c = c->next, count++) {
            if (count) fputs(count == 3 ? ", ..." : ", ", out);
            if (count < 3) print_got(c, out);
        }
        fputc(']', out);
    }
}

bool fwa_key_set(const fwa_key *key, void *base, const fwa_yaml *node, char message[512]) {
    memset(message, 0, 512);
    if (set(key, base, node)) return true;
    FILE *out = fmemopen(message, 511, "w");
    if (!out) return false;
    fputs("got ", out);
    print_got(node, out);
    fputs(", expected ", out);
    fwa_key_expected(key, "", out);
    fclose(out);
    return false;
}

fwa_status fwa_key_set_default(const fwa_key *key, void *base) {
    char message[512];
    fwa_yaml *node = NULL;
    if (!key->standard) return FWA_OK;
    FWA_TRY(fwa_yaml_parse(&node, key->standard, "default"));
    bool good = fwa_key_set(key, base, node, message);
    fwa_yaml_destroy(node);
    FWA_CHECK(good, FWA_ERROR, "default of %s in the schema: %s", key->path, message);
    return FWA_OK;
}

// The fewest digits that read back to the same number; no exponent from 1 to a million.
static void print_real(double x, FILE *out) {
    char text[40];
    bool everyday = fabs(x) >= 1.0 && fabs(x) < 1e6;
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x);
        if (strtod(text, NULL) == x && !(everyday && strchr(text, 'e'))) break;
    }
    fputs(text, out);
}

// Plain where YAML takes it for nothing else, in double quotes otherwise.
static void print_text(const char *text, FILE *out) {
    static const char safe[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_./-*+=@";
    bool plain = isalnum((unsigned char)text[0]) && strcmp(text, "null") != 0 && !text[strspn(text, safe)];
    if (plain) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') fputc('\\', out);
        fputc(*text, out);
    }
    fputc('"', out);
}

void fwa_key_print(const fwa_key *key, const void *base, FILE *out) {
    const void *field = (const char *)base + key->offset;
    const double *real = field;
    const fwa_config *config = base;
    char name[32] = "";
    switch (key->kind) {
    case FWA_KEY_TEXT:
        print_text(field, out);
        return;
    case FWA_KEY_INT:
        if (has_auto(key) && *(const int64_t *)field == 0)
            fputs("auto", out);
        else
            fprintf(out, "%" PRId64, *(const int64_t *)field);
        return;
    case FWA_KEY_REAL:
        if (has_auto(key) && *real < 0)
            fputs("auto", out);
        else
            print_real(*real, out);
        return;
    case FWA_KEY_BOOL:
        fputs(*(const bool *)field ? "true" : "false", out);
        return;
    case FWA_KEY_ENUM:
        fwa_key_name(key->allowed, *(const int *)field, name);
        fputs(name, out);
        return;
    case FWA_KEY_PAIR:
        fputc('[', out);
        print_real(real[0], out);
        fputs(", ", out);
        print_real(real[1], out);
        fputc(']', out);
        return;
    case FWA_KEY_NAMES:
        fputc('[', out);
        for (int i = 0; i < config->model.mixers_count; i++)
            fprintf(out, "%s%s", i ? ", " : "", config->model.mixers[i]);
        fputc(']', out);
        return;
    }
}

char *fwa_key_text(const fwa_key *key, const void *base) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out) return NULL;
    fwa_key_print(key, base, out);
    return fwa_stream_end(out, &text) ? text : NULL;
}
