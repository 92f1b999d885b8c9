// The CPU backend: memory, copies, threads, and that every function of the interface is there.
#include "tests/check.h"

#include <omp.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/cpu_quota.h"
#include "kernels/registry.h"

static int open_backend(void **state) {
    fwa_backend *backend;
    if (fwa_backend_create(&backend, FWA_BACKEND_CPU, FWA_F32, 0, 2) != FWA_OK) return 1;
    *state = backend;
    return 0;
}

static int close_backend(void **state) {
    fwa_backend *backend = *state;
    backend->destroy(backend);
    return 0;
}

static void the_interface_is_complete(void **state) {
    const fwa_backend *b = *state;
    assert_true(b->alloc && b->free && b->upload && b->download && b->copy && b->fill);
    assert_true(b->stream_create && b->stream_destroy && b->stream_synchronize);
    assert_true(b->event_create && b->event_destroy && b->event_record && b->event_synchronize && b->stream_wait);
    assert_true(b->host_alloc && b->host_free);
    assert_true(!b->graph_record && !b->graph_launch && !b->graph_destroy);
    assert_true(b->memory && b->destroy && b->ops && b->stream);
    assert_int_equal(b->kind, FWA_BACKEND_CPU);
    assert_string_equal(b->name, "cpu");
    assert_int_equal(b->device, 0);
}

static void precision_sets_both_types(void **state) {
    (void)state;
    const fwa_dtype precisions[] = {FWA_F32, FWA_F64};
    for (int p = 0; p < 2; p++) {
        fwa_backend *backend;
        check_ok(fwa_backend_create(&backend, FWA_BACKEND_CPU, precisions[p], 0, 1));
        assert_int_equal(backend->compute, precisions[p]);
        assert_int_equal(backend->master, precisions[p]);
        backend->destroy(backend);
    }
}

static void memory_is_aligned(void **state) {
    fwa_backend *b = *state;
    const size_t sizes[] = {0, 1, 255, 256, 257, 100000};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        void *memory = NULL;
        check_ok(b->alloc(b, &memory, sizes[i]));
        assert_non_null(memory);
        assert_int_equal((uintptr_t)memory % 256, 0);
        check_ok(b->fill(b, b->stream, memory, 0xA5, sizes[i]));
        b->free(b, memory);
    }
    b->free(b, NULL);
}

static void too_much_memory_is_an_error(void **state) {
    fwa_backend *b = *state;
    void *memory = NULL;
    check_status(b->alloc(b, &memory, SIZE_MAX), FWA_MEMORY);
    check_status(b->alloc(b, &memory, SIZE_MAX - 100), FWA_MEMORY);
    assert_null(memory);
}

// Three bytes in each of four rows of ten, from the second byte on.
static void rows_are_filled_and_what_is_between_is_not(void **state) {
    fwa_backend *b = *state;
    unsigned char got[40];
    void *memory = NULL;
    check_ok(b->alloc(b, &memory, 40));
    check_ok(b->fill(b, b->stream, memory, 1, 40));
    check_ok(b->fill_rows(b, b->stream, (char *)memory + 1, 9, 3, 10, 4));
    check_ok(b->fill_rows(b, b->stream, NULL, 9, 0, 10, 4));
    check_ok(b->download(b, b->stream, got, memory, 40));
    check_ok(b->stream_synchronize(b, b->stream));
    for (int i = 0; i < 40; i++) assert_int_equal(got[i], i % 10 >= 1 && i % 10 < 4 ? 9 : 1);
    b->free(b, memory);
}

