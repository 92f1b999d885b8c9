// Small file helpers that report errors the way fwa does. Not collective.
#ifndef FWA_IO_FILES_H
#define FWA_IO_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "core/status.h"
#include "core/types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FWA_PATH_MAX 4096

// printf into a path; FWA_CONFIG if it gets too long.
FWA_MUST_CHECK fwa_status fwa_path_format(char path[FWA_PATH_MAX], const char *format, ...) FWA_PRINTF(2, 3);
void fwa_path_trim(char *path);                               // without slashes at its end, but for that of the root
bool fwa_path_ends(const char *path, const char *ending);     // in `ending`, with more in front of it
bool fwa_path_same(const char *a, const char *b);             // both are there and the same file or folder
FWA_MUST_CHECK fwa_status fwa_make_folders(const char *path); // mkdir -p
FWA_MUST_CHECK fwa_status fwa_read_text(const char *path,
                                        char **text); // whole FWA_INPUT_TEXT, NUL-terminated; caller frees
// The same with its length, for a text that may hold NULs.
FWA_MUST_CHECK fwa_status fwa_read_bytes(const char *path, char **text, size_t *length);
// Writes `path`.tmp, syncs, renames: readers see the old or the new text, never a part, and of two processes that write
// the same file one waits for the other. A link keeps pointing where it does; what is no regular file (a pipe,
// /dev/stdout) is written to.
FWA_MUST_CHECK fwa_status fwa_write_text(const char *path, const char *text);
// Closes an open_memstream, whose text is at *text then. False where memory did not hold all that was printed, which
// fclose alone does not tell: *text is freed and NULL.
FWA_MUST_CHECK bool fwa_stream_end(FILE *stream, char **text);
// The same, then writes the text as fwa_write_text does and frees it. FWA_MEMORY where it is not whole.
FWA_MUST_CHECK fwa_status fwa_write_stream(const char *path, FILE *stream, char **text);
FWA_MUST_CHECK fwa_status fwa_write_bytes(const char *path, const void *bytes, size_t size); // the same
// Gives a finished file its name. FWA_CONFIG where that is no regular file's: a rename would put one in the place of a
// device such as /dev/null.
FWA_MUST_CHECK fwa_status fwa_file_rename(const char *temporary, const char *path);
// Locks `path` (made if missing) for this process until *lock is closed or the process ends. FWA_CONFIG naming `what`
// if another process holds it; file systems without locks let everybody in.
FWA_MUST_CHECK fwa_status fwa_lock_file(const char *path, const char *what, int *lock);
FWA_MUST_CHECK fwa_status fwa_remove_folder(const char *path); // rm -r; missing is fine
// The same where nothing hangs on it, as after a failure, whose error stands: a warning names what could not go.
void fwa_drop_folder(const char *path);
FWA_MUST_CHECK fwa_status fwa_sync_path(const char *path); // fsync of a file or a folder
// What may be read under a name. A named pipe makes its reader wait for a writer, who may never come.
typedef enum fwa_input {
    FWA_INPUT_FILE,  // regular files, which have a size and can be read twice
    FWA_INPUT_TEXT,  // also what is open already: a pipe (/dev/stdin, the shell's <(...)), a terminal, /dev/null
    FWA_INPUT_STREAM // also named pipes, after a line in the log; text that is read as it comes
} fwa_input;
// Before `path` is opened, or a file is put in its place: FWA_CONFIG where it is something else (a folder, socket,
// device); what is missing passes.
FWA_MUST_CHECK fwa_status fwa_input_check(const char *path, fwa_input wanted);
bool fwa_path_exists(const char *path);
// The same of what another host has made just now: waits up to `seconds` for it. A network file system may go on for a
// while with what it knew of a folder; that the folders on the way are opened makes it ask again.
bool fwa_path_appears(const char *path, double seconds);
bool fwa_path_is_file(const char *path);  // a regular file, or a link to one: reading it does not wait for anybody
int64_t fwa_free_bytes(const char *path); // free for this user on the disk of `path`; -1 unknown
FWA_MUST_CHECK fwa_status fwa_file_digest(const char *path, char hex[33]);                      // XXH3, 128 bits
FWA_MUST_CHECK fwa_status fwa_file_digest_start(const char *path, int64_t bytes, char hex[33]); // of its first bytes
// Whether a file can be made at `path`, before the work whose result it gets: FWA_CONFIG naming `option` where it is a
// folder, stands in none that can be written to, or belongs to a run or a checkpoint (io/run_files.h). What any option
// names as an output goes through here.
FWA_MUST_CHECK fwa_status fwa_file_check_target(const char *option, const char *path);

#ifdef __cplusplus
}
#endif
#endif
