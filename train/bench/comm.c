// fwa bench comm: what the communicator of the data ranks moves in a second, by operation and size.
//
// Sizes as in nccl-tests: all-reduce, its buffer; all-gather and reduce-scatter, the whole of all ranks; exchange, what
// a rank sends. Elements are f32 whole numbers so small that every sum of them is exact.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/shape.h"
#include "dist/comms.h"
#include "kernels/registry.h"
#include "train/arguments.h"
#include "train/bench/bench.h"
#include "train/ranks.h"

#define PERIOD     61  // values repeat after so many elements
#define BUDGET_S   0.2 // of a row's timed repeats
#define REPEATS    200 // at most
#define MOST_BYTES ((int64_t)1 << 34)

typedef struct bench {
    fwa_world *world;
    fwa_backend *backend;
    fwa_comm *comm;
    char *from, *to; // device memory: `room` bytes each
    float *host;
    size_t room;
} bench;

// Element i of rank r's contribution.
static float element(int rank, int64_t i) {
    return (float)((rank + 1) * (1 + (int)(i % PERIOD)));
}

// Sum over `size` ranks of their elements i.
static float sum_of(int size, int64_t i) {
    int64_t ranks = (int64_t)size * (size + 1) / 2; // 1 + 2 + ... + size
    return (float)(ranks * (1 + i % PERIOD));
}

typedef struct comm_op {
    const char *name;
    bool divided; // `bytes` are of all ranks together, so a rank's part is an n-th of them
    fwa_status (*run)(const bench *b, int64_t count);            // count: f32 elements of a rank's part
    float (*expected)(const bench *b, int64_t count, int64_t i); // element i of the result
    int64_t (*results)(const bench *b, int64_t count);           // how many there are
    double (*bus)(int ranks);                                    // busbw / algbw
} comm_op;

static fwa_status run_all_reduce(const bench *b, int64_t count) {
    return b->comm->all_reduce(b->comm, b->backend->stream, b->to, count, FWA_F32, FWA_REDUCE_SUM);
}
static float expected_all_reduce(const bench *b, int64_t count, int64_t i) {
    (void)count;
    return sum_of(b->comm->size, i);
}
static int64_t results_part(const bench *b, int64_t count) {
    (void)b;
    return count;
}
static double bus_all_reduce(int ranks) {
    return 2.0 * (ranks - 1) / ranks;
}

static fwa_status run_all_gather(const bench *b, int64_t count) {
    return b->comm->all_gather(b->comm, b->backend->stream, b->from, b->to, count, FWA_F32);
}
static float expected_all_gather(const bench *b, int64_t count, int64_t i) {
    (void)b;
    return element((int)(i / count), i % count);
}
static int64_t results_whole(const bench *b, int64_t count) {
    return count * b->comm->size;
}
static double bus_part(int ranks) {
    return (double)(ranks - 1) / ranks;
}

static fwa_status run_reduce_scatter(const bench *b, int64_t count) {
    return b->comm->reduce_scatter(b->comm, b->backend->stream, b->from, b->to, count, FWA_F32);
}
static float expected_reduce_scatter(const bench *b, int64_t count, int64_t i) {
    return sum_of(b->comm->size, b->comm->rank * count + i);
}

static fwa_status run_exchange(const bench *b, int64_t count) {
    int n = b->comm->size, rank = b->comm->rank;
    int64_t bytes = count * (int64_t)sizeof(float);
    return b->comm->exchange(b->comm, b->backend->stream, b->from, bytes, (rank + 1) % n, b->to, bytes,
                             (rank - 1 + n) % n);
}
static float expected_exchange(const bench *b, int64_t count, int64_t i) {
    (void)count;
    return element((b->comm->rank - 1 + b->comm->size) % b->comm->size, i);
}
static double bus_exchange(int ranks) {
    (void)ranks;
    return 1.0;
}

static const comm_op comm_ops[] = {
    {"all-reduce", false, run_all_reduce, expected_all_reduce, results_part, bus_all_reduce},
    {"all-gather", true, run_all_gather, expected_all_gather, results_whole, bus_part},
    {"reduce-scatter", true, run_reduce_scatter, expected_reduce_scatter, results_part, bus_part},
    {"exchange", false, run_exchange, expected_exchange, results_part, bus_exchange},
};

