// Command-line words of one command.
#include "train/arguments.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static fwa_status unknown_option(const fwa_option *known, const char *command, const char *word) {
    char list[512] = "none";
    size_t used = 0;
    for (; known->name && used < sizeof list; known++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", known->name);
    FWA_FAIL(FWA_USAGE, "fwa %s: unknown option '%s'; options: %s (fwa help %s)", command, word, list, command);
}

// Length of the option's name in `word`, which may be "--name=value".
static size_t name_length(const char *word) {
    const char *equals = strchr(word, '=');
    return equals ? (size_t)(equals - word) : strlen(word);
}

static const fwa_option *find(const fwa_option *known, const char *word) {
    size_t length = name_length(word);
    for (; known->name; known++)
        if (strlen(known->name) == length && strncmp(known->name, word, length) == 0) return known;
    return NULL;
}

fwa_status fwa_arguments_parse(fwa_arguments *arguments, const fwa_option *known, int argc, char **argv) {
    memset(arguments, 0, sizeof *arguments);
    FWA_CHECK(argc <= FWA_ARGUMENTS_MAX, FWA_USAGE, "fwa %s: %d words; at most %d are taken", argv[0], argc,
              FWA_ARGUMENTS_MAX);
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (strncmp(word, "--", 2) != 0 && !find(known, word)) {
            arguments->at[arguments->count++] = word;
            continue;
        }
        const fwa_option *option = find(known, word);
        if (!option) return unknown_option(known, argv[0], word);
        const char *value = word[name_length(word)] == '=' ? word + name_length(word) + 1 : NULL;
        FWA_CHECK(option->takes_value || !value, FWA_USAGE, "fwa %s: %s takes no value, got '%s'", argv[0],
                  option->name, value);
        if (option->takes_value && !value) {
            FWA_CHECK(i + 1 < argc, FWA_USAGE, "fwa %s: %s needs a value (fwa help %s)", argv[0], option->name,
                      argv[0]);
            value = argv[++i];
        }
        FWA_CHECK(arguments->options < FWA_OPTIONS_MAX, FWA_USAGE, "fwa %s: at most %d options are taken", argv[0],
                  FWA_OPTIONS_MAX);
        arguments->name[arguments->options] = option->name;
        arguments->value[arguments->options++] = value;
    }
    return FWA_OK;
}

bool fwa_arguments_flag(const fwa_arguments *arguments, const char *name) {
    for (int i = 0; i < arguments->options; i++)
        if (strcmp(arguments->name[i], name) == 0) return true;
    return false;
}

const char *fwa_arguments_value(const fwa_arguments *arguments, const char *name, const char *standard) {
    const char *value = standard;
    for (int i = 0; i < arguments->options; i++)
        if (strcmp(arguments->name[i], name) == 0) value = arguments->value[i];
    return value;
}

fwa_status fwa_arguments_integer(const fwa_arguments *arguments, const char *name, int64_t standard, int64_t low,
                                 int64_t high, int64_t *out) {
    const char *text = fwa_arguments_value(arguments, name, NULL);
    char *end = NULL;
    errno = 0;
    *out = text ? strtoll(text, &end, 10) : standard;
    FWA_CHECK(!text || (end != text && *end == '\0' && errno != ERANGE && *out >= low && *out <= high), FWA_USAGE,
              "%s '%s': expected a whole number from %lld to %lld", name, text, (long long)low, (long long)high);
    return FWA_OK;
}

fwa_status fwa_arguments_choice(const fwa_arguments *arguments, const char *name, const char *const words[2],
                                int standard, int *out) {
    const char *value = fwa_arguments_value(arguments, name, words[standard]);
    for (*out = 0; *out < 2; ++*out)
        if (strcmp(value, words[*out]) == 0) return FWA_OK;
    FWA_FAIL(FWA_USAGE, "%s '%s': expected %s or %s", name, value, words[0], words[1]);
}
