// Texts and numbers of every rank beside rank 0's.
#include "train/agreement.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/version.h"
#include "io/files.h"

#define DIFFERENCES_MAX 12 // that are listed

// Where sequences are cut into groups of heads and segments, and which kernels run: ranks that differ would wait for
// messages of other sizes, or give other roundings. What else the program reads is a rank's own: the launcher's
// variables, its GPU (CUDA_VISIBLE_DEVICES), how its threads wait (OMP_WAIT_POLICY).
static const char *const variables[] = {"FWA_RING_GROUPS", "FWA_SEGMENT_CHUNKS", "FWA_MIXER", "FWA_ATTENTION"};

// A word that names itself as `name`, and a hint.
static fwa_status agree_word(fwa_world *world, const char *name, const char *mine, const char *hint) {
    char *first;
    FWA_TRY(fwa_world_share_text(world, mine, &first));
    fwa_status status = FWA_OK;
    if (strcmp(mine, first) != 0)
        status = fwa_error_raise(FWA_USAGE, __FILE__, __LINE__, __func__,
                                 "%s: got '%s', but '%s' on rank 0; expected the same on all ranks%s", name, mine,
                                 first, hint);
    free(first);
    return fwa_world_agree(world, status);
}

fwa_status fwa_agree_program(fwa_world *world, const char *command) {
    char name[64], hint[64];
    if (world->size == 1) return FWA_OK;
    FWA_TRY(agree_word(world, "this program", fwa_version_text(), ": install one version on every host"));
    FWA_TRY(agree_word(world, "command", command, ""));
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        const char *value = getenv(variables[i]);
        snprintf(name, sizeof name, "%s in the environment", variables[i]);
        snprintf(hint, sizeof hint, " (mpirun -x %s)", variables[i]);
        FWA_TRY(agree_word(world, name, value ? value : "", hint));
    }
    return FWA_OK;
}

fwa_status fwa_agree_options(fwa_world *world, const fwa_option *options, const fwa_arguments *arguments) {
    if (world->size == 1) return FWA_OK;
    for (const fwa_option *option = options; option->name; option++) {
        const char *mine = option->takes_value ? fwa_arguments_value(arguments, option->name, "")
                           : fwa_arguments_flag(arguments, option->name) ? "given"
                                                                         : "";
        FWA_TRY(agree_word(world, option->name, mine, ""));
    }
    return FWA_OK;
}

// What a rank may have for itself, or only where it lies.
static const char *shared_value(const fwa_config *config, const fwa_config_entry *entry) {
    const char *file = strcmp(entry->key, "data.train") == 0 ? config->data.train
                       : strcmp(entry->key, "data.val") == 0 ? config->data.val
                                                             : NULL;
    const char *slash = file ? strrchr(file, '/') : NULL;
    if (strcmp(entry->key, "run.threads") == 0) return "its own";
    return slash ? slash + 1 : file ? file : entry->value;
}

// A line "key: value" for every key; NULL: out of memory.
static char *config_lines(const fwa_config *config) {
    fwa_config_entry *entries;
    char *text = NULL;
    size_t bytes = 0;
    int count;
    if (fwa_config_entries(config, &entries, &count) != FWA_OK) return NULL;
    FILE *out = open_memstream(&text, &bytes);
    for (int i = 0; out && i < count; i++) fprintf(out, "%s: %s\n", entries[i].key, shared_value(config, &entries[i]));
    fwa_config_entries_free(entries, count);
    return out && fwa_stream_end(out, &text) ? text : NULL;
}

// The value of a line's key among `lines`, up to the newline; NULL: it is not there.
static const char *value_in(const char *lines, const char *line) {
    const size_t length = (size_t)(strchr(line, ':') - line) + 1;
    for (const char *at = lines; *at; at = strchr(at, '\n') + 1)
        if (strncmp(at, line, length) == 0) return at + length + 1;
    return NULL;
}

// Lines of `these` that `those` has not, as "key: value of rank 0 -> value here".
static void list_differences(const char *these, const char *those, bool first, int *listed, FILE *out) {
    for (const char *line = these; *line; line = strchr(line, '\n') + 1) {
        const char *value = strchr(line, ':') + 2, *other = value_in(those, line);
        const int key = (int)(value - line), length = (int)strcspn(value, "\n");
        const int other_length = other ? (int)strcspn(other, "\n") : 6;
        if (other && (!first || (length == other_length && strncmp(value, other, (size_t)length) == 0))) continue;
        if (++*listed > DIFFERENCES_MAX) continue;
        if (!other) other = "absent";
        fprintf(out, "%.*s%.*s -> %.*s\n", key, line, first ? length : other_length, first ? value : other,
                first ? other_length : length, first ? other : value);
    }
}

static fwa_status compare_lines(const char *first, const char *mine) {
    char *lines = NULL;
    size_t bytes = 0;
    int listed = 0;
    if (strcmp(first, mine) == 0) return FWA_OK;
    FILE *out = open_memstream(&lines, &bytes);
    FWA_CHECK(out, FWA_MEMORY, "no memory to compare ranks");
    list_differences(first, mine, true, &listed, out);
    list_differences(mine, first, false, &listed, out);
    if (listed > DIFFERENCES_MAX) fprintf(out, "and %d more\n", listed - DIFFERENCES_MAX);
    const bool written = fwa_stream_end(out, &lines);
    fwa_status status = fwa_error_raise(
        written ? FWA_CONFIG : FWA_MEMORY, __FILE__, __LINE__, __func__,
        "this rank's configuration is not that of rank 0:\n%sstart all ranks with the same files and settings",
        written ? lines : "");
    free(lines);
    return status;
}

fwa_status fwa_agree_config(fwa_world *world, const fwa_config *config) {
    char *first = NULL;
    if (world->size == 1) return FWA_OK;
    char *mine = config_lines(config);
    fwa_status status = FWA_OK;
    if (!mine) status = fwa_error_raise(FWA_MEMORY, __FILE__, __LINE__, __func__, "no memory to compare ranks");
    FWA_TRY_GOTO(fwa_world_agree(world, status), done);
    FWA_TRY_GOTO(fwa_world_share_text(world, mine, &first), done);
    FWA_TRY_GOTO(fwa_world_agree(world, compare_lines(first, mine)), done);
done:
    free(mine);
    free(first);
    return status;
}

fwa_status fwa_agree_data(fwa_world *world, uint64_t fingerprint) {
    uint64_t first = fingerprint;
    fwa_status status = FWA_OK;
    FWA_TRY(world->all->broadcast(world->all, NULL, &first, sizeof first, FWA_U8, 0));
    if (first != fingerprint)
        status = fwa_error_raise(FWA_CONFIG, __FILE__, __LINE__, __func__,
                                 "this rank's training data is not that of rank 0 (fingerprint %016" PRIx64
                                 ", there %016" PRIx64 "): data.train and data.val must be the same shards on every "
                                 "host",
                                 fingerprint, first);
    return fwa_world_agree(world, status);
}
