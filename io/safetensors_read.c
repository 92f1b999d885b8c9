// Reading safetensors files.
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <jansson.h>

#include "core/bf16.h"
#include "core/shape.h"
#include "io/files.h"
#include "io/safetensors.h"

#define HEADER_MAX (100 << 20) // bytes; what the format allows

static const struct {
    const char *name;
    int bytes;
} types[] = {{"F64", 8}, {"F32", 4}, {"F16", 2},  {"BF16", 2}, {"I64", 8}, {"I32", 4}, {"I16", 2},
             {"I8", 1},  {"U8", 1},  {"BOOL", 1}, {"U16", 2},  {"U32", 4}, {"U64", 8}};

static int element_bytes(const char *type) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(types[i].name, type)) return types[i].bytes;
    return 0;
}

// Sizes into the tensor, and the number of elements; -1 where they are no sizes, or too many.
static int64_t read_shape(const json_t *shape, fwa_safetensor *tensor) {
    int64_t count = 1;
    tensor->ndim = (int)json_array_size(shape);
    if (!json_is_array(shape) || tensor->ndim > FWA_MAX_DIMS) return -1;
    for (int d = 0; d < tensor->ndim; d++) {
        const json_t *size = json_array_get(shape, (size_t)d);
        tensor->shape[d] = json_integer_value(size);
        if (!json_is_integer(size) || tensor->shape[d] < 0) return -1;
        if (tensor->shape[d] > 0 && count > (INT64_MAX >> 4) / tensor->shape[d]) return -1;
        count *= tensor->shape[d];
    }
    return count;
}

static fwa_status read_entry(const fwa_safetensors *file, const char *name, const json_t *entry, int64_t data_bytes,
                             fwa_safetensor *tensor) {
    const char *type = json_string_value(json_object_get(entry, "dtype"));
    const json_t *offsets = json_object_get(entry, "data_offsets"), *start = json_array_get(offsets, 0),
                 *end = json_array_get(offsets, 1);
    memset(tensor, 0, sizeof *tensor);
    FWA_CHECK(strlen(name) < sizeof tensor->name, FWA_FORMAT, "%s: tensor %.60s...: its name has %zu bytes, at most %d",
              file->path, name, strlen(name), FWA_SAFETENSORS_NAME - 1);
    FWA_CHECK(type && element_bytes(type), FWA_FORMAT, "%s: tensor %s has type %.20s, which this program does not know",
              file->path, name, type ? type : "none");
    const int64_t count = read_shape(json_object_get(entry, "shape"), tensor);
    FWA_CHECK(count >= 0, FWA_FORMAT, "%s: tensor %s: its shape is no list of at most %d sizes", file->path, name,
              FWA_MAX_DIMS);
    strcpy(tensor->name, name);
    strcpy(tensor->type, type);
    tensor->start = json_integer_value(start);
    tensor->bytes = json_integer_value(end) - tensor->start;
    FWA_CHECK(json_is_integer(start) && json_is_integer(end) && tensor->start >= 0 && tensor->bytes >= 0 &&
                  json_integer_value(end) <= data_bytes,
              FWA_FORMAT, "%s: tensor %s stands at %lld to %lld, beyond %lld byte%s of tensors", file->path, name,
              (long long)tensor->start, (long long)json_integer_value(end), (long long)data_bytes,
              fwa_plural(data_bytes));
    FWA_CHECK(tensor->bytes == count * element_bytes(type), FWA_FORMAT,
              "%s: tensor %s has %lld element%s of type %s in %lld byte%s", file->path, name, (long long)count,
              fwa_plural(count), type, (long long)tensor->bytes, fwa_plural(tensor->bytes));
    return FWA_OK;
}

static int by_start(const void *a, const void *b) {
    const fwa_safetensor *one = a, *other = b;
    return (one->start > other->start) - (one->start < other->start);
}

static fwa_status read_entries(fwa_safetensors *file, json_t *root, int64_t data_bytes) {
    const char *name;
    json_t *entry;
    FWA_CHECK(json_is_object(root), FWA_FORMAT, "%s: its header is no JSON object", file->path);
    file->at = calloc(json_object_size(root) + 1, sizeof *file->at);
    FWA_CHECK(file->at, FWA_MEMORY, "no memory for %zu tensors of %s", json_object_size(root), file->path);
    json_object_foreach(root, name, entry) if (strcmp(name, "__metadata__") != 0)
        FWA_TRY(read_entry(file, name, entry, data_bytes, &file->at[file->count++]));
    qsort(file->at, (size_t)file->count, sizeof *file->at, by_start);
    for (int i = 1; i < file->count; i++)
        FWA_CHECK(file->at[i].start >= file->at[i - 1].start + file->at[i - 1].bytes, FWA_FORMAT,
                  "%s: tensors %s and %s overlap", file->path, file->at[i - 1].name, file->at[i].name);
    return FWA_OK;
}

