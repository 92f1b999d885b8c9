// cpu.max of version 2, cpu.cfs_quota_us of version 1, in every folder from a process's group up to the root. Inside a
// container the root is the container's own group, and folders above it are not there.
#include "core/cpu_quota.h"

#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define MOUNT      "/sys/fs/cgroup"
#define MEMBERSHIP "/proc/self/cgroup"

typedef struct version {
    const char *folder;         // below the mount
    const char *quota, *period; // files; NULL: both stand in the first
} version;

static const version one = {"/cpu", "cpu.cfs_quota_us", "cpu.cfs_period_us"}, two = {"", "cpu.max", NULL};

// The first number of a file, and the second where it is asked for.
static bool read_numbers(const char *folder, const char *name, double *first, double *second) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) return false;
    FILE *file = fopen(path, "re");
    if (!file) return false;
    const bool told = fscanf(file, "%lf", first) == 1 && (!second || fscanf(file, "%lf", second) == 1);
    fclose(file);
    return told;
}

static int quota_of(const version *v, const char *folder) {
    double granted = 0.0, of = 0.0; // microseconds
    const bool told = v->period
                          ? read_numbers(folder, v->quota, &granted, NULL) && read_numbers(folder, v->period, &of, NULL)
                          : read_numbers(folder, v->quota, &granted, &of);
    if (!told || !(granted > 0.0) || !(of > 0.0) || granted / of > 1e6) return INT_MAX;
    return (int)ceil(granted / of);
}

// The least quota from the group `path` up to the root.
static int least_quota(const version *v, const char *groups, const char *path) {
    char folder[PATH_MAX];
    const int root = snprintf(folder, sizeof folder, "%s%s", groups, v->folder);
    if (root < 0 || (size_t)root + strlen(path) >= sizeof folder) return INT_MAX;
    strcpy(folder + root, path);
    for (int least = INT_MAX;;) {
        const int quota = quota_of(v, folder);
        char *slash = strrchr(folder + root, '/');
        if (quota < least) least = quota;
        if (!slash) return least;
        *slash = '\0';
    }
}

static bool has_cpu(const char *controllers, size_t length) {
    for (const char *at = controllers, *end = controllers + length; at < end;) {
        const size_t name = strcspn(at, ",:");
        if (name == 3 && !strncmp(at, "cpu", 3)) return true;
        at += name + 1;
    }
    return false;
}

// A line NUMBER:CONTROLLERS:PATH; version 2 has no controllers.
static int quota_of_line(const char *groups, char *line) {
    char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path) return INT_MAX;
    path[strcspn(path, "\n")] = '\0';
    if (path == controllers + 1) return least_quota(&two, groups, path + 1);
    const bool cpu = has_cpu(controllers + 1, (size_t)(path - controllers - 1));
    return cpu ? least_quota(&one, groups, path + 1) : INT_MAX;
}

int fwa_cpu_quota(const char *groups, const char *membership) {
    char line[PATH_MAX + 64];
    int least = INT_MAX;
    FILE *file = fopen(membership ? membership : MEMBERSHIP, "re");
    if (!file) return least;
    while (fgets(line, sizeof line, file)) {
        const int quota = quota_of_line(groups ? groups : MOUNT, line);
        if (quota < least) least = quota;
    }
    fclose(file);
    return least;
}
