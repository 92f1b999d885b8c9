// A save under way, shared by the files that write it.
#ifndef FWA_IO_CHECKPOINT_WRITER_H
#define FWA_IO_CHECKPOINT_WRITER_H

#include "io/checkpoint_index.h"

#ifdef __cplusplus
extern "C" {
#endif

struct fwa_checkpoint_writer {
    char run_dir[FWA_PATH_MAX];
    char temporary[FWA_PATH_MAX]; // RUN/checkpoints/.step_00001000.tmp
    char final[FWA_PATH_MAX];     // RUN/checkpoints/step_00001000
    int64_t step;
    int rank;
    bool published;
};

// model.h5 (/<name>) and optim.h5 (/m/<name>, /v/<name>): virtual datasets over the shards. The HDF5 lock is held.
FWA_MUST_CHECK fwa_status fwa_views_write(const char *folder, const fwa_index *index);

#ifdef __cplusplus
}
#endif
#endif
