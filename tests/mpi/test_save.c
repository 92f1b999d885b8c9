// A checkpoint that takes longer to write than comm.timeout_s does not end the ranks that wait for it.
#include "mpi_support.h"

#include <stdbool.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "io/checkpoint.h"
#include "io/files.h"
#include "train/commands.h"

#define TIMEOUT_S "1" // of comm.timeout_s; a save below takes longer
enum { SYNC_MS = 1500 };

static fwa_world *world;
static char folder[64];
static int syncs;

// Stands in for that of the C library: a disk on which the first file of a checkpoint takes long.
int fsync(int file) {
    char link[64], path[512] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    const bool saving = readlink(link, path, sizeof path - 1) > 0 && strstr(path, "step_");
    if (saving && syncs++ == 0) nanosleep(&(struct timespec){SYNC_MS / 1000, SYNC_MS % 1000 * 1000000L}, NULL);
    return (int)syscall(SYS_fsync, file);
}

static const char configuration[] = "run: {threads: 1, backend: cpu, name: slow}\n"
                                    "model: {layers: 1, d_model: 16, heads: 1, head_dim: 16, ffn: 16, "
                                    "vocab_size: 259, mixer: {main: {rule: falcon1}}}\n"
                                    "task: {name: addition, width_min: 1, width_max: 2}\n"
                                    "train: {steps: 3, micro_batch: 1, global_batch: 4}\n"
                                    "schedule: {warmup: 0}\n"
                                    "checkpoint: {every: 2}\n"
                                    "eval: {every: 0}\n"
                                    "comm: {timeout_s: " TIMEOUT_S ", first_timeout_s: 60}\n";

static void slow_saves_are_waited_for(void **state) {
    (void)state;
    char path[128], dir[128];
    snprintf(path, sizeof path, "%s/slow.yaml", folder);
    snprintf(dir, sizeof dir, "run.dir=%s", folder);
    char *arguments[] = {"train", path, dir, NULL};
    ASSERT_ALL(world->rank != 0 || fwa_write_text(path, configuration) == FWA_OK);
    syncs = 0;
    ASSERT_ALL(fwa_cmd_train(world, 3, arguments) == FWA_OK);
    ASSERT_ALL(world->rank != 0 || syncs > 0);
    snprintf(path, sizeof path, "%s/slow/FINISHED", folder);
    ASSERT_ALL(fwa_path_exists(path));
}

static int remove_folder(void **state) {
    (void)state;
    MPI_Barrier(MPI_COMM_WORLD);
    return world->rank != 0 || fwa_remove_folder(folder) == FWA_OK ? 0 : -1;
}

int main(int argc, char **argv) {
    const char *base = getenv("TMPDIR");
    if (fwa_world_create(&world, &argc, &argv) != FWA_OK || fwa_hdf5_start() != FWA_OK) return 1;
    snprintf(folder, sizeof folder, "%.40s/fwa_save.XXXXXX", base && base[0] ? base : "/tmp");
    if (world->rank == 0 && !mkdtemp(folder)) return 1;
    if (world->all->broadcast(world->all, NULL, folder, sizeof folder, FWA_U8, 0) != FWA_OK) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slow_saves_are_waited_for),
    };
    int failed = cmocka_run_group_tests(tests, NULL, remove_folder);
    fwa_world_destroy(world);
    return failed;
}
