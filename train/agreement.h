// What must be the same on all ranks, compared before anything is trained: the program, what the environment says of
// kernels and groups, the command's options, the configuration, the training data. Collective.
#ifndef FWA_TRAIN_AGREEMENT_H
#define FWA_TRAIN_AGREEMENT_H

#include "dist/world.h"
#include "io/config.h"
#include "train/arguments.h"

#ifdef __cplusplus
extern "C" {
#endif

// The program's version, the name of the command, and the variables of the environment that change what a rank
// computes or sends; empty is unset. FWA_USAGE naming the first that differs, the rank, and its value and rank 0's.
FWA_MUST_CHECK fwa_status fwa_agree_program(fwa_world *world, const char *command);
// The options of a command. FWA_USAGE, the same way.
FWA_MUST_CHECK fwa_status fwa_agree_options(fwa_world *world, const fwa_option *options,
                                            const fwa_arguments *arguments);
// Every key but run.threads and the folders of data.*; problems of `config` may be open. FWA_CONFIG listing those that
// differ from rank 0's.
FWA_MUST_CHECK fwa_status fwa_agree_config(fwa_world *world, const fwa_config *config);
// Fingerprints of the data. FWA_CONFIG naming a rank whose data is another than rank 0's.
FWA_MUST_CHECK fwa_status fwa_agree_data(fwa_world *world, uint64_t fingerprint);

#ifdef __cplusplus
}
#endif
#endif
