// The CUDA backend: memory, copies, streams and events on a real device, and what it refuses.
#include "tests/gpu/device_check.h"

enum { BIG = 1 << 26 }; // bytes: copies long enough to overlap

static fwa_backend *b;

static void the_interface_is_complete(void **state) {
    (void)state;
    assert_true(b->alloc && b->free && b->upload && b->download && b->copy && b->fill);
    assert_true(b->stream_create && b->stream_destroy && b->stream_synchronize);
    assert_true(b->host_alloc && b->host_free && b->graph_record && b->graph_launch && b->graph_destroy);
    assert_true(b->event_create && b->event_destroy && b->event_record && b->event_synchronize && b->stream_wait);
    assert_true(b->memory && b->destroy && b->ops && b->stream);
    assert_int_equal(b->kind, FWA_BACKEND_CUDA);
    assert_string_equal(b->name, "cuda");
    assert_int_equal(b->compute, FWA_BF16);
    assert_int_equal(b->master, FWA_F32);
    assert_int_equal(b->threads, 1);
}

static void memory_is_aligned(void **state) {
    (void)state;
    const size_t sizes[] = {0, 1, 257, 100000};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        void *memory = NULL;
        check_ok(b->alloc(b, &memory, sizes[i]));
        assert_non_null(memory);
        assert_int_equal((uintptr_t)memory % 256, 0);
        b->free(b, memory);
    }
    b->free(b, NULL);
}

static void too_much_memory_is_an_error_and_no_more(void **state) {
    (void)state;
    void *memory = NULL;
    check_status(b->alloc(b, &memory, (size_t)1 << 50), FWA_MEMORY);
    assert_non_null(strstr(fwa_error_message(), "1125899906842624 bytes"));
    assert_non_null(strstr(fwa_error_message(), "are free"));
    check_ok(b->alloc(b, &memory, 1024));
    check_ok(b->fill(b, b->stream, memory, 0, 1024));
    check_ok(b->stream_synchronize(b, b->stream));
    b->free(b, memory);
}

// Rows of 1 to 200 bytes at every kind of address, and what stands around them.
static void fill_rows_of_every_width(void) {
    enum { ROWS = 37, STRIDE = 208, BYTES = ROWS * STRIDE + 16 };
    static unsigned char host[BYTES];
    void *memory = NULL;
    check_ok(b->alloc(b, &memory, BYTES));
    for (int width = 1; width <= 200; width += width < 40 ? 1 : 16)
        for (int at = 0; at < 9; at = at < 2 ? at + 1 : 2 * at) {
            check_ok(b->fill(b, b->stream, memory, 3, BYTES));
            check_ok(
                b->fill_rows(b, b->stream, (char *)memory + at, 9, (size_t)width, STRIDE - 8 * (size_t)(at % 2), ROWS));
            check_ok(b->download(b, b->stream, host, memory, BYTES));
            check_ok(b->stream_synchronize(b, b->stream));
            const int stride = STRIDE - 8 * (at % 2);
            for (int i = 0; i < BYTES; i++) {
                const int row = i < at ? ROWS : (i - at) / stride, inside = i < at ? 0 : (i - at) % stride;
                assert_int_equal(host[i], row < ROWS && inside < width ? 9 : 3);
            }
        }
    b->free(b, memory);
}

// Three bytes in each of four rows of ten, from the second byte on.
static void rows_are_filled_and_what_is_between_is_not(void **state) {
    (void)state;
    unsigned char got[40];
    void *memory = NULL;
    check_ok(b->alloc(b, &memory, 40));
    check_ok(b->fill(b, b->stream, memory, 1, 40));
    check_ok(b->fill_rows(b, b->stream, (char *)memory + 1, 9, 3, 10, 4));
    check_ok(b->fill_rows(b, b->stream, NULL, 9, 0, 10, 4));
    fill_rows_of_every_width();
    check_ok(b->download(b, b->stream, got, memory, 40));
    check_ok(b->stream_synchronize(b, b->stream));
    for (int i = 0; i < 40; i++) assert_int_equal(got[i], i % 10 >= 1 && i % 10 < 4 ? 9 : 1);
    b->free(b, memory);
}

