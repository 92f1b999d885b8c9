// Checkpoints on disk (docs/checkpoint.md): a folder of HDF5 files whose rename is the commit.
//
//   RUN/checkpoints/step_00001000/  shard.rank00000.h5 ...  model.h5  optim.h5  state.h5  manifest.json
//   RUN/checkpoints/latest          name of the newest one, replaced atomically
//
// A shard holds this rank's rows of master, m and v, one dataset a parameter under its dotted name, with the attributes
// dtype, shape, row_start, init, decay, and fletcher32. model.h5 and optim.h5 are virtual views for people. fwa reads
// shards. Every HDF5 call in the program goes through io and behind one lock. Functions are Not collective unless said.
#ifndef FWA_IO_CHECKPOINT_H
#define FWA_IO_CHECKPOINT_H

#include "core/named_tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum fwa_checkpoint_part { FWA_PART_MASTER, FWA_PART_M, FWA_PART_V, FWA_PART_COUNT } fwa_checkpoint_part;

// What state.h5 holds besides tensors. Strings are owned by the caller when saving, by the reader when loading.
typedef struct fwa_checkpoint_state {
    int64_t step;   // training steps done (skipped ones included); the next global batch to read
    int64_t tokens; // tokens read so far
    int64_t accepted, skipped, skipped_in_a_row; // step state, kernels/ops.h
    double norm_mean;
    int64_t seed, epoch;
    uint64_t data_fingerprint, config_hash;
    double best_val_loss; // NaN: none yet
    const char *config;   // resolved YAML
    const char *version;  // fwa's version and commit, library versions
    const char *command;  // command line
    const char *choices;  // what measurement has chosen (io/records.h); "" nothing
} fwa_checkpoint_state;

typedef struct fwa_checkpoint_writer fwa_checkpoint_writer;

// Call once on the main thread before any other use of HDF5 in the process.
FWA_MUST_CHECK fwa_status fwa_hdf5_start(void);
void fwa_hdf5_version(char *text, size_t size); // of the library loaded, "1.10.8"; after fwa_hdf5_start

// Creates RUN/checkpoints/.step_NNNNNNNN.tmp (removing a left-over one) on rank 0 and opens it on the others, which
// call after rank 0 has returned. FWA_IO if the folder cannot be written or `bytes_needed` do not fit on the disk.
FWA_MUST_CHECK fwa_status fwa_checkpoint_begin(fwa_checkpoint_writer **out, const char *run_dir, int64_t step, int rank,
                                               int64_t bytes_needed);
// This rank's shard; tensors[part][i] with the same names in every part (a part that is NULL is left out). f32 or f64;
// slices may have no rows. Synced to disk.
FWA_MUST_CHECK fwa_status fwa_checkpoint_write_shard(fwa_checkpoint_writer *writer,
                                                     const fwa_named_tensor *const tensors[FWA_PART_COUNT], int count);
// Rank 0, once the shards of ranks 0 .. ranks-1 are written: checks that they hold every row exactly once, then views,
// state, manifest with sizes and digests, rename (replacing an older checkpoint of the same step), latest.
FWA_MUST_CHECK fwa_status fwa_checkpoint_publish(fwa_checkpoint_writer *writer, int ranks,
                                                 const fwa_checkpoint_state *state);
// Frees the writer; removes the temporary folder (rank 0) unless it was published.
void fwa_checkpoint_end(fwa_checkpoint_writer *writer);
// Rank 0: keeps the last `keep_last` checkpoints (0: all) and every one whose step is a multiple of `keep_every` (0:
// none). One whose manifest does not fit its files is not counted.
FWA_MUST_CHECK fwa_status fwa_checkpoint_prune(const char *run_dir, int64_t keep_last, int64_t keep_every);

// Whoever trains in the run folder, before looking for a checkpoint: puts back a whole one that a replacement had moved
// aside (RUN/checkpoints/.step_NNNNNNNN.old) when it was killed, where no other has taken its place.
FWA_MUST_CHECK fwa_status fwa_checkpoint_recover(const char *run_dir);
// Whether an interrupted save or removal has left something, RUN/checkpoints/.step_*; or one is under way.
FWA_MUST_CHECK fwa_status fwa_checkpoint_has_left(const char *run_dir, bool *has);
// Whoever trains in the run folder, before it goes back behind a checkpoint: removes that, but what
// fwa_checkpoint_recover puts back. Where it cannot be removed, a warning: it stays.
void fwa_checkpoint_clear(const char *run_dir);
// Whoever trains in the run folder, from step `step` of the checkpoint at `path` on: moves checkpoints of later steps,
// and one of this step that is not `path`, into a new folder RUN/checkpoints/set_aside_N, with a warning. They belong
// to steps that are now taken another way, or are damaged; otherwise the next start would take one of them, and fewer
// of the run's own were kept.
FWA_MUST_CHECK fwa_status fwa_checkpoint_set_aside(const char *run_dir, int64_t step, const char *path);

