// fwa bench io: how fast a checkpoint goes to a folder's disk and comes back, every value of it checked.
//
// Tensors of N parameters are cut by rows over the ranks, as with parallel.zero 1; each rank writes its own and reads
// it again, so that one process has all of them. Values are whole numbers that tell part and place.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/shape.h"
#include "io/checkpoint.h"
#include "io/files.h"
#include "train/agreement.h"
#include "train/arguments.h"
#include "train/bench/bench.h"
#include "train/libraries.h"
#include "train/progress.h"

#define TENSORS 8
#define COLUMNS 1024
#define PERIOD  61 // values repeat after so many elements

enum { SHARDS, PUBLISH, DIGESTS, ROWS, TIMES };

typedef struct bench {
    fwa_world *world;
    const char *folder;
    int64_t rows, first, mine; // of a tensor; this rank's
    float *data[FWA_PART_COUNT], *back;
    fwa_named_tensor tensor[FWA_PART_COUNT][TENSORS];
    fwa_checkpoint_writer *writer;
    fwa_checkpoint *checkpoint;
} bench;

static float element(int part, int tensor, int64_t i) {
    return (float)((part + 1) * 1000 + tensor * PERIOD + (int)(i % PERIOD));
}

static fwa_status make_tensors(bench *b) {
    const int64_t count = b->mine * COLUMNS, shape[] = {b->mine, COLUMNS};
    const size_t bytes = (size_t)fwa_max(count, 1) * sizeof(float);
    b->back = malloc(bytes);
    FWA_CHECK(b->back, FWA_MEMORY, "bench io: no memory for %zu bytes", bytes);
    for (int part = 0; part < FWA_PART_COUNT; part++) {
        b->data[part] = malloc(TENSORS * bytes);
        FWA_CHECK(b->data[part], FWA_MEMORY, "bench io: no memory for %zu bytes", TENSORS * bytes);
        for (int t = 0; t < TENSORS; t++) {
            fwa_named_tensor *named = &b->tensor[part][t];
            float *values = b->data[part] + t * count;
            *named = (fwa_named_tensor){.shape = {b->rows, COLUMNS}, .row_start = b->first};
            snprintf(named->name, sizeof named->name, "tensor.%d", t);
            named->tensor = fwa_tensor_nd(values, FWA_F32, 2, shape);
            for (int64_t i = 0; i < count; i++) values[i] = element(part, t, b->first * COLUMNS + i);
        }
    }
    return FWA_OK;
}

static void close_bench(bench *b) {
    for (int part = 0; part < FWA_PART_COUNT; part++) free(b->data[part]);
    free(b->back);
}

static int64_t bytes_of(const bench *b) {
    return (int64_t)sizeof(float) * FWA_PART_COUNT * TENSORS * b->rows * COLUMNS;
}

static fwa_status begin(bench *b, int64_t step, bool now) {
    return now ? fwa_checkpoint_begin(&b->writer, b->folder, step, b->world->rank, bytes_of(b)) : FWA_OK;
}

static fwa_status publish(bench *b, int64_t step) {
    const fwa_checkpoint_state state = {
        .step = step, .config = "", .version = fwa_program_text(), .command = "fwa bench io", .choices = ""};
    return b->world->rank == 0 ? fwa_checkpoint_publish(b->writer, b->world->size, &state) : FWA_OK;
}

// The other ranks' turn comes when rank 0 has made the folder.
static fwa_status write_checkpoint(bench *b, int64_t step, double *seconds) {
    const fwa_named_tensor *parts[FWA_PART_COUNT];
    for (int part = 0; part < FWA_PART_COUNT; part++) parts[part] = b->tensor[part];
    double start = fwa_bench_now();
    FWA_TRY(fwa_world_agree(b->world, begin(b, step, b->world->rank == 0)));
    FWA_TRY(fwa_world_agree(b->world, begin(b, step, b->world->rank != 0)));
    FWA_TRY(fwa_world_agree(b->world, fwa_checkpoint_write_shard(b->writer, parts, TENSORS)));
    seconds[SHARDS] = fwa_bench_now() - start;
    start = fwa_bench_now();
    FWA_TRY(fwa_world_agree(b->world, publish(b, step)));
    seconds[PUBLISH] = fwa_bench_now() - start;
    return FWA_OK;
}

