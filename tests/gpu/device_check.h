// Helpers for tests on a GPU: the skip where there is none, and tensors in device memory.
//
// A device tensor is made from a host tensor of f64 values: its elements are rounded to the device type, and so are the
// host's, in place, so that the truth is computed from exactly what the kernel reads.
#ifndef FWA_TESTS_GPU_DEVICE_CHECK_H
#define FWA_TESTS_GPU_DEVICE_CHECK_H

#include "tests/check.h"

#include "kernels/registry.h"

#define DEVICE_SKIP 77 // CTest's SKIP_RETURN_CODE

// FWA_TEST_SIZE: `smallest`, for tools under which a kernel takes a thousand times as long; `model`: up to the sizes of
// configs/lm/small.yaml at 4 x 1024 tokens, which take minutes; without it a program takes seconds.
typedef enum test_size { TEST_SMALLEST, TEST_USUAL, TEST_MODEL } test_size;

static inline test_size device_test_size(void) {
    const char *size = getenv("FWA_TEST_SIZE");
    if (!size || !size[0]) return TEST_USUAL;
    if (strcmp(size, "smallest") != 0 && strcmp(size, "model") != 0) {
        printf("FWA_TEST_SIZE: got '%s', expected smallest or model\n", size);
        exit(1);
    }
    return size[0] == 's' ? TEST_SMALLEST : TEST_MODEL;
}

enum { DEVICE_SMALL = 1 << 16, DEVICE_LARGE = 200000, DEVICE_MODEL = 1000000 }; // elements of a tensor

static inline bool device_takes(int64_t elements) {
    const test_size size = device_test_size();
    return size == TEST_MODEL || elements < (size == TEST_SMALLEST ? DEVICE_SMALL : DEVICE_MODEL);
}

// The CPU in f64 with the threads of OMP_NUM_THREADS, where it is set: programs that run side by side share the cores.
static inline fwa_backend *device_truth(void) {
    const char *threads = getenv("OMP_NUM_THREADS");
    fwa_backend *backend = NULL;
    if (fwa_backend_create(&backend, FWA_BACKEND_CPU, FWA_F64, 0, threads ? atoi(threads) : 0) != FWA_OK) exit(1);
    return backend;
}

// The backend of device 0 in this precision; ends the test program with DEVICE_SKIP where CUDA cannot be used.
static inline fwa_backend *device_open(fwa_dtype precision) {
    fwa_backend *backend = NULL;
    fwa_status status = fwa_backend_create(&backend, FWA_BACKEND_CUDA, precision, 0, 1);
    if (status == FWA_UNSUPPORTED) {
        printf("skipped: %s\n", fwa_error_message());
        exit(DEVICE_SKIP);
    }
    if (status != FWA_OK) {
        printf("%s\n%s", fwa_error_message(), fwa_error_trace());
        exit(1);
    }
    return backend;
}

static inline uint16_t device_bf16(double value) {
    float f = (float)value;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16); // nearest, ties to even; not for NaN
}

static inline void device_set(fwa_tensor t, int64_t i, double value) {
    if (t.dtype == FWA_BF16)
        ((uint16_t *)t.data)[check_offset(t, i)] = device_bf16(value);
    else
        check_set(t, i, value);
}

// The same view (shape and strides) of another type on the host; foreign elements between rows are NaN.
static inline fwa_tensor device_image(fwa_tensor view, fwa_dtype dtype) {
    int64_t last = fwa_tensor_count(view) - 1;
    fwa_tensor image = view;
    image.dtype = dtype;
    image.data = check_alloc((size_t)(check_offset(view, last) + 1) * fwa_dtype_size(dtype));
    return image;
}

static inline size_t device_extent(fwa_tensor t) {
    return (size_t)(check_offset(t, fwa_tensor_count(t) - 1) + 1) * fwa_dtype_size(t.dtype);
}

// Device tensor with the shape and strides of `host`, `offset` elements into its memory, all bytes 0xFF.
static inline fwa_tensor device_poisoned(fwa_backend *backend, fwa_tensor host, fwa_dtype dtype, int64_t offset) {
    fwa_tensor t = host;
    t.dtype = dtype;
    size_t skip = (size_t)offset * fwa_dtype_size(dtype), bytes = skip + device_extent(t);
    void *memory = NULL;
    check_ok(backend->alloc(backend, &memory, bytes));
    check_ok(backend->fill(backend, backend->stream, memory, 0xFF, bytes));
    t.data = (char *)memory + skip;
    return t;
}

// The same with the values of `host` (f64), which are rounded to `dtype` in place.
static inline fwa_tensor device_from(fwa_backend *backend, fwa_tensor host, fwa_dtype dtype, int64_t offset) {
    fwa_tensor image = device_image(host, dtype);
    const int64_t n = fwa_tensor_count(host);
#pragma omp parallel for
    for (int64_t i = 0; i < n; i++) {
        device_set(image, i, check_get(host, i));
        check_set(host, i, check_get(image, i));
    }
    fwa_tensor t = device_poisoned(backend, host, dtype, offset);
    check_ok(backend->upload(backend, backend->stream, t.data, image.data, device_extent(t)));
    check_ok(backend->stream_synchronize(backend, backend->stream));
    return t;
}

// A host copy.
static inline fwa_tensor device_read(fwa_backend *backend, fwa_tensor t) {
    fwa_tensor image = device_image(t, t.dtype);
    check_ok(backend->download(backend, backend->stream, image.data, t.data, device_extent(t)));
    check_ok(backend->stream_synchronize(backend, backend->stream));
    return image;
}

// Frees memory of device_poisoned and device_from made with this offset.
static inline void device_release(fwa_backend *backend, fwa_tensor t, int64_t offset) {
    backend->free(backend, (char *)t.data - (size_t)offset * fwa_dtype_size(t.dtype));
}

#endif
