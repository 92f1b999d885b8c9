// Checkpoints when things go wrong: damage, full disks, killed saves. The last good checkpoint always loads.
#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "io/hdf5_rows.h"
#include "tests/checkpoint_check.h"

static const char *step_path(int64_t step, const char *file) {
    char name[128];
    snprintf(name, sizeof name, "checkpoints/step_%08lld/%s", (long long)step, file);
    return temp_path(name);
}

static void flip_byte(const char *path, off_t at) {
    int file = open(path, O_RDWR);
    unsigned char byte;
    assert_int_equal(pread(file, &byte, 1, at), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(file, &byte, 1, at), 1);
    close(file);
}

// Opening step 2 fails with `code` and names `file`; the newest is then step 1.
static void check_passed_over(fwa_status code, const char *file) {
    fwa_checkpoint *checkpoint;
    check_status(fwa_checkpoint_open(&checkpoint, step_path(2, "")), code);
    assert_null(checkpoint);
    check_message(file);
    assert_int_equal(test_check_newest(temp_folder), 1);
    check_ok(test_save(temp_folder, 2));
    assert_int_equal(test_check_newest(temp_folder), 2);
}

static void damage_is_noticed(void **state) {
    (void)state;
    check_ok(test_save(temp_folder, 1));
    check_ok(test_save(temp_folder, 2));
    const char *const files[] = {"shard.rank00000.h5", "shard.rank00001.h5", "shard.rank00002.h5",
                                 "model.h5",           "optim.h5",           "state.h5"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        flip_byte(step_path(2, files[i]), 1500);
        check_passed_over(FWA_FORMAT, files[i]);
        assert_int_equal(truncate(step_path(2, files[i]), 900), 0);
        check_passed_over(FWA_FORMAT, files[i]);
        assert_int_equal(unlink(step_path(2, files[i])), 0);
        check_passed_over(FWA_FORMAT, files[i]);
    }
    assert_int_equal(unlink(step_path(2, "manifest.json")), 0);
    check_passed_over(FWA_FORMAT, "manifest.json");
    assert_int_equal(truncate(step_path(2, "manifest.json"), 200), 0);
    check_passed_over(FWA_FORMAT, "manifest.json");
    temp_write(step_path(2, "manifest.json"), "{}", 2);
    check_passed_over(FWA_FORMAT, "manifest.json");
    check_ok(fwa_remove_folder(step_path(2, "")));
    check_passed_over(FWA_IO, "step_00000002");
}

static void set_attribute(hid_t dataset, const char *name, const int64_t *value) {
    hid_t attribute = H5Aopen(dataset, name, H5P_DEFAULT);
    assert_true(attribute >= 0 && H5Awrite(attribute, H5T_NATIVE_INT64, value) >= 0);
    H5Aclose(attribute);
}

static void rows_of_another_tensor_are_refused(void **state) {
    (void)state;
    const struct {
        int64_t shape[2], row_start;
    } bad[] = {{{4, 3}, 3}, {{4, 3}, -1}, {{1, 3}, 0}, {{4, 5}, 1}, {{INT64_MIN, 3}, 1}};
    double values[6] = {0};
    fwa_named_tensor rows = {.name = "a", .shape = {4, 3}, .row_start = 1, .init = "constant 0"}, about;
    rows.tensor = fwa_tensor_2d(values, FWA_F64, 2, 3);
    fwa_hdf5_lock();
    hid_t file = H5Fcreate(temp_path("rows.h5"), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    check_ok(fwa_rows_write(file, &rows));
    hid_t dataset = H5Dopen2(file, "a", H5P_DEFAULT);
    check_ok(fwa_rows_about(dataset, "a", &about));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        set_attribute(dataset, "shape", bad[i].shape);
        set_attribute(dataset, "row_start", &bad[i].row_start);
        check_status(fwa_rows_about(dataset, "a", &about), FWA_FORMAT);
        check_message("dataset a: got [2, 3] f64 from row");
    }
    H5Dclose(dataset);
    H5Fclose(file);
    fwa_hdf5_unlock();
}

// Every byte of the manifest matters, or changes nothing that is read.
static void manifest_bytes(void **state) {
    (void)state;
    check_ok(test_save(temp_folder, 2));
    char *text;
    check_ok(fwa_read_text(step_path(2, "manifest.json"), &text));
    for (off_t at = 0; at < (off_t)strlen(text); at += 7) {
        flip_byte(step_path(2, "manifest.json"), at);
        fwa_checkpoint *checkpoint;
        if (fwa_checkpoint_open(&checkpoint, step_path(2, "")) == FWA_OK) {
            test_check_contents(checkpoint, FWA_F64, 2, 2);
        }
        fwa_checkpoint_close(checkpoint);
        flip_byte(step_path(2, "manifest.json"), at);
    }
    free(text);
}

