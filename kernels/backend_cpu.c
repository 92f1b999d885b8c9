// The CPU backend: host memory, OpenMP threads. Every call has finished when it returns, so streams are
// tokens that carry nothing, and events hold the time at most.
#include "kernels/backends.h"

#include <errno.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/arena.h"
#include "core/clock.h"
#include "core/cores.h"
#include "core/shape.h"

#define BLAS_BUFFER ((size_t)128 << 20) // bytes of address space a thread

struct fwa_stream {
    int token;
};
struct fwa_event {
    int64_t recorded_ns; // by the monotonic clock
};

// The BLAS library tries for ever to map a buffer a thread where the address space is limited (ulimit -v).
static fwa_status check_address_space(const fwa_backend *backend) {
    const size_t bytes = BLAS_BUFFER * (size_t)backend->threads;
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return FWA_OK;
    void *room = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    FWA_CHECK(
        room != MAP_FAILED, FWA_MEMORY,
        "address space of this process is limited to %llu MB (ulimit -v), which leaves less than the %zu MB that "
        "the buffers of matrix products take, %zu MB for each of %d thread%s; raise the limit or lower run.threads",
        (unsigned long long)limit.rlim_cur >> 20, bytes >> 20, BLAS_BUFFER >> 20, backend->threads,
        fwa_plural(backend->threads));
    munmap(room, bytes);
    return FWA_OK;
}

static fwa_status cpu_alloc(fwa_backend *backend, void **out, size_t bytes) {
    size_t rounded = (size_t)fwa_round_up(fwa_max((int64_t)bytes, 1), FWA_ARENA_ALIGN);
    void *memory = bytes <= (size_t)INT64_MAX / 2 ? aligned_alloc(FWA_ARENA_ALIGN, rounded) : NULL;
    FWA_CHECK(memory, FWA_MEMORY, "cannot allocate %zu bytes of host memory", bytes);
    const fwa_status status = check_address_space(backend);
    if (status != FWA_OK) {
        free(memory);
        return fwa_error_pass(status, __FILE__, __LINE__, __func__);
    }
    *out = memory;
    return FWA_OK;
}

static void cpu_free(fwa_backend *backend, void *memory) {
    (void)backend;
    free(memory);
}

static fwa_status cpu_copy(fwa_backend *backend, fwa_stream *stream, void *to, const void *from, size_t bytes) {
    (void)backend, (void)stream;
    if (bytes > 0) memmove(to, from, bytes);
    return FWA_OK;
}

static fwa_status cpu_fill(fwa_backend *backend, fwa_stream *stream, void *to, int byte, size_t bytes) {
    (void)backend, (void)stream;
    if (bytes > 0) memset(to, byte, bytes);
    return FWA_OK;
}

static fwa_status cpu_fill_rows(fwa_backend *backend, fwa_stream *stream, void *to, int byte, size_t bytes,
                                size_t stride, size_t rows) {
    (void)backend, (void)stream;
    for (size_t r = 0; r < rows && bytes > 0; r++) memset((char *)to + r * stride, byte, bytes);
    return FWA_OK;
}

static fwa_status cpu_copy_rows(fwa_backend *backend, fwa_stream *stream, void *to, size_t to_stride, const void *from,
                                size_t from_stride, size_t bytes, size_t rows) {
    (void)backend, (void)stream;
    for (size_t r = 0; r < rows && bytes > 0; r++)
        memcpy((char *)to + r * to_stride, (const char *)from + r * from_stride, bytes);
    return FWA_OK;
}

static fwa_status cpu_stream_create(fwa_backend *backend, fwa_stream **out) {
    (void)backend;
    *out = calloc(1, sizeof **out);
    FWA_CHECK(*out, FWA_MEMORY, "cannot allocate a stream");
    return FWA_OK;
}

static void cpu_stream_destroy(fwa_backend *backend, fwa_stream *stream) {
    (void)backend;
    free(stream);
}

static fwa_status cpu_stream_synchronize(fwa_backend *backend, fwa_stream *stream) {
    (void)backend, (void)stream;
    return FWA_OK;
}

static void *cpu_native_stream(fwa_stream *stream) {
    (void)stream;
    return NULL;
}

static fwa_status cpu_event_create(fwa_backend *backend, fwa_event **out) {
    (void)backend;
    *out = calloc(1, sizeof **out);
    FWA_CHECK(*out, FWA_MEMORY, "cannot allocate an event");
    return FWA_OK;
}

static void cpu_event_destroy(fwa_backend *backend, fwa_event *event) {
    (void)backend;
    free(event);
}

static fwa_status cpu_event_record(fwa_backend *backend, fwa_event *event, fwa_stream *stream) {
    (void)backend, (void)stream;
    event->recorded_ns = fwa_clock_ns();
    return FWA_OK;
}

static fwa_status cpu_timer_seconds(fwa_backend *backend, fwa_event *from, fwa_event *to, double *seconds) {
    (void)backend;
    *seconds = 1e-9 * (double)(to->recorded_ns - from->recorded_ns);
    return FWA_OK;
}

static fwa_status cpu_event_synchronize(fwa_backend *backend, fwa_event *event) {
    (void)backend, (void)event;
    return FWA_OK;
}