// Every operation's input in `from`, and in `to` for the one that works in place; elsewhere `to` holds what no result
// is.
static fwa_status fill(const bench *b, const comm_op *op, int64_t count) {
    fwa_backend *backend = b->backend;
    int64_t n = op->run == run_reduce_scatter ? count * b->comm->size : count;
    size_t bytes = (size_t)n * sizeof(float);
    for (int64_t i = 0; i < n; i++) b->host[i] = element(b->comm->rank, i);
    FWA_TRY(backend->upload(backend, backend->stream, b->from, b->host, bytes));
    FWA_TRY(backend->fill(backend, backend->stream, b->to, 0xFF, (size_t)op->results(b, count) * sizeof(float)));
    if (op->run == run_all_reduce) FWA_TRY(backend->copy(backend, backend->stream, b->to, b->from, bytes));
    return backend->stream_synchronize(backend, backend->stream);
}

static fwa_status check(const bench *b, const comm_op *op, int64_t count) {
    fwa_backend *backend = b->backend;
    int64_t n = op->results(b, count);
    FWA_TRY(fill(b, op, count));
    FWA_TRY(op->run(b, count));
    FWA_TRY(backend->download(backend, backend->stream, b->host, b->to, (size_t)n * sizeof(float)));
    FWA_TRY(backend->stream_synchronize(backend, backend->stream));
    for (int64_t i = 0; i < n; i++)
        FWA_CHECK(b->host[i] == op->expected(b, count, i), FWA_FAULTY,
                  "bench comm: check failed: %s of %lld elements: element %lld is %g, expected %g; no time is reported",
                  op->name, (long long)count, (long long)i, (double)b->host[i], (double)op->expected(b, count, i));
    return FWA_OK;
}

// Seconds that `repeats` in a row take the slowest rank, each.
static fwa_status time_repeats(const bench *b, const comm_op *op, int64_t count, int repeats, double *seconds) {
    fwa_backend *backend = b->backend;
    fwa_comm *all = b->world->all;
    FWA_TRY(all->barrier(all));
    double start = fwa_bench_now();
    for (int i = 0; i < repeats; i++) FWA_TRY(op->run(b, count));
    FWA_TRY(backend->stream_synchronize(backend, backend->stream));
    *seconds = (fwa_bench_now() - start) / repeats;
    return all->all_reduce(all, NULL, seconds, 1, FWA_F64, FWA_REDUCE_MAX);
}

static fwa_status bench_row(const bench *b, const comm_op *op, int64_t size) {
    int ranks = b->comm->size;
    int64_t count = fwa_max(1, size / (int64_t)sizeof(float) / (op->divided ? ranks : 1));
    int64_t bytes = count * (int64_t)sizeof(float) * (op->divided ? ranks : 1);
    double seconds;
    FWA_TRY(fwa_world_agree(b->world, check(b, op, count)));
    FWA_TRY(time_repeats(b, op, count, 2, &seconds)); // the same on every rank
    int repeats = seconds * REPEATS < BUDGET_S ? REPEATS : (int)fwa_max(2, (int64_t)(BUDGET_S / seconds));
    FWA_TRY(time_repeats(b, op, count, repeats, &seconds));
    double rate = 1e-9 * (double)bytes / seconds;
    if (b->world->rank == 0)
        printf("%-15s %12lld %12.1f %10.3f %10.3f\n", op->name, (long long)bytes, 1e6 * seconds, rate,
               rate * op->bus(ranks));
    return FWA_OK;
}

static fwa_status bench_rows(const bench *b, int64_t first, int64_t last) {
    if (b->world->rank == 0) {
        printf("%s, %d rank%s, %s: every result was exact before its time was taken\n", b->comm->name, b->comm->size,
               fwa_plural(b->comm->size), b->backend->name);
        printf("%-15s %12s %12s %10s %10s\n", "operation", "bytes", "us", "algbw GB/s", "busbw GB/s");
    }
    for (size_t o = 0; o < sizeof comm_ops / sizeof *comm_ops; o++)
        for (int64_t size = first; size <= last; size = size < last ? fwa_min(4 * size, last) : last + 1)
            FWA_TRY(bench_row(b, &comm_ops[o], size));
    return FWA_OK;
}

