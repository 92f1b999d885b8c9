// Sharded optimizer state: pieces cover the table once, updates equal those without sharding bit by bit, and a rank
// holds its part of the memory only.
#include "mpi_support.h"

#include <stdbool.h>
#include <stdlib.h>

#include "core/rng.h"
#include "core/shape.h"
#include "dist/world.h"
#include "kernels/registry.h"
#include "layers/shard.h"

static fwa_world *world;

// Matrices with padded rows and columns, a packed pair, vectors shorter than a cut's alignment, single rows.
static bool plan_table(fwa_params *params, fwa_dtype compute, fwa_dtype master) {
    static const struct {
        const char *name;
        int64_t rows, columns, stored_rows, stored_columns;
        bool packed;
    } list[] = {
        {"embedding", 301, 24, 304, 24, false},
        {"q", 24, 16, 24, 16, false},
        {"k", 40, 16, 40, 16, true},
        {"bias", 5, 0, 5, 0, false},
        {"one", 1, 64, 1, 64, false},
        {"down", 24, 43, 24, 48, false},
        {"scale", 1000, 0, 1000, 0, false},
        {"conv", 130, 4, 130, 4, false},
    };
    memset(params, 0, sizeof *params);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        const fwa_param_scope scope = {params, "", (int)i};
        const fwa_init normal = {.kind = FWA_INIT_NORMAL, .a = 0.5};
        fwa_param p = list[i].columns ? fwa_param_matrix(list[i].rows, list[i].columns, 0.5)
                                      : fwa_param_plain(list[i].rows, 0, normal);
        int index;
        p.storage[0] = list[i].stored_rows;
        p.storage[1] = list[i].stored_columns;
        p.packed = list[i].packed;
        if (fwa_params_add(&scope, list[i].name, p, &index) != FWA_OK) return false;
    }
    return fwa_params_plan(params, compute, master, true) == FWA_OK;
}

static size_t moments(const fwa_params *params) {
    return fwa_params_bytes(params, FWA_PARAM_M) + fwa_params_bytes(params, FWA_PARAM_V);
}

static int64_t columns_of(const fwa_param *p) {
    return p->ndim > 1 ? p->storage[1] : 1;
}

// Every rank looks at all pieces of any number: rows follow each other, values are cut nowhere else.
static void pieces_cover_the_table_once(void **state) {
    (void)state;
    static const int sizes[] = {1, 2, 3, 4, 7, 64, 1000};
    fwa_backend *backend = NULL;
    ASSERT_ALL(fwa_backend_create(&backend, FWA_BACKEND_CPU, FWA_F32, 0, 1) == FWA_OK);
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        fwa_params params;
        bool good = plan_table(&params, FWA_BF16, FWA_F32);
        int64_t next[16] = {0}, total = 0, all = 0, most = 0; // total in bytes, the last two in elements
        char *end = NULL;
        good &= fwa_params_commit(&params, backend) == FWA_OK;
        size_t whole = fwa_params_bytes(&params, FWA_PARAM_VALUE);
        for (int r = 0; r < sizes[n]; r++) {
            fwa_tensor piece = fwa_params_piece(&params, r, sizes[n]);
            if (!fwa_tensor_present(piece)) continue;
            good &= !end || (char *)piece.data >= end;
            end = (char *)piece.data + piece.shape[0];
            total += piece.shape[0];
        }
        good &= (size_t)total <= whole && (size_t)total + 256 * (size_t)params.count >= whole;
        fwa_params_destroy(&params);
        for (int r = 0; r < sizes[n]; r++) {
            good &= plan_table(&params, FWA_BF16, FWA_F32) && fwa_params_shard(&params, r, sizes[n]) == FWA_OK;
            int64_t held = 0;
            for (int i = 0; i < params.count; i++) {
                const fwa_param *p = &params.at[i];
                good &= p->rows >= 0 && (p->rows == 0 || p->row_start == next[i]);
                good &= p->row_start == p->storage[0] || p->row_start * columns_of(p) % 8 == 0; // 16 bytes of bf16
                good &= p->tensor[FWA_PARAM_M].shape[0] == p->rows && p->tensor[FWA_PARAM_MASTER].shape[0] == p->rows;
                next[i] += p->rows;
                held += fwa_tensor_count(p->tensor[FWA_PARAM_M]);
            }
            all += held;
            most = fwa_max(most, held);
            fwa_params_destroy(&params);
        }
        if (sizes[n] <= 7) good &= most < all / sizes[n] * 5 / 4;
        good &= plan_table(&params, FWA_BF16, FWA_F32);
        for (int i = 0; i < params.count; i++) good &= next[i] == params.at[i].storage[0];
        ASSERT_ALL(fwa_params_shard(&params, sizes[n], sizes[n]) == FWA_ERROR);
        fwa_params_destroy(&params);
        ASSERT_ALL(good);
    }
    backend->destroy(backend);
}