static void newest_passes_over_what_is_no_checkpoint(void **state) {
    (void)state;
    assert_int_equal(test_check_newest(temp_folder), -1); // none at all
    check_ok(fwa_make_folders(temp_path("checkpoints/.step_00000009.tmp")));
    check_ok(fwa_make_folders(temp_path("checkpoints/step_9")));
    check_ok(fwa_make_folders(temp_path("checkpoints/step_00000009.tmp")));
    check_ok(fwa_make_folders(temp_path("checkpoints/step_0000000x")));
    assert_int_equal(test_check_newest(temp_folder), -1);
    check_ok(test_save(temp_folder, 99999999));
    check_ok(test_save(temp_folder, 100000000)); // nine digits, and before the other by name
    assert_int_equal(test_check_newest(temp_folder), 100000000);
    check_ok(fwa_make_folders(temp_path("checkpoints/step_100000001"))); // highest number, half written
    assert_int_equal(test_check_newest(temp_folder), 100000000);
}

static void all_damaged_is_an_error(void **state) {
    (void)state;
    check_ok(test_save(temp_folder, 1));
    flip_byte(step_path(1, "shard.rank00000.h5"), 1500);
    char *path;
    check_status(fwa_checkpoint_newest(temp_folder, &path), FWA_FORMAT);
    check_message("but 1 damaged");
    assert_null(path);
}

static void too_little_space_is_refused_before(void **state) {
    (void)state;
    fwa_checkpoint_writer *writer;
    check_status(fwa_checkpoint_begin(&writer, temp_folder, 1, 0, INT64_MAX), FWA_IO);
    check_message("needs 9223372036854775807 bytes");
    assert_null(writer);
    assert_false(fwa_path_exists(temp_path("checkpoints/.step_00000001.tmp")));
}

static void other_ranks_need_the_folder(void **state) {
    (void)state;
    fwa_checkpoint_writer *writer;
    check_status(fwa_checkpoint_begin(&writer, temp_folder, 1, 1, 0), FWA_IO);
    check_message("storage that all hosts share");
    check_status(fwa_checkpoint_begin(&writer, temp_path("gone"), 1, 0, 0), FWA_IO);
    check_message("gone is gone");
    assert_false(fwa_path_exists(temp_path("gone")));
    check_ok(fwa_make_folders(temp_folder));
    temp_write(temp_path("checkpoints"), "a file", 6);
    check_status(fwa_checkpoint_begin(&writer, temp_folder, 1, 0, 0), FWA_IO);
    check_message("/checkpoints");
}

// One tensor of `rows` x 1000 floats, saved by one rank as `step`.
static fwa_status save_large(const char *run, int64_t step, int64_t rows) {
    fwa_named_tensor t = {.name = "w", .shape = {rows, 1000}};
    t.tensor = fwa_tensor_2d(check_alloc((size_t)rows * 4000), FWA_F32, rows, 1000);
    const fwa_named_tensor *const tensors[FWA_PART_COUNT] = {&t, &t, &t};
    fwa_checkpoint_writer *writer;
    FWA_TRY(fwa_checkpoint_begin(&writer, run, step, 0, 0));
    fwa_checkpoint_state saved = test_state(step);
    fwa_status status = fwa_checkpoint_write_shard(writer, tensors, 1);
    if (status == FWA_OK) status = fwa_checkpoint_publish(writer, 1, &saved);
    fwa_checkpoint_end(writer);
    return status;
}

static bool left_over(const char *run, int64_t step) {
    char path[512];
    snprintf(path, sizeof path, "%s/checkpoints/.step_%08lld.tmp", run, (long long)step);
    return fwa_path_exists(path);
}

// Limits on the size of a file from "hardly anything fits" to "all but the last bytes".
static void write_errors_keep_the_old_checkpoint(void **state) {
    (void)state;
    check_ok(test_save(temp_folder, 1));
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_IGN);
    const rlim_t limits[] = {100, 4096, 1000000, 4000000, 8000000, 11990000, 12000000};
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        small = before;
        small.rlim_cur = limits[i];
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        fwa_status status = save_large(temp_folder, 2, 1000);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        check_status(status, FWA_IO);
        check_message("File too large");
        assert_false(left_over(temp_folder, 2));
        assert_int_equal(test_check_newest(temp_folder), 1);
    }
    check_ok(save_large(temp_folder, 2, 1000)); // the process can still save
    check_ok(test_save(temp_folder, 3));
    assert_int_equal(test_check_newest(temp_folder), 3);
}

