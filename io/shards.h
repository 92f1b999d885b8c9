// Token shards in the llm.c layout, memory-mapped: 256 int32 (magic 20240520, version 1, count), then uint16 tokens.
//
// Several files form one flat stream in the order of their sorted names. Not collective, read-only.
#ifndef FWA_IO_SHARDS_H
#define FWA_IO_SHARDS_H

#include "core/status.h"
#include "core/types.h"
#include "io/paths.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { FWA_SHARD_MAGIC = 20240520, FWA_SHARD_VERSION = 1, FWA_SHARD_HEADER = 1024 }; // bytes
enum { FWA_CHOICES_MAGIC = 20240522 };                                               // of a multiple-choice set

typedef struct fwa_shards fwa_shards;

// Opens the file `pattern`, or every file that matches it (io/paths.h). Checks magic, version, count against size, and
// every token id against `vocab`. FWA_CONFIG where nothing matches; FWA_FORMAT names file, value and expectation.
FWA_MUST_CHECK fwa_status fwa_shards_open(fwa_shards **out, const char *pattern, int64_t vocab);
// The same of a list, which is sorted.
FWA_MUST_CHECK fwa_status fwa_shards_open_files(fwa_shards **out, fwa_paths *paths, int64_t vocab);
void fwa_shards_close(fwa_shards *shards);
int64_t fwa_shards_tokens(const fwa_shards *shards); // of all files
int fwa_shards_files(const fwa_shards *shards);
// Path of file number `file`, which lives as long as the shards, and its tokens.
const char *fwa_shards_path(const fwa_shards *shards, int file, int64_t *tokens);
// That the files with stream[start .. start+count) are as long as when they were opened: reading from one that was cut
// short would end the process. FWA_IO names it.
FWA_MUST_CHECK fwa_status fwa_shards_check(const fwa_shards *shards, int64_t start, int64_t count);
// tokens[0..count) = stream[start .. start+count). Within the stream; crosses files.
void fwa_shards_read(const fwa_shards *shards, int64_t start, int64_t count, int32_t *tokens);
// Hash of file names' base, sizes and the first and last 1 MiB of each: changed data is noticed on resume.
uint64_t fwa_shards_fingerprint(const fwa_shards *shards);

#ifdef __cplusplus
}
#endif
#endif