// Files and their digests, which rank 0 looks at when a run goes on.
static fwa_status check_files(bench *b, const char *path) {
    if (b->world->rank != 0) return FWA_OK;
    FWA_TRY(fwa_checkpoint_open(&b->checkpoint, path));
    fwa_checkpoint_close(b->checkpoint);
    b->checkpoint = NULL;
    return FWA_OK;
}

static fwa_status read_tensor(bench *b, int part, int t) {
    fwa_named_tensor to = b->tensor[part][t];
    to.tensor.data = b->back;
    memset(b->back, 0xFF, (size_t)(b->mine * COLUMNS) * sizeof(float));
    FWA_TRY(fwa_checkpoint_read(b->checkpoint, (fwa_checkpoint_part)part, &to));
    FWA_CHECK(!memcmp(b->back, b->tensor[part][t].tensor.data, (size_t)(b->mine * COLUMNS) * sizeof(float)), FWA_FAULTY,
              "%s of %s came back with other values", fwa_checkpoint_part_name((fwa_checkpoint_part)part), to.name);
    return FWA_OK;
}

static fwa_status read_rows(bench *b, const char *path) {
    FWA_TRY(fwa_checkpoint_open_quick(&b->checkpoint, path));
    fwa_status status = FWA_OK;
    for (int part = 0; part < FWA_PART_COUNT && status == FWA_OK; part++)
        for (int t = 0; t < TENSORS && b->mine > 0 && status == FWA_OK; t++) status = read_tensor(b, part, t);
    fwa_checkpoint_close(b->checkpoint);
    b->checkpoint = NULL;
    return status;
}

static fwa_status read_checkpoint(bench *b, int64_t step, double *seconds) {
    char path[FWA_PATH_MAX];
    FWA_TRY(fwa_path_format(path, "%s/checkpoints/step_%08lld", b->folder, (long long)step));
    double start = fwa_bench_now();
    FWA_TRY(fwa_world_agree(b->world, check_files(b, path)));
    seconds[DIGESTS] = fwa_bench_now() - start;
    start = fwa_bench_now();
    FWA_TRY(fwa_world_agree(b->world, read_rows(b, path)));
    seconds[ROWS] = fwa_bench_now() - start;
    return FWA_OK;
}

static fwa_status repeat(bench *b, int64_t step, double *seconds) {
    fwa_status status = write_checkpoint(b, step, seconds);
    fwa_checkpoint_end(b->writer);
    b->writer = NULL;
    if (status == FWA_OK) status = read_checkpoint(b, step, seconds);
    FWA_TRY(status);
    return fwa_world_agree(b->world, b->world->rank == 0 ? fwa_checkpoint_prune(b->folder, 1, 0) : FWA_OK);
}

static void print_times(const bench *b, double *const seconds[TIMES], int repeats) {
    static const char *const names[TIMES] = {
        [SHARDS] = "write shards", [PUBLISH] = "publish", [DIGESTS] = "check digests", [ROWS] = "read rows"};
    char size[32];
    printf("checkpoint of %s in %s: %d rank%s, medians of %d; what comes back was just written, and may be in memory\n",
           fwa_text_bytes(bytes_of(b), size), b->folder, b->world->size, fwa_plural(b->world->size), repeats);
    for (int i = 0; i < TIMES; i++) {
        const double median = fwa_bench_median(seconds[i], repeats);
        printf("  %-14s %8.3f s  %8.3f GB/s\n", names[i], median, 1e-9 * (double)bytes_of(b) / median);
    }
}

