// The rates of a copy and of a product, and timing by the backend's timers.
#include "train/bench/floor.h"

#include "core/arena.h"
#include "core/shape.h"
#include "kernels/registry.h"
#include "train/bench/bench.h"
#include "train/bench/fill.h"

enum { REPEATS = 9, WARM_UP = 3 };

// A CPU computes at its clock at once.
static double warm_up_seconds(const fwa_backend *backend, double seconds) {
    return backend->kind == FWA_BACKEND_CUDA ? seconds : 0.0;
}

typedef struct timers {
    fwa_backend *backend;
    fwa_event *at[FWA_TIMED_REPEATS + 1];
    int count;
} timers;

static fwa_status open_timers(timers *t, fwa_backend *backend, int count) {
    *t = (timers){.backend = backend};
    for (; t->count < count; t->count++) FWA_TRY(backend->timer_create(backend, &t->at[t->count]));
    return FWA_OK;
}

static void close_timers(timers *t) {
    for (int i = 0; i < t->count; i++) t->backend->event_destroy(t->backend, t->at[i]);
}

// Nothing waits between the calls, so that a device stays busy while the host starts the next one.
static fwa_status time_calls(timers *t, fwa_status (*run)(void *user), void *user, double *seconds) {
    fwa_backend *backend = t->backend;
    FWA_TRY(backend->event_record(backend, t->at[0], backend->stream));
    for (int i = 1; i < t->count; i++) {
        FWA_TRY(run(user));
        FWA_TRY(backend->event_record(backend, t->at[i], backend->stream));
    }
    FWA_TRY(backend->stream_synchronize(backend, backend->stream));
    for (int i = 1; i < t->count; i++)
        FWA_TRY(backend->timer_seconds(backend, t->at[i - 1], t->at[i], &seconds[i - 1]));
    return FWA_OK;
}

static fwa_status warm(fwa_backend *backend, fwa_status (*run)(void *user), void *user, int calls, double seconds) {
    const double start = fwa_bench_now();
    for (int i = 0; i < calls || fwa_bench_now() - start < seconds; i++) {
        FWA_TRY(run(user));
        FWA_TRY(backend->stream_synchronize(backend, backend->stream));
    }
    return FWA_OK;
}

fwa_status fwa_floor_time(fwa_backend *backend, fwa_status (*run)(void *user), void *user, int warm_up,
                          double warm_up_s, int repeats, double *median, double *least) {
    double seconds[FWA_TIMED_REPEATS];
    timers t;
    fwa_status status = FWA_OK;
    FWA_CHECK(repeats >= 1 && repeats <= FWA_TIMED_REPEATS, FWA_USAGE, "got %d repeats, expected 1 to %d", repeats,
              FWA_TIMED_REPEATS);
    FWA_TRY_GOTO(open_timers(&t, backend, repeats + 1), done);
    FWA_TRY_GOTO(warm(backend, run, user, warm_up, warm_up_s), done);
    FWA_TRY_GOTO(time_calls(&t, run, user, seconds), done);
    *median = fwa_bench_median(seconds, repeats);
    *least = seconds[0];
done:
    close_timers(&t);
    return status;
}

enum { MOST_TENSORS = 3 };

typedef struct probe {
    fwa_backend *backend;
    void *own;          // NULL: the tensors are in the memory that was lent
    fwa_tensor a, b, c; // [n,n]
} probe;

static fwa_status copy(void *user) {
    probe *p = user;
    return p->backend->copy(p->backend, p->backend->stream, p->a.data, p->b.data, fwa_tensor_bytes(p->a));
}

// Reads two and writes one, on all threads of a CPU.
static fwa_status add(void *user) {
    probe *p = user;
    return p->backend->ops->add(p->backend->stream, p->a, p->b);
}

static fwa_status multiply(void *user) {
    probe *p = user;
    return p->backend->ops->gemm(p->backend->stream, p->c, p->a, false, p->b, true, fwa_tensor_absent(), 1.0, 0.0);
}