static void full_disk_keeps_the_old_checkpoint(void **state) {
    (void)state;
    if (mount("fwa-test", temp_folder, "tmpfs", 0, "size=4m") != 0) skip();
    fwa_status first = test_save(temp_folder, 1), full = save_large(temp_folder, 2, 1000);
    char message[1024];
    snprintf(message, sizeof message, "%s", fwa_error_message());
    bool left = left_over(temp_folder, 2);
    ssize_t open_objects = H5Fget_obj_count((hid_t)H5F_OBJ_ALL, H5F_OBJ_ALL);
    fwa_checkpoint_writer *writer;
    fwa_status announced = fwa_checkpoint_begin(&writer, temp_folder, 3, 0, 12000000);
    char *path = NULL;
    fwa_status newest = fwa_checkpoint_newest(temp_folder, &path);
    bool old = path && strstr(path, "step_00000001");
    free(path);
    fwa_status again = test_save(temp_folder, 4);
    assert_int_equal(umount2(temp_folder, MNT_DETACH), 0);
    assert_int_equal(first, FWA_OK);
    assert_int_equal(full, FWA_IO);
    assert_non_null(strstr(message, "No space left on device"));
    assert_non_null(strstr(message, "shard.rank00000.h5"));
    assert_non_null(strstr(message, "bytes"));
    assert_false(left);
    assert_int_equal(open_objects, 0); // nothing that HDF5 would still want to write
    assert_int_equal(announced, FWA_IO);
    assert_int_equal(newest, FWA_OK);
    assert_true(old);
    assert_int_equal(again, FWA_OK);
}

// Root may write anywhere: the save runs as another user.
static void read_only_folder_is_named(void **state) {
    (void)state;
    assert_int_equal(chmod(temp_folder, 0555), 0);
    pid_t child = fork();
    if (child == 0) {
        if (geteuid() == 0 && setuid(65534) != 0) _exit(77);
        fwa_checkpoint_writer *writer;
        fwa_status status = fwa_checkpoint_begin(&writer, temp_folder, 1, 0, 0);
        _exit(status == FWA_IO && !writer && strstr(fwa_error_message(), temp_folder) &&
                      strstr(fwa_error_message(), "Permission denied")
                  ? 0
                  : 1);
    }
    int result;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_int_equal(chmod(temp_folder, 0755), 0);
    assert_true(WIFEXITED(result));
    if (WEXITSTATUS(result) == 77) skip();
    assert_int_equal(WEXITSTATUS(result), 0);
}

static void nap(double seconds) {
    struct timespec time = {0, (long)(seconds * 1e9)};
    nanosleep(&time, NULL);
}

// A child saves 50 times and is killed at a random moment, again and again; each continues from what it finds.
static void killed_saves_leave_a_good_checkpoint(void **state) {
    (void)state;
    int killed = 0;
    for (int round = 0; round < 12; round++) {
        int64_t before = test_check_newest(temp_folder);
        int64_t first = before < 0 ? 0 : before; // saves the newest step again as well
        pid_t child = fork();
        if (child == 0) {
            for (int64_t step = first; step < first + 50; step++) {
                if (test_save(temp_folder, step) != FWA_OK) _exit(1);
                if (fwa_checkpoint_prune(temp_folder, 2, 0) != FWA_OK) _exit(1);
                check_release(NULL);
            }
            _exit(0);
        }
        nap(0.005 + 0.2 * fwa_rng_uniform(20240520, 0, (uint64_t)round));
        kill(child, SIGKILL);
        int result;
        assert_int_equal(waitpid(child, &result, 0), child);
        assert_true(WIFSIGNALED(result) || WEXITSTATUS(result) == 0);
        killed += WIFSIGNALED(result);
        assert_true(test_check_newest(temp_folder) >= before);
        check_release(NULL);
    }
    assert_true(killed > 0);
    check_ok(test_save(temp_folder, 100000)); // clears what the kills left
    assert_int_equal(test_check_newest(temp_folder), 100000);
}

static int start(void **state) {
    (void)state;
    return fwa_hdf5_start() != FWA_OK;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        temp_test(killed_saves_leave_a_good_checkpoint), // first: forks
        temp_test(read_only_folder_is_named),
        temp_test(damage_is_noticed),
        temp_test(rows_of_another_tensor_are_refused),
        temp_test(manifest_bytes),
        temp_test(newest_passes_over_what_is_no_checkpoint),
        temp_test(all_damaged_is_an_error),
        temp_test(too_little_space_is_refused_before),
        temp_test(other_ranks_need_the_folder),
        temp_test(full_disk_keeps_the_old_checkpoint),
        temp_test(write_errors_keep_the_old_checkpoint), // last: HDF5 keeps files open that a limit forbids to end
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
