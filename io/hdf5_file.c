// HDF5 behind one lock: start, files, error texts.
#include "io/hdf5_file.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/log.h"
#include "io/checkpoint.h"
#include "io/files.h"

#if !H5_VERSION_GE(1, 10, 7)
#error "HDF5 1.10.7 or newer is needed"
#endif

static pthread_mutex_t hdf5_mutex = PTHREAD_MUTEX_INITIALIZER;

void fwa_hdf5_lock(void) {
    pthread_mutex_lock(&hdf5_mutex);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL); // a setting of the calling thread in thread-safe builds
}

void fwa_hdf5_unlock(void) {
    pthread_mutex_unlock(&hdf5_mutex);
}

// HDF5's drivers write "... error message = 'No space left on device', ...": the quoted part says it all.
static void shorten(char *message) {
    static const char mark[] = "error message = '";
    char *start = strstr(message, mark);
    char *end = start ? strchr(start + sizeof mark - 1, '\'') : NULL;
    if (!end) return;
    start += sizeof mark - 1;
    memmove(message, start, (size_t)(end - start));
    message[end - start] = '\0';
}

static herr_t first_message(unsigned depth, const H5E_error2_t *error, void *to) {
    if (depth == 0 && error->desc) snprintf(to, 512, "%s", error->desc);
    return 0;
}

const char *fwa_hdf5_message(void) {
    static _Thread_local char message[512];
    snprintf(message, sizeof message, "no message from HDF5");
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, first_message, message);
    shorten(message);
    return message;
}

fwa_status fwa_hdf5_start(void) {
    unsigned major = 0, minor = 0, release = 0;
    // Every file is closed when its writer is done; the library must not write while the process ends, nor trip over
    // what a failed write has left. Only the first call into the library can tell it so.
    H5dont_atexit();
    fwa_hdf5_lock();
    herr_t failed = H5open();
    if (failed >= 0) failed = H5get_libversion(&major, &minor, &release);
    fwa_hdf5_unlock();
    FWA_CHECK(failed >= 0, FWA_ERROR, "the HDF5 library cannot be started");
    FWA_CHECK(major == H5_VERS_MAJOR && minor == H5_VERS_MINOR && release >= H5_VERS_RELEASE, FWA_ERROR,
              "HDF5 library %u.%u.%u is loaded: expected %d.%d.%d, with which fwa was built; check LD_LIBRARY_PATH",
              major, minor, release, H5_VERS_MAJOR, H5_VERS_MINOR, H5_VERS_RELEASE);
    return FWA_OK;
}

void fwa_hdf5_version(char *text, size_t size) {
    unsigned major = 0, minor = 0, release = 0;
    fwa_hdf5_lock();
    H5get_libversion(&major, &minor, &release);
    fwa_hdf5_unlock();
    snprintf(text, size, "%u.%u.%u", major, minor, release);
}

static fwa_status access_list(hid_t *list) {
    *list = H5Pcreate(H5P_FILE_ACCESS);
    FWA_CHECK(*list >= 0, FWA_ERROR, "no HDF5 access list: %s", fwa_hdf5_message());
    herr_t failed = H5Pset_fclose_degree(*list, H5F_CLOSE_STRONG); // also closes what an error left open
    if (failed >= 0) failed = H5Pset_cache(*list, 0, 0, 0, 0.0);
#if H5_VERSION_GE(1, 12, 1) || !H5_VERSION_GE(1, 12, 0)
    if (failed >= 0) failed = H5Pset_file_locking(*list, 0, 1);
#endif
    if (failed >= 0) return FWA_OK;
    fwa_status status =
        fwa_error_raise(FWA_ERROR, __FILE__, __LINE__, __func__, "no HDF5 access list: %s", fwa_hdf5_message());
    H5Pclose(*list);
    return status;
}

