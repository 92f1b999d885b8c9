// The communicator over NCCL: every operation gives what it promises, in the order of the caller's stream. One rank
// without a launcher; `mpirun -np N` for N GPUs of one node.
#include "tests/gpu/device_check.h"

#include "core/shape.h"
#include "dist/buckets.h"
#include "dist/comms.h"
#include "dist/world.h"
#include "train/ranks.h"

enum { MOST = 1 << 20, STARTED = 24 }; // elements of a buffer; reductions under way at once

static fwa_world *world;
static fwa_backend *b;
static fwa_comm *comm;
static const int64_t counts[] = {1, 7, 1000, 65536, MOST};

// Small whole numbers: every sum of them is exact in fp32.
static float element(int rank, int64_t i) {
    return (float)((rank + 1) * (1 + (int)(i % 61)));
}
static float sum_of(int64_t i) {
    return (float)(comm->size * (comm->size + 1) / 2 * (1 + (int)(i % 61)));
}

static float *device_floats(int64_t n) {
    void *memory = NULL;
    check_ok(b->alloc(b, &memory, (size_t)n * sizeof(float)));
    check_ok(b->fill(b, b->stream, memory, 0xFF, (size_t)n * sizeof(float)));
    return memory;
}

static float *device_elements(int64_t n) {
    float *host = check_alloc((size_t)n * sizeof *host), *device = device_floats(n);
    for (int64_t i = 0; i < n; i++) host[i] = element(comm->rank, i);
    check_ok(b->upload(b, b->stream, device, host, (size_t)n * sizeof *host));
    check_ok(b->stream_synchronize(b, b->stream));
    return device;
}

// Copied on the same stream without a wait by the host before it: results must be there in stream order.
static float *read_floats(const float *device, int64_t n) {
    float *host = check_alloc((size_t)n * sizeof *host);
    check_ok(b->download(b, b->stream, host, device, (size_t)n * sizeof *host));
    check_ok(b->stream_synchronize(b, b->stream));
    return host;
}

static void reductions_of_every_type(void **state) {
    (void)state;
    int n = comm->size, r = comm->rank;
    union value {
        double f64;
        float f32;
        uint16_t bf16;
        int32_t i32;
        int64_t i64;
        uint8_t u8;
    } all[3][FWA_DTYPE_COUNT];
    const int expected[3] = {n * (n + 1) / 2, n, 1};
    void *device = NULL;
    check_ok(b->alloc(b, &device, sizeof(union value)));
    for (int op = 0; op < 3; op++)
        for (int type = 0; type < FWA_DTYPE_COUNT; type++) {
            union value own = {0}, *out = &all[op][type];
            if (type == FWA_F64) own.f64 = r + 1;
            if (type == FWA_F32) own.f32 = (float)(r + 1);
            if (type == FWA_BF16) own.bf16 = device_bf16(r + 1);
            if (type == FWA_I32) own.i32 = r + 1;
            if (type == FWA_I64) own.i64 = r + 1;
            if (type == FWA_U8) own.u8 = (uint8_t)(r + 1);
            check_ok(b->upload(b, b->stream, device, &own, sizeof own));
            check_ok(comm->all_reduce(comm, b->stream, device, 1, (fwa_dtype)type, (fwa_reduce)op));
            check_ok(b->download(b, b->stream, out, device, sizeof *out));
        }
    check_ok(b->stream_synchronize(b, b->stream));
    for (int op = 0; op < 3; op++) {
        assert_true(all[op][FWA_F64].f64 == expected[op] && all[op][FWA_F32].f32 == (float)expected[op]);
        assert_int_equal(all[op][FWA_BF16].bf16, device_bf16(expected[op]));
        assert_int_equal(all[op][FWA_I32].i32, expected[op]);
        assert_int_equal(all[op][FWA_I64].i64, expected[op]);
        assert_int_equal(all[op][FWA_U8].u8, expected[op]);
    }
    b->free(b, device);
}

