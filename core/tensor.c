// Views: making, reshaping, slicing and checking them. Nothing here touches elements.
#include "core/tensor.h"

#include <stdarg.h>
#include <stdio.h>

fwa_tensor fwa_tensor_nd(void *data, fwa_dtype dtype, int ndim, const int64_t *shape) {
    fwa_tensor t = {.data = data, .dtype = dtype, .ndim = ndim};
    int64_t stride = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        t.shape[i] = shape[i];
        t.stride[i] = stride;
        stride *= shape[i];
    }
    return t;
}

fwa_tensor fwa_tensor_1d(void *data, fwa_dtype dtype, int64_t n0) {
    return fwa_tensor_nd(data, dtype, 1, &n0);
}

fwa_tensor fwa_tensor_2d(void *data, fwa_dtype dtype, int64_t n0, int64_t n1) {
    return fwa_tensor_nd(data, dtype, 2, (const int64_t[]){n0, n1});
}

fwa_tensor fwa_tensor_3d(void *data, fwa_dtype dtype, int64_t n0, int64_t n1, int64_t n2) {
    return fwa_tensor_nd(data, dtype, 3, (const int64_t[]){n0, n1, n2});
}

fwa_tensor fwa_tensor_4d(void *data, fwa_dtype dtype, int64_t n0, int64_t n1, int64_t n2, int64_t n3) {
    return fwa_tensor_nd(data, dtype, 4, (const int64_t[]){n0, n1, n2, n3});
}

fwa_tensor fwa_tensor_absent(void) {
    return (fwa_tensor){0};
}

int64_t fwa_tensor_count(fwa_tensor t) {
    if (t.ndim == 0 && t.data == NULL) return 0;
    int64_t count = 1;
    for (int i = 0; i < t.ndim; i++) count *= t.shape[i];
    return count;
}

size_t fwa_tensor_bytes(fwa_tensor t) {
    return (size_t)fwa_tensor_count(t) * fwa_dtype_size(t.dtype);
}

bool fwa_tensor_dense(fwa_tensor t) {
    if (fwa_tensor_count(t) == 0) return true;
    int64_t stride = 1;
    for (int i = t.ndim - 1; i >= 0; i--) {
        if (t.shape[i] != 1 && t.stride[i] != stride) return false;
        stride *= t.shape[i];
    }
    return true;
}

// Walks both shapes from the last dimension on. `room` elements at distance `step` are still to be split off; where
// they do not suffice, the next dimension of t joins them, which it can if it continues them without a gap.
static fwa_tensor reshape(fwa_tensor t, int ndim, const int64_t *shape) {
    fwa_tensor view = fwa_tensor_nd(t.data, t.dtype, ndim, shape);
    if (fwa_tensor_count(view) == 0) return fwa_tensor_count(t) == 0 ? view : fwa_tensor_absent();
    int left = t.ndim;
    int64_t room = 1, step = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        while (room % shape[i] != 0) {
            do left--;
            while (left >= 0 && t.shape[left] == 1);
            if (left < 0 || t.shape[left] == 0) return fwa_tensor_absent();
            if (room == 1) {
                step = t.stride[left];
                room = t.shape[left];
            } else if (t.stride[left] == step * room) {
                room *= t.shape[left];
            } else {
                return fwa_tensor_absent();
            }
        }
        view.stride[i] = step;
        step *= shape[i];
        room /= shape[i];
    }
    bool same_elements = fwa_tensor_count(view) == fwa_tensor_count(t);
    return same_elements && view.stride[ndim - 1] == 1 ? view : fwa_tensor_absent();
}

fwa_tensor fwa_tensor_as_2d(fwa_tensor t, int64_t n0, int64_t n1) {
    return reshape(t, 2, (const int64_t[]){n0, n1});
}

fwa_tensor fwa_tensor_as_3d(fwa_tensor t, int64_t n0, int64_t n1, int64_t n2) {
    return reshape(t, 3, (const int64_t[]){n0, n1, n2});
}

fwa_tensor fwa_tensor_as_4d(fwa_tensor t, int64_t n0, int64_t n1, int64_t n2, int64_t n3) {
    return reshape(t, 4, (const int64_t[]){n0, n1, n2, n3});
}

fwa_tensor fwa_tensor_slice(fwa_tensor t, int dim, int64_t start, int64_t count) {
    if (t.data != NULL) t.data = (char *)t.data + start * t.stride[dim] * (int64_t)fwa_dtype_size(t.dtype);
    t.shape[dim] = count;
    return t;
}

const char *fwa_tensor_text(fwa_tensor t, char text[96]) {
    if (t.data == NULL && t.ndim == 0) {
        snprintf(text, 96, "absent");
        return text;
    }
    int used = snprintf(text, 96, "[");
    for (int i = 0; i < t.ndim && used < 96; i++)
        used += snprintf(text + used, (size_t)(96 - used), "%s%lld", i ? ", " : "", (long long)t.shape[i]);
    if (used < 96) snprintf(text + used, (size_t)(96 - used), "] %s", fwa_dtype_name(t.dtype));
    return text;
}

fwa_status fwa_tensor_expect(fwa_tensor t, const char *name, fwa_dtype dtype, int ndim, ...) {
    fwa_tensor wanted = {.dtype = dtype, .ndim = ndim};
    bool same = t.data != NULL && t.dtype == dtype && t.ndim == ndim;
    va_list sizes;
    va_start(sizes, ndim);
    for (int i = 0; i < ndim && i < FWA_MAX_DIMS; i++) {
        wanted.shape[i] = va_arg(sizes, int64_t);
        same = same && t.shape[i] == wanted.shape[i];
    }
    va_end(sizes);
    if (same) return FWA_OK;
    char got[96], expected[96];
    FWA_FAIL(FWA_ERROR, "%s: got %s%s, expected %s", name, fwa_tensor_text(t, got),
             t.data == NULL && t.ndim > 0 ? " without memory" : "", fwa_tensor_text(wanted, expected));
}
