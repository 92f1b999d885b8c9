// Small file helpers: every failure names the file and what the operating system said.
#include "io/files.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include <xxhash.h>

#include "core/clock.h"
#include "core/log.h"
#include "io/run_files.h"

#define DIGEST_BLOCK    ((size_t)1 << 20)
#define TEMPORARY_TRIES 1000
#define LOOK_NS         100000000 // between two looks for a file

fwa_status fwa_path_format(char path[FWA_PATH_MAX], const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(path, FWA_PATH_MAX, format, arguments);
    va_end(arguments);
    FWA_CHECK(length >= 0 && length < FWA_PATH_MAX, FWA_CONFIG,
              "path of %d bytes starting with %.200s: expected fewer than %d; use a shorter run.dir or run.name",
              length, path, FWA_PATH_MAX);
    return FWA_OK;
}

void fwa_path_trim(char *path) {
    for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--) path[n - 1] = '\0';
}

bool fwa_path_ends(const char *path, const char *ending) {
    const size_t bytes = strlen(path), last = strlen(ending);
    return bytes > last && strcmp(path + bytes - last, ending) == 0;
}

bool fwa_path_same(const char *a, const char *b) {
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static const char *kind_of(mode_t mode) {
    if (S_ISDIR(mode)) return "a folder";
    if (S_ISREG(mode)) return "a file";
    if (S_ISFIFO(mode)) return "a pipe, whose reader waits for what is written to it";
    return S_ISSOCK(mode) ? "a socket" : "a device";
}

fwa_status fwa_make_folders(const char *path) {
    char part[FWA_PATH_MAX];
    FWA_CHECK(path[0], FWA_CONFIG, "got an empty path, expected that of a folder to create");
    FWA_TRY(fwa_path_format(part, "%s", path));
    for (char *end = part + 1;; end++) {
        if (*end != '/' && *end != '\0') continue;
        char kept = *end;
        *end = '\0';
        struct stat info;
        if (mkdir(part, 0777) != 0) {
            int error = errno;
            const bool there = stat(part, &info) == 0;
            FWA_CHECK(there || error != EEXIST, FWA_IO, "%s is a link that leads nowhere: expected a folder", part);
            FWA_CHECK(!there || S_ISDIR(info.st_mode), FWA_IO, "%s is %s: expected a folder", part,
                      kind_of(info.st_mode));
            FWA_CHECK(there, FWA_IO, "cannot create folder %s: %s", part, strerror(error));
        }
        if (kept == '\0') return FWA_OK;
        *end = kept;
    }
}

// Reads until `size` bytes or the end; *got is what came.
static fwa_status read_some(int file, const char *path, void *to, size_t size, size_t *got) {
    *got = 0;
    while (*got < size) {
        ssize_t n = read(file, (char *)to + *got, size - *got);
        if (n < 0 && errno == EINTR) continue;
        FWA_CHECK(n >= 0, FWA_IO, "cannot read %s: %s", path, strerror(errno));
        if (n == 0) break;
        *got += (size_t)n;
    }
    return FWA_OK;
}

static fwa_status write_all(int file, const char *path, const char *from, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t n = write(file, from + done, size - done);
        if (n < 0 && errno == EINTR) continue;
        FWA_CHECK(n >= 0, FWA_IO, "cannot write %zu bytes to %s: %s", size, path, strerror(errno));
        done += (size_t)n;
    }
    return FWA_OK;
}

// Grows *text until the end of the file: also right for files whose size is not known (/proc, pipes).
static fwa_status read_rest(int file, const char *path, char **text, size_t *length) {
    size_t capacity = 4096, got;
    for (*length = 0;;) {
        char *more = realloc(*text, capacity);
        FWA_CHECK(more, FWA_MEMORY, "no memory for %zu bytes of %s", capacity, path);
        *text = more;
        FWA_TRY(read_some(file, path, more + *length, capacity - 1 - *length, &got));
        *length += got;
        if (*length < capacity - 1) break;
        capacity *= 2;
    }
    (*text)[*length] = '\0';
    return FWA_OK;
}

