// Records between lines and JSON, and how a trainer takes them over.
#include <jansson.h>

#include "io/records.h"
#include "tests/check.h"
#include "train/choices.h"

static const char *const lines = "operator=gemm\tdevice=Some GPU \"A\"\tM=64\tN=-3\n"
                                 "operator=gemm\tdevice=0x10\tM=9223372036854775807\tname=007\tempty=\n";

static void records_come_back(void **state) {
    (void)state;
    char *json = NULL, *again = NULL;
    check_ok(fwa_records_to_json(lines, &json));
    check_ok(fwa_records_from_json(json, "here", &again));
    assert_string_equal(again, lines);
    json_t *root = json_loads(json, 0, NULL);
    const json_t *choices = json_object_get(root, "choices");
    assert_int_equal(json_array_size(choices), 2);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(choices, 0), "M")), 64);
    assert_string_equal(json_string_value(json_object_get(json_array_get(choices, 0), "device")), "Some GPU \"A\"");
    assert_string_equal(json_string_value(json_object_get(json_array_get(choices, 1), "name")), "007");
    json_decref(root);
    free(again);
    free(json);
}

static void nothing_stays_nothing(void **state) {
    (void)state;
    char *text = NULL;
    check_ok(fwa_records_to_json("", &text));
    assert_string_equal(text, "");
    free(text);
    check_ok(fwa_records_from_json("", "here", &text));
    assert_string_equal(text, "");
    free(text);
}

static void damage_is_refused_by_place(void **state) {
    (void)state;
    const char *const damaged[] = {
        "{",
        "[]",
        "{\"format\": \"fwa-choices\", \"version\": 2, \"choices\": []}",
        "{\"format\": \"fwa-choices\", \"version\": 1, \"choices\": 3}",
        "{\"format\": \"fwa-choices\", \"version\": 1, \"choices\": [3]}",
        "{\"format\": \"fwa-choices\", \"version\": 1, \"choices\": [{\"M\": 1.5}]}",
        "{\"format\": \"fwa-choices\", \"version\": 1, \"choices\": [{\"M\": \"a\\tb\"}]}",
        "{\"format\": \"fwa-choices\", \"version\": 1, \"choices\": [{\"a=b\": 1}]}",
    };
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        char *records = NULL;
        check_status(fwa_records_from_json(damaged[i], "some/place", &records), FWA_FORMAT);
        assert_non_null(strstr(fwa_error_message(), "some/place"));
        assert_null(records);
    }
    char *json = NULL;
    check_status(fwa_records_to_json("no pair\n", &json), FWA_ERROR);
    assert_null(json);
}

static char seen[512];

static fwa_status note_records(fwa_backend *backend, const char *records, int *taken, int *passed_over) {
    (void)backend;
    snprintf(seen, sizeof seen, "%s", records);
    *taken = *passed_over = 1;
    return FWA_OK;
}

static fwa_status give_records(fwa_backend *backend, char **records) {
    (void)backend;
    *records = strdup(lines);
    return FWA_OK;
}

static void a_trainer_hands_them_over(void **state) {
    (void)state;
    fwa_world world = {.size = 1};
    fwa_backend backend = {.kind = FWA_BACKEND_CUDA, .choices = give_records, .choose = note_records};
    fwa_trainer trainer = {.world = &world, .backend = &backend};
    char *json = NULL;
    check_ok(fwa_choices_get(&trainer, &json));
    check_ok(fwa_choices_take(&trainer, json, "here"));
    assert_string_equal(seen, lines);
    seen[0] = '\0';
    backend.deterministic = true;
    check_ok(fwa_choices_take(&trainer, json, "here"));
    assert_string_equal(seen, "");
    check_ok(fwa_choices_share(&trainer));
    free(json);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_come_back),
        cmocka_unit_test(nothing_stays_nothing),
        cmocka_unit_test(damage_is_refused_by_place),
        cmocka_unit_test(a_trainer_hands_them_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
