// Checkpoints: what is saved by some ranks is read by any others, bit by bit; views, pruning, replacing.
#include <fcntl.h>
#include <hdf5.h>
#include <sys/file.h>
#include <unistd.h>

#include "tests/checkpoint_check.h"
#include "tests/sync_log.h"
#include "train/checkpoint_diff.h"

static void open_step(fwa_checkpoint **checkpoint, int64_t step) {
    char name[64];
    snprintf(name, sizeof name, "checkpoints/step_%08lld", (long long)step);
    check_ok(fwa_checkpoint_open(checkpoint, temp_path(name)));
}

static bool step_exists(int64_t step) {
    char name[64];
    snprintf(name, sizeof name, "checkpoints/step_%08lld", (long long)step);
    return fwa_path_exists(temp_path(name));
}

static void rows_join_for_any_ranks(void **state) {
    (void)state;
    check_ok(test_save(temp_folder, 1000));
    fwa_checkpoint *checkpoint;
    open_step(&checkpoint, 1000);
    for (int pieces = 1; pieces <= 8; pieces++) test_check_contents(checkpoint, FWA_F32, pieces, 1000);
    test_check_contents(checkpoint, FWA_F64, 4, 1000);
    fwa_checkpoint_close(checkpoint);
    assert_false(fwa_path_exists(temp_path("checkpoints/.step_00001000.tmp")));
    char *latest;
    check_ok(fwa_read_text(temp_path("checkpoints/latest"), &latest));
    assert_string_equal(latest, "step_00001000\n");
    free(latest);
}

static void state_comes_back(void **state) {
    (void)state;
    check_ok(test_save(temp_folder, 50));
    fwa_checkpoint *checkpoint;
    open_step(&checkpoint, 50);
    const fwa_checkpoint_state *got = fwa_checkpoint_get_state(checkpoint), expected = test_state(50);
    assert_int_equal(got->step, 50);
    assert_int_equal(got->tokens, 50000);
    assert_int_equal(got->accepted, 48);
    assert_int_equal(got->skipped, 2);
    assert_int_equal(got->skipped_in_a_row, 1);
    assert_true(got->norm_mean == 0.1);
    assert_int_equal(got->seed, -7);
    assert_int_equal(got->epoch, 3);
    assert_true(got->data_fingerprint == expected.data_fingerprint);
    assert_true(got->config_hash == expected.config_hash);
    assert_true(isnan(got->best_val_loss));
    assert_string_equal(got->config, expected.config);
    assert_string_equal(got->version, expected.version);
    assert_string_equal(got->command, "");
    assert_string_equal(got->choices, "{}");
    fwa_checkpoint_close(checkpoint);
}

static void parameters_are_listed(void **state) {
    (void)state;
    check_ok(test_save(temp_folder, 1));
    fwa_checkpoint *checkpoint;
    open_step(&checkpoint, 1);
    assert_int_equal(fwa_checkpoint_count(checkpoint), TEST_PARAMS);
    bool found[TEST_PARAMS] = {false};
    for (int i = 0; i < TEST_PARAMS; i++) {
        const fwa_named_tensor *about = fwa_checkpoint_about(checkpoint, i);
        assert_string_equal(about->name, fwa_checkpoint_name(checkpoint, i));
        for (int p = 0; p < TEST_PARAMS; p++) {
            if (strcmp(about->name, test_params[p].name) != 0) continue;
            found[p] = true;
            assert_int_equal(about->tensor.dtype, test_params[p].dtype);
            assert_int_equal(about->tensor.ndim, test_params[p].ndim);
            assert_memory_equal(about->shape, test_params[p].shape, (size_t)about->tensor.ndim * sizeof(int64_t));
            assert_string_equal(about->init, "normal 0.02");
            assert_int_equal(about->decay, p == 0);
        }
    }
    for (int p = 0; p < TEST_PARAMS; p++) assert_true(found[p]);
    fwa_checkpoint_close(checkpoint);
}