static fwa_status measure(bench *b, int repeats) {
    double *times = calloc((size_t)(TIMES * repeats), sizeof *times), *seconds[TIMES];
    fwa_status status = FWA_OK;
    if (!times)
        status = fwa_error_raise(FWA_MEMORY, __FILE__, __LINE__, __func__, "bench io: no memory for %d repeat%s",
                                 repeats, fwa_plural(repeats));
    FWA_TRY_GOTO(fwa_world_agree(b->world, status), done);
    for (int i = 0; i < TIMES; i++) seconds[i] = times + i * repeats;
    for (int r = 0; r < repeats; r++) {
        double now[TIMES];
        FWA_TRY_GOTO(repeat(b, r + 1, now), done);
        for (int i = 0; i < TIMES; i++) seconds[i][r] = now[i];
    }
    if (b->world->rank == 0) print_times(b, seconds, repeats);
done:
    free(times);
    return status;
}

// Only what this makes is removed at the end.
static fwa_status make_folder(const bench *b, int repeats) {
    if (b->world->rank != 0) return FWA_OK;
    const int there = repeats > 1 ? 2 : 1; // the one before goes when the next has come back
    const int64_t wanted = there * bytes_of(b), room = fwa_free_bytes(b->folder);
    FWA_CHECK(room < 0 || wanted <= room, FWA_IO,
              "--to %s: needs %lld bytes, %s, and %lld are free on its disk; lower --parameters, or name a "
              "folder on another disk",
              b->folder, (long long)wanted, there > 1 ? "two checkpoints" : "a checkpoint", (long long)room);
    FWA_CHECK(mkdir(b->folder, 0777) == 0, FWA_CONFIG,
              "--to %s: %s; expected the name of a new folder, in one that is there: it is removed at the end",
              b->folder, strerror(errno));
    return FWA_OK;
}

// Behind a failure, too. All wait for it: a rank that leaves with one ends rank 0, wherever that is.
static fwa_status remove_folder(bench *b, fwa_status status) {
    fwa_world *world = b->world;
    const bool first = world->rank == 0;
    if (status == FWA_OK) return fwa_world_agree(world, first ? fwa_remove_folder(b->folder) : FWA_OK);
    if (first) fwa_drop_folder(b->folder);
    if (status == FWA_COMM || status == FWA_TIMEOUT) return status; // peers do not answer
    FWA_TRY(world->all->barrier(world->all));
    return status;
}

static fwa_status run(bench *b, int repeats) {
    FWA_TRY(fwa_world_agree(b->world, make_folder(b, repeats)));
    fwa_status status = fwa_world_agree(b->world, make_tensors(b));
    if (status == FWA_OK) status = measure(b, repeats);
    return remove_folder(b, status);
}

static const fwa_option options[] = {{"--to", true}, {"--parameters", true}, {"--repeats", true}, {NULL, false}};

static fwa_status read_words(fwa_arguments *arguments, int argc, char **argv) {
    FWA_TRY(fwa_arguments_parse(arguments, options, argc, argv));
    FWA_CHECK(arguments->count == 0, FWA_USAGE, "fwa bench io: got '%s', expected options only (fwa help bench)",
              arguments->at[0]);
    return FWA_OK;
}

fwa_status fwa_bench_io(fwa_world *world, int argc, char **argv) {
    fwa_arguments arguments;
    int64_t parameters, repeats;
    bench b = {.world = world};
    FWA_TRY(fwa_world_agree(world, read_words(&arguments, argc, argv)));
    FWA_TRY(fwa_agree_options(world, options, &arguments));
    b.folder = fwa_arguments_value(&arguments, "--to", "bench-io");
    FWA_TRY(fwa_arguments_integer(&arguments, "--parameters", 16000000, 1, INT64_C(1) << 40, &parameters));
    FWA_TRY(fwa_arguments_integer(&arguments, "--repeats", 3, 1, 1000, &repeats));
    b.rows = fwa_ceil_div(parameters, TENSORS * COLUMNS);
    const int64_t each = fwa_ceil_div(b.rows, world->size);
    b.first = fwa_min(each * world->rank, b.rows);
    b.mine = fwa_min(each, b.rows - b.first);
    fwa_status status = run(&b, (int)repeats);
    close_bench(&b);
    return status;
}