// Three bytes from each of four rows of ten go to rows of five.
static void rows_are_copied_and_what_is_between_is_not(void **state) {
    (void)state;
    unsigned char from[40], got[20];
    void *memory = NULL;
    for (int i = 0; i < 40; i++) from[i] = (unsigned char)i;
    check_ok(b->alloc(b, &memory, 60));
    check_ok(b->upload(b, b->stream, memory, from, 40));
    check_ok(b->fill(b, b->stream, (char *)memory + 40, 99, 20));
    check_ok(b->copy_rows(b, b->stream, (char *)memory + 41, 5, (char *)memory + 2, 10, 3, 4));
    check_ok(b->copy_rows(b, b->stream, NULL, 5, NULL, 10, 0, 4));
    check_ok(b->download(b, b->stream, got, (char *)memory + 40, 20));
    check_ok(b->stream_synchronize(b, b->stream));
    for (int i = 0; i < 20; i++) assert_int_equal(got[i], i % 5 >= 1 && i % 5 < 4 ? i / 5 * 10 + i % 5 + 1 : 99);
    b->free(b, memory);
}

static void copies_move_bytes(void **state) {
    (void)state;
    unsigned char from[100], to[100];
    void *here = NULL, *there = NULL;
    for (int i = 0; i < 100; i++) from[i] = (unsigned char)(3 * i);
    check_ok(b->alloc(b, &here, 100));
    check_ok(b->alloc(b, &there, 100));
    check_ok(b->fill(b, b->stream, there, 7, 100));
    check_ok(b->upload(b, b->stream, here, from, 100));
    check_ok(b->copy(b, b->stream, (char *)there + 1, here, 98));
    check_ok(b->download(b, b->stream, to, there, 100));
    check_ok(b->stream_synchronize(b, b->stream));
    assert_int_equal(to[0], 7);
    assert_memory_equal(to + 1, from, 98);
    assert_int_equal(to[99], 7);
    check_ok(b->upload(b, b->stream, NULL, NULL, 0));
    check_ok(b->fill(b, b->stream, NULL, 0, 0));
    b->free(b, here);
    b->free(b, there);
}

// A second stream copies what the first one writes last; without the wait it would read an earlier value.
static void streams_meet_through_events(void **state) {
    (void)state;
    fwa_stream *other = NULL;
    fwa_event *written = NULL;
    void *source = NULL, *target = NULL;
    unsigned char *seen = check_alloc(BIG);
    check_ok(b->stream_create(b, &other));
    check_ok(b->event_create(b, &written));
    check_ok(b->alloc(b, &source, BIG));
    check_ok(b->alloc(b, &target, BIG));
    for (int value = 1; value <= 50; value++) check_ok(b->fill(b, b->stream, source, value, BIG));
    check_ok(b->event_record(b, written, b->stream));
    check_ok(b->stream_wait(b, other, written));
    check_ok(b->copy(b, other, target, source, BIG));
    check_ok(b->download(b, other, seen, target, BIG));
    check_ok(b->stream_synchronize(b, other));
    for (int i = 0; i < BIG; i++) {
        if (seen[i] != 50) fail_msg("byte %d is %d, expected 50", i, seen[i]);
    }
    b->event_destroy(b, written);
    b->stream_destroy(b, other);
    b->event_destroy(b, NULL);
    b->stream_destroy(b, NULL);
    b->free(b, source);
    b->free(b, target);
}

