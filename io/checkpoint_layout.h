// Names of a checkpoint's folders, files and groups, shared by writing and reading. Not collective.
#ifndef FWA_IO_CHECKPOINT_LAYOUT_H
#define FWA_IO_CHECKPOINT_LAYOUT_H

#include "io/checkpoint.h"
#include "io/files.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FWA_CHECKPOINT_FORMAT  "fwa-checkpoint"
#define FWA_CHECKPOINT_VERSION 1

extern const char *const fwa_part_names[FWA_PART_COUNT]; // groups of a shard: "master", "m", "v"

#define FWA_SHARD_NAME_MAX 32
void fwa_shard_name(char name[FWA_SHARD_NAME_MAX], int rank); // shard.rank00000.h5

// RUN/checkpoints/<prefix>step_00001000<suffix>
FWA_MUST_CHECK fwa_status fwa_checkpoint_folder(char path[FWA_PATH_MAX], const char *run_dir, const char *prefix,
                                                int64_t step, const char *suffix);
// Removes what an interrupted save or removal left behind, RUN/checkpoints/.step_*, but what fwa_checkpoint_recover
// puts back.
FWA_MUST_CHECK fwa_status fwa_checkpoint_sweep(const char *run_dir);
// Whether there is a folder RUN/checkpoints/set_aside_N.
#define FWA_ASIDE "set_aside_"
FWA_MUST_CHECK fwa_status fwa_checkpoint_has_aside(const char *run_dir, bool *has);
// RUN/checkpoints/latest names that step.
FWA_MUST_CHECK fwa_status fwa_checkpoint_name_latest(const char *run_dir, int64_t step);

// manifest.json: every file of the folder with its size and digest; written last.
FWA_MUST_CHECK fwa_status fwa_manifest_write(const char *folder, int64_t step, int ranks);
// FWA_IO if there is no such folder, FWA_FORMAT if a file is missing, has another size or (digests) another content.
FWA_MUST_CHECK fwa_status fwa_manifest_check(const char *folder, bool digests, int *ranks);
// The same with digests for every file, the first problem at the end; files that the manifest does not list, too.
FWA_MUST_CHECK fwa_status fwa_manifest_check_all(const char *folder, fwa_checkpoint_told told, void *user, int *ranks);

// state.h5 of a folder; the HDF5 lock is held. Reading allocates the texts (fwa_state_free).
FWA_MUST_CHECK fwa_status fwa_state_write(const char *folder, const fwa_checkpoint_state *state);
FWA_MUST_CHECK fwa_status fwa_state_read(const char *folder, fwa_checkpoint_state *state);
void fwa_state_free(fwa_checkpoint_state *state);

#ifdef __cplusplus
}
#endif
#endif
