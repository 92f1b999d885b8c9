// Checkpoints that a start finds beside or behind the one it goes on from: moved aside by a replacement that was
// killed, of later steps, or on a disk that does not show all of them.
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/checkpoint_layout.h"
#include "tests/check.h"
#include "tests/checkpoint_check.h"

static int shown = -1; // entries that a folder shows before its disk fails; -1: all
static bool dies;      // behind the first of the two renames that replace a checkpoint

// A file system that cannot exchange two folders in one step.
int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags) {
    (void)from_folder, (void)from, (void)to_folder, (void)to, (void)flags;
    errno = EINVAL;
    return -1;
}

int rename(const char *from, const char *to) {
    const size_t length = strlen(to);
    const int result = (int)syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to);
    if (dies && length > 4 && strcmp(to + length - 4, ".old") == 0) _exit(9);
    return result;
}

struct dirent *readdir(DIR *folder) {
    static struct dirent *(*real)(DIR *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "readdir");
    if (shown == 0) {
        errno = EIO;
        return NULL;
    }
    if (shown > 0) shown--;
    return real(folder);
}

// Step 1 is saved again and killed where step_00000001 is gone.
static void kill_replacement(void) {
    check_ok(test_save(temp_folder, 1));
    pid_t child = fork();
    if (child == 0) {
        dies = true;
        _exit(test_save(temp_folder, 1) == FWA_OK ? 0 : 1);
    }
    int result;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFEXITED(result));
    assert_int_equal(WEXITSTATUS(result), 9);
    assert_int_equal(test_check_newest(temp_folder), -1);
}

static void a_start_puts_back_what_was_moved_aside(void **state) {
    (void)state;
    kill_replacement();
    check_ok(fwa_checkpoint_recover(temp_folder));
    assert_int_equal(test_check_newest(temp_folder), 1);
    assert_false(fwa_path_exists(temp_path("checkpoints/.step_00000001.old")));
}

static void a_save_puts_back_what_was_moved_aside(void **state) {
    (void)state;
    kill_replacement();
    check_ok(test_save(temp_folder, 2));
    check_ok(fwa_remove_folder(temp_path("checkpoints/step_00000002")));
    assert_int_equal(test_check_newest(temp_folder), 1);
}

static void what_is_not_whole_stays_away(void **state) {
    (void)state;
    kill_replacement();
    assert_int_equal(truncate(temp_path("checkpoints/.step_00000001.old/state.h5"), 10), 0);
    check_ok(fwa_checkpoint_recover(temp_folder));
    assert_int_equal(test_check_newest(temp_folder), -1);
    check_ok(test_save(temp_folder, 2));
    assert_false(fwa_path_exists(temp_path("checkpoints/.step_00000001.old")));
}

static void a_list_that_breaks_off_is_an_error(void **state) {
    (void)state;
    char *path;
    check_ok(test_save(temp_folder, 1));
    shown = 0;
    check_status(fwa_checkpoint_newest(temp_folder, &path), FWA_IO);
    check_message("to its end: Input/output error");
    shown = 2;
    check_status(fwa_checkpoint_newest(temp_folder, &path), FWA_IO);
    assert_null(path);
    shown = 2;
    check_status(fwa_checkpoint_sweep(temp_folder), FWA_IO);
    shown = -1;
    assert_int_equal(test_check_newest(temp_folder), 1);
}

static void later_steps_are_set_aside(void **state) {
    (void)state;
    for (int64_t step = 1; step <= 4; step++) check_ok(test_save(temp_folder, step));
    check_ok(fwa_checkpoint_set_aside(temp_folder, 4, temp_path("checkpoints/step_00000004")));
    assert_int_equal(test_check_newest(temp_folder), 4);
    check_ok(fwa_checkpoint_set_aside(temp_folder, 2, temp_path("checkpoints/./step_00000002")));
    assert_int_equal(test_check_newest(temp_folder), 2);
    assert_true(fwa_path_exists(temp_path("checkpoints/set_aside_1/step_00000003/manifest.json")));
    assert_true(fwa_path_exists(temp_path("checkpoints/set_aside_1/step_00000004/manifest.json")));
    // That of another run takes the place of the own one.
    check_ok(fwa_checkpoint_set_aside(temp_folder, 2, temp_path("checkpoints/set_aside_1/step_00000003")));
    assert_int_equal(test_check_newest(temp_folder), 1);
    assert_true(fwa_path_exists(temp_path("checkpoints/set_aside_2/step_00000002/manifest.json")));
    char *latest;
    check_ok(fwa_read_text(temp_path("checkpoints/latest"), &latest));
    assert_string_equal(latest, "step_00000001\n");
    free(latest);
    check_ok(fwa_checkpoint_set_aside(temp_folder, 0, "elsewhere"));
    char *newest;
    check_status(fwa_checkpoint_newest(temp_folder, &newest), FWA_FORMAT);
    check_message("are set aside");
    assert_false(fwa_path_exists(temp_path("checkpoints/latest")));
}

static int start(void **state) {
    (void)state;
    return fwa_hdf5_start() != FWA_OK;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        temp_test(a_start_puts_back_what_was_moved_aside), // first: forks
        temp_test(a_save_puts_back_what_was_moved_aside),  temp_test(what_is_not_whole_stays_away),
        temp_test(a_list_that_breaks_off_is_an_error),     temp_test(later_steps_are_set_aside),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