// The host looks at what was downloaded before the event while the stream goes on behind it.
static void the_host_waits_for_an_event(void **state) {
    (void)state;
    fwa_event *event = NULL;
    void *device = NULL, *host = NULL;
    check_ok(b->event_create(b, &event));
    check_ok(b->alloc(b, &device, BIG));
    check_ok(b->host_alloc(b, &host, BIG));
    memset(host, 0, BIG);
    for (int value = 1; value <= 50; value++) check_ok(b->fill(b, b->stream, device, value, BIG));
    check_ok(b->download(b, b->stream, host, device, BIG));
    check_ok(b->event_record(b, event, b->stream));
    check_ok(b->fill(b, b->stream, device, 99, BIG));
    check_ok(b->event_synchronize(b, event));
    assert_int_equal(((unsigned char *)host)[0], 50);
    assert_int_equal(((unsigned char *)host)[BIG - 1], 50);
    check_ok(b->stream_synchronize(b, b->stream));
    b->event_destroy(b, event);
    b->host_free(b, host);
    b->host_free(b, NULL);
    b->free(b, device);
}

// More uploads than there is pinned memory for, some larger than a piece of it; the host changes its bytes at once.
static void uploads_keep_what_the_host_had(void **state) {
    (void)state;
    enum { COPIES = 60, BYTES = 3 << 20 };
    unsigned char *from = check_alloc(BYTES), *to = check_alloc((size_t)COPIES * BYTES);
    void *device = NULL, *big = NULL;
    check_ok(b->alloc(b, &device, (size_t)COPIES * BYTES));
    check_ok(b->fill(b, b->stream, device, 0, (size_t)COPIES * BYTES));
    check_ok(b->alloc(b, &big, BIG));
    for (int value = 1; value <= 20; value++) check_ok(b->fill(b, b->stream, big, value, BIG));
    for (int i = 0; i < COPIES; i++) {
        memset(from, i + 1, BYTES);
        check_ok(b->upload(b, b->stream, (char *)device + (size_t)i * BYTES, from, (size_t)BYTES - (size_t)i));
    }
    check_ok(b->download(b, b->stream, to, device, (size_t)COPIES * BYTES));
    check_ok(b->stream_synchronize(b, b->stream));
    for (int i = 0; i < COPIES; i++)
        for (int j = 0; j < BYTES - i; j++)
            if (to[(size_t)i * BYTES + (size_t)j] != i + 1) fail_msg("copy %d, byte %d", i, j);
    b->free(b, device);
    b->free(b, big);
}

typedef struct recorded {
    fwa_stream *other;
    fwa_event *before, *after;
    char *source, *target;
    bool bad;
} recorded;

// target = source on a second stream, source = 7 after that.
static fwa_status move_on(void *user) {
    recorded *r = user;
    char host[8];
    FWA_TRY(b->event_record(b, r->before, b->stream));
    FWA_TRY(b->stream_wait(b, r->other, r->before));
    FWA_TRY(b->copy(b, r->other, r->target, r->source, 1000));
    if (r->bad) FWA_TRY(b->upload(b, b->stream, r->source, host, sizeof host));
    FWA_TRY(b->event_record(b, r->after, r->other));
    FWA_TRY(b->stream_wait(b, b->stream, r->after));
    return b->fill(b, b->stream, r->source, 7, 1000);
}

static void recorded_work_runs_when_launched(void **state) {
    (void)state;
    recorded r = {0};
    fwa_graph *graph = NULL, *none = NULL;
    unsigned char seen[1000];
    check_ok(b->stream_create(b, &r.other));
    check_ok(b->event_create(b, &r.before));
    check_ok(b->event_create(b, &r.after));
    check_ok(b->alloc(b, (void **)&r.source, 1000));
    check_ok(b->alloc(b, (void **)&r.target, 1000));
    check_ok(b->fill(b, b->stream, r.source, 1, 1000));
    check_ok(b->fill(b, b->stream, r.target, 2, 1000));
    check_ok(b->graph_record(b, b->stream, move_on, &r, &graph));
    check_ok(b->download(b, b->stream, seen, r.target, 1000));
    check_ok(b->stream_synchronize(b, b->stream));
    assert_int_equal(seen[999], 2);
    for (int value = 3; value < 6; value++) {
        check_ok(b->fill(b, b->stream, r.source, value, 1000));
        check_ok(b->graph_launch(b, b->stream, graph));
        check_ok(b->download(b, b->stream, seen, r.target, 1000));
        check_ok(b->stream_synchronize(b, b->stream));
        assert_int_equal(seen[999], value);
    }
    // What cannot be recorded is an error, after which the stream works.
    r.bad = true;
    check_status(b->graph_record(b, b->stream, move_on, &r, &none), FWA_ERROR);
    assert_non_null(strstr(fwa_error_message(), "recorded"));
    assert_null(none);
    r.bad = false;
    check_ok(move_on(&r));
    check_ok(b->download(b, b->stream, seen, r.target, 1000));
    check_ok(b->stream_synchronize(b, b->stream));
    assert_int_equal(seen[999], 7);
    b->graph_destroy(b, graph);
    b->graph_destroy(b, NULL);
    b->event_destroy(b, r.before);
    b->event_destroy(b, r.after);
    b->stream_destroy(b, r.other);
    b->free(b, r.source);
    b->free(b, r.target);
}