// Three steps of AdamW over the rows held here, on gradients that all ranks have.
static bool update(fwa_params *params, fwa_backend *backend, fwa_comm *comm) {
    bool good = true;
    fwa_step_state state = {.grad_scale = 0.5, .lr = 0.01};
    const fwa_adamw_options options = {.lr_scale = 1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0.1};
    for (state.accepted = 1; state.accepted <= 3; state.accepted++) {
        for (int i = 0; i < params->count; i++) {
            const fwa_param *p = &params->at[i];
            fwa_tensor grad = p->tensor[FWA_PARAM_GRAD];
            for (int64_t j = 0; j < fwa_tensor_count(grad); j++)
                ((double *)grad.data)[j] = fwa_rng_normal(7, (uint64_t)(i + 100 * state.accepted), (uint64_t)j);
            if (p->rows == 0) continue;
            good &= backend->ops->adamw(backend->stream, fwa_param_rows(p, FWA_PARAM_MASTER), fwa_tensor_absent(),
                                        fwa_param_rows(p, FWA_PARAM_GRAD), fwa_param_rows(p, FWA_PARAM_M),
                                        fwa_param_rows(p, FWA_PARAM_V), &options, &state) == FWA_OK;
        }
        if (comm) good &= fwa_params_gather(params, comm, backend->stream) == FWA_OK;
    }
    return good;
}

// The class of one table equals that of the other, in the rows that this rank holds.
static bool same_rows(const fwa_params *a, const fwa_params *b, fwa_param_class which) {
    for (int i = 0; i < a->count; i++) {
        const fwa_param *p = &a->at[i];
        fwa_tensor held = fwa_param_rows(p, which), all = b->at[i].tensor[which];
        fwa_tensor rows = fwa_tensor_slice(all, 0, p->row_start, p->rows);
        if (p->rows > 0 && memcmp(held.data, rows.data, fwa_tensor_bytes(rows)) != 0) return false;
    }
    return true;
}

static bool same_values(const fwa_params *a, const fwa_params *b) {
    for (int i = 0; i < a->count; i++) {
        fwa_tensor x = a->at[i].tensor[FWA_PARAM_VALUE], y = b->at[i].tensor[FWA_PARAM_VALUE];
        if (memcmp(x.data, y.data, fwa_tensor_bytes(x)) != 0) return false;
    }
    return true;
}

static void updates_equal_those_without(void **state) {
    (void)state;
    fwa_backend *backend = NULL;
    fwa_params whole, sharded;
    bool good = fwa_backend_create(&backend, FWA_BACKEND_CPU, FWA_F64, 0, 1) == FWA_OK;
    good &= plan_table(&whole, FWA_F64, FWA_F64) && plan_table(&sharded, FWA_F64, FWA_F64);
    good &= fwa_params_shard(&sharded, world->rank, world->size) == FWA_OK;
    size_t part = moments(&whole) / (size_t)world->size;
    good &= moments(&sharded) < part + part / 4 + 2 * 256 * (size_t)whole.count;
    good &= world->size == 1 || moments(&sharded) < moments(&whole);
    good &= fwa_params_commit(&whole, backend) == FWA_OK && fwa_params_commit(&sharded, backend) == FWA_OK;
    good &= fwa_params_initialize(&whole, backend, 3) == FWA_OK;
    good &= fwa_params_initialize(&sharded, backend, 3) == FWA_OK;
    good &= same_values(&sharded, &whole);
    ASSERT_ALL(good && update(&whole, backend, NULL));
    ASSERT_ALL(update(&sharded, backend, world->all));
    ASSERT_ALL(same_values(&sharded, &whole));
    ASSERT_ALL(same_rows(&sharded, &whole, FWA_PARAM_M) && same_rows(&sharded, &whole, FWA_PARAM_V));
    fwa_params_destroy(&whole);
    fwa_params_destroy(&sharded);
    backend->destroy(backend);
}

