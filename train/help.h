// The table of commands and what `fwa help` prints from it.
#ifndef FWA_TRAIN_HELP_H
#define FWA_TRAIN_HELP_H

#include <stdio.h>

#include "dist/world.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fwa_command {
    const char *name, *arguments, *summary, *details;
    fwa_status (*run)(fwa_world *world, int argc, char **argv);
} fwa_command;

const fwa_command *fwa_command_find(const char *name); // NULL: none
// Prints the list of commands, or one command's page. Returns the exit code: 0, or 2 for an unknown name or `failed`.
int fwa_help(const char *name, FILE *out, int failed);

#ifdef __cplusplus
}
#endif
#endif
