// manifest.json: what a finished checkpoint folder holds, and the check that it still does.
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <jansson.h>

#include "io/checkpoint_layout.h"

#define MANIFEST     "manifest.json"
#define MANIFEST_MAX 100000 // ranks; a larger number is damage

static fwa_status file_size(const char *path, int64_t *bytes) {
    struct stat info;
    *bytes = -1;
    if (stat(path, &info) != 0) {
        FWA_FAIL(errno == ENOENT ? FWA_FORMAT : FWA_IO, "checkpoint file %s: %s", path, strerror(errno));
    }
    *bytes = info.st_size;
    return FWA_OK;
}

static fwa_status add_file(json_t *files, const char *folder, const char *name) {
    char path[FWA_PATH_MAX], digest[33];
    int64_t bytes;
    FWA_TRY(fwa_path_format(path, "%s/%s", folder, name));
    FWA_TRY(file_size(path, &bytes));
    FWA_TRY(fwa_file_digest(path, digest));
    json_t *file = json_pack("{s:s, s:I, s:s}", "name", name, "bytes", (json_int_t)bytes, "xxh3_128", digest);
    FWA_CHECK(file && json_array_append_new(files, file) == 0, FWA_MEMORY, "no memory for the manifest of %s", folder);
    return FWA_OK;
}

static int not_hidden(const struct dirent *entry) {
    return entry->d_name[0] != '.' && strncmp(entry->d_name, MANIFEST, strlen(MANIFEST)) != 0;
}

