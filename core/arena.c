// The arena: a list of planned views over one stretch of memory that is allocated once.
#include "core/arena.h"

#include <stdlib.h>
#include <string.h>

typedef struct planned {
    fwa_tensor *view;
    size_t offset;
} planned;

struct fwa_arena {
    char *name;
    planned *list;
    size_t count, capacity;
    size_t height, highest; // bytes
    fwa_backend *backend;   // set by commit
    char *data;
};

fwa_status fwa_arena_create(fwa_arena **out, const char *name) {
    *out = NULL;
    fwa_arena *arena = calloc(1, sizeof *arena);
    char *copy = strdup(name);
    if (arena == NULL || copy == NULL) {
        free(arena);
        free(copy);
        FWA_FAIL(FWA_MEMORY, "arena '%s': out of host memory", name);
    }
    arena->name = copy;
    *out = arena;
    return FWA_OK;
}

void fwa_arena_destroy(fwa_arena *arena) {
    if (arena == NULL) return;
    if (arena->data != NULL) arena->backend->free(arena->backend, arena->data);
    free(arena->list);
    free(arena->name);
    free(arena);
}

static fwa_status list_add(fwa_arena *arena, fwa_tensor *view, size_t offset) {
    if (arena->count == arena->capacity) {
        size_t capacity = arena->capacity ? 2 * arena->capacity : 64;
        planned *list = realloc(arena->list, capacity * sizeof *list);
        FWA_CHECK(list != NULL, FWA_MEMORY, "arena '%s': out of host memory for a list of %zu tensors", arena->name,
                  capacity);
        arena->list = list;
        arena->capacity = capacity;
    }
    arena->list[arena->count++] = (planned){.view = view, .offset = offset};
    return FWA_OK;
}

static fwa_status shape_bytes(const fwa_arena *arena, fwa_dtype dtype, int ndim, const int64_t *shape, size_t *bytes) {
    FWA_CHECK(ndim >= 1 && ndim <= FWA_MAX_DIMS, FWA_ERROR, "arena '%s': got %d dimensions, expected 1 to %d",
              arena->name, ndim, FWA_MAX_DIMS);
    *bytes = fwa_dtype_size(dtype);
    for (int i = 0; i < ndim; i++) {
        FWA_CHECK(shape[i] >= 0, FWA_ERROR, "arena '%s': dimension %d has the negative size %lld", arena->name, i,
                  (long long)shape[i]);
        FWA_CHECK(!__builtin_mul_overflow(*bytes, (size_t)shape[i], bytes), FWA_MEMORY,
                  "arena '%s': the size of a tensor does not fit in 64 bits", arena->name);
    }
    return FWA_OK;
}

static fwa_status plan_at(fwa_arena *arena, size_t offset, fwa_tensor *view, fwa_dtype dtype, int ndim,
                          const int64_t *shape) {
    FWA_CHECK(arena->backend == NULL, FWA_ERROR, "arena '%s': a tensor was planned after commit", arena->name);
    size_t bytes, end;
    FWA_TRY(shape_bytes(arena, dtype, ndim, shape, &bytes));
    FWA_CHECK(!__builtin_add_overflow(offset, bytes, &end) && end < SIZE_MAX - FWA_ARENA_ALIGN, FWA_MEMORY,
              "arena '%s': its size does not fit in 64 bits", arena->name);
    FWA_TRY(list_add(arena, view, offset));
    *view = fwa_tensor_nd(NULL, dtype, ndim, shape);
    arena->height = end;
    if (end > arena->highest) arena->highest = end;
    return FWA_OK;
}

fwa_status fwa_arena_plan(fwa_arena *arena, fwa_tensor *view, fwa_dtype dtype, int ndim, const int64_t *shape) {
    size_t offset = (arena->height + FWA_ARENA_ALIGN - 1) / FWA_ARENA_ALIGN * FWA_ARENA_ALIGN;
    FWA_TRY(plan_at(arena, offset, view, dtype, ndim, shape));
    return FWA_OK;
}

fwa_status fwa_arena_plan_packed(fwa_arena *arena, fwa_tensor *view, fwa_dtype dtype, int ndim, const int64_t *shape) {
    FWA_CHECK(arena->height % fwa_dtype_size(dtype) == 0, FWA_ERROR,
              "arena '%s': a packed %s tensor would start at byte %zu, which is not a multiple of its element size",
              arena->name, fwa_dtype_name(dtype), arena->height);
    FWA_TRY(plan_at(arena, arena->height, view, dtype, ndim, shape));
    return FWA_OK;
}

fwa_status fwa_arena_plan_bytes(fwa_arena *arena, fwa_tensor *view, size_t bytes) {
    FWA_CHECK(bytes <= INT64_MAX, FWA_MEMORY, "arena '%s': got a request for %zu bytes", arena->name, bytes);
    FWA_TRY(fwa_arena_plan(arena, view, FWA_U8, 1, &(int64_t){(int64_t)bytes}));
    return FWA_OK;
}

size_t fwa_arena_mark(const fwa_arena *arena) {
    return arena->height;
}

void fwa_arena_rewind(fwa_arena *arena, size_t mark) {
    arena->height = mark;
}

size_t fwa_arena_bytes(const fwa_arena *arena) {
    return arena->highest;
}

const char *fwa_arena_name(const fwa_arena *arena) {
    return arena->name;
}

static fwa_status allocate(fwa_arena *arena, fwa_backend *backend) {
    // Views of zero bytes are present too, so an arena that holds only such views still gets an address.
    size_t bytes = arena->highest > 0 ? arena->highest : FWA_ARENA_ALIGN;
    void *data = NULL;
    fwa_status status = backend->alloc(backend, &data, bytes);
    if (status == FWA_MEMORY)
        FWA_FAIL(FWA_MEMORY, "no %zu bytes for the memory class '%s': %s", bytes, arena->name, fwa_error_message());
    FWA_TRY(status);
    arena->data = data;
    arena->backend = backend;
#ifdef FWA_POISON
    FWA_TRY(backend->fill(backend, backend->stream, data, 0xFF, bytes));
    FWA_TRY(backend->stream_synchronize(backend, backend->stream));
#endif
    return FWA_OK;
}

fwa_status fwa_arena_commit(fwa_arena *arena, fwa_backend *backend) {
    FWA_CHECK(arena->backend == NULL, FWA_ERROR, "arena '%s': committed twice", arena->name);
    if (arena->count > 0) FWA_TRY(allocate(arena, backend));
    arena->backend = backend;
    for (size_t i = 0; i < arena->count; i++) arena->list[i].view->data = arena->data + arena->list[i].offset;
    free(arena->list);
    arena->list = NULL;
    arena->count = arena->capacity = 0;
    return FWA_OK;
}

void *fwa_arena_data(const fwa_arena *arena) {
    return arena->data;
}