static void other_models_are_refused(void **state) {
    (void)state;
    check_ok(test_save(temp_folder, 1));
    fwa_checkpoint *checkpoint;
    open_step(&checkpoint, 1);
    fwa_named_tensor to = test_slice(0, FWA_F32, 0, 23);
    snprintf(to.name, sizeof to.name, "blocks.9.weight");
    check_status(fwa_checkpoint_read(checkpoint, FWA_PART_M, &to), FWA_FORMAT);
    check_message("blocks.9.weight");
    check_message("no m of");
    to = test_slice(0, FWA_F32, 0, 23);
    to.shape[0] = 24;
    check_status(fwa_checkpoint_read(checkpoint, FWA_PART_MASTER, &to), FWA_FORMAT);
    check_message("[23, 5]");
    check_message("[24, 5]");
    to = test_slice(2, FWA_F32, 0, 11);
    snprintf(to.name, sizeof to.name, "embedding.weight");
    check_status(fwa_checkpoint_read(checkpoint, FWA_PART_MASTER, &to), FWA_FORMAT);
    check_message("[11]");
    fwa_checkpoint_close(checkpoint);
}

// Value of one element of a dataset, read by plain HDF5.
static double plain_value(hid_t file, const char *name, hsize_t row, hsize_t column) {
    hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT), space = H5Dget_space(dataset);
    hsize_t start[2] = {row, column}, one[2] = {1, 1};
    double value = -1;
    hid_t memory = H5Screate_simple(2, one, NULL);
    assert_true(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, one, NULL) >= 0);
    assert_true(H5Dread(dataset, H5T_NATIVE_DOUBLE, memory, space, H5P_DEFAULT, &value) >= 0);
    H5Sclose(memory);
    H5Sclose(space);
    H5Dclose(dataset);
    return value;
}

static void views_show_whole_tensors(void **state) {
    (void)state;
    check_ok(test_save(temp_folder, 1));
    assert_int_equal(rename(temp_path("checkpoints/step_00000001"), temp_path("moved")), 0); // names are relative
    hid_t model = H5Fopen(temp_path("moved/model.h5"), H5F_ACC_RDONLY, H5P_DEFAULT);
    hid_t optim = H5Fopen(temp_path("moved/optim.h5"), H5F_ACC_RDONLY, H5P_DEFAULT);
    assert_true(model >= 0 && optim >= 0);
    for (hsize_t row = 0; row < 7; row++) {
        assert_true(plain_value(model, "blocks.0.mlp.weight", row, 9) == test_value(0, 1, (int64_t)row * 10 + 9, 1));
        assert_true(plain_value(optim, "m/blocks.0.mlp.weight", row, 3) == test_value(1, 1, (int64_t)row * 10 + 3, 1));
        assert_true(plain_value(optim, "v/embedding.weight", row, 0) == test_value(2, 0, (int64_t)row * 5, 1));
    }
    H5Fclose(optim);
    H5Fclose(model);
    assert_int_equal(unlink(temp_path("moved/shard.rank00002.h5")), 0);
    model = H5Fopen(temp_path("moved/model.h5"), H5F_ACC_RDONLY, H5P_DEFAULT);
    assert_true(isnan(plain_value(model, "blocks.0.mlp.weight", 6, 9))); // not 0
    assert_true(plain_value(model, "blocks.0.mlp.weight", 0, 9) == test_value(0, 1, 9, 1));
    H5Fclose(model);
}

static void pack_needs_no_shards(void **state) {
    (void)state;
    check_ok(test_save(temp_folder, 5));
    fwa_checkpoint *checkpoint;
    open_step(&checkpoint, 5);
    check_ok(fwa_checkpoint_pack(checkpoint, temp_path("plain.h5")));
    check_status(fwa_checkpoint_pack(checkpoint, temp_path("none/plain.h5")), FWA_IO);
    fwa_checkpoint_close(checkpoint);
    check_ok(fwa_remove_folder(temp_path("checkpoints")));
    hid_t file = H5Fopen(temp_path("plain.h5"), H5F_ACC_RDONLY, H5P_DEFAULT);
    for (hsize_t row = 0; row < 23; row++) {
        assert_true(plain_value(file, "embedding.weight", row, 4) == test_value(0, 0, (int64_t)row * 5 + 4, 5));
    }
    H5Fclose(file);
    assert_false(fwa_path_exists(temp_path("plain.h5.tmp")));
}

