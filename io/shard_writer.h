// Writes a stream of tokens as FOLDER/NAME_000000.bin, NAME_000001.bin, ... in the layout of io/shards.h.
//
// A file's header is written last and synced with it, so a file that was not finished has no magic and is refused. Not
// collective; one thread.
#ifndef FWA_IO_SHARD_WRITER_H
#define FWA_IO_SHARD_WRITER_H

#include "core/status.h"
#include "core/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fwa_shard_writer fwa_shard_writer;

// Files of `shard_tokens` tokens each, the last one of what is left; 1 <= shard_tokens < 2^31. Files of the same names
// are overwritten.
FWA_MUST_CHECK fwa_status fwa_shard_writer_open(fwa_shard_writer **out, const char *folder, const char *name,
                                                int64_t shard_tokens);
// Ids must be below 65536.
FWA_MUST_CHECK fwa_status fwa_shard_writer_add(fwa_shard_writer *writer, const int32_t *tokens, size_t count);
FWA_MUST_CHECK fwa_status fwa_shard_writer_finish(fwa_shard_writer *writer); // the last file
int fwa_shard_writer_files(const fwa_shard_writer *writer);
void fwa_shard_writer_close(fwa_shard_writer *writer); // NULL is fine

#ifdef __cplusplus
}
#endif
#endif