static void sums_of_every_size(void **state) {
    (void)state;
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        float *x = device_elements(counts[c]);
        check_ok(comm->all_reduce(comm, b->stream, x, counts[c], FWA_F32, FWA_REDUCE_SUM));
        const float *got = read_floats(x, counts[c]);
        for (int64_t i = 0; i < counts[c]; i++) assert_true(got[i] == sum_of(i));
        b->free(b, x);
        check_release(NULL);
    }
}

// Started one after another, each after a copy into its buffer on the caller's stream, and waited for in another order.
static void started_reductions_follow_the_stream(void **state) {
    (void)state;
    float *from = device_elements(MOST), *to = device_floats(MOST);
    int64_t each = MOST / STARTED;
    fwa_comm_request *request[STARTED];
    for (int round = 0; round < 3; round++) {
        check_ok(b->fill(b, b->stream, to, 0xFF, MOST * sizeof *to));
        for (int s = 0; s < STARTED; s++) {
            size_t bytes = (size_t)each * sizeof *to;
            check_ok(b->copy(b, b->stream, to + s * each, from + s * each, bytes));
            check_ok(
                comm->all_reduce_start(comm, b->stream, to + s * each, each, FWA_F32, FWA_REDUCE_SUM, &request[s]));
        }
        for (int s = STARTED - 1; s >= 0; s--) check_ok(comm->wait(comm, b->stream, request[s]));
        const float *got = read_floats(to, each * STARTED);
        for (int64_t i = 0; i < each * STARTED; i++) assert_true(got[i] == sum_of(i));
    }
    check_status(comm->wait(comm, b->stream, request[0]), FWA_ERROR);
    b->free(b, from);
    b->free(b, to);
}

static void buckets_sum_gradients(void **state) {
    (void)state;
    float *x = device_elements(MOST);
    fwa_tensor tensors[4];
    fwa_buckets *buckets = NULL;
    for (int i = 0; i < 4; i++) tensors[i] = fwa_tensor_1d(x + i * (MOST / 4), FWA_F32, MOST / 4);
    check_ok(fwa_buckets_create(&buckets, comm, tensors, 4));
    for (int i = 3; i >= 0; i--) check_ok(fwa_buckets_start(buckets, b->stream, i));
    check_ok(fwa_buckets_wait(buckets, b->stream));
    const float *got = read_floats(x, MOST);
    for (int64_t i = 0; i < MOST; i++) assert_true(got[i] == sum_of(i));
    fwa_buckets_destroy(buckets);
    b->free(b, x);
}

static void gathers_scatters_and_broadcasts(void **state) {
    (void)state;
    int n = comm->size, r = comm->rank;
    int64_t each = MOST / n;
    float *from = device_elements(each * n), *to = device_floats(each * n);
    const fwa_comm_sent before = comm->sent;
    check_ok(comm->all_gather(comm, b->stream, from, to, each, FWA_F32));
    const float *got = read_floats(to, each * n);
    for (int64_t i = 0; i < each * n; i++) assert_true(got[i] == element((int)(i / each), i % each));
    check_ok(comm->reduce_scatter(comm, b->stream, from, to, each, FWA_F32));
    got = read_floats(to, each);
    for (int64_t i = 0; i < each; i++) assert_true(got[i] == sum_of(r * each + i));
    assert_true(comm->sent.all_gather - before.all_gather == each * 4);
    assert_true(comm->sent.reduce_scatter - before.reduce_scatter == each * n * 4);
    // In place.
    check_ok(comm->reduce_scatter(comm, b->stream, from, from + r * each, each, FWA_F32));
    check_ok(comm->all_gather(comm, b->stream, from + r * each, from, each, FWA_F32));
    got = read_floats(from, each * n);
    for (int64_t i = 0; i < each * n; i++) assert_true(got[i] == sum_of(i));
    b->free(b, from);
    for (int root = 0; root < n; root++) {
        from = device_elements(each);
        check_ok(comm->broadcast(comm, b->stream, from, each, FWA_F32, root));
        got = read_floats(from, each);
        for (int64_t i = 0; i < each; i++) assert_true(got[i] == element(root, i));
        b->free(b, from);
    }
    b->free(b, to);
}

