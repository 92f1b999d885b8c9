// Who holds which rows, and the exchange of values after an update.
#include "layers/shard.h"

#include "core/shape.h"

// Rows between cuts have at least so many elements together: pieces of vectors, too, start where vector loads want
// them.
enum { CUT_ALIGN = 64 };

static int64_t row_elements(const fwa_param *p) {
    int64_t count = 1;
    for (int d = 1; d < p->ndim; d++) count *= p->storage[d];
    return count;
}

static int64_t table_count(const fwa_params *params) {
    int64_t count = 0;
    for (int i = 0; i < params->count; i++) count += params->at[i].storage[0] * row_elements(&params->at[i]);
    return count;
}

// First row of `p`, whose elements start at `offset` in the table, that does not belong to what lies before `boundary`.
static int64_t cut_row(const fwa_param *p, int64_t offset, int64_t boundary) {
    int64_t row = row_elements(p), step = fwa_ceil_div(CUT_ALIGN, row);
    int64_t rows = fwa_ceil_div(fwa_max(boundary - offset, 0), row);
    return fwa_min(fwa_round_up(rows, step), p->storage[0]);
}

// Where piece `rank` of `size` starts, in elements of the table; total * rank could overflow.
static int64_t boundary_of(int64_t total, int rank, int size) {
    return total / size * rank + total % size * rank / size;
}

static fwa_status plan_rows(fwa_params *params, fwa_param_class which) {
    fwa_arena *whole = params->arena[which], *arena = NULL;
    FWA_TRY(fwa_arena_create(&arena, fwa_arena_name(whole)));
    fwa_arena_destroy(whole);
    params->arena[which] = arena;
    for (int i = 0; i < params->count; i++) {
        fwa_param *p = &params->at[i];
        int64_t shape[FWA_MAX_DIMS];
        for (int d = 0; d < p->ndim; d++) shape[d] = d == 0 ? p->rows : p->storage[d];
        FWA_TRY(fwa_arena_plan(arena, &p->tensor[which], p->tensor[which].dtype, p->ndim, shape));
    }
    return FWA_OK;
}

fwa_status fwa_params_shard(fwa_params *params, int rank, int size) {
    FWA_CHECK(size >= 1 && rank >= 0 && rank < size, FWA_ERROR, "got shard %d of %d, expected one below their number",
              rank, size);
    int64_t total = table_count(params), offset = 0;
    int64_t from = boundary_of(total, rank, size), to = boundary_of(total, rank + 1, size);
    for (int i = 0; i < params->count; i++) {
        fwa_param *p = &params->at[i];
        p->row_start = cut_row(p, offset, from);
        p->rows = cut_row(p, offset, to) - p->row_start;
        offset += p->storage[0] * row_elements(p);
    }
    if (params->arena[FWA_PARAM_VALUE]) FWA_TRY(plan_rows(params, FWA_PARAM_MASTER));
    if (params->arena[FWA_PARAM_M]) FWA_TRY(plan_rows(params, FWA_PARAM_M));
    if (params->arena[FWA_PARAM_V]) FWA_TRY(plan_rows(params, FWA_PARAM_V));
    return FWA_OK;
}

fwa_tensor fwa_params_piece(const fwa_params *params, int rank, int size) {
    int64_t total = table_count(params), offset = 0;
    int64_t from = boundary_of(total, rank, size), to = boundary_of(total, rank + 1, size);
    char *start = NULL, *end = NULL;
    for (int i = 0; i < params->count; i++) {
        const fwa_param *p = &params->at[i];
        const fwa_tensor value = p->tensor[FWA_PARAM_VALUE];
        int64_t first = cut_row(p, offset, from), behind = cut_row(p, offset, to);
        int64_t bytes = row_elements(p) * (int64_t)fwa_dtype_size(value.dtype);
        offset += p->storage[0] * row_elements(p);
        if (first == behind) continue;
        if (!start) start = (char *)value.data + first * bytes;
        end = (char *)value.data + behind * bytes;
    }
    return start ? fwa_tensor_1d(start, FWA_U8, end - start) : fwa_tensor_absent();
}

fwa_status fwa_params_gather(const fwa_params *params, fwa_comm *comm, fwa_stream *stream) {
    for (int rank = 0; rank < comm->size; rank++) {
        fwa_tensor piece = fwa_params_piece(params, rank, comm->size);
        if (!fwa_tensor_present(piece)) continue;
        FWA_TRY(comm->broadcast(comm, stream, piece.data, piece.shape[0], FWA_U8, rank));
    }
    return FWA_OK;
}
