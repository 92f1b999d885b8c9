// The program's commands: one table in main.c, one file a command. argv[0] is the command's name. Collective: every
// rank runs the same command.
#ifndef FWA_TRAIN_COMMANDS_H
#define FWA_TRAIN_COMMANDS_H

#include "dist/world.h"

#ifdef __cplusplus
extern "C" {
#endif

FWA_MUST_CHECK fwa_status fwa_cmd_train(fwa_world *world, int argc, char **argv);
FWA_MUST_CHECK fwa_status fwa_cmd_eval(fwa_world *world, int argc, char **argv);
FWA_MUST_CHECK fwa_status fwa_cmd_generate(fwa_world *world, int argc, char **argv);
FWA_MUST_CHECK fwa_status fwa_cmd_sweep(fwa_world *world, int argc, char **argv);
FWA_MUST_CHECK fwa_status fwa_cmd_report(fwa_world *world, int argc, char **argv);
FWA_MUST_CHECK fwa_status fwa_cmd_export(fwa_world *world, int argc, char **argv);
FWA_MUST_CHECK fwa_status fwa_cmd_import(fwa_world *world, int argc, char **argv);
FWA_MUST_CHECK fwa_status fwa_cmd_op(fwa_world *world, int argc, char **argv);
FWA_MUST_CHECK fwa_status fwa_cmd_bench(fwa_world *world, int argc, char **argv);
FWA_MUST_CHECK fwa_status fwa_cmd_data(fwa_world *world, int argc, char **argv);
FWA_MUST_CHECK fwa_status fwa_cmd_checkpoint(fwa_world *world, int argc, char **argv);
FWA_MUST_CHECK fwa_status fwa_cmd_info(fwa_world *world, int argc, char **argv);

#ifdef __cplusplus
}
#endif
#endif
