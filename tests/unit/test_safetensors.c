// safetensors files: what is written is read, in every type of real number, and damaged files are told apart.
#include <math.h>

#include "core/bf16.h"
#include "io/safetensors.h"
#include "tests/temp_folder.h"

static void what_is_written_is_read(void **state) {
    static const int64_t shapes[][3] = {{2, 3}, {4}, {0, 5}, {1, 1, 2}};
    static const int ndims[] = {2, 1, 2, 3};
    float f32[6] = {0.1f, -2.5f, 1e-38f, 3e38f, 0.0f, -0.0f};
    double f64[4] = {0.1, -1e300, 1.0, 5e-324}, wide[6];
    uint16_t bf16[2] = {fwa_bf16_from_float(1.5f), fwa_bf16_from_float(-3.0f)};
    float narrow[6];
    (void)state;
    const char *path = temp_path("a.safetensors");
    const fwa_safetensor about[] = {fwa_safetensor_about("m.weight", FWA_F32, ndims[0], shapes[0]),
                                    fwa_safetensor_about("v", FWA_F64, ndims[1], shapes[1]),
                                    fwa_safetensor_about("none", FWA_F32, ndims[2], shapes[2]),
                                    fwa_safetensor_about("half", FWA_BF16, ndims[3], shapes[3])};
    fwa_safetensors_writer *writer;
    check_ok(fwa_safetensors_begin(&writer, path, about, 4));
    check_ok(fwa_safetensors_put(writer, f32, sizeof f32));
    check_ok(fwa_safetensors_put(writer, f64, sizeof f64));
    check_ok(fwa_safetensors_put(writer, f32, 0));
    check_ok(fwa_safetensors_put(writer, bf16, sizeof bf16));
    check_ok(fwa_safetensors_end(writer, true));
    fwa_safetensors file;
    check_ok(fwa_safetensors_open(&file, path));
    assert_int_equal(file.count, 4);
    assert_int_equal(file.data % 8, 0);
    assert_null(fwa_safetensors_find(&file, "other"));
    check_ok(fwa_safetensors_read(&file, fwa_safetensors_find(&file, "m.weight"), FWA_F32, narrow));
    assert_memory_equal(narrow, f32, sizeof f32);
    check_ok(fwa_safetensors_read(&file, fwa_safetensors_find(&file, "m.weight"), FWA_F64, wide));
    for (int i = 0; i < 6; i++) assert_true(wide[i] == (double)f32[i]);
    check_ok(fwa_safetensors_read(&file, fwa_safetensors_find(&file, "v"), FWA_F64, wide));
    assert_memory_equal(wide, f64, sizeof f64);
    check_ok(fwa_safetensors_read(&file, fwa_safetensors_find(&file, "half"), FWA_F32, narrow));
    assert_true(narrow[0] == 1.5f && narrow[1] == -3.0f);
    check_ok(fwa_safetensors_read(&file, fwa_safetensors_find(&file, "none"), FWA_F32, narrow));
    fwa_safetensors_close(&file);
}

static void an_unfinished_file_is_removed(void **state) {
    const int64_t shape[] = {2};
    const fwa_safetensor about = fwa_safetensor_about("v", FWA_F32, 1, shape);
    fwa_safetensors_writer *writer;
    (void)state;
    const char *path = temp_path("b.safetensors");
    for (int good = 0; good < 2; good++) {
        check_ok(fwa_safetensors_begin(&writer, path, &about, 1));
        check_ok(fwa_safetensors_put(writer, shape, 4)); // half of it
        assert_int_equal(fwa_safetensors_end(writer, good), good ? FWA_ERROR : FWA_OK);
        assert_false(fwa_path_exists(path));
        assert_false(fwa_path_exists(temp_path("b.safetensors.tmp")));
    }
    assert_int_equal(fwa_safetensors_begin(&writer, temp_path("no/where"), &about, 1), FWA_IO);
}

static void write_file(const char *path, const char *header, size_t claimed, const void *data, size_t bytes) {
    unsigned char text[1024];
    for (int i = 0; i < 8; i++) text[i] = (unsigned char)((uint64_t)claimed >> (8 * i));
    memcpy(text + 8, header, strlen(header));
    if (bytes) memcpy(text + 8 + strlen(header), data, bytes);
    temp_write(path, text, 8 + strlen(header) + bytes);
}

static void half_numbers_are_read(void **state) {
    static const char header[] = "{\"h\":{\"dtype\":\"F16\",\"shape\":[7],\"data_offsets\":[0,14]}}";
    static const uint16_t halves[] = {0x3C00, 0xC000, 0x0001, 0x7BFF, 0xFC00, 0x7E00, 0x3555};
    static const float values[] = {1.0f, -2.0f, 5.9604645e-8f, 65504.0f, -INFINITY, NAN, 0.33325195f};
    float read[7];
    fwa_safetensors file;
    (void)state;
    const char *path = temp_path("h.safetensors");
    write_file(path, header, sizeof header - 1, halves, sizeof halves);
    check_ok(fwa_safetensors_open(&file, path));
    check_ok(fwa_safetensors_read(&file, &file.at[0], FWA_F32, read));
    for (int i = 0; i < 7; i++) assert_true(read[i] == values[i] || (isnan(read[i]) && isnan(values[i])));
    fwa_safetensors_close(&file);
}

static void damaged_files_are_refused(void **state) {
    static const struct {
        const char *header, *message;
    } cases[] = {
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", "3 elements of type F32 in 8 bytes"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,8]}}", "1 element of type F32 in 8 bytes"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]}}", "0 to 12, beyond 8 bytes of tensors"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]}}", "-8 to 0"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", "8 to 0"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", "shape is no list"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,8]}}", "shape is no list"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,2],\"data_offsets\":[0,8]}}", "shape is no list"},
        {"{\"a\":{\"dtype\":\"F33\",\"shape\":[2],\"data_offsets\":[0,8]}}", "type F33"},
        {"{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", "type none"},
        {"{\"a\":7}", "type none"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
         "overlap"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
         "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
         "not JSON"},
        {"[1, 2]", "no JSON object"},
        {"{\"a\":", "not JSON"},
    };
    fwa_safetensors file;
    (void)state;
    const char *path = temp_path("c.safetensors");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_file(path, cases[i].header, strlen(cases[i].header), "12345678", 8);
        assert_int_equal(fwa_safetensors_open(&file, path), FWA_FORMAT);
        check_message(cases[i].message);
        fwa_safetensors_close(&file);
    }
    static const size_t claims[] = {0, 1, 100, (size_t)1 << 40, SIZE_MAX};
    for (size_t i = 0; i < sizeof claims / sizeof *claims; i++) {
        write_file(path, "{}", claims[i], NULL, 0);
        assert_int_equal(fwa_safetensors_open(&file, path), FWA_FORMAT);
        fwa_safetensors_close(&file);
    }
    temp_write(path, "short", 5);
    assert_int_equal(fwa_safetensors_open(&file, path), FWA_FORMAT);
    fwa_safetensors_close(&file);
    assert_int_equal(fwa_safetensors_open(&file, temp_path("gone")), FWA_CONFIG);
    fwa_safetensors_close(&file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        temp_test(what_is_written_is_read),
        temp_test(an_unfinished_file_is_removed),
        temp_test(half_numbers_are_read),
        temp_test(damaged_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