// Large enough for several chunks, with rows that do not divide evenly.
static void large_tensors_keep_every_element(void **state) {
    (void)state;
    enum { ROWS = 3001, COLUMNS = 1000, STRIDE = 1008 };
    float *data = check_alloc(sizeof(float) * ROWS * STRIDE), *back = check_alloc(sizeof(float) * ROWS * STRIDE);
    for (int i = 0; i < ROWS * STRIDE; i++) data[i] = i % STRIDE < COLUMNS ? (float)i : NAN;
    fwa_named_tensor t = {.name = "w", .shape = {ROWS, COLUMNS}};
    t.tensor = fwa_tensor_2d(data, FWA_F32, ROWS, COLUMNS);
    t.tensor.stride[0] = STRIDE;
    const fwa_named_tensor *const tensors[FWA_PART_COUNT] = {&t, NULL, NULL};
    fwa_checkpoint_writer *writer;
    fwa_checkpoint_state saved = test_state(7);
    check_ok(fwa_checkpoint_begin(&writer, temp_folder, 7, 0, sizeof(float) * ROWS * COLUMNS));
    check_ok(fwa_checkpoint_write_shard(writer, tensors, 1));
    check_ok(fwa_checkpoint_publish(writer, 1, &saved));
    fwa_checkpoint_end(writer);
    fwa_checkpoint *checkpoint;
    open_step(&checkpoint, 7);
    for (int64_t start = 0; start < ROWS; start += 1111) {
        t.row_start = start;
        t.tensor.shape[0] = ROWS - start < 1111 ? ROWS - start : 1111;
        t.tensor.data = back + start * STRIDE;
        check_ok(fwa_checkpoint_read(checkpoint, FWA_PART_MASTER, &t));
    }
    for (int i = 0; i < ROWS; i++) {
        assert_memory_equal(back + (size_t)i * STRIDE, data + (size_t)i * STRIDE, COLUMNS * sizeof(float));
        assert_true(isnan(back[(size_t)i * STRIDE + COLUMNS]));
    }
    check_status(fwa_checkpoint_read(checkpoint, FWA_PART_M, &t), FWA_FORMAT); // this part was left out
    fwa_checkpoint_close(checkpoint);
}

static void missing_and_double_rows_are_not_published(void **state) {
    (void)state;
    for (int extra = -1; extra <= 1; extra += 2) {
        fwa_checkpoint_writer *writers[2];
        for (int rank = 0; rank < 2; rank++) {
            check_ok(fwa_checkpoint_begin(&writers[rank], temp_folder, 3, rank, 0));
            fwa_named_tensor t = test_slice(0, FWA_F32, rank ? 10 : 0, rank ? 23 : 10 + extra);
            test_fill(&t, 0, 0, 3);
            const fwa_named_tensor *const tensors[FWA_PART_COUNT] = {&t, NULL, NULL};
            check_ok(fwa_checkpoint_write_shard(writers[rank], tensors, 1));
        }
        fwa_checkpoint_state saved = test_state(3);
        check_status(fwa_checkpoint_publish(writers[0], 2, &saved), FWA_FORMAT);
        check_message(extra < 0 ? "rows [9, 10) of master/embedding.weight are in no shard"
                                : "rows [10, 11) of master/embedding.weight are in two shards");
        fwa_checkpoint_end(writers[1]);
        fwa_checkpoint_end(writers[0]);
        assert_false(step_exists(3));
        assert_false(fwa_path_exists(temp_path("checkpoints/.step_00000003.tmp")));
    }
}

