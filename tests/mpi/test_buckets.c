// Gradient buckets over ranks: started in any order while the caller computes, summed in rank order, ready for the next
// step.
#include "mpi_support.h"

#include <stdbool.h>
#include <stdlib.h>

#include "dist/buckets.h"
#include "dist/world.h"

enum { N = 5 };
static fwa_world *world;

static void buckets_sum_step_after_step(void **state) {
    (void)state;
    const int64_t counts[N] = {1, 30000, 7, 900001, 4096};
    int64_t total = 0;
    for (int i = 0; i < N; i++) total += counts[i];
    float *gradient = malloc((size_t)total * sizeof *gradient);
    fwa_tensor tensors[N];
    for (int64_t i = 0, at = 0; i < N; at += counts[i++]) {
        tensors[i] = fwa_tensor_1d(gradient + at, FWA_F32, counts[i]);
    }
    fwa_buckets *buckets = NULL;
    ASSERT_ALL(fwa_buckets_create(&buckets, world->all, tensors, N) == FWA_OK);
    for (int step = 0; step < 3; step++) {
        bool good = true;
        for (int i = N - 1; i >= 0; i--) { // as a backward pass: the last layer first
            float *x = tensors[i].data;
            for (int64_t j = 0; j < counts[i]; j++) x[j] = (float)element(world->rank, j + step);
            good &= fwa_buckets_start(buckets, NULL, i) == FWA_OK;
        }
        good &= fwa_buckets_start(buckets, NULL, 2) == FWA_ERROR; // is under way
        good &= fwa_buckets_wait(buckets, NULL) == FWA_OK;
        for (int i = 0; i < N; i++) {
            const float *x = tensors[i].data;
            for (int64_t j = 0; j < counts[i]; j++) {
                float sum = (float)element(0, j + step);
                for (int r = 1; r < world->size; r++) sum += (float)element(r, j + step);
                good &= x[j] == sum;
            }
        }
        ASSERT_ALL(good);
    }
    ASSERT_ALL(fwa_buckets_wait(buckets, NULL) == FWA_OK); // nothing under way
    ASSERT_ALL(fwa_buckets_start(buckets, NULL, N) == FWA_ERROR && fwa_buckets_start(buckets, NULL, -1) == FWA_ERROR);
    fwa_buckets_destroy(buckets);
    free(gradient);
}

static void strided_memory_is_refused(void **state) {
    (void)state;
    float x[12];
    fwa_tensor part = fwa_tensor_slice(fwa_tensor_2d(x, FWA_F32, 3, 4), 1, 0, 2);
    fwa_buckets *buckets = NULL;
    ASSERT_ALL(fwa_buckets_create(&buckets, world->all, &part, 1) == FWA_ERROR && !buckets);
    ASSERT_ALL(strstr(fwa_error_message(), "bucket 0") != NULL);
}

int main(int argc, char **argv) {
    if (fwa_world_create(&world, &argc, &argv) != FWA_OK) {
        fprintf(stderr, "%s\n%s\n", fwa_error_message(), fwa_error_trace());
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_sum_step_after_step),
        cmocka_unit_test(strided_memory_is_refused),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fwa_world_destroy(world);
    return failed;
}