fwa_status fwa_hdf5_create(hid_t *file, const char *path) {
    *file = H5I_INVALID_HID;
    hid_t list;
    FWA_TRY(access_list(&list));
    fwa_status status = FWA_OK;
    *file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, list);
    FWA_CHECK_GOTO(*file >= 0, FWA_IO, done, "cannot create %s: %s", path, fwa_hdf5_message());
done:
    H5Pclose(list);
    return status;
}

fwa_status fwa_hdf5_open(hid_t *file, const char *path) {
    *file = H5I_INVALID_HID;
    FWA_CHECK(fwa_path_exists(path), FWA_IO, "cannot open %s: no such file", path);
    FWA_TRY(fwa_input_check(path, FWA_INPUT_FILE));
    hid_t list;
    FWA_TRY(access_list(&list));
    fwa_status status = FWA_OK;
    *file = H5Fopen(path, H5F_ACC_RDONLY, list);
    FWA_CHECK_GOTO(*file >= 0, FWA_FORMAT, done, "cannot open %s as HDF5: %s", path, fwa_hdf5_message());
done:
    H5Pclose(list);
    return status;
}

void fwa_hdf5_abandon(hid_t file) {
    int *handle = NULL;
    hsize_t size = 0;
    if (H5Fget_vfd_handle(file, H5P_DEFAULT, (void **)&handle) < 0 || H5Fget_filesize(file, &size) < 0) return;
    int sink = memfd_create("fwa-abandoned", MFD_CLOEXEC);
    bool closable = sink >= 0 && ftruncate(sink, (off_t)size) == 0 && dup2(sink, *handle) >= 0;
    if (sink >= 0) close(sink);
    if (closable) {
        H5Fclose(file);
    } else if (ftruncate(*handle, 0) != 0) {
        // A limit on file sizes holds for memory as well: the file stays open till the process ends, without its bytes.
        fwa_log_warn("an unfinished file keeps its %llu bytes until fwa ends", (unsigned long long)size);
    }
}

fwa_status fwa_hdf5_finish(hid_t file, const char *path) {
    fwa_status status = FWA_OK;
    FWA_CHECK_GOTO(H5Fflush(file, H5F_SCOPE_GLOBAL) >= 0, FWA_IO, failed, "cannot finish writing %s: %s", path,
                   fwa_hdf5_message());
    FWA_TRY_GOTO(fwa_sync_path(path), failed); // also asks network file systems for errors they kept back
    FWA_CHECK(H5Fclose(file) >= 0, FWA_IO, "cannot close %s: %s", path, fwa_hdf5_message());
    FWA_TRY(fwa_sync_path(path));
    return FWA_OK;
failed:
    fwa_hdf5_abandon(file);
    return status;
}

fwa_status fwa_hdf5_group(hid_t *group, hid_t file, const char *name) {
    *group = H5Gcreate2(file, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    FWA_CHECK(*group >= 0, FWA_IO, "cannot create group %s: %s", name, fwa_hdf5_message());
    return FWA_OK;
}

hid_t fwa_hdf5_type(fwa_dtype dtype) {
    switch (dtype) {
    case FWA_F64:
        return H5T_NATIVE_DOUBLE;
    case FWA_F32:
        return H5T_NATIVE_FLOAT;
    default:
        return H5I_INVALID_HID;
    }
}

fwa_status fwa_hdf5_dtype(hid_t dataset, fwa_dtype *dtype) {
    hid_t type = H5Dget_type(dataset);
    bool real = type >= 0 && H5Tget_class(type) == H5T_FLOAT;
    size_t size = real ? H5Tget_size(type) : 0;
    if (type >= 0) H5Tclose(type);
    FWA_CHECK(size == 4 || size == 8, FWA_FORMAT, "dataset is neither f32 nor f64");
    *dtype = size == 4 ? FWA_F32 : FWA_F64;
    return FWA_OK;
}

fwa_status fwa_hdf5_name_file(fwa_status status, const char *path) {
    FWA_CHECK(status == FWA_OK, status, "%s: %s", path, fwa_error_message());
    return FWA_OK;
}