typedef struct fwa_checkpoint fwa_checkpoint;

// Opens one checkpoint folder; checks manifest, sizes and digests. FWA_IO (missing), FWA_FORMAT (damaged).
FWA_MUST_CHECK fwa_status fwa_checkpoint_open(fwa_checkpoint **out, const char *path);
// The same with sizes alone: for one that was checked just now, or of which little is read. What HDF5 reads has its own
// checksums.
FWA_MUST_CHECK fwa_status fwa_checkpoint_open_quick(fwa_checkpoint **out, const char *path);
void fwa_checkpoint_close(fwa_checkpoint *checkpoint);
const fwa_checkpoint_state *fwa_checkpoint_get_state(const fwa_checkpoint *checkpoint);
const char *fwa_checkpoint_path(const fwa_checkpoint *checkpoint);
// Fills to->tensor with its rows of the parameter, converting the type if it differs; joins shards as needed.
// FWA_FORMAT if the parameter is missing or has another shape (names both shapes).
FWA_MUST_CHECK fwa_status fwa_checkpoint_read(fwa_checkpoint *checkpoint, fwa_checkpoint_part part,
                                              fwa_named_tensor *to);
// The same of all rows of parameter `index` as they are stored, in new memory: the caller frees whole->tensor.data,
// which is NULL after a failure.
FWA_MUST_CHECK fwa_status fwa_checkpoint_read_whole(fwa_checkpoint *checkpoint, fwa_checkpoint_part part, int index,
                                                    fwa_named_tensor *whole);
// Number of parameters in it, and their names, to notice what a model lacks.
int fwa_checkpoint_count(const fwa_checkpoint *checkpoint);
const char *fwa_checkpoint_name(const fwa_checkpoint *checkpoint, int index);
// Name, logical shape, type, init and decay of one of them; its tensor has the whole shape and no data.
const fwa_named_tensor *fwa_checkpoint_about(const fwa_checkpoint *checkpoint, int index);
int fwa_checkpoint_ranks(const fwa_checkpoint *checkpoint); // shards
// Whether the checkpoint has this part of parameter `index`.
bool fwa_checkpoint_has(const fwa_checkpoint *checkpoint, fwa_checkpoint_part part, int index);
const char *fwa_checkpoint_part_name(fwa_checkpoint_part part); // "master", "m", "v"
// Writes the masters as a plain model.h5 that needs no shards: one dataset a parameter, and the attributes format,
// step and config. Replaces `path` when complete.
FWA_MUST_CHECK fwa_status fwa_checkpoint_pack(fwa_checkpoint *checkpoint, const char *path);

// Told about every file of a checkpoint: its size, and what is wrong with it; NULL: nothing.
typedef void (*fwa_checkpoint_told)(void *user, const char *file, int64_t bytes, const char *problem);
// Checks all there is to check of a folder: every file's size and digest, files that the manifest does not know, then
// that all rows of all tensors can be read and are finite. FWA_FORMAT with the first problem if there is one; `told`
// hears of all that concern a file.
FWA_MUST_CHECK fwa_status fwa_checkpoint_verify(const char *path, fwa_checkpoint_told told, void *user);

// Steps of the published checkpoints of a run, highest first; none if there is no RUN/checkpoints. The caller frees
// *steps.
FWA_MUST_CHECK fwa_status fwa_checkpoint_steps(const char *run_dir, int64_t **steps, int *count);

// Path of the newest checkpoint of a run that opens without damage into *path (caller frees; NULL if there is none at
// all). Damaged ones are warned about and passed over; FWA_FORMAT if there are some and all are damaged or set aside.
FWA_MUST_CHECK fwa_status fwa_checkpoint_newest(const char *run_dir, char **path);

#ifdef __cplusplus
}
#endif
#endif
