// fwa bench step|op|comm|io ...: one table of what can be timed. Nothing prints a speed unless the check beside it
// passes.
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "train/bench/bench.h"
#include "train/commands.h"

double fwa_bench_now(void) {
    return fwa_clock_seconds();
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double fwa_bench_median(double *seconds, int count) {
    qsort(seconds, (size_t)count, sizeof *seconds, compare);
    return count % 2 ? seconds[count / 2] : 0.5 * (seconds[count / 2 - 1] + seconds[count / 2]);
}

fwa_status fwa_cmd_bench(fwa_world *world, int argc, char **argv) {
    static struct {
        const char *word;
        char name[12];
        fwa_status (*run)(fwa_world *, int, char **);
    } benches[] = {{"step", "bench step", fwa_bench_step},
                   {"op", "bench op", fwa_bench_op},
                   {"comm", "bench comm", fwa_bench_comm},
                   {"io", "bench io", fwa_bench_io}};
    FWA_CHECK(argc >= 2, FWA_USAGE, "fwa bench: expected step, op, comm or io (fwa help bench)");
    for (size_t i = 0; i < sizeof benches / sizeof *benches; i++) {
        if (strcmp(argv[1], benches[i].word) != 0) continue;
        argv[1] = benches[i].name;
        return benches[i].run(world, argc - 1, argv + 1);
    }
    FWA_FAIL(FWA_USAGE, "fwa bench '%s': expected step, op, comm or io", argv[1]);
}
