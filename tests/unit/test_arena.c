// Planning, packing, sharing and binding of memory, over a backend that counts.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/arena.h"

typedef struct counter {
    fwa_backend backend;
    size_t limit, allocated;
    int allocations, frees, fills;
} counter;

static fwa_status counter_alloc(fwa_backend *backend, void **out, size_t bytes) {
    counter *c = (counter *)backend;
    FWA_CHECK(bytes <= c->limit, FWA_MEMORY, "the limit is %zu bytes", c->limit);
    *out = aligned_alloc(256, (bytes + 255) / 256 * 256);
    FWA_CHECK(*out != NULL, FWA_MEMORY, "no memory");
    memset(*out, 0, bytes);
    c->allocated = bytes;
    c->allocations++;
    return FWA_OK;
}

static void counter_free(fwa_backend *backend, void *data) {
    ((counter *)backend)->frees++;
    free(data);
}

static fwa_status counter_fill(fwa_backend *backend, fwa_stream *stream, void *to, int byte, size_t bytes) {
    (void)stream;
    ((counter *)backend)->fills++;
    memset(to, byte, bytes);
    return FWA_OK;
}

static fwa_status counter_synchronize(fwa_backend *backend, fwa_stream *stream) {
    (void)backend, (void)stream;
    return FWA_OK;
}

static counter counter_make(size_t limit) {
    return (counter){.backend = {.name = "counting",
                                 .alloc = counter_alloc,
                                 .free = counter_free,
                                 .fill = counter_fill,
                                 .stream_synchronize = counter_synchronize},
                     .limit = limit};
}

static size_t offset_of(const fwa_arena *arena, fwa_tensor t) {
    return (size_t)((char *)t.data - (char *)fwa_arena_data(arena));
}

static void test_plan_and_commit(void **state) {
    (void)state;
    counter c = counter_make(1 << 20);
    fwa_arena *arena;
    fwa_tensor a, b, bytes;
    assert_int_equal(fwa_arena_create(&arena, "parameters"), FWA_OK);
    assert_string_equal(fwa_arena_name(arena), "parameters");
    assert_int_equal(fwa_arena_bytes(arena), 0);
    assert_int_equal(fwa_arena_plan(arena, &a, FWA_F32, 2, (const int64_t[]){3, 5}), FWA_OK);
    assert_int_equal(fwa_arena_bytes(arena), 60);
    assert_int_equal(fwa_arena_plan(arena, &b, FWA_F64, 1, (const int64_t[]){100}), FWA_OK);
    assert_int_equal(fwa_arena_bytes(arena), 256 + 800);
    assert_int_equal(fwa_arena_plan_bytes(arena, &bytes, 10), FWA_OK);
    assert_int_equal(fwa_arena_bytes(arena), 1280 + 10);
    assert_null(a.data);
    assert_int_equal(a.shape[1], 5);
    assert_int_equal(a.stride[0], 5);
    assert_null(fwa_arena_data(arena));

    assert_int_equal(fwa_arena_commit(arena, &c.backend), FWA_OK);
    assert_int_equal(c.allocations, 1);
    assert_int_equal(c.allocated, 1290);
    assert_int_equal(offset_of(arena, a), 0);
    assert_int_equal(offset_of(arena, b), 256);
    assert_int_equal(offset_of(arena, bytes), 1280);
    assert_int_equal(bytes.dtype, FWA_U8);
    assert_int_equal(bytes.shape[0], 10);
    const unsigned char *first = fwa_arena_data(arena);
#ifdef FWA_POISON
    assert_int_equal(c.fills, 1);
    assert_true(first[0] == 0xFF && first[1289] == 0xFF);
#else
    assert_int_equal(c.fills, 0);
    assert_true(first[0] == 0 && first[1289] == 0);
#endif
    assert_int_equal(fwa_arena_plan(arena, &a, FWA_F32, 1, (const int64_t[]){1}), FWA_ERROR);
    assert_int_equal(fwa_arena_commit(arena, &c.backend), FWA_ERROR);
    fwa_arena_destroy(arena);
    assert_int_equal(c.frees, 1);
    fwa_arena_destroy(NULL);
}

static void test_packed_neighbours(void **state) {
    (void)state;
    counter c = counter_make(1 << 20);
    fwa_arena *arena;
    fwa_tensor q, k, g, odd, wrong;
    assert_int_equal(fwa_arena_create(&arena, "packed"), FWA_OK);
    assert_int_equal(fwa_arena_plan(arena, &q, FWA_F32, 2, (const int64_t[]){3, 5}), FWA_OK);
    assert_int_equal(fwa_arena_plan_packed(arena, &k, FWA_F32, 2, (const int64_t[]){2, 5}), FWA_OK);
    assert_int_equal(fwa_arena_plan_packed(arena, &g, FWA_F32, 2, (const int64_t[]){1, 5}), FWA_OK);
    assert_int_equal(fwa_arena_bytes(arena), 6 * 5 * 4);
    assert_int_equal(fwa_arena_plan_packed(arena, &odd, FWA_U8, 1, (const int64_t[]){3}), FWA_OK);
    assert_int_equal(fwa_arena_plan_packed(arena, &wrong, FWA_F32, 1, (const int64_t[]){1}), FWA_ERROR);
    assert_int_equal(fwa_arena_commit(arena, &c.backend), FWA_OK);
    assert_int_equal(offset_of(arena, k), 60);
    assert_int_equal(offset_of(arena, g), 100);
    assert_int_equal(offset_of(arena, odd), 120);
    fwa_arena_destroy(arena);
}