// Values in another type than the masters: a rank holds the masters of its rows only, and gets all values.
static void masters_apart_from_values_are_sharded_too(void **state) {
    (void)state;
    fwa_backend *backend = NULL;
    fwa_params whole, sharded;
    bool good = fwa_backend_create(&backend, FWA_BACKEND_CPU, FWA_F32, 0, 1) == FWA_OK;
    good &= plan_table(&whole, FWA_BF16, FWA_F32) && plan_table(&sharded, FWA_BF16, FWA_F32);
    good &= fwa_params_shard(&sharded, world->rank, world->size) == FWA_OK;
    good &= fwa_params_commit(&whole, backend) == FWA_OK && fwa_params_commit(&sharded, backend) == FWA_OK;
    good &= fwa_params_initialize(&whole, backend, 3) == FWA_OK;
    good &= fwa_params_initialize(&sharded, backend, 3) == FWA_OK;
    ASSERT_ALL(good);
    ASSERT_ALL(world->size == 1 || !same_values(&sharded, &whole)); // rows of others are not there yet
    ASSERT_ALL(fwa_params_gather(&sharded, world->all, backend->stream) == FWA_OK);
    ASSERT_ALL(same_values(&sharded, &whole) && same_rows(&sharded, &whole, FWA_PARAM_MASTER));
    ASSERT_ALL(world->size == 1 ||
               fwa_params_bytes(&sharded, FWA_PARAM_MASTER) < fwa_params_bytes(&whole, FWA_PARAM_MASTER));
    fwa_params_destroy(&whole);
    fwa_params_destroy(&sharded);
    backend->destroy(backend);
}

// What io sees: the logical rows of all ranks together are each parameter once.
static void named_rows_are_the_logical_ones(void **state) {
    (void)state;
    static const fwa_param_class classes[] = {FWA_PARAM_MASTER, FWA_PARAM_M, FWA_PARAM_V};
    fwa_backend *backend = NULL;
    fwa_params params;
    bool good = fwa_backend_create(&backend, FWA_BACKEND_CPU, FWA_F64, 0, 1) == FWA_OK;
    good &= plan_table(&params, FWA_F64, FWA_F64);
    good &= fwa_params_shard(&params, world->rank, world->size) == FWA_OK;
    good &= fwa_params_commit(&params, backend) == FWA_OK;
    ASSERT_ALL(good);
    for (int i = 0; i < params.count; i++)
        for (int c = 0; c < 3; c++) {
            const fwa_named_tensor named = fwa_param_named(&params.at[i], classes[c]);
            int64_t rows = named.tensor.shape[0], sum = rows, last = named.row_start + rows;
            good &= world->all->all_reduce(world->all, NULL, &sum, 1, FWA_I64, FWA_REDUCE_SUM) == FWA_OK;
            good &= sum == params.at[i].shape[0] && rows >= 0 && last <= params.at[i].shape[0];
            good &= named.shape[0] == params.at[i].shape[0];
            good &= rows == 0 || named.row_start == params.at[i].row_start;
        }
    good &= fwa_param_named(&params.at[0], FWA_PARAM_GRAD).tensor.shape[0] == params.at[0].shape[0];
    ASSERT_ALL(good);
    fwa_params_destroy(&params);
    backend->destroy(backend);
}

int main(int argc, char **argv) {
    if (fwa_world_create(&world, &argc, &argv) != FWA_OK) {
        fprintf(stderr, "%s\n%s\n", fwa_error_message(), fwa_error_trace());
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_cover_the_table_once),
        cmocka_unit_test(updates_equal_those_without),
        cmocka_unit_test(masters_apart_from_values_are_sharded_too),
        cmocka_unit_test(named_rows_are_the_logical_ones),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fwa_world_destroy(world);
    return failed;
}
