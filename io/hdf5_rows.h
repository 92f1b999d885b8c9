// Rows of a parameter as a checked, chunked HDF5 dataset. The HDF5 lock is held. Not collective.
#ifndef FWA_IO_HDF5_ROWS_H
#define FWA_IO_HDF5_ROWS_H

#include "core/named_tensor.h"
#include "io/hdf5_file.h"

#ifdef __cplusplus
extern "C" {
#endif

// Type, shape and slice of `tensor` are ones that a dataset can hold; FWA_ERROR names what is wrong.
FWA_MUST_CHECK fwa_status fwa_rows_check(const fwa_named_tensor *tensor);
// Writes the rows held as dataset group/<name> with fletcher32 and the attributes dtype, shape, row_start, init, decay.
FWA_MUST_CHECK fwa_status fwa_rows_write(hid_t group, const fwa_named_tensor *tensor);
// rows = dataset[first .. first + rows.shape[0]), converted to its type; the other sizes are equal.
FWA_MUST_CHECK fwa_status fwa_rows_read(hid_t dataset, int64_t first, fwa_tensor rows);
// Attributes for people, of shards and views alike; row_start < 0: left out.
FWA_MUST_CHECK fwa_status fwa_rows_describe(hid_t dataset, const fwa_named_tensor *tensor, int64_t row_start);
// name, shape, row_start, init, decay and type of a dataset; about->tensor has the rows' sizes and no data. FWA_FORMAT
// where these are no rows of that shape.
FWA_MUST_CHECK fwa_status fwa_rows_about(hid_t dataset, const char *name, fwa_named_tensor *about);

#ifdef __cplusplus
}
#endif
#endif
