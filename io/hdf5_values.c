// Attributes and texts in HDF5 files: small values with their checks.
#include "io/hdf5_file.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "io/files.h"

const char *fwa_hdf5_place(hid_t object) {
    static _Thread_local char text[FWA_PATH_MAX + 256];
    char name[256] = "?", file[FWA_PATH_MAX] = "?";
    H5Iget_name(object, name, sizeof name);
    H5Fget_name(object, file, sizeof file);
    snprintf(text, sizeof text, "%s of %s", name, file);
    return text;
}

static fwa_status fail(fwa_status code, hid_t object, const char *what, const char *name) {
    char message[512];
    snprintf(message, sizeof message, "%s", fwa_hdf5_message());
    FWA_FAIL(code, "%s \"%s\" at %s: %s", what, name, fwa_hdf5_place(object), message);
}

static hid_t make_space(int count) {
    hsize_t size = (hsize_t)count;
    return count > 0 ? H5Screate_simple(1, &size, NULL) : H5Screate(H5S_SCALAR);
}

static hid_t text_type(void) {
    hid_t type = H5Tcopy(H5T_C_S1);
    if (type >= 0 && (H5Tset_size(type, H5T_VARIABLE) < 0 || H5Tset_cset(type, H5T_CSET_UTF8) < 0)) {
        H5Tclose(type);
        return H5I_INVALID_HID;
    }
    return type;
}

fwa_status fwa_hdf5_put_attribute(hid_t object, const char *name, hid_t type, int count, const void *values) {
    hid_t space = make_space(count);
    hid_t attribute = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    bool written = attribute >= 0 && H5Awrite(attribute, type, values) >= 0;
    fwa_status status = written ? FWA_OK : fail(FWA_IO, object, "cannot write attribute", name);
    if (attribute >= 0) H5Aclose(attribute);
    if (space >= 0) H5Sclose(space);
    return status;
}

fwa_status fwa_hdf5_get_attribute(hid_t object, const char *name, hid_t type, int count, void *values) {
    hid_t attribute = H5Aopen(object, name, H5P_DEFAULT);
    if (attribute < 0) return fail(FWA_FORMAT, object, "missing attribute", name);
    fwa_status status = FWA_OK;
    hid_t space = H5Aget_space(attribute);
    hssize_t points = space >= 0 ? H5Sget_simple_extent_npoints(space) : -1;
    if (space >= 0) H5Sclose(space);
    FWA_CHECK_GOTO(points == (count > 0 ? count : 1), FWA_FORMAT, done,
                   "attribute \"%s\" at %s has %lld value%s: expected %d", name, fwa_hdf5_place(object),
                   (long long)points, fwa_plural(points), count > 0 ? count : 1);
    if (H5Aread(attribute, type, values) < 0) status = fail(FWA_FORMAT, object, "cannot read attribute", name);
done:
    H5Aclose(attribute);
    return status;
}

fwa_status fwa_hdf5_put_text_attribute(hid_t object, const char *name, const char *text) {
    hid_t type = text_type();
    fwa_status status = fwa_hdf5_put_attribute(object, name, type, 0, &text);
    if (type >= 0) H5Tclose(type);
    FWA_TRY(status);
    return FWA_OK;
}

fwa_status fwa_hdf5_get_text_attribute(hid_t object, const char *name, char *text, size_t size) {
    hid_t type = text_type();
    char *found = NULL;
    fwa_status status = fwa_hdf5_get_attribute(object, name, type, 0, &found);
    if (type >= 0) H5Tclose(type);
    FWA_TRY(status);
    snprintf(text, size, "%s", found ? found : "");
    H5free_memory(found);
    return FWA_OK;
}

fwa_status fwa_hdf5_put_text(hid_t object, const char *name, const char *text) {
    hid_t type = text_type(), space = make_space(0);
    hid_t dataset = H5Dcreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    bool written = dataset >= 0 && H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, &text) >= 0;
    fwa_status status = written ? FWA_OK : fail(FWA_IO, object, "cannot write text", name);
    if (dataset >= 0) H5Dclose(dataset);
    if (space >= 0) H5Sclose(space);
    if (type >= 0) H5Tclose(type);
    return status;
}

fwa_status fwa_hdf5_get_text(hid_t object, const char *name, char **text) {
    *text = NULL;
    hid_t dataset = H5Dopen2(object, name, H5P_DEFAULT);
    if (dataset < 0) return fail(FWA_FORMAT, object, "missing text", name);
    fwa_status status = FWA_OK;
    hid_t type = text_type(), space = H5Dget_space(dataset);
    char *found = NULL;
    bool one = space >= 0 && H5Sget_simple_extent_npoints(space) == 1;
    if (!one || H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, &found) < 0) {
        status = fail(FWA_FORMAT, object, "cannot read text", name);
    } else {
        *text = strdup(found ? found : "");
        if (!*text)
            status = fwa_error_raise(FWA_MEMORY, __FILE__, __LINE__, __func__, "no memory for text \"%s\"", name);
    }
    H5free_memory(found);
    if (space >= 0) H5Sclose(space);
    if (type >= 0) H5Tclose(type);
    H5Dclose(dataset);
    return status;
}