static fwa_status read_header(fwa_safetensors *file, char **header) {
    unsigned char size[8];
    struct stat info;
    uint64_t length = 0;
    FWA_CHECK(fstat(fileno(file->file), &info) == 0, FWA_IO, "%s: %s", file->path, strerror(errno));
    FWA_CHECK(fread(size, 1, 8, file->file) == 8, FWA_FORMAT, "%s has %lld byte%s: no safetensors file", file->path,
              (long long)info.st_size, fwa_plural(info.st_size));
    for (int i = 7; i >= 0; i--) length = length << 8 | size[i];
    FWA_CHECK(length >= 2 && length <= HEADER_MAX && (int64_t)length <= info.st_size - 8, FWA_FORMAT,
              "%s: the header would have %llu bytes, the file has %lld: no safetensors file, or cut short", file->path,
              (unsigned long long)length, (long long)info.st_size);
    *header = malloc(length + 1);
    FWA_CHECK(*header, FWA_MEMORY, "no memory for the header of %s", file->path);
    FWA_CHECK(fread(*header, 1, length, file->file) == length, FWA_IO, "cannot read %s: %s", file->path,
              strerror(errno));
    (*header)[length] = '\0';
    file->data = 8 + (int64_t)length;
    json_error_t error;
    json_t *root = json_loadb(*header, length, JSON_REJECT_DUPLICATES, &error);
    FWA_CHECK(root, FWA_FORMAT, "%s: its header is not JSON: %s", file->path, error.text);
    fwa_status status = read_entries(file, root, info.st_size - file->data);
    json_decref(root);
    return status;
}

fwa_status fwa_safetensors_open(fwa_safetensors *file, const char *path) {
    char *header = NULL;
    memset(file, 0, sizeof *file);
    file->path = strdup(path);
    FWA_CHECK(file->path, FWA_MEMORY, "no memory for %s", path);
    FWA_TRY(fwa_input_check(path, FWA_INPUT_FILE));
    file->file = fopen(path, "rb");
    FWA_CHECK(file->file, errno == ENOENT ? FWA_CONFIG : FWA_IO, "cannot open %s: %s", path, strerror(errno));
    fwa_status status = read_header(file, &header);
    free(header);
    return status;
}

void fwa_safetensors_close(fwa_safetensors *file) {
    if (file->file) fclose(file->file);
    free(file->path);
    free(file->at);
    memset(file, 0, sizeof *file);
}

const fwa_safetensor *fwa_safetensors_find(const fwa_safetensors *file, const char *name) {
    for (int i = 0; i < file->count; i++)
        if (!strcmp(file->at[i].name, name)) return &file->at[i];
    return NULL;
}

static double from_f64(const unsigned char *at) {
    double value;
    memcpy(&value, at, sizeof value);
    return value;
}

static double from_f32(const unsigned char *at) {
    float value;
    memcpy(&value, at, sizeof value);
    return value;
}

static double from_bf16(const unsigned char *at) {
    return fwa_bf16_to_float((uint16_t)(at[0] | at[1] << 8));
}

static double from_f16(const unsigned char *at) {
    const int exponent = at[1] >> 2 & 0x1F, fraction = (at[1] & 3) << 8 | at[0];
    const double sign = at[1] & 0x80 ? -1.0 : 1.0;
    if (exponent == 31) return fraction ? (double)NAN : sign * (double)INFINITY;
    return sign * ldexp(exponent ? 1024 + fraction : fraction, (exponent ? exponent - 1 : 0) - 24); // 2^-24: smallest
}

typedef double (*element_reader)(const unsigned char *at);

static element_reader reader_of(const char *type) {
    return !strcmp(type, "F64")    ? from_f64
           : !strcmp(type, "F32")  ? from_f32
           : !strcmp(type, "BF16") ? from_bf16
           : !strcmp(type, "F16")  ? from_f16
                                   : NULL;
}

static void convert(element_reader read, const unsigned char *from, int bytes, int64_t count, fwa_dtype to, void *out,
                    int64_t at) {
    double *f64 = out;
    float *f32 = out;
    for (int64_t i = 0; i < count; i++) {
        const double value = read(from + i * bytes);
        if (to == FWA_F64)
            f64[at + i] = value;
        else
            f32[at + i] = (float)value;
    }
}

fwa_status fwa_safetensors_read(fwa_safetensors *file, const fwa_safetensor *tensor, fwa_dtype to, void *out) {
    unsigned char piece[1 << 12];
    const int bytes = element_bytes(tensor->type);
    const element_reader read = reader_of(tensor->type);
    FWA_CHECK(read, FWA_FORMAT, "%s: tensor %s has type %s, expected F64, F32, F16 or BF16", file->path, tensor->name,
              tensor->type);
    FWA_CHECK(fseeko(file->file, file->data + tensor->start, SEEK_SET) == 0, FWA_IO, "cannot read %s: %s", file->path,
              strerror(errno));
    for (int64_t done = 0; done < tensor->bytes;) {
        const size_t wanted = (size_t)fwa_min(tensor->bytes - done, (int64_t)sizeof piece);
        FWA_CHECK(fread(piece, 1, wanted, file->file) == wanted, FWA_IO, "cannot read %zu bytes of %s: %s", wanted,
                  file->path, ferror(file->file) ? strerror(errno) : "the file ends");
        convert(read, piece, bytes, (int64_t)wanted / bytes, to, out, done / bytes);
        done += (int64_t)wanted;
    }
    return FWA_OK;
}