// A name under which a pipe is open already leads to no file.
static bool is_open_already(const char *path, const struct stat *info) {
    char resolved[PATH_MAX];
    struct stat null;
    if (S_ISFIFO(info->st_mode)) return !realpath(path, resolved);
    if (!S_ISCHR(info->st_mode)) return false;
    if (stat("/dev/null", &null) == 0 && info->st_rdev == null.st_rdev) return true;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    const bool terminal = file >= 0 && isatty(file);
    if (file >= 0) close(file);
    return terminal;
}

fwa_status fwa_input_check(const char *path, fwa_input wanted) {
    struct stat info;
    if (stat(path, &info) != 0 || S_ISREG(info.st_mode)) return FWA_OK;
    if (wanted != FWA_INPUT_FILE && is_open_already(path, &info)) return FWA_OK;
    const bool waits = wanted == FWA_INPUT_STREAM && S_ISFIFO(info.st_mode);
    FWA_CHECK(waits, FWA_CONFIG, "%s is %s: expected a file", path, kind_of(info.st_mode));
    fwa_log_info("%s is a pipe: waiting for what is written to it", path);
    return FWA_OK;
}

fwa_status fwa_read_text(const char *path, char **text) {
    size_t length;
    return fwa_read_bytes(path, text, &length);
}

fwa_status fwa_read_bytes(const char *path, char **text, size_t *length) {
    *text = NULL;
    FWA_TRY(fwa_input_check(path, FWA_INPUT_TEXT));
    int file = open(path, O_RDONLY | O_CLOEXEC);
    FWA_CHECK(file >= 0, FWA_IO, "cannot open %s: %s", path, strerror(errno));
    fwa_status status;
    FWA_TRY_GOTO(read_rest(file, path, text, length), done);
done:
    close(file);
    if (status != FWA_OK) {
        free(*text);
        *text = NULL;
    }
    return status;
}

fwa_status fwa_sync_path(const char *path) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    FWA_CHECK(file >= 0, FWA_IO, "cannot open %s to sync it: %s", path, strerror(errno));
    // EINVAL: a file system that has nothing to sync for this kind of file.
    int error = fsync(file) == 0 || errno == EINVAL ? 0 : errno;
    close(file);
    FWA_CHECK(error == 0, FWA_IO, "cannot sync %s to disk: %s", path, strerror(error));
    return FWA_OK;
}

static fwa_status parent_of(const char *path, char parent[FWA_PATH_MAX]) {
    FWA_TRY(fwa_path_format(parent, "%s", path));
    char *slash = strrchr(parent, '/');
    if (!slash) return fwa_path_format(parent, ".");
    slash[slash == parent] = '\0';
    return FWA_OK;
}

static fwa_status sync_parent(const char *path) {
    char parent[FWA_PATH_MAX];
    FWA_TRY(parent_of(path, parent));
    return fwa_sync_path(parent);
}

static fwa_status write_through(const char *path, const void *bytes, size_t size) {
    int file = open(path, O_WRONLY | O_CLOEXEC);
    FWA_CHECK(file >= 0, FWA_IO, "cannot open %s: %s", path, strerror(errno));
    fwa_status status = write_all(file, path, bytes, size);
    close(file);
    FWA_TRY(status);
    return FWA_OK;
}

fwa_status fwa_file_rename(const char *temporary, const char *path) {
    FWA_TRY(fwa_input_check(path, FWA_INPUT_FILE));
    FWA_CHECK(rename(temporary, path) == 0, FWA_IO, "cannot rename %s to %s: %s", temporary, path, strerror(errno));
    return FWA_OK;
}

