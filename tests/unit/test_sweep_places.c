// GPUs and cores of the places of a sweep, and the names of its evaluations.
#include <stdio.h>

#include "tests/check.h"
#include "train/sweep/evals.h"
#include "train/sweep/places.h"

static fwa_sweep_machine machine(const char *variable, int devices, int cores) {
    fwa_sweep_machine m = {.variable = variable, .devices = devices, .granted = cores};
    for (int c = 0; c < cores; c++)
        m.cores.words[(c + 62) / 64] |= (uint64_t)1 << (c + 62) % 64; // cores 62, 63, 64 ...
    return m;
}

// Expects places with these GPUs, "-" for none and "*" where they are as they were; NULL: refused.
static void expect(fwa_sweep_request request, const char *variable, int devices, const char *wanted) {
    const fwa_sweep_machine m = machine(variable, devices, 8);
    fwa_sweep_places places;
    char got[512] = "";
    size_t used = 0;
    const fwa_status status = fwa_sweep_places_share(&places, &request, &m);
    if (!wanted) {
        check_status(status, FWA_USAGE);
        assert_int_equal(places.count, 0);
        return;
    }
    check_ok(status);
    for (int i = 0; i < places.count; i++) {
        const char *at = places.at[i].devices;
        used += (size_t)snprintf(got + used, sizeof got - used, "%s%s", i ? " " : "", !at ? "*" : *at ? at : "-");
    }
    assert_string_equal(got, wanted);
    assert_int_equal(places.apart, strcmp(wanted, "*") != 0);
    fwa_sweep_places_free(&places);
}

static fwa_sweep_request jobs(const char *text, int gpus, bool wants_gpus) {
    return (fwa_sweep_request){.jobs = text, .gpus = gpus, .points = 10, .wants_gpus = wants_gpus};
}

static void every_place_has_its_gpus(void **state) {
    (void)state;
    expect(jobs("2", 0, true), NULL, 2, "0 1");
    expect(jobs("2", 0, true), NULL, 8, "0 1");
    expect(jobs("2", 4, true), NULL, 8, "0,1,2,3 4,5,6,7");
    expect(jobs("gpus", 0, true), NULL, 3, "0 1 2");
    expect(jobs("gpus", 2, true), NULL, 5, "0,1 2,3");
    expect(jobs("gpus", 0, true), NULL, 1, "0");
    expect(jobs("2", 0, true), "3,1,2", 3, "3 1");
    expect(jobs("gpus", 0, true), " GPU-a , GPU-b", 2, "GPU-a GPU-b");
    expect(jobs("gpus", 0, true), "MIG-a,MIG-b", 1, "MIG-a MIG-b"); // CUDA sees one MIG device a process
    expect(jobs("gpus", 0, true), "0,1,-1,2", 2, "0 1");
    expect(jobs(NULL, 2, true), "4,5,6", 3, "4,5");
    expect(jobs(NULL, 0, true), "4,5,6", 3, "*");
    expect(jobs("1", 0, true), NULL, 0, "*");
}

static void points_that_want_no_gpu_need_none(void **state) {
    (void)state;
    expect(jobs("3", 0, false), NULL, 0, "- - -");
    expect(jobs("3", 0, false), NULL, 2, "- - -");
    expect(jobs("3", 0, false), NULL, 3, "0 1 2");
    expect(jobs("2", 0, false), "NoDevFiles", 0, "- -");
}

static void what_is_not_there_is_refused(void **state) {
    (void)state;
    expect(jobs("3", 0, true), NULL, 2, NULL);
    expect(jobs("3", 0, true), "0,1,9", 2, NULL); // CUDA sees no third
    expect(jobs("2", 2, false), NULL, 3, NULL);
    expect(jobs("2", 0, true), "", 0, NULL);
    expect(jobs("2", 0, true), "1,1", 0, NULL);
    expect(jobs("gpus", 0, true), NULL, 0, NULL);
    expect(jobs("gpus", 4, true), NULL, 3, NULL);
    for (const char *const *text = (const char *const[]){"0", "-1", "abc", "65", "", "2 ", "gpu", NULL}; *text; text++)
        expect(jobs(*text, 0, false), NULL, 2, NULL);
    fwa_sweep_request launched = jobs("2", 0, true);
    launched.launches = true;
    expect(launched, NULL, 8, NULL);
    launched.gpus = 4;
    expect(launched, NULL, 8, "0,1,2,3 4,5,6,7");
}

