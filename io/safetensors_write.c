// Writing safetensors files.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "io/files.h"
#include "io/safetensors.h"

#define ALIGN 8 // of the first tensor, by blanks behind the header

struct fwa_safetensors_writer {
    char path[FWA_PATH_MAX], temporary[FWA_PATH_MAX];
    FILE *file;
    int64_t wanted, written; // bytes of tensors
};

static const char *type_name(fwa_dtype dtype) {
    switch (dtype) {
    case FWA_F64:
        return "F64";
    case FWA_F32:
        return "F32";
    case FWA_BF16:
        return "BF16";
    case FWA_I32:
        return "I32";
    case FWA_I64:
        return "I64";
    default:
        return "U8";
    }
}

fwa_safetensor fwa_safetensor_about(const char *name, fwa_dtype dtype, int ndim, const int64_t *shape) {
    fwa_safetensor about;
    memset(&about, 0, sizeof about);
    snprintf(about.name, sizeof about.name, "%s", name);
    snprintf(about.type, sizeof about.type, "%s", type_name(dtype));
    about.ndim = ndim;
    about.bytes = (int64_t)fwa_dtype_size(dtype);
    for (int d = 0; d < ndim; d++) {
        about.shape[d] = shape[d];
        about.bytes *= shape[d];
    }
    return about;
}

static json_t *describe(const fwa_safetensor *tensor, int64_t start) {
    json_t *shape = json_array();
    for (int d = 0; d < tensor->ndim; d++) json_array_append_new(shape, json_integer(tensor->shape[d]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", tensor->type, "shape", shape, "data_offsets", (json_int_t)start,
                     (json_int_t)(start + tensor->bytes));
}

// The header as text, NULL without memory.
static char *make_header(const fwa_safetensor *tensors, int count, int64_t *bytes) {
    json_t *root = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    bool good = root != NULL;
    *bytes = 0;
    for (int i = 0; i < count && good; i++) {
        good = json_object_set_new(root, tensors[i].name, describe(&tensors[i], *bytes)) == 0;
        *bytes += tensors[i].bytes;
    }
    char *text = good ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    return text;
}

static fwa_status put(fwa_safetensors_writer *writer, const void *data, size_t bytes) {
    FWA_CHECK(fwrite(data, 1, bytes, writer->file) == bytes, FWA_IO, "cannot write %zu bytes to %s: %s", bytes,
              writer->temporary, strerror(errno));
    return FWA_OK;
}

static fwa_status write_header(fwa_safetensors_writer *writer, const char *header) {
    const size_t length = strlen(header), padding = (ALIGN - length % ALIGN) % ALIGN;
    unsigned char size[8];
    for (int i = 0; i < 8; i++) size[i] = (unsigned char)((uint64_t)(length + padding) >> (8 * i) & 0xFF);
    FWA_TRY(put(writer, size, sizeof size));
    FWA_TRY(put(writer, header, length));
    return put(writer, "        ", padding);
}

static fwa_status begin(fwa_safetensors_writer *writer, const char *path, const fwa_safetensor *tensors, int count) {
    FWA_TRY(fwa_path_format(writer->path, "%s", path));
    FWA_TRY(fwa_path_format(writer->temporary, "%s.tmp", path));
    char *header = make_header(tensors, count, &writer->wanted);
    FWA_CHECK(header, FWA_MEMORY, "no memory for the header of %s", path);
    writer->file = fopen(writer->temporary, "wb");
    fwa_status status = writer->file ? write_header(writer, header)
                                     : fwa_error_raise(FWA_IO, __FILE__, __LINE__, __func__, "cannot create %s: %s",
                                                       writer->temporary, strerror(errno));
    free(header);
    return status;
}

fwa_status fwa_safetensors_begin(fwa_safetensors_writer **out, const char *path, const fwa_safetensor *tensors,
                                 int count) {
    *out = calloc(1, sizeof **out);
    FWA_CHECK(*out, FWA_MEMORY, "no memory for %s", path);
    fwa_status status = begin(*out, path, tensors, count);
    if (status == FWA_OK) return FWA_OK;
    fwa_status ignored = fwa_safetensors_end(*out, false);
    (void)ignored;
    *out = NULL;
    return status;
}

fwa_status fwa_safetensors_put(fwa_safetensors_writer *writer, const void *data, int64_t bytes) {
    writer->written += bytes;
    return put(writer, data, (size_t)bytes);
}

static fwa_status publish(const fwa_safetensors_writer *writer) {
    FWA_CHECK(writer->written == writer->wanted, FWA_ERROR, "%s: %lld bytes of tensors, expected %lld by its header",
              writer->path, (long long)writer->written, (long long)writer->wanted);
    FWA_CHECK(fflush(writer->file) == 0 && fsync(fileno(writer->file)) == 0, FWA_IO, "cannot write %s: %s",
              writer->temporary, strerror(errno));
    return fwa_file_rename(writer->temporary, writer->path);
}

fwa_status fwa_safetensors_end(fwa_safetensors_writer *writer, bool good) {
    if (!writer) return FWA_OK;
    fwa_status status = good ? publish(writer) : FWA_OK;
    if (writer->file) fclose(writer->file);
    if (writer->file && (!good || status != FWA_OK)) unlink(writer->temporary);
    free(writer);
    return status;
}