// Three bytes from each of four rows of ten go to rows of five.
static void rows_are_copied_and_what_is_between_is_not(void **state) {
    fwa_backend *b = *state;
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
    fwa_backend *b = *state;
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

static void streams_and_events_are_tokens(void **state) {
    fwa_backend *b = *state;
    fwa_stream *stream = NULL;
    fwa_event *event = NULL;
    check_ok(b->stream_create(b, &stream));
    check_ok(b->event_create(b, &event));
    assert_true(stream && stream != b->stream && event);
    check_ok(b->event_record(b, event, b->stream));
    check_ok(b->event_synchronize(b, event));
    check_ok(b->stream_wait(b, stream, event));
    check_ok(b->stream_synchronize(b, stream));
    b->event_destroy(b, event);
    b->stream_destroy(b, stream);
    b->event_destroy(b, NULL);
    b->stream_destroy(b, NULL);
}

static void threads_follow_the_request(void **state) {
    (void)state;
    fwa_backend *backend;
    check_ok(fwa_backend_create(&backend, FWA_BACKEND_CPU, FWA_F32, 0, 3));
    assert_int_equal(backend->threads, 3);
    assert_int_equal(omp_get_max_threads(), 3);
    backend->destroy(backend);
}

static void zero_threads_are_the_cores_of_this_process(void **state) {
    (void)state;
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    fwa_backend *backend;
    check_ok(fwa_backend_create(&backend, FWA_BACKEND_CPU, FWA_F32, 0, 0));
    const int quota = fwa_cpu_quota(NULL, NULL);
    assert_int_equal(backend->threads, quota < CPU_COUNT(&all) ? quota : CPU_COUNT(&all));
    backend->destroy(backend);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; cpu++) {
        if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
    }
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    check_ok(fwa_backend_create(&backend, FWA_BACKEND_CPU, FWA_F32, 0, 0));
    assert_int_equal(backend->threads, 1);
    backend->destroy(backend);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

// Without a check the BLAS library would never come back from its first product.
static void an_address_space_too_small_for_products_is_refused(void **state) {
#ifdef __SANITIZE_ADDRESS__
    (void)state;
    skip(); // takes terabytes of it
#else
    fwa_backend *b = *state;
    long pages = 0;
    void *memory = NULL;
    struct rlimit before, few;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_true(file && fscanf(file, "%ld", &pages) == 1);
    fclose(file);
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    few = before;
    few.rlim_cur = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + ((rlim_t)200 << 20);
    assert_int_equal(setrlimit(RLIMIT_AS, &few), 0);
    const fwa_status refused = b->alloc(b, &memory, 1000);
    few.rlim_cur += (rlim_t)100 << 20;
    assert_int_equal(setrlimit(RLIMIT_AS, &few), 0);
    const fwa_status taken = refused == FWA_OK ? FWA_OK : b->alloc(b, &memory, 1000);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    check_status(refused, FWA_MEMORY);
    check_ok(taken);
    b->free(b, memory);
#endif
}

static void nothing_is_chosen_by_measurement(void **state) {
    fwa_backend *b = *state;
    char *records = NULL;
    int taken = 5, passed_over = 5;
    check_ok(b->choices(b, &records));
    assert_string_equal(records, "");
    free(records);
    check_ok(b->choose(b, "operator=gemm\tM=1\noperator=gemm\tM=2\n", &taken, &passed_over));
    assert_int_equal(taken, 0);
    assert_int_equal(passed_over, 2);
}

static void memory_figures_follow_the_process(void **state) {
    fwa_backend *b = *state;
    const size_t bytes = (size_t)64 << 20;
    size_t before = 0, after = 0, total = 0;
    void *memory = NULL;
    check_ok(b->memory(b, &before, &total));
    check_ok(b->alloc(b, &memory, bytes));
    check_ok(b->fill(b, b->stream, memory, 1, bytes));
    check_ok(b->memory(b, &after, &total));
    assert_true(before > 0 && after < total);
    assert_true(after >= before + bytes / 2);
    b->free(b, memory);
}

static void the_device_is_described(void **state) {
    (void)state;
    char text[256] = "";
    check_ok(fwa_backend_describe(FWA_BACKEND_CPU, 0, text, sizeof text));
    assert_non_null(strstr(text, "core"));
    assert_non_null(strstr(text, "GiB"));
    assert_int_equal(fwa_backend_device_count(FWA_BACKEND_CPU), 1);
    assert_true(fwa_backend_built(FWA_BACKEND_CPU));
}

int main(void) {
#define WITH_BACKEND(test) cmocka_unit_test_setup_teardown(test, open_backend, close_backend)
    const struct CMUnitTest tests[] = {
        WITH_BACKEND(the_interface_is_complete),
        cmocka_unit_test(precision_sets_both_types),
        WITH_BACKEND(memory_is_aligned),
        WITH_BACKEND(too_much_memory_is_an_error),
        WITH_BACKEND(rows_are_filled_and_what_is_between_is_not),
        WITH_BACKEND(rows_are_copied_and_what_is_between_is_not),
        WITH_BACKEND(copies_move_bytes),
        WITH_BACKEND(streams_and_events_are_tokens),
        cmocka_unit_test(threads_follow_the_request),
        cmocka_unit_test(zero_threads_are_the_cores_of_this_process),
        WITH_BACKEND(an_address_space_too_small_for_products_is_refused),
        WITH_BACKEND(nothing_is_chosen_by_measurement),
        WITH_BACKEND(memory_figures_follow_the_process),
        cmocka_unit_test(the_device_is_described),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