static void no_more_places_than_points(void **state) {
    (void)state;
    fwa_sweep_request few = jobs("8", 0, true);
    few.points = 2;
    expect(few, NULL, 2, "0 1");
    few.points = 0;
    expect(few, NULL, 2, "0");
}

static void places_share_the_cores(void **state) {
    (void)state;
    const fwa_sweep_request request = jobs("3", 0, false);
    fwa_sweep_places places;
    fwa_sweep_machine m = machine(NULL, 0, 8);
    check_ok(fwa_sweep_places_share(&places, &request, &m));
    int sum = 0;
    for (int i = 0; i < 3; i++) {
        const fwa_cores *mine = &places.at[i].cores;
        const int count = fwa_cores_count(mine);
        assert_true(count == 2 || count == 3);
        assert_true(fwa_cores_overlap(mine, &m.cores));
        for (int j = 0; j < i; j++) assert_false(fwa_cores_overlap(mine, &places.at[j].cores));
        sum += count;
    }
    assert_int_equal(sum, 8);
    fwa_sweep_places_free(&places);
    m = machine(NULL, 0, 2);
    check_ok(fwa_sweep_places_share(&places, &request, &m));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(fwa_cores_count(&places.at[i].cores), 1);
        assert_true(fwa_cores_overlap(&places.at[i].cores, &m.cores));
    }
    fwa_sweep_places_free(&places);
    m = machine(NULL, 0, 60); // a container may keep six of them busy
    m.granted = 6;
    check_ok(fwa_sweep_places_share(&places, &request, &m));
    for (int i = 0; i < 3; i++) assert_int_equal(fwa_cores_count(&places.at[i].cores), 2);
    assert_false(fwa_cores_overlap(&places.at[0].cores, &places.at[2].cores));
    fwa_sweep_places_free(&places);
}

static const char *name_of(const char *text) {
    static char file[FWA_SWEEP_EVAL_NAME];
    fwa_word_list words;
    check_ok(fwa_word_list_read(&words, "--eval", text));
    fwa_sweep_eval_name(&words, file);
    fwa_word_list_free(&words);
    return file;
}

static void evaluations_are_named_by_their_words(void **state) {
    (void)state;
    assert_string_equal(name_of(""), "eval.json");
    assert_string_equal(name_of(" --widths  33-48 "), "eval-widths=33-48.json");
    assert_string_equal(name_of("--widths=33-48"), "eval-widths=33-48.json");
    assert_string_equal(name_of("--widths 32 --greedy"), "eval-widths=32,greedy.json");
    assert_string_equal(name_of("--grid 4-48:4"), "eval-grid=4-48_4.json");
    assert_string_equal(name_of("--task ppl"), "eval-task=ppl.json");
    // What a name cannot show is told apart by a hash.
    static const char *const pairs[][2] = {{"--task mc a/b.jsonl", "--task mc a_b.jsonl"},
                                           {"--grid 4-48:4", "--grid 4-48_4"},
                                           {"--cut --greedy", "--cut greedy,x"},
                                           {"--task ppl a b", "--task ppl a,b"},
                                           {"ä", "ö"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        char first[FWA_SWEEP_EVAL_NAME];
        snprintf(first, sizeof first, "%s", name_of(pairs[i][0]));
        assert_string_not_equal(first, name_of(pairs[i][1]));
        assert_null(strchr(first, '/'));
    }
    char text[400] = "--task mc ", other[400];
    memset(text + 10, 'x', 300);
    snprintf(other, sizeof other, "%sy", text);
    char first[FWA_SWEEP_EVAL_NAME];
    snprintf(first, sizeof first, "%s", name_of(text));
    assert_string_not_equal(first, name_of(other));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_place_has_its_gpus),     cmocka_unit_test(points_that_want_no_gpu_need_none),
        cmocka_unit_test(what_is_not_there_is_refused), cmocka_unit_test(no_more_places_than_points),
        cmocka_unit_test(places_share_the_cores),       cmocka_unit_test(evaluations_are_named_by_their_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