static fwa_status cpu_stream_wait(fwa_backend *backend, fwa_stream *stream, fwa_event *event) {
    (void)backend, (void)stream, (void)event;
    return FWA_OK;
}

// First line of `path` that starts with `key`, from behind the key; of the whole file for an empty key.
static fwa_status read_proc(const char *path, const char *key, char *value, size_t size) {
    FILE *file = fopen(path, "r");
    FWA_CHECK(file, FWA_IO, "cannot open %s: %s", path, strerror(errno));
    bool found = false;
    char line[512];
    while (!found && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, strlen(key)) != 0) continue;
        found = true;
        line[strcspn(line, "\n")] = 0;
        snprintf(value, size, "%s", line + strlen(key));
    }
    fclose(file);
    FWA_CHECK(found, FWA_IO, "%s has no line '%s'", path, key);
    return FWA_OK;
}

static fwa_status machine_memory(size_t *total) {
    char text[128];
    FWA_TRY(read_proc("/proc/meminfo", "MemTotal:", text, sizeof text));
    *total = (size_t)strtoull(text, NULL, 10) * 1024;
    return FWA_OK;
}

static fwa_status cpu_memory(fwa_backend *backend, size_t *used, size_t *total) {
    (void)backend;
    char text[128], *resident = text;
    FWA_TRY(read_proc("/proc/self/statm", "", text, sizeof text));
    strtoull(text, &resident, 10);
    *used = (size_t)strtoull(resident, NULL, 10) * (size_t)sysconf(_SC_PAGESIZE);
    FWA_TRY(machine_memory(total));
    return FWA_OK;
}

// Nothing is chosen by measurement.
static fwa_status cpu_choices(fwa_backend *backend, char **records) {
    (void)backend;
    *records = calloc(1, 1);
    FWA_CHECK(*records, FWA_MEMORY, "cannot allocate a text");
    return FWA_OK;
}

static fwa_status cpu_choose(fwa_backend *backend, const char *records, int *taken, int *passed_over) {
    (void)backend;
    *taken = *passed_over = 0;
    for (const char *at = records; *at; at++) *passed_over += *at == '\n';
    return FWA_OK;
}

static void cpu_destroy(fwa_backend *backend) {
    if (!backend) return;
    free(backend->stream);
    free(backend);
}

// Products of the BLAS library wait for as many threads as they ask for, so fewer must not come: OMP_THREAD_LIMIT
// counts, OMP_DYNAMIC and an OMP_MAX_ACTIVE_LEVELS of 0 do not.
static void start_threads(int threads) {
    omp_set_dynamic(0);
    if (omp_get_max_active_levels() < 1) omp_set_max_active_levels(1);
    omp_set_num_threads(threads);
}

static const fwa_backend cpu_template = {
    .kind = FWA_BACKEND_CPU,
    .name = "cpu",
    .alloc = cpu_alloc,
    .free = cpu_free,
    .host_alloc = cpu_alloc,
    .host_free = cpu_free,
    .upload = cpu_copy,
    .download = cpu_copy,
    .copy = cpu_copy,
    .fill = cpu_fill,
    .fill_rows = cpu_fill_rows,
    .copy_rows = cpu_copy_rows,
    .stream_create = cpu_stream_create,
    .stream_destroy = cpu_stream_destroy,
    .stream_synchronize = cpu_stream_synchronize,
    .native_stream = cpu_native_stream,
    .event_create = cpu_event_create,
    .event_destroy = cpu_event_destroy,
    .event_record = cpu_event_record,
    .event_synchronize = cpu_event_synchronize,
    .stream_wait = cpu_stream_wait,
    .timer_create = cpu_event_create,
    .timer_seconds = cpu_timer_seconds,
    .memory = cpu_memory,
    .choices = cpu_choices,
    .choose = cpu_choose,
    .destroy = cpu_destroy,
};

fwa_status fwa_backend_cpu_create(fwa_backend **out, fwa_dtype precision, int threads, bool plan_only) {
    fwa_status status = FWA_OK;
    fwa_backend *backend = malloc(sizeof *backend);
    FWA_CHECK(backend, FWA_MEMORY, "cannot allocate a backend");
    *backend = cpu_template;
    backend->compute = backend->master = precision;
    backend->plan_only = plan_only;
    backend->threads = (int)fwa_min(threads > 0 ? threads : fwa_cores_granted(), omp_get_thread_limit());
    if (!plan_only) start_threads(backend->threads);
    FWA_TRY_GOTO(cpu_stream_create(backend, &backend->stream), failed);
    *out = backend;
    return FWA_OK;
failed:
    cpu_destroy(backend);
    return status;
}

fwa_status fwa_backend_cpu_describe(char *text, size_t size) {
    char model[256];
    if (read_proc("/proc/cpuinfo", "model name", model, sizeof model) != FWA_OK) {
        fwa_error_clear();
        snprintf(model, sizeof model, ": unknown processor");
    }
    size_t total = 0;
    FWA_TRY(machine_memory(&total));
    snprintf(text, size, "%s, %.1f GiB, %d core%s for this process", model + strspn(model, " \t:"),
             (double)total / (1 << 30), fwa_cores_granted(), fwa_plural(fwa_cores_granted()));
    return FWA_OK;
}
