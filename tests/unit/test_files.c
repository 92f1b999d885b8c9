// File helpers: folders, whole texts, atomic replacement, digests, errors that name the file.
#include <sys/resource.h>
#include <sys/wait.h>
#include <signal.h>
#include <fcntl.h>
#include <unistd.h>

#include <xxhash.h>

#include "tests/temp_folder.h"

static void folders_are_made_and_removed(void **state) {
    (void)state;
    check_ok(fwa_make_folders(temp_path("a/b//c/")));
    check_ok(fwa_make_folders(temp_path("a/b/c")));
    assert_true(fwa_path_exists(temp_path("a/b/c")));
    temp_write(temp_path("a/b/file"), "x", 1);
    assert_int_equal(symlink(temp_path("."), temp_path("a/b/c/link")), 0);
    check_status(fwa_make_folders(temp_path("a/b/file/d")), FWA_IO);
    check_message("a/b/file");
    temp_write(temp_path("outside"), "x", 1);
    check_ok(fwa_remove_folder(temp_path("a")));
    assert_false(fwa_path_exists(temp_path("a")));
    assert_true(fwa_path_exists(temp_path("outside"))); // links are removed, not followed
    check_ok(fwa_remove_folder(temp_path("a")));
    check_status(fwa_remove_folder("/proc/self/task"), FWA_IO); // not even root may
    fwa_error_raise(FWA_MEMORY, __FILE__, __LINE__, __func__, "the cause");
    fwa_drop_folder("/proc/self/task");
    assert_string_equal(fwa_error_message(), "the cause");
}

static void texts_are_read_whole(void **state) {
    (void)state;
    for (size_t size = 0; size < 20000; size = size * 2 + 4095) {
        char *text = check_alloc(size + 1), *back;
        memset(text, 'x', size);
        text[size] = '\0';
        check_ok(fwa_write_text(temp_path("text"), text));
        check_ok(fwa_read_text(temp_path("text"), &back));
        assert_string_equal(back, text);
        free(back);
    }
    assert_false(fwa_path_exists(temp_path("text.tmp")));
}

static void missing_files_are_named(void **state) {
    (void)state;
    char *text, hex[33];
    check_status(fwa_read_text(temp_path("none"), &text), FWA_IO);
    check_message("/none");
    check_message("No such file");
    assert_null(text);
    check_status(fwa_file_digest(temp_path("none"), hex), FWA_IO);
    check_status(fwa_write_text(temp_path("none/text"), "x"), FWA_IO);
    check_message("/none/text.tmp");
    check_status(fwa_sync_path(temp_path("none")), FWA_IO);
    check_ok(fwa_sync_path(temp_folder));
}

static void a_memory_stream_is_written_whole_or_not_at_all(void **state) {
    char *text = NULL, *back = NULL;
    size_t size = 0;
    (void)state;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    fputs("all of it\n", out);
    check_ok(fwa_write_stream(temp_path("stream"), out, &text));
    assert_null(text);
    check_ok(fwa_read_text(temp_path("stream"), &back));
    assert_string_equal(back, "all of it\n");
    free(back);
    FILE *full = fopen("/dev/full", "w"); // takes nothing, as a memory stream without memory
    assert_non_null(full);
    fputs("lost", full);
    text = strdup("a part");
    check_status(fwa_write_stream(temp_path("stream.full"), full, &text), FWA_MEMORY);
    assert_null(text);
    assert_false(fwa_path_exists(temp_path("stream.full")));
}

static void links_and_pipes_stay_what_they_are(void **state) {
    (void)state;
    char *text, got[8] = "";
    struct stat info;
    check_ok(fwa_make_folders(temp_path("there")));
    check_ok(fwa_write_text(temp_path("there/text"), "old"));
    assert_int_equal(symlink("there/text", temp_path("link")), 0);
    check_ok(fwa_write_text(temp_path("link"), "new"));
    assert_true(lstat(temp_path("link"), &info) == 0 && S_ISLNK(info.st_mode));
    check_ok(fwa_read_text(temp_path("there/text"), &text));
    assert_string_equal(text, "new");
    free(text);
    assert_int_equal(mkfifo(temp_path("pipe"), 0600), 0);
    int pipe = open(temp_path("pipe"), O_RDWR);
    check_ok(fwa_write_text(temp_path("pipe"), "through"));
    assert_int_equal(read(pipe, got, sizeof got - 1), 7);
    close(pipe);
    assert_string_equal(got, "through");
    check_status(fwa_write_text(temp_path("there"), "x"), FWA_IO); // a folder
}

