// What reaches the disk, and in which order: fsync, rename and renameat2 of the C library, each with a line in a log.
#ifndef FWA_TESTS_SYNC_LOG_H
#define FWA_TESTS_SYNC_LOG_H

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/check.h"

typedef struct sync_event {
    char path[256], to[256]; // synced, or renamed to `to`; renamed folders keep their old name here
    struct timespec changed; // of a synced file: its last change
} sync_event;

static sync_event sync_events[128];
static int sync_count;

static inline sync_event *sync_next(void) {
    if (sync_count == (int)(sizeof sync_events / sizeof *sync_events)) sync_count = 0;
    sync_event *event = &sync_events[sync_count++];
    memset(event, 0, sizeof *event);
    return event;
}

int fsync(int file) {
    char link[64];
    struct stat info;
    sync_event *event = sync_next();
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    if (readlink(link, event->path, sizeof event->path - 1) < 0) event->path[0] = '\0';
    if (fstat(file, &info) == 0) event->changed = info.st_mtim;
    return (int)syscall(SYS_fsync, file);
}

static inline void sync_note_rename(const char *from, const char *to) {
    sync_event *event = sync_next();
    snprintf(event->path, sizeof event->path, "%s", from);
    snprintf(event->to, sizeof event->to, "%s", to);
}

int rename(const char *from, const char *to) {
    sync_note_rename(from, to);
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags) {
    sync_note_rename(from, to);
    return (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
}

// Number of the last event of this kind, -1: none. `to` NULL: a sync of `path`.
static inline int sync_find(const char *path, const char *to) {
    for (int i = sync_count - 1; i >= 0; i--)
        if (!strcmp(sync_events[i].path, path) && !strcmp(sync_events[i].to, to ? to : "")) return i;
    return -1;
}

// `file`, which now stands at `now`, was synced before event `before`, and nothing was written to it since.
static inline void check_synced(const char *file, const char *now, int before) {
    struct stat info;
    const int at = sync_find(file, NULL);
    if (at < 0 || at > before) fail_msg("%s is not synced before it counts", file);
    assert_int_equal(stat(now, &info), 0);
    if (memcmp(&info.st_mtim, &sync_events[at].changed, sizeof info.st_mtim) != 0)
        fail_msg("%s was written to after it was synced", file);
}

#endif