// The first `count` of a, b, c.
static fwa_status open_probe(probe *p, fwa_backend *backend, int64_t n, int count, fwa_floor_room room) {
    fwa_tensor *tensors[MOST_TENSORS] = {&p->a, &p->b, &p->c};
    const size_t each = (size_t)fwa_round_up(n * n * (int64_t)fwa_dtype_size(backend->compute), FWA_ARENA_ALIGN);
    char *memory = room.memory;
    p->backend = backend;
    if (room.bytes < (size_t)count * each) {
        FWA_TRY(backend->alloc(backend, &p->own, (size_t)count * each));
        memory = p->own;
    }
    for (int i = 0; i < count; i++) *tensors[i] = fwa_tensor_2d(memory + (size_t)i * each, backend->compute, n, n);
    const fwa_bench_range range = {-1.0, 1.0, false}; // numbers that are all alike would cost a GPU less power
    FWA_TRY(fwa_bench_fill(backend, p->a, 1, range));
    return fwa_bench_fill(backend, p->b, 2, range);
}

static void close_probe(probe *p) {
    if (p->own) p->backend->free(p->backend, p->own);
}

static fwa_status measure_product(fwa_backend *backend, int64_t n, fwa_floor_room room, double *rate) {
    probe p = {0};
    double median, least;
    fwa_status status = FWA_OK;
    FWA_TRY_GOTO(open_probe(&p, backend, n, 3, room), done);
    FWA_TRY_GOTO(
        fwa_floor_time(backend, multiply, &p, WARM_UP, warm_up_seconds(backend, 0.3), REPEATS, &median, &least), done);
    *rate = 2.0 * (double)n * (double)n * (double)n / least;
done:
    close_probe(&p);
    return status;
}

static fwa_status measure_copy(fwa_backend *backend, int64_t n, fwa_floor_room room, double *rate) {
    probe p = {0};
    double seconds[2], median;
    const double warm_up = warm_up_seconds(backend, 0.02);
    fwa_status status = FWA_OK;
    FWA_TRY_GOTO(open_probe(&p, backend, n, 2, room), done);
    FWA_TRY_GOTO(fwa_floor_time(backend, copy, &p, WARM_UP, warm_up, REPEATS, &median, &seconds[0]), done);
    FWA_TRY_GOTO(fwa_floor_time(backend, add, &p, WARM_UP, warm_up, REPEATS, &median, &seconds[1]), done);
    const double bytes = (double)fwa_tensor_bytes(p.a), copied = 2 * bytes / seconds[0], added = 3 * bytes / seconds[1];
    *rate = copied > added ? copied : added;
done:
    close_probe(&p);
    return status;
}

static fwa_status measure(fwa_backend *backend, fwa_floor_room room, fwa_floor *floor) {
    const bool cuda = backend->kind == FWA_BACKEND_CUDA, full = cuda && backend->compute == FWA_BF16;
    floor->size = full ? 8192 : cuda ? 4096 : 1024;
    FWA_TRY(measure_product(backend, floor->size, room, &floor->product));
    return measure_copy(backend, full ? 11264 : cuda ? 8192 : 4096, room, &floor->copy);
}

// On a backend of its own, so that the algorithm of a product that no run needs is not among those that a run keeps.
fwa_status fwa_floor_measure(fwa_backend *backend, fwa_floor_room room, fwa_floor *floor) {
    fwa_backend *own;
    FWA_TRY(backend->stream_synchronize(backend, backend->stream));
    FWA_TRY(fwa_backend_create(&own, backend->kind, backend->compute, backend->device, backend->threads));
    const fwa_status status = measure(own, room, floor);
    own->destroy(own);
    FWA_TRY(status);
    return FWA_OK;
}

double fwa_floor_seconds(const fwa_floor *floor, fwa_cost cost) {
    const double moving = cost.bytes / floor->copy, computing = cost.flops / floor->product;
    return moving > computing ? moving : computing;
}

double fwa_floor_share(const fwa_floor *floor, fwa_cost cost, double seconds) {
    return fwa_floor_seconds(floor, cost) / seconds;
}