// The distance that is told is that of all values, and what stays within a tolerance is not told.
static void differences_are_measured(void **state) {
    (void)state;
    fwa_checkpoint *a, *b;
    double squares = 0, size = 0, told = NAN;
    check_ok(test_save(temp_folder, 1));
    check_ok(test_save(temp_folder, 2));
    open_step(&a, 1);
    open_step(&b, 2);
    for (int64_t i = 0; i < test_params[0].shape[0] * test_columns(&test_params[0]); i++) {
        const double one = test_value(0, 0, i, 1), other = test_value(0, 0, i, 2);
        squares += (one - other) * (one - other);
        size += other * other;
    }
    for (int wide = 0; wide < 2; wide++) {
        bool same = true;
        char *text = NULL;
        size_t bytes = 0;
        FILE *out = open_memstream(&text, &bytes);
        check_ok(fwa_checkpoint_diff(a, b, wide ? 1.01 * told : 0, out, &same));
        fclose(out);
        assert_false(same);
        const char *line = strstr(text, "master/embedding.weight: ");
        if (wide) assert_null(line);
        if (!wide) assert_int_equal(sscanf(strstr(line, "RMS"), "RMS %lf", &told), 1);
        free(text);
    }
    assert_true(fabs(told - sqrt(squares / size)) < 0.01 * told);
    fwa_checkpoint_close(a);
    fwa_checkpoint_close(b);
}

static void rows_have_checksums(void **state) {
    (void)state;
    check_ok(test_save(temp_folder, 4));
    hid_t file = H5Fopen(temp_path("checkpoints/step_00000004/shard.rank00000.h5"), H5F_ACC_RDONLY, H5P_DEFAULT);
    for (int part = 0; part < 3; part++) {
        static const char *const names[] = {"master/embedding.weight", "m/embedding.weight", "v/embedding.weight"};
        hid_t dataset = H5Dopen2(file, names[part], H5P_DEFAULT), list = H5Dget_create_plist(dataset);
        assert_true(H5Zfilter_avail(H5Z_FILTER_FLETCHER32) > 0 && H5Pget_nfilters(list) == 1);
        assert_int_equal(H5Pget_filter2(list, 0, NULL, NULL, NULL, 0, NULL, NULL), H5Z_FILTER_FLETCHER32);
        H5Pclose(list);
        H5Dclose(dataset);
    }
    assert_true(H5Fclose(file) >= 0);
}

// Network file systems refuse locks; here another holder does.
static void file_locks_are_not_needed(void **state) {
    (void)state;
    check_ok(test_save(temp_folder, 6));
    const char *const names[] = {"shard.rank00000.h5", "state.h5"};
    int files[2];
    for (int i = 0; i < 2; i++) {
        char name[128];
        snprintf(name, sizeof name, "checkpoints/step_00000006/%s", names[i]);
        files[i] = open(temp_path(name), O_RDWR);
        assert_int_equal(flock(files[i], LOCK_EX | LOCK_NB), 0);
    }
    assert_int_equal(test_check_newest(temp_folder), 6);
    for (int i = 0; i < 2; i++) close(files[i]);
}

static void same_step_is_replaced(void **state) {
    (void)state;
    check_ok(test_save(temp_folder, 8));
    temp_write(temp_path("checkpoints/step_00000008/model.h5"), "x", 1);
    check_ok(test_save(temp_folder, 8));
    assert_int_equal(test_check_newest(temp_folder), 8);
    check_ok(fwa_make_folders(temp_path("checkpoints/.step_00000004.tmp"))); // left by a killed save
    check_ok(fwa_make_folders(temp_path("checkpoints/.step_00000004.old")));
    check_ok(test_save(temp_folder, 9));
    assert_false(fwa_path_exists(temp_path("checkpoints/.step_00000004.tmp")));
    assert_false(fwa_path_exists(temp_path("checkpoints/.step_00000004.old")));
}