static void test_mark_and_rewind(void **state) {
    (void)state;
    counter c = counter_make(1 << 20);
    fwa_arena *arena;
    fwa_tensor kept, first, second, third;
    assert_int_equal(fwa_arena_create(&arena, "scratch"), FWA_OK);
    assert_int_equal(fwa_arena_plan_bytes(arena, &kept, 100), FWA_OK);
    size_t mark = fwa_arena_mark(arena);
    assert_int_equal(mark, 100);
    assert_int_equal(fwa_arena_plan_bytes(arena, &first, 1000), FWA_OK);
    assert_int_equal(fwa_arena_bytes(arena), 1256);
    fwa_arena_rewind(arena, mark);
    assert_int_equal(fwa_arena_plan_bytes(arena, &second, 300), FWA_OK);
    assert_int_equal(fwa_arena_mark(arena), 556);
    assert_int_equal(fwa_arena_bytes(arena), 1256); // the highest point stays
    fwa_arena_rewind(arena, mark);
    assert_int_equal(fwa_arena_plan_bytes(arena, &third, 2000), FWA_OK);
    assert_int_equal(fwa_arena_bytes(arena), 2256);
    assert_int_equal(fwa_arena_commit(arena, &c.backend), FWA_OK);
    assert_int_equal(c.allocated, 2256);
    assert_int_equal(offset_of(arena, kept), 0);
    assert_ptr_equal(first.data, second.data);
    assert_ptr_equal(first.data, third.data);
    assert_int_equal(offset_of(arena, first), 256);
    fwa_arena_destroy(arena);
}

static void test_many(void **state) {
    (void)state;
    enum { N = 1000 };
    counter c = counter_make(1 << 20);
    fwa_arena *arena;
    static fwa_tensor views[N];
    assert_int_equal(fwa_arena_create(&arena, "many"), FWA_OK);
    for (int64_t i = 0; i < N; i++)
        assert_int_equal(fwa_arena_plan(arena, &views[i], FWA_I64, 1, (const int64_t[]){i % 33}), FWA_OK);
    assert_int_equal(fwa_arena_commit(arena, &c.backend), FWA_OK);
    for (int i = 0; i < N; i++) {
        assert_true(fwa_tensor_present(views[i]));
        assert_int_equal((uintptr_t)views[i].data % FWA_ARENA_ALIGN, 0);
        memset(views[i].data, i, fwa_tensor_bytes(views[i]));
    }
    for (int i = 0; i < N; i++)
        for (size_t j = 0; j < fwa_tensor_bytes(views[i]); j++)
            assert_int_equal(((unsigned char *)views[i].data)[j], i & 255);
    fwa_arena_destroy(arena);
}

static void test_empty(void **state) {
    (void)state;
    counter c = counter_make(1 << 20);
    fwa_arena *arena;
    fwa_tensor none;
    assert_int_equal(fwa_arena_create(&arena, "empty"), FWA_OK);
    assert_int_equal(fwa_arena_commit(arena, &c.backend), FWA_OK);
    assert_null(fwa_arena_data(arena));
    assert_int_equal(c.allocations, 0);
    assert_int_equal(fwa_arena_plan_bytes(arena, &none, 1), FWA_ERROR);
    fwa_arena_destroy(arena);
    assert_int_equal(c.frees, 0);

    assert_int_equal(fwa_arena_create(&arena, "zero bytes"), FWA_OK);
    assert_int_equal(fwa_arena_plan_bytes(arena, &none, 0), FWA_OK);
    assert_int_equal(fwa_arena_commit(arena, &c.backend), FWA_OK);
    assert_true(fwa_tensor_present(none));
    fwa_arena_destroy(arena);
    assert_int_equal(c.frees, c.allocations);
}

static void test_refusals(void **state) {
    (void)state;
    counter c = counter_make(1000);
    fwa_arena *arena;
    fwa_tensor t;
    assert_int_equal(fwa_arena_create(&arena, "gradients"), FWA_OK);
    assert_int_equal(fwa_arena_plan(arena, &t, FWA_F32, 1, (const int64_t[]){-1}), FWA_ERROR);
    assert_int_equal(fwa_arena_plan(arena, &t, FWA_F32, 0, NULL), FWA_ERROR);
    const int64_t huge[] = {INT64_MAX, 4};
    assert_int_equal(fwa_arena_plan(arena, &t, FWA_F32, 2, huge), FWA_MEMORY);
    assert_int_equal(fwa_arena_plan_bytes(arena, &t, SIZE_MAX), FWA_MEMORY);
    assert_int_equal(fwa_arena_bytes(arena), 0);
    assert_int_equal(fwa_arena_plan_bytes(arena, &t, 1001), FWA_OK);
    assert_int_equal(fwa_arena_commit(arena, &c.backend), FWA_MEMORY);
    assert_non_null(strstr(fwa_error_message(), "'gradients'"));
    assert_non_null(strstr(fwa_error_message(), "1001 bytes"));
    assert_non_null(strstr(fwa_error_message(), "the limit is 1000 bytes"));
    assert_null(t.data);
    fwa_arena_destroy(arena);
    assert_int_equal(c.frees, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan_and_commit), cmocka_unit_test(test_packed_neighbours),
        cmocka_unit_test(test_mark_and_rewind), cmocka_unit_test(test_many),
        cmocka_unit_test(test_empty),           cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