static void exchanges_with_neighbours(void **state) {
    (void)state;
    int n = comm->size, r = comm->rank;
    float *from = device_elements(MOST), *to = device_floats(MOST);
    int64_t bytes = (int64_t)MOST * (int64_t)sizeof(float), before = comm->sent.exchange;
    check_ok(comm->exchange(comm, b->stream, from, bytes, (r + 1) % n, to, bytes, (r - 1 + n) % n));
    const float *got = read_floats(to, MOST);
    for (int64_t i = 0; i < MOST; i++) assert_true(got[i] == element((r - 1 + n) % n, i));
    // Down a line: the first only sends, the last only receives.
    check_ok(b->fill(b, b->stream, to, 0, (size_t)bytes));
    check_ok(comm->exchange(comm, b->stream, r + 1 < n ? from : NULL, 400, r + 1, r > 0 ? to : NULL, 400, r - 1));
    got = read_floats(to, 101);
    for (int64_t i = 0; i < 100; i++) assert_true(got[i] == (r > 0 ? element(r - 1, i) : 0));
    assert_true(got[100] == 0);
    assert_true(comm->sent.exchange - before == bytes + (r + 1 < n ? 400 : 0));
    b->free(b, from);
    b->free(b, to);
}

typedef struct recorded {
    float *from, *sum, *piece;
} recorded;

// sum = sum over ranks of from, in quarters that are started and waited for; then a reduction and the last rank's
// piece.
static fwa_status reduce_all(void *user) {
    const recorded *r = user;
    fwa_comm_request *request[4];
    int64_t each = MOST / 4;
    FWA_TRY(b->copy(b, b->stream, r->sum, r->from, MOST * sizeof(float)));
    for (int i = 0; i < 4; i++)
        FWA_TRY(comm->all_reduce_start(comm, b->stream, r->sum + i * each, each, FWA_F32, FWA_REDUCE_SUM, &request[i]));
    for (int i = 0; i < 4; i++) FWA_TRY(comm->wait(comm, b->stream, request[i]));
    FWA_TRY(b->copy(b, b->stream, r->piece, r->from, 1000 * sizeof(float)));
    FWA_TRY(comm->all_reduce(comm, b->stream, r->piece, 500, FWA_F32, FWA_REDUCE_MAX));
    return comm->broadcast(comm, b->stream, r->piece + 500, 500, FWA_F32, comm->size - 1);
}

static void check_reduced(const recorded *r) {
    const float *got = read_floats(r->sum, MOST), *piece = read_floats(r->piece, 1000);
    for (int64_t i = 0; i < MOST; i++) assert_true(got[i] == sum_of(i));
    for (int64_t i = 0; i < 1000; i++) assert_true(piece[i] == element(comm->size - 1, i));
}

// Recorded once, launched with and without the same work call by call in between; counted when given, not when
// launched.
static void operations_can_be_recorded(void **state) {
    (void)state;
    recorded r = {device_elements(MOST), device_floats(MOST), device_floats(1000)};
    const fwa_comm_sent before = comm->sent;
    fwa_graph *graph = NULL;
    check_ok(reduce_all(&r));
    check_reduced(&r);
    check_ok(b->graph_record(b, b->stream, reduce_all, &r, &graph));
    for (int i = 0; i < 6; i++) {
        check_ok(b->fill(b, b->stream, r.sum, 0xFF, MOST * sizeof(float)));
        check_ok(b->fill(b, b->stream, r.piece, 0xFF, 1000 * sizeof(float)));
        if (i % 3 == 2)
            check_ok(reduce_all(&r));
        else
            check_ok(b->graph_launch(b, b->stream, graph));
        check_reduced(&r);
    }
    check_ok(b->stream_synchronize(b, b->stream));
    // One call, one recording, two calls: the quarters and 500 values reduced, 500 sent by the last rank.
    assert_true(comm->sent.all_reduce - before.all_reduce == 4 * (MOST + 500) * 4);
    assert_true(comm->sent.broadcast - before.broadcast == (comm->rank == comm->size - 1 ? 4 * 500 * 4 : 0));
    b->graph_destroy(b, graph);
    b->free(b, r.from);
    b->free(b, r.sum);
    b->free(b, r.piece);
}

