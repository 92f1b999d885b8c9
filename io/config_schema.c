// The schema as a table, and the search for keys in it.
#include "io/config_schema.h"

#include <string.h>

#include "core/shape.h"

#define FWA_REQUIRED NULL

// A field must have the C type of its kind.
#define IS_TEXT(value)  _Generic((value), char * : 1, default : 0)
#define IS_INT(value)   _Generic((value), int64_t : 1, default : 0)
#define IS_REAL(value)  _Generic((value), double : 1, default : 0)
#define IS_BOOL(value)  _Generic((value), bool : 1, default : 0)
#define IS_ENUM(value)  _Generic((value), int : 1, default : 0)
#define IS_PAIR(value)  _Generic((value), double : 1, default : 0)
#define IS_NAMES(value) _Generic((value), char(*)[32] : 1, default : 0)
#define FWA_SECTION(name, meaning)
#define FWA_CONFIG_KEY(section, name, field, KIND, standard, allowed, RESUME, meaning)                                 \
    _Static_assert(IS_##KIND(((fwa_config *)0)->field), #section "." #name " is not of kind " #KIND);
#define FWA_MIXER_KEY(name, KIND, standard, allowed, meaning)                                                          \
    _Static_assert(IS_##KIND(((fwa_mixer_config *)0)->name), "mixer key " #name " is not of kind " #KIND);
#include "io/config_schema.def"
#undef FWA_CONFIG_KEY
#undef FWA_MIXER_KEY
_Static_assert(offsetof(fwa_config, optimizer.beta2) == offsetof(fwa_config, optimizer.beta1) + sizeof(double),
               "a pair is two doubles in a row");

#define FWA_CONFIG_KEY(section, name, field, KIND, standard, allowed, RESUME, meaning)                                 \
    {#section "." #name,                                                                                               \
     FWA_KEY_##KIND,                                                                                                   \
     FWA_KEY_##RESUME,                                                                                                 \
     offsetof(fwa_config, field),                                                                                      \
     sizeof(((fwa_config *)0)->field),                                                                                 \
     standard,                                                                                                         \
     allowed,                                                                                                          \
     meaning},
#define FWA_MIXER_KEY(name, KIND, standard, allowed, meaning)
const fwa_key fwa_keys[] = {
#include "io/config_schema.def"
    {0}};
#undef FWA_CONFIG_KEY
#undef FWA_MIXER_KEY

#define FWA_CONFIG_KEY(section, name, field, KIND, standard, allowed, RESUME, meaning)
#define FWA_MIXER_KEY(name, KIND, standard, allowed, meaning)                                                          \
    {#name,    FWA_KEY_##KIND, FWA_KEY_SAME, offsetof(fwa_mixer_config, name), sizeof(((fwa_mixer_config *)0)->name),  \
     standard, allowed,        meaning},
const fwa_key fwa_mixer_keys[] = {
#include "io/config_schema.def"
    {0}};
#undef FWA_MIXER_KEY
#undef FWA_SECTION

#define FWA_MIXER_KEY(name, KIND, standard, allowed, meaning)
#define FWA_SECTION(name, meaning) {#name, meaning},
const fwa_section fwa_sections[] = {
#include "io/config_schema.def"
    {0}};

const fwa_key *fwa_key_find(const fwa_key *table, const char *path) {
    for (const fwa_key *key = table; key->path; key++)
        if (!strcmp(key->path, path)) return key;
    return NULL;
}

bool fwa_key_in_section(const fwa_key *key, const char *section) {
    size_t length = strlen(section);
    return !strncmp(key->path, section, length) && key->path[length] == '.';
}

bool fwa_key_name(const char *names, int index, char name[32]) {
    for (; index > 0; index--) {
        names = strchr(names, '|');
        if (!names) return false;
        names++;
    }
    snprintf(name, 32, "%.*s", (int)strcspn(names, "|"), names);
    return true;
}

// Levenshtein distance of the first FWA_KEY_PATH_MAX - 1 bytes.
static int distance(const char *a, const char *b) {
    int row[FWA_KEY_PATH_MAX]; // row[j]: distance of the prefix of a so far to the first j bytes of b
    int n = (int)fwa_min((int64_t)strlen(b), FWA_KEY_PATH_MAX - 1);
    for (int j = 0; j <= n; j++) row[j] = j;
    for (int i = 0; a[i] && i < FWA_KEY_PATH_MAX - 1; i++) {
        int diagonal = row[0];
        row[0] = i + 1;
        for (int j = 1; j <= n; j++) {
            int change = diagonal + (a[i] != b[j - 1]);
            diagonal = row[j];
            row[j] = (int)fwa_min(change, fwa_min(row[j], row[j - 1]) + 1);
        }
    }
    return row[n];
}

static const char *last_part(const char *path) {
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

// The right name in the wrong section costs one.
static void consider(const char *path, const char *candidate, int *best, char nearest[FWA_KEY_PATH_MAX]) {
    int cost = (int)fwa_min(distance(path, candidate), (int64_t)distance(last_part(path), last_part(candidate)) + 1);
    if (cost >= *best) return;
    *best = cost;
    snprintf(nearest, FWA_KEY_PATH_MAX, "%s", candidate);
}

void fwa_key_nearest(const char *path, char nearest[FWA_KEY_PATH_MAX]) {
    int best = FWA_KEY_PATH_MAX * 2;
    char candidate[FWA_KEY_PATH_MAX];
    nearest[0] = 0;
    for (const fwa_key *key = fwa_keys; key->path; key++) consider(path, key->path, &best, nearest);
    for (const fwa_section *s = fwa_sections; s->name; s++) consider(path, s->name, &best, nearest);
    consider(path, "model.mixer", &best, nearest);
    static const char mixer[] = "model.mixer."; // in front of a setting stands this, or the entry that `path` names
    size_t length = strlen(mixer), owner = (size_t)(last_part(path) - path);
    bool named = !strncmp(path, mixer, length) && owner > length && owner < FWA_KEY_PATH_MAX / 2;
    for (const fwa_key *key = fwa_mixer_keys; key->path; key++) {
        snprintf(candidate, sizeof candidate, "%.*s%s", (int)(named ? owner : length), named ? path : mixer, key->path);
        consider(path, candidate, &best, nearest);
    }
}
