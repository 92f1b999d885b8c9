// Versions of what computes, talks and writes: for people, and for what has to be told apart later. Not collective.
#ifndef FWA_TRAIN_LIBRARIES_H
#define FWA_TRAIN_LIBRARIES_H

#ifdef __cplusplus
extern "C" {
#endif

// "OpenBLAS 0.3.21, Open MPI v4.1.4, HDF5 1.10.8", in builds with CUDA with its libraries and NCCL. Static memory; call
// it first on the main thread.
const char *fwa_libraries_text(void);
// The same behind fwa's own version and commit: what checkpoints keep.
const char *fwa_program_text(void);

#ifdef __cplusplus
}
#endif
#endif