static void memory_figures_follow_allocations(void **state) {
    (void)state;
    const size_t bytes = (size_t)256 << 20;
    size_t before = 0, after = 0, total = 0;
    void *memory = NULL;
    check_ok(b->memory(b, &before, &total));
    check_ok(b->alloc(b, &memory, bytes));
    check_ok(b->memory(b, &after, &total));
    assert_true(after <= total);
    assert_true(after >= before + bytes);
    b->free(b, memory);
}

static void the_table_answers_for_every_operator(void **state) {
    (void)state;
    fwa_tensor none = fwa_tensor_absent();
    check_status(b->ops->rmsnorm_forward(b->stream, none, none, none, none, 1e-5), FWA_ERROR);
#define FWA_OP(backends, name, parameters, arguments) assert_true(b->ops->name != NULL);
#include "kernels/ops.def"
#undef FWA_OP
    int gaps = 0;
    for (int i = 0; i < fwa_op_count(); i++) gaps += !fwa_op_on_backend(i, FWA_BACKEND_CUDA);
    check_status(fwa_backend_complete(b), gaps ? FWA_UNSUPPORTED : FWA_OK);
}

static void the_device_is_described(void **state) {
    (void)state;
    char text[256] = "";
    check_ok(fwa_backend_describe(FWA_BACKEND_CUDA, 0, text, sizeof text));
    assert_non_null(strstr(text, "compute capability"));
    assert_non_null(strstr(text, "GiB"));
    print_message("%s\n", text);
}

static void a_device_that_is_not_there_is_refused(void **state) {
    (void)state;
    fwa_backend *other = NULL;
    int count = fwa_backend_device_count(FWA_BACKEND_CUDA);
    assert_true(count >= 1);
    check_status(fwa_backend_create(&other, FWA_BACKEND_CUDA, FWA_BF16, count, 1), FWA_UNSUPPORTED);
    check_status(fwa_backend_create(&other, FWA_BACKEND_CUDA, FWA_BF16, -1, 1), FWA_UNSUPPORTED);
    assert_null(other);
}

int main(void) {
    b = device_open(FWA_BF16);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_interface_is_complete),
        cmocka_unit_test(memory_is_aligned),
        cmocka_unit_test(too_much_memory_is_an_error_and_no_more),
        cmocka_unit_test(rows_are_filled_and_what_is_between_is_not),
        cmocka_unit_test(rows_are_copied_and_what_is_between_is_not),
        cmocka_unit_test(copies_move_bytes),
        cmocka_unit_test_teardown(streams_meet_through_events, check_release),
        cmocka_unit_test(the_host_waits_for_an_event),
        cmocka_unit_test_teardown(uploads_keep_what_the_host_had, check_release),
        cmocka_unit_test(recorded_work_runs_when_launched),
        cmocka_unit_test(memory_figures_follow_allocations),
        cmocka_unit_test(the_table_answers_for_every_operator),
        cmocka_unit_test(the_device_is_described),
        cmocka_unit_test(a_device_that_is_not_there_is_refused),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    b->destroy(b);
    return failed;
}