static void barriers_and_bad_calls(void **state) {
    (void)state;
    for (int i = 0; i < 5; i++) check_ok(comm->barrier(comm));
    check_status(comm->all_reduce(comm, b->stream, NULL, -1, FWA_F32, FWA_REDUCE_SUM), FWA_ERROR);
    check_status(comm->broadcast(comm, b->stream, NULL, 1, FWA_F32, comm->size), FWA_ERROR);
    check_status(comm->exchange(comm, b->stream, &world, 8, comm->size, NULL, 0, 0), FWA_ERROR);
    check_ok(comm->all_reduce(comm, b->stream, NULL, 0, FWA_F32, FWA_REDUCE_SUM));
    check_ok(comm->barrier(comm));
}

// The other ranks come too late. Last: the group is of no use afterwards.
static void a_peer_that_does_not_come_is_a_time_out(void **state) {
    (void)state;
    if (comm->size == 1) return;
    check_ok(comm->barrier(comm));
    if (comm->rank == 0) {
        comm->set_timeout(comm, 1.0);
        check_status(comm->barrier(comm), FWA_TIMEOUT);
        assert_non_null(strstr(fwa_error_message(), "barrier"));
        check_status(comm->barrier(comm), FWA_TIMEOUT);
    }
}

static fwa_status open_all(int argc, char **argv) {
    const fwa_nccl_options options = {.max_ctas = FWA_RANKS_CTAS, .deterministic = true, .timeout_s = 120};
    int device = 0;
    FWA_TRY(fwa_world_create(&world, &argc, &argv));
    int visible = fwa_backend_device_count(FWA_BACKEND_CUDA);
    if (visible > 0) FWA_TRY(fwa_ranks_device(world, visible, &device));
    FWA_TRY(fwa_backend_create(&b, FWA_BACKEND_CUDA, FWA_F32, device, 1));
    return fwa_comm_nccl_create(&comm, world->all, b, &options);
}

int main(int argc, char **argv) {
    fwa_status status = open_all(argc, argv);
    if (status != FWA_OK) {
        printf("%s%s\n", status == FWA_UNSUPPORTED ? "skipped: " : "", fwa_error_message());
        if (status != FWA_UNSUPPORTED) fwa_world_abort(world, 1);
        fwa_world_destroy(world);
        return DEVICE_SKIP;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(reductions_of_every_type, check_release),
        cmocka_unit_test_teardown(sums_of_every_size, check_release),
        cmocka_unit_test_teardown(started_reductions_follow_the_stream, check_release),
        cmocka_unit_test_teardown(buckets_sum_gradients, check_release),
        cmocka_unit_test_teardown(gathers_scatters_and_broadcasts, check_release),
        cmocka_unit_test_teardown(exchanges_with_neighbours, check_release),
        cmocka_unit_test_teardown(operations_can_be_recorded, check_release),
        cmocka_unit_test_teardown(barriers_and_bad_calls, check_release),
        cmocka_unit_test_teardown(a_peer_that_does_not_come_is_a_time_out, check_release),
    };
    printf("rank %d of %d on device %d\n", world->rank, world->size, b->device);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    world->all->set_timeout(world->all, 60);
    (void)!world->all->barrier(world->all); // the late ones stay until the first has given up
    comm->destroy(comm);
    b->destroy(b);
    fwa_world_destroy(world);
    return failed;
}
