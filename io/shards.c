// Token shards: files mapped once, checked once, read as one flat stream.
#include "io/shards.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "core/shape.h"
#include "io/files.h"

#define SHARD_HINT  "copy the file again, or write it anew"
#define SCAN_BLOCK  65536              // tokens
#define FINGERPRINT ((int64_t)1 << 20) // bytes of each end

typedef struct shard_file {
    char *path;
    const char *map; // whole file
    int64_t bytes;
    dev_t device;
    ino_t inode;
    int64_t start; // of its first token in the stream
    int64_t tokens;
} shard_file;

struct fwa_shards {
    shard_file *files;
    int count;
    int64_t tokens;
};

static const uint16_t *file_tokens(const shard_file *file) {
    return (const uint16_t *)(const void *)(file->map + FWA_SHARD_HEADER);
}

static fwa_status map_file(shard_file *file) {
    FWA_TRY(fwa_input_check(file->path, FWA_INPUT_FILE));
    int handle = open(file->path, O_RDONLY | O_CLOEXEC);
    FWA_CHECK(handle >= 0, FWA_CONFIG, "cannot open token shard %s: %s", file->path, strerror(errno));
    fwa_status status = FWA_OK;
    struct stat info;
    FWA_CHECK_GOTO(fstat(handle, &info) == 0, FWA_IO, done, "cannot read the size of %s: %s", file->path,
                   strerror(errno));
    file->bytes = info.st_size;
    file->device = info.st_dev;
    file->inode = info.st_ino;
    FWA_CHECK_GOTO(file->bytes >= FWA_SHARD_HEADER, FWA_FORMAT, done,
                   "token shard %s has %lld byte%s: expected a header of %d bytes and tokens; " SHARD_HINT, file->path,
                   (long long)file->bytes, fwa_plural(file->bytes), FWA_SHARD_HEADER);
    void *map = mmap(NULL, (size_t)file->bytes, PROT_READ, MAP_SHARED, handle, 0);
    FWA_CHECK_GOTO(map != MAP_FAILED, FWA_IO, done, "cannot map %lld bytes of %s: %s", (long long)file->bytes,
                   file->path, strerror(errno));
    file->map = map;
done:
    close(handle);
    return status;
}

static fwa_status check_header(shard_file *file) {
    int32_t header[3];
    memcpy(header, file->map, sizeof header);
    FWA_CHECK(header[0] == FWA_SHARD_MAGIC, FWA_FORMAT, "token shard %s has magic %d: expected %d; %s", file->path,
              header[0], FWA_SHARD_MAGIC,
              header[0] == FWA_CHOICES_MAGIC ? "this is a multiple-choice set, not a stream of tokens"
                                             : "is it another kind of file? " SHARD_HINT);
    FWA_CHECK(header[1] == FWA_SHARD_VERSION, FWA_FORMAT,
              "token shard %s has version %d: expected %d (uint16 tokens); " SHARD_HINT, file->path, header[1],
              FWA_SHARD_VERSION);
    FWA_CHECK(header[2] > 0, FWA_FORMAT, "token shard %s counts %d tokens: expected at least 1; " SHARD_HINT,
              file->path, header[2]);
    file->tokens = header[2];
    int64_t expected = FWA_SHARD_HEADER + file->tokens * (int64_t)sizeof(uint16_t);
    FWA_CHECK(file->bytes == expected, FWA_FORMAT,
              "token shard %s has %lld bytes: expected %lld for the %lld token%s of its header, it is %s; " SHARD_HINT,
              file->path, (long long)file->bytes, (long long)expected, (long long)file->tokens,
              fwa_plural(file->tokens), file->bytes < expected ? "truncated" : "too long");
    return FWA_OK;
}

static uint16_t largest(const uint16_t *tokens, int64_t count) {
    uint16_t max = 0;
    for (int64_t i = 0; i < count; i++) max = tokens[i] > max ? tokens[i] : max;
    return max;
}

static fwa_status check_tokens(const shard_file *file, int64_t vocab) {
    if (vocab > UINT16_MAX) return FWA_OK;
    const uint16_t *tokens = file_tokens(file);
    for (int64_t start = 0; start < file->tokens; start += SCAN_BLOCK) {
        int64_t end = fwa_min(start + SCAN_BLOCK, file->tokens);
        if (largest(tokens + start, end - start) < vocab) continue;
        int64_t at = start;
        while (tokens[at] < vocab) at++;
        FWA_FAIL(FWA_FORMAT,
                 "token shard %s has token %d at position %lld: expected less than %lld (model.vocab_size); raise "
                 "model.vocab_size to the tokenizer's or use shards made for this one",
                 file->path, tokens[at], (long long)at, (long long)vocab);
    }
    return FWA_OK;
}