static void prune_keeps_the_last_and_every_mth(void **state) {
    (void)state;
    for (int64_t step = 10; step <= 70; step += 10) check_ok(test_save(temp_folder, step));
    check_ok(fwa_checkpoint_prune(temp_folder, 0, 0));
    for (int64_t step = 10; step <= 70; step += 10) assert_true(step_exists(step));
    assert_int_equal(truncate(temp_path("checkpoints/step_00000060/state.h5"), 100), 0); // does not count as kept
    check_ok(fwa_checkpoint_prune(temp_folder, 2, 20));
    for (int64_t step = 10; step <= 70; step += 10) assert_int_equal(step_exists(step), step >= 50 || step % 20 == 0);
    check_ok(fwa_checkpoint_prune(temp_folder, 1, 0));
    for (int64_t step = 10; step <= 70; step += 10) assert_int_equal(step_exists(step), step == 70);
    check_ok(fwa_checkpoint_prune(temp_path("none"), 1, 0));
    assert_int_equal(test_check_newest(temp_folder), 70);
}

// The rename commits: by then all of the folder is on the disk, and `latest` names only what a crash cannot take back.
static void what_counts_is_on_the_disk(void **state) {
    (void)state;
    for (int round = 0; round < 2; round++) { // a new checkpoint, and one in the place of another
        char temporary[512], final[512], folder[512], from[600], to[600];
        snprintf(temporary, sizeof temporary, "%s", temp_path("checkpoints/.step_00000005.tmp"));
        snprintf(final, sizeof final, "%s", temp_path("checkpoints/step_00000005"));
        snprintf(folder, sizeof folder, "%s", temp_path("checkpoints"));
        sync_count = 0;
        check_ok(test_save(temp_folder, 5));
        const int commit = sync_find(temporary, final);
        assert_true(commit >= 0);
        static const char *const files[] = {"shard.rank00000.h5", "shard.rank00001.h5", "shard.rank00002.h5",
                                            "model.h5",           "optim.h5",           "state.h5"};
        for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
            snprintf(from, sizeof from, "%s/%s", temporary, files[i]);
            snprintf(to, sizeof to, "%s/%s", final, files[i]);
            check_synced(from, to, commit);
        }
        snprintf(from, sizeof from, "%s/manifest.json.tmp", temporary);
        snprintf(to, sizeof to, "%s/manifest.json", final);
        check_synced(from, to, commit);
        check_synced(temporary, final, commit);
        snprintf(from, sizeof from, "%s/latest.tmp", folder);
        snprintf(to, sizeof to, "%s/latest", folder);
        const int latest = sync_find(from, to);
        assert_true(latest > commit);
        check_synced(from, to, latest);
        check_synced(folder, folder, sync_count);
        bool kept = false; // the commit, before anything is named after it
        for (int i = 0; i < latest; i++) {
            kept |= i > commit && !strcmp(sync_events[i].path, folder);
            assert_true(strcmp(sync_events[i].to, to) != 0);
        }
        assert_true(kept);
        assert_true(sync_find(folder, NULL) > latest);
    }
}

// What goes is no checkpoint before its first file is gone.
static void what_is_pruned_is_renamed_first(void **state) {
    (void)state;
    check_ok(test_save(temp_folder, 1));
    check_ok(test_save(temp_folder, 2));
    check_ok(fwa_checkpoint_prune(temp_folder, 1, 0));
    assert_true(sync_find(temp_path("checkpoints/step_00000001"), temp_path("checkpoints/.step_00000001.old")) >= 0);
    assert_false(step_exists(1));
    assert_false(fwa_path_exists(temp_path("checkpoints/.step_00000001.old")));
}

static int start(void **state) {
    (void)state;
    return fwa_hdf5_start() != FWA_OK;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        temp_test(rows_join_for_any_ranks),
        temp_test(state_comes_back),
        temp_test(parameters_are_listed),
        temp_test(other_models_are_refused),
        temp_test(views_show_whole_tensors),
        temp_test(pack_needs_no_shards),
        temp_test(large_tensors_keep_every_element),
        temp_test(missing_and_double_rows_are_not_published),
        temp_test(differences_are_measured),
        temp_test(rows_have_checksums),
        temp_test(file_locks_are_not_needed),
        temp_test(same_step_is_replaced),
        temp_test(prune_keeps_the_last_and_every_mth),
        temp_test(what_counts_is_on_the_disk),
        temp_test(what_is_pruned_is_renamed_first),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
