// Quotas of control groups, in both versions, from files made here.
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/files.h"
#include "tests/check.h"

#include "core/cpu_quota.h"

static char root[] = "/tmp/fwa_cpu_quota_XXXXXX";

// Writes a file and the folders it stands in, below `root`.
static void put(const char *name, const char *text) {
    char path[FWA_PATH_MAX];
    check_ok(fwa_path_format(path, "%s/%s", root, name));
    char *slash = strrchr(path, '/');
    *slash = '\0';
    check_ok(fwa_make_folders(path));
    *slash = '/';
    check_ok(fwa_write_text(path, text));
}

static int quota(const char *membership) {
    char groups[FWA_PATH_MAX], file[FWA_PATH_MAX];
    put("membership", membership);
    check_ok(fwa_path_format(groups, "%s/groups", root));
    check_ok(fwa_path_format(file, "%s/membership", root));
    return fwa_cpu_quota(groups, file);
}

static void test_version_two(void **state) {
    (void)state;
    put("groups/cpu.max", "max 100000\n");
    put("groups/a/b/cpu.max", "150000 100000\n");
    put("groups/a/free/cpu.max", "max 100000\n");
    put("groups/c/cpu.max", "400000 100000\n");
    put("groups/c/deep/cpu.max", "800000 100000\n");
    put("groups/small/cpu.max", "1000 100000\n");
    put("groups/odd/cpu.max", "many\n");
    assert_int_equal(quota("0::/a/b\n"), 2);
    assert_int_equal(quota("0::/a/free\n"), INT_MAX);
    assert_int_equal(quota("0::/c/deep\n"), 4); // of the group above
    assert_int_equal(quota("0::/small\n"), 1);
    assert_int_equal(quota("0::/odd\n"), INT_MAX);
    assert_int_equal(quota("0::/\n"), INT_MAX);
    assert_int_equal(quota("0::/not/there\n"), INT_MAX);
    put("groups/cpu.max", "300000 100000\n"); // the root of a container
    assert_int_equal(quota("0::/../host/path\n"), 3);
}

static void test_version_one(void **state) {
    (void)state;
    put("groups/cpu.max", "max 100000\n");
    put("groups/cpu/cpu.cfs_quota_us", "-1\n");
    put("groups/cpu/cpu.cfs_period_us", "100000\n");
    put("groups/cpu/docker/x/cpu.cfs_quota_us", "250000\n");
    put("groups/cpu/docker/x/cpu.cfs_period_us", "100000\n");
    assert_int_equal(quota("4:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n0::/\n"), 3);
    assert_int_equal(quota("4:memory:/docker/x\n3:cpuacct,cpu:/docker/x\n"), 3);
    assert_int_equal(quota("2:cpuset:/docker/x\n3:cpuacct:/docker/x\n"), INT_MAX);
    assert_int_equal(quota("3:cpu:/\n"), INT_MAX);
    put("groups/cpu/cpu.cfs_quota_us", "200000\n"); // the root of a container
    assert_int_equal(quota("3:cpu:/docker/y\n"), 2);
}

static void test_what_cannot_be_read(void **state) {
    (void)state;
    assert_int_equal(quota(""), INT_MAX);
    assert_int_equal(quota("words\n1:cpu\n"), INT_MAX);
    assert_int_equal(fwa_cpu_quota(root, "/nowhere"), INT_MAX);
    assert_true(fwa_cpu_quota(NULL, NULL) >= 1);
}

static int start(void **state) {
    (void)state;
    return mkdtemp(root) ? 0 : -1;
}

static int clean(void **state) {
    (void)state;
    return fwa_remove_folder(root) == FWA_OK ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_version_two), cmocka_unit_test(test_version_one),
                                       cmocka_unit_test(test_what_cannot_be_read)};
    return cmocka_run_group_tests(tests, start, clean);
}
