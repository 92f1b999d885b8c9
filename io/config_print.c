// The resolved configuration as YAML, and the reference page of all keys.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "io/config_schema.h"
#include "io/files.h"

static void print_mixers(const fwa_config *config, FILE *out) {
    fputs("  mixer:\n", out);
    for (int i = 0; i < config->model.mixer_count; i++) {
        const fwa_mixer_config *mixer = &config->model.mixer[i];
        fprintf(out, "    %s:\n", mixer->name);
        for (const fwa_key *key = fwa_mixer_keys; key->path; key++) {
            fprintf(out, "      %s: ", key->path);
            fwa_key_print(key, mixer, out);
            fputc('\n', out);
        }
    }
}

static void print_config(const fwa_config *config, FILE *out) {
    for (const fwa_section *section = fwa_sections; section->name; section++) {
        fprintf(out, "%s:\n", section->name);
        for (const fwa_key *key = fwa_keys; key->path; key++) {
            if (!fwa_key_in_section(key, section->name)) continue;
            fprintf(out, "  %s: ", strchr(key->path, '.') + 1);
            fwa_key_print(key, config, out);
            fputc('\n', out);
        }
        if (!strcmp(section->name, "model")) print_mixers(config, out);
    }
}

fwa_status fwa_config_print(const fwa_config *config, FILE *out) {
    print_config(config, out);
    FWA_CHECK(!fflush(out) && !ferror(out), FWA_IO, "cannot write the configuration: %s", strerror(errno));
    return FWA_OK;
}

char *fwa_config_text(const fwa_config *config) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out) return NULL;
    print_config(config, out);
    return fwa_stream_end(out, &text) ? text : NULL;
}

static const char introduction[] =
    "# Configuration\n"
    "\n"
    "Every key that a configuration file may hold. This page is printed by `fwa help configuration` from\n"
    "`io/config_schema.def`; change the schema, not the page.\n"
    "\n"
    "A file is YAML with one mapping a section. `base: PATH`, relative to the file it stands in, names a file whose "
    "values\n"
    "hold where this one says nothing; a base may have a base. On the command line `section.key=value` overrides "
    "files,\n"
    "the last one wins; lists are written `[a, b]`, an empty text `\"\"`. `fwa train CONFIG.yaml --print-config` shows "
    "what\n"
    "results.\n"
    "\n"
    "Unknown and repeated keys, wrong types and values out of range end the program with exit code 2, all of them "
    "listed\n"
    "with file and line. Numbers are decimal (`1e-3`), truth values `true` and `false`; a square bracket in a range "
    "includes\n"
    "its end, a round one does not.\n"
    "\n"
    "**Resume** says what a resumed run may change: `same` nothing, `larger` a larger value, `folder` the folder in "
    "front of\n"
    "the last `/`, `free` anything. Keys other than the free ones make up the hash of the run.\n";

static const char mixer_introduction[] =
    "\n### `model.mixer.NAME`\n"
    "\n"
    "`model.mixer` maps names of up to 31 letters, digits, `_` and `-` to the settings of a mixer, at most %d of them; "
    "with no\n"
    "entry there is one, `main`, with the defaults below. On the command line `model.mixer.rule=falcon3a` sets a key "
    "in\n"
    "every entry, `model.mixer.main.rule=falcon3a` in one. All of them must stay the same in a resumed run.\n";

static void print_row(const fwa_key *key, FILE *out) {
    static const char *const resume[] = {"same", "larger", "folder", "free"};
    fprintf(out, "| `%s` | ", key->path);
    if (key->standard)
        fprintf(out, "`%s`", key->standard);
    else
        fputs("required", out);
    fputs(" | ", out);
    fwa_key_expected(key, "`", out);
    fprintf(out, " | %s | %s |\n", resume[key->resume], key->meaning);
}

static void print_table(const fwa_key *table, const char *section, FILE *out) {
    fputs("\n| key | default | value | resume | meaning |\n|---|---|---|---|---|\n", out);
    for (const fwa_key *key = table; key->path; key++)
        if (!section || fwa_key_in_section(key, section)) print_row(key, out);
}

fwa_status fwa_config_reference(FILE *out) {
    fputs(introduction, out);
    for (const fwa_section *section = fwa_sections; section->name; section++) {
        fprintf(out, "\n## `%s`\n\n%s\n", section->name, section->meaning);
        print_table(fwa_keys, section->name, out);
        if (strcmp(section->name, "model") != 0) continue;
        fprintf(out, mixer_introduction, FWA_CONFIG_MIXERS);
        print_table(fwa_mixer_keys, NULL, out);
    }
    FWA_CHECK(!fflush(out) && !ferror(out), FWA_IO, "cannot write the configuration's reference: %s", strerror(errno));
    return FWA_OK;
}
