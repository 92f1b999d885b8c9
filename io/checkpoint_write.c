// Writing a checkpoint: temporary folder, one shard a rank, clean-up.
#include <stdlib.h>

#include "io/checkpoint_writer.h"
#include "io/hdf5_rows.h"

static fwa_status prepare_folder(const fwa_checkpoint_writer *writer, int64_t bytes_needed) {
    char parent[FWA_PATH_MAX];
    FWA_TRY(fwa_path_format(parent, "%s/checkpoints", writer->run_dir));
    if (writer->rank == 0) {
        FWA_CHECK(fwa_path_exists(writer->run_dir), FWA_IO, "run folder %s is gone: nothing is saved without it",
                  writer->run_dir);
        FWA_TRY(fwa_make_folders(parent));
        FWA_TRY(fwa_checkpoint_sweep(writer->run_dir));
    }
    int64_t free_bytes = fwa_free_bytes(parent);
    FWA_CHECK(free_bytes < 0 || bytes_needed <= free_bytes, FWA_IO,
              "a checkpoint in %s needs %lld bytes: %lld are free on its disk; the older checkpoints stay, free some "
              "space or lower checkpoint.keep_last",
              parent, (long long)bytes_needed, (long long)free_bytes);
    if (writer->rank == 0) FWA_TRY(fwa_make_folders(writer->temporary));
    FWA_CHECK(fwa_path_exists(writer->temporary), FWA_IO,
              "folder %s, made by rank 0, is not seen by rank %d: run.dir must be on storage that all hosts share",
              writer->temporary, writer->rank);
    return FWA_OK;
}

static fwa_status prepare(fwa_checkpoint_writer *writer, const char *run_dir, int64_t step, int rank,
                          int64_t bytes_needed) {
    writer->step = step;
    writer->rank = rank;
    FWA_TRY(fwa_path_format(writer->run_dir, "%s", run_dir));
    FWA_TRY(fwa_checkpoint_folder(writer->temporary, run_dir, ".", step, ".tmp"));
    FWA_TRY(fwa_checkpoint_folder(writer->final, run_dir, "", step, ""));
    FWA_TRY(prepare_folder(writer, bytes_needed));
    return FWA_OK;
}

fwa_status fwa_checkpoint_begin(fwa_checkpoint_writer **out, const char *run_dir, int64_t step, int rank,
                                int64_t bytes_needed) {
    *out = NULL;
    FWA_CHECK(step >= 0 && rank >= 0, FWA_ERROR, "checkpoint of step %lld by rank %d", (long long)step, rank);
    fwa_checkpoint_writer *writer = calloc(1, sizeof *writer);
    FWA_CHECK(writer, FWA_MEMORY, "no memory for a checkpoint writer");
    fwa_status status = prepare(writer, run_dir, step, rank, bytes_needed);
    if (status != FWA_OK) {
        free(writer);
        writer = NULL;
    }
    *out = writer;
    FWA_TRY(status);
    return FWA_OK;
}

static fwa_status write_parts(hid_t file, int rank, const fwa_named_tensor *const tensors[FWA_PART_COUNT], int count) {
    const int64_t rank_value = rank, version = FWA_CHECKPOINT_VERSION;
    FWA_TRY(fwa_hdf5_put_text_attribute(file, "format", FWA_CHECKPOINT_FORMAT));
    FWA_TRY(fwa_hdf5_put_attribute(file, "format_version", H5T_NATIVE_INT64, 0, &version));
    FWA_TRY(fwa_hdf5_put_attribute(file, "rank", H5T_NATIVE_INT64, 0, &rank_value));
    for (int part = 0; part < FWA_PART_COUNT; part++) {
        if (!tensors[part]) continue;
        hid_t group;
        FWA_TRY(fwa_hdf5_group(&group, file, fwa_part_names[part]));
        fwa_status status = FWA_OK;
        for (int i = 0; i < count && status == FWA_OK; i++) status = fwa_rows_write(group, &tensors[part][i]);
        H5Gclose(group);
        FWA_TRY(status);
    }
    return FWA_OK;
}

static fwa_status write_file(const char *path, int rank, const fwa_named_tensor *const tensors[FWA_PART_COUNT],
                             int count) {
    hid_t file;
    FWA_TRY(fwa_hdf5_create(&file, path));
    fwa_status status;
    FWA_TRY_GOTO(write_parts(file, rank, tensors, count), failed);
    FWA_TRY(fwa_hdf5_finish(file, path));
    return FWA_OK;
failed:
    fwa_hdf5_abandon(file);
    return status;
}

fwa_status fwa_checkpoint_write_shard(fwa_checkpoint_writer *writer,
                                      const fwa_named_tensor *const tensors[FWA_PART_COUNT], int count) {
    char name[FWA_SHARD_NAME_MAX], path[FWA_PATH_MAX];
    fwa_shard_name(name, writer->rank);
    FWA_TRY(fwa_path_format(path, "%s/%s", writer->temporary, name));
    fwa_hdf5_lock();
    fwa_status status = write_file(path, writer->rank, tensors, count);
    fwa_hdf5_unlock();
    FWA_TRY(status);
    return FWA_OK;
}

void fwa_checkpoint_end(fwa_checkpoint_writer *writer) {
    if (!writer) return;
    if (writer->rank == 0 && !writer->published) fwa_drop_folder(writer->temporary);
    free(writer);
}