// Tries for a lock, again and again for `tries` moments of 5 ms while another process has it. Not held then.
static bool lock_within(int file, int tries) {
    const struct timespec moment = {0, 5000000};
    for (int i = 0; i < tries; i++) {
        if (flock(file, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return true;
        nanosleep(&moment, NULL);
    }
    return false;
}

// The file that becomes another one by a rename, for this writer alone until it is closed: who else writes the same one
// waits, ten seconds at most. Negative with errno where it cannot be made. Where the file never is the one of that
// name, as on a disk whose numbers of files change, the last one is taken.
static int open_temporary(const char *path) {
    for (int tries = TEMPORARY_TRIES;; tries--) {
        struct stat mine, there;
        const int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
        if (file < 0) return file;
        (void)lock_within(file, 2000);
        const bool renamed = fstat(file, &mine) != 0 || stat(path, &there) != 0 || mine.st_ino != there.st_ino;
        if (!renamed || tries == 0) return file;
        close(file);
    }
}

static fwa_status fill_and_rename(int file, const char *temporary, const char *path, const void *bytes, size_t size) {
    FWA_CHECK(ftruncate(file, 0) == 0, FWA_IO, "cannot empty %s: %s", temporary, strerror(errno));
    FWA_TRY(write_all(file, temporary, bytes, size));
    FWA_CHECK(fsync(file) == 0, FWA_IO, "cannot sync %s to disk: %s", temporary, strerror(errno));
    FWA_CHECK(rename(temporary, path) == 0, FWA_IO, "cannot rename %s to %s: %s", temporary, path, strerror(errno));
    return FWA_OK;
}

static fwa_status replace_file(const char *path, const void *bytes, size_t size) {
    char temporary[FWA_PATH_MAX];
    FWA_TRY(fwa_path_format(temporary, "%s.tmp", path));
    const int file = open_temporary(temporary);
    FWA_CHECK(file >= 0, FWA_IO, "cannot create %s: %s", temporary, strerror(errno));
    const fwa_status status = fill_and_rename(file, temporary, path, bytes, size);
    if (status != FWA_OK) unlink(temporary);
    close(file);
    FWA_TRY(status);
    return sync_parent(path);
}

fwa_status fwa_write_bytes(const char *path, const void *bytes, size_t size) {
    struct stat info;
    char target[FWA_PATH_MAX];
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode))
        return write_through(path, bytes, size);
    const bool link = lstat(path, &info) == 0 && S_ISLNK(info.st_mode) && realpath(path, target);
    return replace_file(link ? target : path, bytes, size);
}

fwa_status fwa_write_text(const char *path, const char *text) {
    return fwa_write_bytes(path, text, strlen(text));
}

bool fwa_stream_end(FILE *stream, char **text) {
    const bool failed = ferror(stream) != 0;
    if (fclose(stream) == 0 && !failed) return true;
    free(*text);
    *text = NULL;
    return false;
}

fwa_status fwa_write_stream(const char *path, FILE *stream, char **text) {
    FWA_CHECK(fwa_stream_end(stream, text), FWA_MEMORY, "%s: out of memory", path);
    const fwa_status status = fwa_write_text(path, *text);
    free(*text);
    *text = NULL;
    return status;
}

fwa_status fwa_lock_file(const char *path, const char *what, int *lock) {
    *lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    FWA_CHECK(*lock >= 0, FWA_IO, "cannot open %s: %s", path, strerror(errno));
    // Who only looks whether a lock is held has it for a moment, too.
    if (lock_within(*lock, 4)) return FWA_OK;
    close(*lock);
    *lock = -1;
    FWA_FAIL(FWA_CONFIG, "%s is in use by another fwa; wait for it, or choose another run.name", what);
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *place) {
    (void)info, (void)kind, (void)place;
    return remove(path) == 0 || errno == ENOENT ? 0 : -1;
}

static bool remove_all(const char *path) {
    return nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS) == 0 || errno == ENOENT;
}

fwa_status fwa_remove_folder(const char *path) {
    FWA_CHECK(remove_all(path), FWA_IO, "cannot remove %s: %s", path, strerror(errno));
    return FWA_OK;
}

void fwa_drop_folder(const char *path) {
    if (!remove_all(path)) fwa_log_warn("cannot remove %s: %s: it stays", path, strerror(errno));
}

bool fwa_path_exists(const char *path) {
    return access(path, F_OK) == 0;
}

