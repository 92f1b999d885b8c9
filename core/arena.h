// Memory of one class (parameters, gradients, optimizer, activations, scratch): plan sizes, allocate once, bind views.
//
// Planning needs no memory, so `fwa train --dry-run` prints the plan of any model on any machine. fwa_arena_plan
// records where a tensor will live and where its view is stored; fwa_arena_commit allocates once and fills every
// recorded view. mark/rewind let tensors with disjoint lifetimes share memory: the arena is as large as its highest
// point. Builds with FWA_POISON fill the memory with 0xFF (NaN) at commit. Not collective. Owned by the caller.
#ifndef FWA_CORE_ARENA_H
#define FWA_CORE_ARENA_H

#include "core/backend.h"
#include "core/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fwa_arena fwa_arena;

#define FWA_ARENA_ALIGN 256 // bytes; start of every planned tensor unless packed

// `name` is copied. On FWA_OK the caller owns *out (fwa_arena_destroy).
FWA_MUST_CHECK fwa_status fwa_arena_create(fwa_arena **out, const char *name);
void fwa_arena_destroy(fwa_arena *arena); // frees the memory through its backend; NULL is fine

// Plans a dense tensor. *view gets type and shape now and its pointer at commit: it must stay at its address until
// then.
FWA_MUST_CHECK fwa_status fwa_arena_plan(fwa_arena *arena, fwa_tensor *view, fwa_dtype dtype, int ndim,
                                         const int64_t *shape);
// Same, directly behind the tensor planned before, without alignment: neighbours form one packed matrix.
FWA_MUST_CHECK fwa_status fwa_arena_plan_packed(fwa_arena *arena, fwa_tensor *view, fwa_dtype dtype, int ndim,
                                                const int64_t *shape);
// Raw bytes, as a u8 tensor. Views of zero bytes, here and above, are present after commit, too.
FWA_MUST_CHECK fwa_status fwa_arena_plan_bytes(fwa_arena *arena, fwa_tensor *view, size_t bytes);

size_t fwa_arena_mark(const fwa_arena *arena);        // current height in bytes
void fwa_arena_rewind(fwa_arena *arena, size_t mark); // what is planned next starts at `mark` again
size_t fwa_arena_bytes(const fwa_arena *arena);       // highest point so far: what commit allocates
const char *fwa_arena_name(const fwa_arena *arena);

// Allocates and binds; FWA_MEMORY names class and bytes. Nothing can be planned afterwards.
FWA_MUST_CHECK fwa_status fwa_arena_commit(fwa_arena *arena, fwa_backend *backend);
// Start of the memory (NULL before commit), for whole-class operations such as zeroing all gradients.
void *fwa_arena_data(const fwa_arena *arena);

#ifdef __cplusplus
}
#endif
#endif
