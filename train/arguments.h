// Command-line words of one command: options "--name value" or "--name=value", flags "--name", and the rest in order.
#ifndef FWA_TRAIN_ARGUMENTS_H
#define FWA_TRAIN_ARGUMENTS_H

#include <stdbool.h>

#include "core/status.h"
#include "core/types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FWA_ARGUMENTS_MAX 1024
#define FWA_OPTIONS_MAX   64

typedef struct fwa_option {
    const char *name; // "--resume", or "-o"; NULL ends a list
    bool takes_value;
} fwa_option;

typedef struct fwa_arguments {
    const char *at[FWA_ARGUMENTS_MAX]; // positional words
    int count;
    const char *name[FWA_OPTIONS_MAX], *value[FWA_OPTIONS_MAX]; // options given; value NULL for flags
    int options;
} fwa_arguments;

// argv[0] is the command's name. FWA_USAGE for an unknown option (naming those there are) or a missing value. Words
// stay the caller's. Not collective.
FWA_MUST_CHECK fwa_status fwa_arguments_parse(fwa_arguments *arguments, const fwa_option *known, int argc, char **argv);
bool fwa_arguments_flag(const fwa_arguments *arguments, const char *name);
const char *fwa_arguments_value(const fwa_arguments *arguments, const char *name, const char *standard);
// A whole number in [low, high]; FWA_USAGE otherwise. *out is the standard where the option was not given.
FWA_MUST_CHECK fwa_status fwa_arguments_integer(const fwa_arguments *arguments, const char *name, int64_t standard,
                                                int64_t low, int64_t high, int64_t *out);
// The number of the one of two words that was given; `standard` where the option was not. FWA_USAGE for another word.
FWA_MUST_CHECK fwa_status fwa_arguments_choice(const fwa_arguments *arguments, const char *name,
                                               const char *const words[2], int standard, int *out);

#ifdef __cplusplus
}
#endif
#endif