static void open_folders(const char *path) {
    char folder[FWA_PATH_MAX];
    for (const char *end = strchr(path, '/'); end; end = strchr(end + 1, '/')) {
        const int length = (int)(end - path) + 1;
        if (length >= FWA_PATH_MAX) return;
        snprintf(folder, sizeof folder, "%.*s", length, path);
        const int file = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (file < 0) return;
        close(file);
    }
}

bool fwa_path_appears(const char *path, double seconds) {
    fwa_waiting waiting = fwa_waiting_begin();
    while (!fwa_path_exists(path)) {
        if (1e-9 * (double)fwa_waiting_ns(&waiting) > seconds) return false;
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
        open_folders(path);
    }
    return true;
}

bool fwa_path_is_file(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

int64_t fwa_free_bytes(const char *path) {
    char place[FWA_PATH_MAX];
    if (snprintf(place, sizeof place, "%s", path) >= (int)sizeof place) return -1;
    struct statvfs disk;
    while (statvfs(place, &disk) != 0) { // what does not exist yet will stand on its parent's disk
        if (errno != ENOENT || strcmp(place, ".") == 0 || strcmp(place, "/") == 0) return -1;
        char *slash = strrchr(place, '/');
        if (!slash) {
            memcpy(place, ".", 2);
        } else {
            slash[slash == place] = '\0';
        }
    }
    return (int64_t)disk.f_bavail * (int64_t)disk.f_frsize;
}

fwa_status fwa_file_check_target(const char *option, const char *path) {
    char parent[FWA_PATH_MAX];
    struct stat info;
    FWA_CHECK(path[0], FWA_CONFIG, "%s: got an empty path, expected that of a file", option);
    const bool there = stat(path, &info) == 0;
    FWA_CHECK(!there || !S_ISDIR(info.st_mode), FWA_CONFIG, "%s %s: this is a folder, expected a file", option, path);
    if (there && !S_ISREG(info.st_mode)) return FWA_OK;
    FWA_TRY(fwa_run_file_check(option, path));
    FWA_TRY(parent_of(path, parent));
    FWA_CHECK(access(parent, W_OK | X_OK) == 0, FWA_CONFIG,
              "%s %s: cannot write to folder %s: %s; make it, or name another file", option, path, parent,
              strerror(errno));
    return FWA_OK;
}

static fwa_status digest_file(int file, const char *path, int64_t bytes, XXH3_state_t *state, char *block) {
    for (size_t got = DIGEST_BLOCK; got == DIGEST_BLOCK && bytes > 0; bytes -= (int64_t)got) {
        const size_t wanted = bytes < (int64_t)DIGEST_BLOCK ? (size_t)bytes : DIGEST_BLOCK;
        FWA_TRY(read_some(file, path, block, wanted, &got));
        XXH3_128bits_update(state, block, got);
    }
    return FWA_OK;
}

fwa_status fwa_file_digest(const char *path, char hex[33]) {
    return fwa_file_digest_start(path, INT64_MAX, hex);
}

fwa_status fwa_file_digest_start(const char *path, int64_t bytes, char hex[33]) {
    hex[0] = '\0';
    FWA_TRY(fwa_input_check(path, FWA_INPUT_FILE));
    int file = open(path, O_RDONLY | O_CLOEXEC);
    FWA_CHECK(file >= 0, FWA_IO, "cannot open %s: %s", path, strerror(errno));
    fwa_status status;
    XXH3_state_t *state = XXH3_createState();
    char *block = malloc(DIGEST_BLOCK);
    FWA_CHECK_GOTO(state && block, FWA_MEMORY, done, "no memory for the digest of %s", path);
    XXH3_128bits_reset(state);
    FWA_TRY_GOTO(digest_file(file, path, bytes, state, block), done);
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state));
    for (size_t i = 0; i < sizeof canonical.digest; i++) snprintf(hex + 2 * i, 3, "%02x", canonical.digest[i]);
done:
    free(block);
    XXH3_freeState(state);
    close(file);
    return status;
}
