// HDF5 as fwa uses it: one lock, no output of its own, failures as fwa_status with HDF5's innermost message.
//
// Everything but fwa_hdf5_lock itself is called with the lock held. Files are opened without file locks (network file
// systems refuse them; a checkpoint folder has one writer and is read only once renamed) and without a chunk cache, so
// that a write that fails does so in the call that wrote. Not collective.
#ifndef FWA_IO_HDF5_FILE_H
#define FWA_IO_HDF5_FILE_H

#include <hdf5.h>

#include "core/status.h"
#include "core/types.h"

#ifdef __cplusplus
extern "C" {
#endif

void fwa_hdf5_lock(void);
void fwa_hdf5_unlock(void);

// Innermost message of this thread's HDF5 errors, with errno's text alone where there is one. Ask before any other HDF5
// call; valid until the next one of the thread.
const char *fwa_hdf5_message(void);
// Puts the path in front of the message of a failure inside a file; FWA_OK stays.
FWA_MUST_CHECK fwa_status fwa_hdf5_name_file(fwa_status status, const char *path);
// "/master/w of RUN/.../shard.rank00000.h5", for messages; valid until the next call of the thread.
const char *fwa_hdf5_place(hid_t object);

FWA_MUST_CHECK fwa_status fwa_hdf5_create(hid_t *file, const char *path); // replaces an existing file
FWA_MUST_CHECK fwa_status fwa_hdf5_open(hid_t *file, const char *path);   // for reading
// Ends writing a file: flushes, syncs to disk, closes. The file is closed in any case.
FWA_MUST_CHECK fwa_status fwa_hdf5_finish(hid_t file, const char *path);
// Gives up a file that could not be written. H5Fclose alone would try to write again, fail, and leave the library with
// an id of freed memory; so what it still wants to write goes to memory instead.
void fwa_hdf5_abandon(hid_t file);
FWA_MUST_CHECK fwa_status fwa_hdf5_group(hid_t *group, hid_t file, const char *name); // creates

hid_t fwa_hdf5_type(fwa_dtype dtype); // f64 and f32; H5I_INVALID_HID otherwise
// f64 or f32 of a dataset; FWA_FORMAT for other types.
FWA_MUST_CHECK fwa_status fwa_hdf5_dtype(hid_t dataset, fwa_dtype *dtype);

// Attributes of a file (its root group), group or dataset. `count` 0: a scalar. Reading converts numbers; FWA_FORMAT if
// the attribute is missing or has another size.
FWA_MUST_CHECK fwa_status fwa_hdf5_put_attribute(hid_t object, const char *name, hid_t type, int count,
                                                 const void *values);
FWA_MUST_CHECK fwa_status fwa_hdf5_get_attribute(hid_t object, const char *name, hid_t type, int count, void *values);
FWA_MUST_CHECK fwa_status fwa_hdf5_put_text_attribute(hid_t object, const char *name, const char *text);
FWA_MUST_CHECK fwa_status fwa_hdf5_get_text_attribute(hid_t object, const char *name, char *text, size_t size);
// A text of any length as a scalar string dataset; the caller frees *text.
FWA_MUST_CHECK fwa_status fwa_hdf5_put_text(hid_t object, const char *name, const char *text);
FWA_MUST_CHECK fwa_status fwa_hdf5_get_text(hid_t object, const char *name, char **text);

#ifdef __cplusplus
}
#endif
#endif
