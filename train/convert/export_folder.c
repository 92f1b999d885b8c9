// A folder that is whole or not there.
#include "train/convert/export_folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/log.h"
#include "io/run_files.h"

static bool has_files(const char *path) {
    DIR *folder = opendir(path);
    int count = 0;
    while (folder && count < 3 && readdir(folder)) count++; // . and ..
    if (folder) closedir(folder);
    return folder ? count > 2 : fwa_path_exists(path);
}

fwa_status fwa_folder_begin(fwa_folder *folder, const char *path) {
    struct stat info;
    FWA_CHECK(path[0], FWA_USAGE, "got an empty name, expected that of a new folder");
    FWA_TRY(fwa_path_format(folder->path, "%s", path));
    fwa_path_trim(folder->path);
    FWA_TRY(fwa_path_format(folder->temporary, "%s.tmp", folder->path));
    FWA_CHECK(stat(folder->path, &info) != 0 || S_ISDIR(info.st_mode), FWA_CONFIG,
              "%s is a file: name a new folder, or remove it", folder->path);
    FWA_CHECK(!has_files(folder->path), FWA_CONFIG, "%s has files already: name a new folder, or remove it",
              folder->path);
    FWA_TRY(fwa_run_folder_check(folder->temporary, folder->path));
    FWA_TRY(fwa_remove_folder(folder->temporary));
    return fwa_make_folders(folder->temporary);
}

fwa_status fwa_folder_end(const fwa_folder *folder) {
    FWA_CHECK(rename(folder->temporary, folder->path) == 0, FWA_IO, "cannot rename %s to %s: %s", folder->temporary,
              folder->path, strerror(errno));
    return FWA_OK;
}

fwa_status fwa_folder_file(const fwa_folder *folder, const char *name, char path[FWA_PATH_MAX]) {
    return fwa_path_format(path, "%s/%s", folder->temporary, name);
}