static fwa_status open_files(fwa_shards *shards, const fwa_paths *paths, int64_t vocab) {
    shards->files = calloc((size_t)paths->count + 1, sizeof *shards->files);
    FWA_CHECK(shards->files, FWA_MEMORY, "no memory for %d token shards", paths->count);
    for (int i = 0; i < paths->count; i++) {
        shard_file *file = &shards->files[shards->count++];
        file->path = strdup(paths->at[i]);
        FWA_CHECK(file->path, FWA_MEMORY, "no memory for the name of %s", paths->at[i]);
        FWA_TRY(map_file(file));
        FWA_TRY(check_header(file));
        FWA_TRY(check_tokens(file, vocab));
        file->start = shards->tokens;
        shards->tokens += file->tokens;
    }
    return FWA_OK;
}

fwa_status fwa_shards_open_files(fwa_shards **out, fwa_paths *paths, int64_t vocab) {
    *out = calloc(1, sizeof **out);
    FWA_CHECK(*out, FWA_MEMORY, "no memory for %d token shards", paths->count);
    fwa_paths_sort(paths);
    fwa_status status = open_files(*out, paths, vocab);
    if (status == FWA_OK) return FWA_OK;
    fwa_shards_close(*out);
    *out = NULL;
    return status;
}

fwa_status fwa_shards_open(fwa_shards **out, const char *pattern, int64_t vocab) {
    fwa_paths paths = {0};
    fwa_status status;
    *out = NULL;
    FWA_TRY_GOTO(fwa_paths_find(
                     &paths, pattern,
                     "token shards (*.bin); fwa data tokenize makes them, data.train and data.val say where they are"),
                 done);
    FWA_TRY_GOTO(fwa_shards_open_files(out, &paths, vocab), done);
done:
    fwa_paths_free(&paths);
    return status;
}

void fwa_shards_close(fwa_shards *shards) {
    if (!shards) return;
    for (int i = 0; i < shards->count; i++) {
        shard_file *file = &shards->files[i];
        if (file->map) munmap((void *)(uintptr_t)file->map, (size_t)file->bytes);
        free(file->path);
    }
    free(shards->files);
    free(shards);
}

int64_t fwa_shards_tokens(const fwa_shards *shards) {
    return shards->tokens;
}

int fwa_shards_files(const fwa_shards *shards) {
    return shards->count;
}

const char *fwa_shards_path(const fwa_shards *shards, int file, int64_t *tokens) {
    *tokens = shards->files[file].tokens;
    return shards->files[file].path;
}

// The file that holds token `position`.
static int find_file(const fwa_shards *shards, int64_t position) {
    int low = 0, high = shards->count - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (shards->files[middle].start <= position) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

fwa_status fwa_shards_check(const fwa_shards *shards, int64_t start, int64_t count) {
    for (int i = find_file(shards, start); i < shards->count && shards->files[i].start < start + count; i++) {
        const shard_file *file = &shards->files[i];
        struct stat info;
        // One that was removed or replaced stays as it was for those that have mapped it.
        if (stat(file->path, &info) != 0 || info.st_ino != file->inode || info.st_dev != file->device) continue;
        FWA_CHECK(info.st_size >= file->bytes, FWA_IO,
                  "token shard %s has %lld bytes, expected the %lld that it had when it was opened: it was cut short "
                  "while it was read; " SHARD_HINT " and resume",
                  file->path, (long long)info.st_size, (long long)file->bytes);
    }
    return FWA_OK;
}

void fwa_shards_read(const fwa_shards *shards, int64_t start, int64_t count, int32_t *tokens) {
    for (int i = find_file(shards, start); count > 0; i++) {
        const shard_file *file = &shards->files[i];
        int64_t here = fwa_min(count, file->start + file->tokens - start);
        const uint16_t *from = file_tokens(file) + (start - file->start);
        for (int64_t t = 0; t < here; t++) tokens[t] = from[t];
        tokens += here;
        start += here;
        count -= here;
    }
}

uint64_t fwa_shards_fingerprint(const fwa_shards *shards) {
    uint64_t hash = (uint64_t)shards->count;
    for (int i = 0; i < shards->count; i++) {
        const shard_file *file = &shards->files[i];
        const char *slash = strrchr(file->path, '/');
        const char *base = slash ? slash + 1 : file->path;
        int64_t part = fwa_min(file->bytes, FINGERPRINT);
        hash = XXH3_64bits_withSeed(base, strlen(base), hash);
        hash = XXH3_64bits_withSeed(&file->bytes, sizeof file->bytes, hash);
        hash = XXH3_64bits_withSeed(file->map, (size_t)part, hash);
        hash = XXH3_64bits_withSeed(file->map + (file->bytes - part), (size_t)part, hash);
    }
    return hash;
}