static void failed_write_keeps_the_old_text(void **state) {
    (void)state;
    check_ok(fwa_write_text(temp_path("text"), "old"));
    char *text = check_alloc(10001);
    memset(text, 'x', 10000);
    text[10000] = '\0';
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 4096;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    fwa_status status = fwa_write_text(temp_path("text"), text);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    check_status(status, FWA_IO);
    check_message("File too large");
    check_ok(fwa_read_text(temp_path("text"), &text));
    assert_string_equal(text, "old");
    free(text);
    assert_false(fwa_path_exists(temp_path("text.tmp")));
}

static void digest_is_xxh3_of_the_contents(void **state) {
    (void)state;
    size_t size = ((size_t)2 << 20) + 12345;
    unsigned char *bytes = check_alloc(size);
    for (size_t i = 0; i < size; i++) bytes[i] = (unsigned char)(i * 31 + i / 1000);
    for (int round = 0; round < 2; round++, size = 0) {
        char hex[33], expected[33];
        temp_write(temp_path("bytes"), bytes, size);
        check_ok(fwa_file_digest(temp_path("bytes"), hex));
        XXH128_hash_t hash = XXH3_128bits(bytes, size);
        snprintf(expected, sizeof expected, "%016llx%016llx", (unsigned long long)hash.high64,
                 (unsigned long long)hash.low64);
        assert_string_equal(hex, expected);
    }
}

static void free_bytes_of_what_does_not_exist_yet(void **state) {
    (void)state;
    assert_true(fwa_free_bytes(temp_folder) > 0);
    assert_true(fwa_free_bytes(temp_path("not/yet/there")) > 0);
    assert_true(fwa_free_bytes("not_there_either") > 0);
}

// 1 MB of one letter, so that writing it takes a moment.
static char *letters(char letter) {
    char *text = check_alloc(1000001);
    memset(text, letter, 1000000);
    text[1000000] = '\0';
    return text;
}

static void two_processes_may_write_one_file(void **state) {
    (void)state;
    char *a = letters('a'), *b = letters('b'), *back = NULL;
    int code = 0;
    const pid_t other = fork();
    for (int i = 0; i < 40 && code == 0; i++) code = fwa_write_text(temp_path("shared"), other ? a : b) != FWA_OK;
    if (other == 0) _exit(code);
    if (code) fail_msg("%s", fwa_error_message());
    check_ok(fwa_read_text(temp_path("shared"), &back));
    assert_true(strcmp(back, a) == 0 || strcmp(back, b) == 0);
    free(back);
    assert_true(waitpid(other, &code, 0) == other && code == 0);
    assert_false(fwa_path_exists(temp_path("shared.tmp")));
}

static void long_paths_are_refused(void **state) {
    (void)state;
    char path[FWA_PATH_MAX], *name = check_alloc(FWA_PATH_MAX);
    memset(name, 'x', FWA_PATH_MAX - 1);
    name[FWA_PATH_MAX - 1] = '\0';
    check_ok(fwa_path_format(path, "%s", name));
    check_status(fwa_path_format(path, "%s/x", name), FWA_CONFIG);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        temp_test(a_memory_stream_is_written_whole_or_not_at_all),
        temp_test(links_and_pipes_stay_what_they_are),
        temp_test(folders_are_made_and_removed),
        temp_test(texts_are_read_whole),
        temp_test(missing_files_are_named),
        temp_test(failed_write_keeps_the_old_text),
        temp_test(two_processes_may_write_one_file),
        temp_test(digest_is_xxh3_of_the_contents),
        temp_test(free_bytes_of_what_does_not_exist_yet),
        temp_test(long_paths_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