static fwa_status add_files(json_t *files, const char *folder) {
    struct dirent **entries;
    int count = scandir(folder, &entries, not_hidden, alphasort);
    FWA_CHECK(count >= 0, FWA_IO, "cannot list %s: %s", folder, strerror(errno));
    fwa_status status = FWA_OK;
    for (int i = 0; i < count; i++) {
        if (status == FWA_OK) status = add_file(files, folder, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    FWA_TRY(status);
    return FWA_OK;
}

fwa_status fwa_manifest_write(const char *folder, int64_t step, int ranks) {
    char path[FWA_PATH_MAX];
    FWA_TRY(fwa_path_format(path, "%s/" MANIFEST, folder));
    fwa_status status;
    char *text = NULL;
    json_t *files = json_array();
    json_t *root = json_pack("{s:s, s:i, s:I, s:i, s:O}", "format", FWA_CHECKPOINT_FORMAT, "version",
                             FWA_CHECKPOINT_VERSION, "step", (json_int_t)step, "ranks", ranks, "files", files);
    FWA_CHECK_GOTO(root, FWA_MEMORY, done, "no memory for %s", path);
    FWA_TRY_GOTO(add_files(files, folder), done);
    text = json_dumps(root, JSON_INDENT(2));
    FWA_CHECK_GOTO(text, FWA_MEMORY, done, "no memory for %s", path);
    FWA_TRY_GOTO(fwa_write_text(path, text), done);
done:
    free(text);
    json_decref(root);
    json_decref(files);
    return status;
}

static fwa_status check_file(const char *folder, const json_t *file, bool digests) {
    const char *name = json_string_value(json_object_get(file, "name"));
    const char *expected = json_string_value(json_object_get(file, "xxh3_128"));
    const json_t *size = json_object_get(file, "bytes");
    FWA_CHECK(name && expected && json_is_integer(size) && !strchr(name, '/'), FWA_FORMAT,
              "%s/" MANIFEST " has a damaged entry in \"files\"", folder);
    char path[FWA_PATH_MAX], digest[33];
    int64_t bytes;
    FWA_TRY(fwa_path_format(path, "%s/%s", folder, name));
    FWA_TRY(file_size(path, &bytes));
    FWA_CHECK(bytes == json_integer_value(size), FWA_FORMAT, "%s has %lld byte%s: expected %lld by its manifest", path,
              (long long)bytes, fwa_plural(bytes), (long long)json_integer_value(size));
    if (!digests) return FWA_OK;
    FWA_TRY(fwa_file_digest(path, digest));
    FWA_CHECK(strcmp(digest, expected) == 0, FWA_FORMAT, "%s is damaged: its digest is %s, expected %s by its manifest",
              path, digest, expected);
    return FWA_OK;
}

static bool lists(const json_t *files, const char *name) {
    size_t i;
    json_t *file;
    json_array_foreach(files, i, file) {
        const char *found = json_string_value(json_object_get(file, "name"));
        if (found && strcmp(found, name) == 0) return true;
    }
    return false;
}

// What the manifest says of the folder as a whole.
static fwa_status check_head(const char *folder, const json_t *root, int *ranks) {
    const char *format = json_string_value(json_object_get(root, "format"));
    const json_t *files = json_object_get(root, "files");
    json_int_t version = json_integer_value(json_object_get(root, "version"));
    json_int_t number = json_integer_value(json_object_get(root, "ranks"));
    FWA_CHECK(format && strcmp(format, FWA_CHECKPOINT_FORMAT) == 0 && json_is_array(files), FWA_FORMAT,
              "%s/" MANIFEST " is not the manifest of a checkpoint (format \"%s\")", folder, format ? format : "none");
    FWA_CHECK(version == FWA_CHECKPOINT_VERSION, FWA_FORMAT, "%s has checkpoint version %lld: this fwa reads %d",
              folder, (long long)version, FWA_CHECKPOINT_VERSION);
    FWA_CHECK(number > 0 && number <= MANIFEST_MAX, FWA_FORMAT, "%s/" MANIFEST " says %lld ranks: expected 1 to %d",
              folder, (long long)number, MANIFEST_MAX);
    *ranks = (int)number;
    FWA_CHECK(lists(files, "state.h5"), FWA_FORMAT, "%s/" MANIFEST " does not list state.h5", folder);
    for (int rank = 0; rank < *ranks; rank++) {
        char name[FWA_SHARD_NAME_MAX];
        fwa_shard_name(name, rank);
        FWA_CHECK(lists(files, name), FWA_FORMAT, "%s/" MANIFEST " does not list %s of its %d shard%s", folder, name,
                  *ranks, fwa_plural(*ranks));
    }
    return FWA_OK;
}

static fwa_status check_files(const char *folder, const json_t *files, bool digests) {
    size_t i;
    json_t *file;
    json_array_foreach(files, i, file) FWA_TRY(check_file(folder, file, digests));
    return FWA_OK;
}

// The caller releases *root.
static fwa_status load(const char *folder, json_t **root, int *ranks) {
    char path[FWA_PATH_MAX];
    FWA_TRY(fwa_path_format(path, "%s/" MANIFEST, folder));
    FWA_CHECK(fwa_path_exists(folder), FWA_IO, "there is no checkpoint %s", folder);
    FWA_CHECK(fwa_path_is_file(path), FWA_FORMAT, "%s is no finished checkpoint: it has no " MANIFEST, folder);
    json_error_t error;
    *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    FWA_CHECK(*root, FWA_FORMAT, "%s:%d: not a manifest: %s", path, error.line, error.text);
    fwa_status status = check_head(folder, *root, ranks);
    if (status != FWA_OK) json_decref(*root);
    FWA_TRY(status);
    return FWA_OK;
}

fwa_status fwa_manifest_check(const char *folder, bool digests, int *ranks) {
    json_t *root;
    FWA_TRY(load(folder, &root, ranks));
    fwa_status status = check_files(folder, json_object_get(root, "files"), digests);
    json_decref(root);
    FWA_TRY(status);
    return FWA_OK;
}

// What was found so far.
typedef struct findings {
    fwa_checkpoint_told told;
    void *user;
    fwa_status first;
    char message[1024]; // of the first problem
} findings;

static void find(findings *f, fwa_status status, const char *file, int64_t bytes) {
    f->told(f->user, file, bytes, status == FWA_OK ? NULL : fwa_error_message());
    if (status == FWA_OK || f->first != FWA_OK) return;
    f->first = status;
    snprintf(f->message, sizeof f->message, "%s", fwa_error_message());
}

static void find_in_files(findings *f, const char *folder, const json_t *files) {
    size_t i;
    json_t *file;
    json_array_foreach(files, i, file) {
        const char *name = json_string_value(json_object_get(file, "name"));
        find(f, check_file(folder, file, true), name ? name : MANIFEST,
             json_integer_value(json_object_get(file, "bytes")));
    }
}

static fwa_status find_unknown(findings *f, const char *folder, const json_t *files) {
    struct dirent **entries;
    int count = scandir(folder, &entries, not_hidden, alphasort);
    FWA_CHECK(count >= 0, FWA_IO, "cannot list %s: %s", folder, strerror(errno));
    for (int i = 0; i < count; i++) {
        const char *name = entries[i]->d_name;
        if (!lists(files, name))
            find(
                f,
                fwa_error_raise(FWA_FORMAT, __FILE__, __LINE__, __func__, "%s/%s is not in the manifest", folder, name),
                name, 0);
        free(entries[i]);
    }
    free(entries);
    return FWA_OK;
}

fwa_status fwa_manifest_check_all(const char *folder, fwa_checkpoint_told told, void *user, int *ranks) {
    findings f = {.told = told, .user = user};
    json_t *root;
    fwa_status status = load(folder, &root, ranks);
    if (status != FWA_OK) told(user, MANIFEST, 0, fwa_error_message());
    FWA_TRY(status);
    find_in_files(&f, folder, json_object_get(root, "files"));
    status = find_unknown(&f, folder, json_object_get(root, "files"));
    json_decref(root);
    FWA_TRY(status);
    FWA_CHECK(f.first == FWA_OK, f.first, "%s", f.message);
    return FWA_OK;
}
