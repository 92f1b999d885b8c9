// From a configuration to the objects of a run: backend, model, and the checks that need rules, ranks or devices.
#ifndef FWA_TRAIN_SETUP_H
#define FWA_TRAIN_SETUP_H

#include "dist/world.h"
#include "io/config.h"
#include "layers/model.h"
#include "train/tasks/task.h"

#ifdef __cplusplus
extern "C" {
#endif

// Not collective. Fills *spec; unknown rules, options a rule does not have and sizes that do not fit are added to the
// configuration's problems. `vocab`: ids the task uses.
FWA_MUST_CHECK fwa_status fwa_setup_model(fwa_model_spec *spec, fwa_config *config, int64_t vocab);

// Not collective. Adds problems of layout: batch sizes against ranks, sp, zero.
FWA_MUST_CHECK fwa_status fwa_setup_layout(fwa_config *config, const fwa_world *world);

// Not collective. Every problem of a configuration that can be told without data, device and run folder, together.
FWA_MUST_CHECK fwa_status fwa_setup_check(fwa_config *config, const fwa_world *world);

// Not collective. FWA_CONFIG or FWA_UNSUPPORTED where fwa_setup_backend will refuse run.backend and train.precision:
// `here`, on this machine, otherwise on any that this program can run on. Starts no device.
FWA_MUST_CHECK fwa_status fwa_setup_backend_check(fwa_config *config, bool here);

// Not collective. The backend of run.backend and train.precision for this rank. `plan_only`: nothing will run and
// only sizes may be asked, so that a plan for another machine can be made: any number of ranks on this machine's GPU,
// or without one the types of a GPU and the memory that the CPU's kernels need.
FWA_MUST_CHECK fwa_status fwa_setup_backend(fwa_backend **out, fwa_config *config, const fwa_world *world,
                                            bool plan_only);

#ifdef __cplusplus
}
#endif
#endif
