// Token shards, written one behind the other.
#include "io/shard_writer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/shape.h"
#include "io/files.h"
#include "io/shards.h"

#define BLOCK 4096 // tokens narrowed at once

struct fwa_shard_writer {
    char folder[FWA_PATH_MAX], name[64], path[FWA_PATH_MAX];
    FILE *file; // NULL between files
    int64_t shard_tokens, here;
    int files;
};

fwa_status fwa_shard_writer_open(fwa_shard_writer **out, const char *folder, const char *name, int64_t shard_tokens) {
    *out = NULL;
    fwa_shard_writer *w = calloc(1, sizeof *w);
    FWA_CHECK(w, FWA_MEMORY, "no memory to write token shards");
    w->shard_tokens = shard_tokens;
    snprintf(w->name, sizeof w->name, "%s", name);
    fwa_status status = fwa_path_format(w->folder, "%s", folder);
    if (status != FWA_OK) {
        free(w);
        return status;
    }
    *out = w;
    return FWA_OK;
}

static fwa_status put(fwa_shard_writer *w, const void *bytes, size_t count) {
    FWA_CHECK(fwrite(bytes, 1, count, w->file) == count, FWA_IO, "cannot write to %s: %s", w->path, strerror(errno));
    return FWA_OK;
}

static fwa_status start_file(fwa_shard_writer *w) {
    static const char nothing[FWA_SHARD_HEADER];
    FWA_TRY(fwa_path_format(w->path, "%s/%s_%06d.bin", w->folder, w->name, w->files));
    w->file = fopen(w->path, "wbe");
    FWA_CHECK(w->file, FWA_IO, "cannot create %s: %s", w->path, strerror(errno));
    w->files++;
    w->here = 0;
    return put(w, nothing, sizeof nothing);
}

static fwa_status end_file(fwa_shard_writer *w) {
    const int32_t header[3] = {FWA_SHARD_MAGIC, FWA_SHARD_VERSION, (int32_t)w->here};
    FWA_CHECK(fflush(w->file) == 0 && fseek(w->file, 0, SEEK_SET) == 0, FWA_IO, "cannot write to %s: %s", w->path,
              strerror(errno));
    FWA_TRY(put(w, header, sizeof header));
    FWA_CHECK(fflush(w->file) == 0 && fsync(fileno(w->file)) == 0, FWA_IO, "cannot write to %s: %s", w->path,
              strerror(errno));
    FILE *file = w->file;
    w->file = NULL;
    FWA_CHECK(fclose(file) == 0, FWA_IO, "cannot write to %s: %s", w->path, strerror(errno));
    return FWA_OK;
}

fwa_status fwa_shard_writer_add(fwa_shard_writer *w, const int32_t *tokens, size_t count) {
    uint16_t block[BLOCK];
    while (count > 0) {
        if (!w->file) FWA_TRY(start_file(w));
        const size_t here = (size_t)fwa_min(fwa_min((int64_t)count, BLOCK), w->shard_tokens - w->here);
        for (size_t i = 0; i < here; i++) block[i] = (uint16_t)tokens[i];
        FWA_TRY(put(w, block, here * sizeof *block));
        w->here += (int64_t)here;
        tokens += here;
        count -= here;
        if (w->here == w->shard_tokens) FWA_TRY(end_file(w));
    }
    return FWA_OK;
}

fwa_status fwa_shard_writer_finish(fwa_shard_writer *w) {
    return w->file ? end_file(w) : FWA_OK;
}

int fwa_shard_writer_files(const fwa_shard_writer *w) {
    return w->files;
}

void fwa_shard_writer_close(fwa_shard_writer *w) {
    if (!w) return;
    if (w->file) fclose(w->file);
    free(w);
}