static fwa_status open_backend(bench *b, bool cuda) {
    int device = 0;
    if (!cuda) return fwa_backend_create(&b->backend, FWA_BACKEND_CPU, FWA_F32, 0, 1);
    int visible = fwa_backend_device_count(FWA_BACKEND_CUDA);
    if (visible > 0) FWA_TRY(fwa_ranks_device(b->world, visible, &device));
    return fwa_backend_create(&b->backend, FWA_BACKEND_CUDA, FWA_F32, device, 1);
}

static fwa_status open_bench(bench *b, bool cuda, int64_t last) {
    b->room = (size_t)last + sizeof(float) * (size_t)b->world->size; // parts are rounded up to an element
    FWA_TRY(open_backend(b, cuda));
    FWA_TRY(b->backend->alloc(b->backend, (void **)&b->from, b->room));
    FWA_TRY(b->backend->alloc(b->backend, (void **)&b->to, b->room));
    b->host = malloc(b->room);
    FWA_CHECK(b->host, FWA_MEMORY, "bench comm: no memory for %zu bytes", b->room);
    return FWA_OK;
}

// NCCL also for one rank, whose result must come to `to` all the same.
static fwa_status connect(bench *b, int ctas) {
    const fwa_nccl_options options = {.max_ctas = ctas, .deterministic = false, .timeout_s = 600};
    if (b->backend->kind == FWA_BACKEND_CUDA) return fwa_comm_nccl_create(&b->comm, b->world->dp, b->backend, &options);
    b->comm = b->world->dp;
    return FWA_OK;
}

static void close_bench(bench *b) {
    fwa_ranks_leave(b->comm, b->world->dp);
    if (b->backend) {
        if (b->from) b->backend->free(b->backend, b->from);
        if (b->to) b->backend->free(b->backend, b->to);
        b->backend->destroy(b->backend);
    }
    free(b->host);
}

static fwa_status measure(fwa_world *world, bool cuda, int64_t first, int64_t last, int ctas) {
    bench b = {.world = world};
    fwa_status status = FWA_OK;
    FWA_TRY_GOTO(fwa_world_agree(world, open_bench(&b, cuda, last)), done);
    FWA_TRY_GOTO(fwa_world_agree(world, connect(&b, ctas)), done);
    FWA_TRY_GOTO(bench_rows(&b, first, last), done);
done:
    close_bench(&b);
    return status;
}

fwa_status fwa_bench_comm(fwa_world *world, int argc, char **argv) {
    static const fwa_option options[] = {
        {"--backend", true}, {"--from", true}, {"--to", true}, {"--ctas", true}, {NULL, false}};
    fwa_arguments arguments;
    int64_t first, last, ctas;
    FWA_TRY(fwa_arguments_parse(&arguments, options, argc, argv));
    FWA_CHECK(arguments.count == 0, FWA_USAGE, "fwa bench comm: got '%s', expected options only (fwa help bench)",
              arguments.at[0]);
    const char *backend = fwa_arguments_value(&arguments, "--backend", "cpu");
    bool cuda = strcmp(backend, "cuda") == 0;
    FWA_CHECK(cuda || strcmp(backend, "cpu") == 0, FWA_USAGE, "--backend '%s': expected cpu or cuda", backend);
    FWA_TRY(fwa_arguments_integer(&arguments, "--from", 8, 4, MOST_BYTES, &first));
    FWA_TRY(fwa_arguments_integer(&arguments, "--to", (int64_t)1 << 28, first, MOST_BYTES, &last));
    FWA_TRY(fwa_arguments_integer(&arguments, "--ctas", FWA_RANKS_CTAS, 0, 64, &ctas));
    return measure(world, cuda, first, last, (int)ctas);
}
