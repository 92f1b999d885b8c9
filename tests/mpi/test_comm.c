// The communicator over MPI: every type and operation, bit by bit against a local simulation of all ranks.
#include "mpi_support.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "dist/comms.h"
#include "dist/world.h"

static fwa_world *world;
static fwa_comm *comm;

static float bf16_value(uint16_t x) {
    uint32_t bits = (uint32_t)x << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

// Nearest bf16, ties to even, by comparing the two neighbours.
static uint16_t bf16_nearest(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    uint16_t low = (uint16_t)(bits >> 16), high = (uint16_t)(low + 1);
    float down = fabsf(value - bf16_value(low)), up = fabsf(bf16_value(high) - value);
    if (down != up) return down < up ? low : high;
    return low & 1 ? high : low;
}

static void put(void *buffer, int64_t i, fwa_dtype dtype, double value) {
    switch (dtype) {
    case FWA_F64:
        ((double *)buffer)[i] = value;
        break;
    case FWA_F32:
        ((float *)buffer)[i] = (float)value;
        break;
    case FWA_BF16:
        ((uint16_t *)buffer)[i] = bf16_nearest((float)value);
        break;
    case FWA_I32:
        ((int32_t *)buffer)[i] = (int32_t)value;
        break;
    case FWA_I64:
        ((int64_t *)buffer)[i] = (int64_t)value * 1000003;
        break;
    default:
        ((uint8_t *)buffer)[i] = (uint8_t)((int64_t)value & 0x3f);
        break;
    }
}

static void fill(void *buffer, int64_t count, fwa_dtype dtype, int rank, int64_t start) {
    for (int64_t i = 0; i < count; i++) put(buffer, i, dtype, element(rank, start + i));
}

#define FOLD(type, wide, load, store)                                                                                  \
    for (int64_t i = 0; i < count; i++) {                                                                              \
        wide a = load(((type *)sum)[i]), b = load(((const type *)next)[i]);                                            \
        wide both = op == FWA_REDUCE_SUM ? (wide)(a + b) : op == FWA_REDUCE_MAX ? (a > b ? a : b) : (a < b ? a : b);   \
        ((type *)sum)[i] = store(both);                                                                                \
    }
#define PLAIN(x) (x)

// What all ranks must end with: ranks in order. bf16 is summed in `wide` floats.
static void simulate(void *sum, int64_t count, fwa_dtype dtype, fwa_reduce op, int64_t start) {
    size_t bytes = (size_t)count * fwa_dtype_size(dtype);
    void *next = malloc(bytes + 1);
    float *wide = calloc((size_t)count + 1, sizeof *wide);
    fill(sum, count, dtype, 0, start);
    if (dtype == FWA_BF16) {
        for (int64_t i = 0; i < count; i++) wide[i] = bf16_value(((uint16_t *)sum)[i]);
    }
    for (int r = 1; r < world->size; r++) {
        fill(next, count, dtype, r, start);
        switch (dtype) {
        case FWA_F64:
            FOLD(double, double, PLAIN, PLAIN) break;
        case FWA_F32:
            FOLD(float, float, PLAIN, PLAIN) break;
        case FWA_I32:
            FOLD(int32_t, int32_t, PLAIN, PLAIN) break;
        case FWA_I64:
            FOLD(int64_t, int64_t, PLAIN, PLAIN) break;
        case FWA_U8:
            FOLD(uint8_t, uint8_t, PLAIN, PLAIN) break;
        default:
            for (int64_t i = 0; i < count; i++) {
                float b = bf16_value(((uint16_t *)next)[i]), a = wide[i];
                wide[i] = op == FWA_REDUCE_SUM ? a + b : op == FWA_REDUCE_MAX ? fmaxf(a, b) : fminf(a, b);
            }
        }
    }
    if (dtype == FWA_BF16) {
        for (int64_t i = 0; i < count; i++) ((uint16_t *)sum)[i] = bf16_nearest(wide[i]);
    }
    free(wide);
    free(next);
}

static void all_reduce_gives_rank_order_bits(void **state) {
    (void)state;
    const int64_t counts[] = {0, 1, 7, 4096, 10001, 1000003};
    for (int dtype = 0; dtype < FWA_DTYPE_COUNT; dtype++) {
        for (int op = FWA_REDUCE_SUM; op <= FWA_REDUCE_MIN; op++) {
            size_t lengths = sizeof counts / sizeof *counts - (op != FWA_REDUCE_SUM); // the longest for sums alone
            for (size_t c = 0; c < lengths; c++) {
                size_t bytes = (size_t)counts[c] * fwa_dtype_size((fwa_dtype)dtype);
                char *buffer = malloc(bytes + 8), *expected = malloc(bytes + 8);
                fill(buffer, counts[c], (fwa_dtype)dtype, world->rank, 0);
                memset(buffer + bytes, 0x5a, 8);
                memset(expected + bytes, 0x5a, 8);
                fwa_status status = comm->all_reduce(comm, NULL, buffer, counts[c], (fwa_dtype)dtype, (fwa_reduce)op);
                simulate(expected, counts[c], (fwa_dtype)dtype, (fwa_reduce)op, 0);
                bool same = memcmp(buffer, expected, bytes + 8) == 0;
                free(buffer);
                free(expected);
                ASSERT_ALL(status == FWA_OK && same);
            }
        }
    }
}

// The data of this test can tell an order from another: otherwise the test above would prove nothing.
static void order_matters_in_the_test_data(void **state) {
    (void)state;
    if (world->size < 3) return;
    int differ = 0;
    for (int64_t i = 0; i < 4096; i++) {
        float up = (float)element(0, i), down = (float)element(world->size - 1, i);
        for (int r = 1; r < world->size; r++) {
            up += (float)element(r, i);
            down += (float)element(world->size - 1 - r, i);
        }
        differ += up != down;
    }
    ASSERT_ALL(differ > 10);
}

static void max_and_min_keep_a_nan(void **state) {
    (void)state;
    for (int owner = 0; owner < world->size; owner++) {
        float x[2] = {world->rank == owner ? NAN : (float)world->rank, 1};
        float y[2] = {x[0], 1};
        fwa_status first = comm->all_reduce(comm, NULL, x, 2, FWA_F32, FWA_REDUCE_MAX);
        fwa_status second = comm->all_reduce(comm, NULL, y, 2, FWA_F32, FWA_REDUCE_MIN);
        ASSERT_ALL(first == FWA_OK && second == FWA_OK && isnan(x[0]) && isnan(y[0]) && x[1] == 1);
    }
}

static double compute_for_a_while(void) {
    volatile double sum = 0;
    for (int i = 0; i < 100000; i++) sum = sum + sin(i);
    return sum;
}

static void started_sums_survive_other_calls(void **state) {
    (void)state;
    enum { N = 24 };
    fwa_comm_request *requests[N];
    float *buffers[N];
    int64_t counts[N];
    bool good = true;
    for (int i = 0; i < N; i++) {
        counts[i] = (int64_t[]){3, 5000, 250007, 4095, 0, 700001}[i % 6];
        buffers[i] = malloc((size_t)counts[i] * 4 + 4);
        fill(buffers[i], counts[i], FWA_F32, world->rank, i);
        good &=
            comm->all_reduce_start(comm, NULL, buffers[i], counts[i], FWA_F32, FWA_REDUCE_SUM, &requests[i]) == FWA_OK;
        // Ranks fall out of step: polls come at other moments everywhere.
        if (i % world->size == world->rank) compute_for_a_while();
        if (i % 5 == 2) {
            int64_t one = 1;
            good &= comm->all_reduce(comm, NULL, &one, 1, FWA_I64, FWA_REDUCE_SUM) == FWA_OK && one == world->size;
        }
        if (i % 7 == 3) good &= comm->barrier(comm) == FWA_OK;
    }
    for (int n = 0; n < N; n++) {
        int i = n % 2 ? n / 2 : N - 1 - n / 2; // from both ends
        float *expected = malloc((size_t)counts[i] * 4 + 4);
        good &= comm->wait(comm, NULL, requests[i]) == FWA_OK;
        simulate(expected, counts[i], FWA_F32, FWA_REDUCE_SUM, i);
        good &= memcmp(buffers[i], expected, (size_t)counts[i] * 4) == 0;
        free(expected);
        free(buffers[i]);
    }
    ASSERT_ALL(good);
}

static void five_hundred_and_twelve_at_a_time(void **state) {
    (void)state;
    static double values[513];
    fwa_comm_request *requests[513];
    bool good = true;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 513; i++) values[i] = i + world->rank;
        for (int i = 0; i < 512; i++) {
            good &= comm->all_reduce_start(comm, NULL, &values[i], 1, FWA_F64, FWA_REDUCE_SUM, &requests[i]) == FWA_OK;
        }
        good &=
            comm->all_reduce_start(comm, NULL, &values[512], 1, FWA_F64, FWA_REDUCE_SUM, &requests[512]) == FWA_ERROR;
        for (int i = 0; i < 512; i++) {
            good &= comm->wait(comm, NULL, requests[i]) == FWA_OK;
            int sum = i * world->size + world->size * (world->size - 1) / 2;
            good &= values[i] == (double)sum;
        }
        good &= comm->wait(comm, NULL, requests[0]) == FWA_ERROR; // waited for already
    }
    ASSERT_ALL(good);
}

static void gather_puts_ranks_in_order(void **state) {
    (void)state;
    const int64_t counts[] = {0, 1, 7, 300001};
    for (size_t c = 0; c < 4; c++) {
        int64_t n = counts[c];
        float *from = malloc((size_t)n * 4 + 4), *to = malloc((size_t)(n * world->size) * 4 + 4);
        bool good = true;
        fill(from, n, FWA_F32, world->rank, 0);
        good &= comm->all_gather(comm, NULL, from, to, n, FWA_F32) == FWA_OK;
        for (int r = 0; r < world->size; r++) {
            fill(from, n, FWA_F32, r, 0);
            good &= memcmp(from, to + r * n, (size_t)n * 4) == 0;
        }
        // In place: the contribution lies where it belongs.
        memset(to, 0, (size_t)(n * world->size) * 4);
        fill(to + world->rank * n, n, FWA_F32, world->rank, 0);
        good &= comm->all_gather(comm, NULL, to + world->rank * n, to, n, FWA_F32) == FWA_OK;
        for (int r = 0; r < world->size; r++) {
            fill(from, n, FWA_F32, r, 0);
            good &= memcmp(from, to + r * n, (size_t)n * 4) == 0;
        }
        free(from);
        free(to);
        ASSERT_ALL(good);
    }
}

static void scatter_sums_in_rank_order(void **state) {
    (void)state;
    const int64_t counts[] = {0, 1, 7, 1400001}; // the last takes several pieces
    const fwa_dtype dtypes[] = {FWA_F32, FWA_F64, FWA_BF16};
    for (int k = 0; k < 12; k++) {
        int64_t n = counts[k % 4];
        fwa_dtype dtype = dtypes[k / 4];
        size_t bytes = (size_t)n * fwa_dtype_size(dtype);
        char *from = malloc(bytes * (size_t)world->size + 8), *to = malloc(bytes + 8), *expected = malloc(bytes + 8);
        fill(from, n * world->size, dtype, world->rank, 0);
        bool good = comm->reduce_scatter(comm, NULL, from, to, n, dtype) == FWA_OK;
        simulate(expected, n, dtype, FWA_REDUCE_SUM, world->rank * n);
        good &= memcmp(to, expected, bytes) == 0;
        free(from);
        free(to);
        free(expected);
        ASSERT_ALL(good);
    }
}

static void broadcast_from_every_root(void **state) {
    (void)state;
    enum { N = 100003 };
    double *x = malloc(N * sizeof *x), *expected = malloc(N * sizeof *x);
    for (int root = 0; root < world->size; root++) {
        fill(x, N, FWA_F64, world->rank, 0);
        fill(expected, N, FWA_F64, root, 0);
        bool good = comm->broadcast(comm, NULL, x, N, FWA_F64, root) == FWA_OK;
        for (int i = 0; i < N; i++) good &= x[i] == expected[i];
        good &= comm->broadcast(comm, NULL, x, 0, FWA_F64, root) == FWA_OK;
        ASSERT_ALL(good);
    }
    ASSERT_ALL(comm->broadcast(comm, NULL, x, N, FWA_F64, world->size) == FWA_ERROR);
    free(x);
    free(expected);
}

static void exchange_in_a_ring_and_in_a_line(void **state) {
    (void)state;
    enum { N = 200001 };
    int rank = world->rank, size = world->size, next = (rank + 1) % size, before = (rank + size - 1) % size;
    int64_t *out = malloc(N * sizeof *out), *in = malloc(N * sizeof *in), *expected = malloc(N * sizeof *in);
    bool good = true;
    for (int round = 0; round < 3; round++) {
        fill(out, N, FWA_I64, rank, round);
        fill(expected, N, FWA_I64, before, round);
        good &= comm->exchange(comm, NULL, out, N * 8, next, in, N * 8, before) == FWA_OK;
        good &= memcmp(in, expected, N * 8) == 0;
    }
    ASSERT_ALL(good);
    // A line: the first only sends, the last only receives, and adds on the way.
    int64_t token = 0;
    good = comm->exchange(comm, NULL, NULL, 0, -1, rank > 0 ? &token : NULL, rank > 0 ? 8 : 0, rank - 1) == FWA_OK;
    token += rank + 1;
    good &= comm->exchange(comm, NULL, &token, rank < size - 1 ? 8 : 0, rank + 1, NULL, 0, -1) == FWA_OK;
    good &= token == (int64_t)(rank + 1) * (rank + 2) / 2;
    ASSERT_ALL(good);
    ASSERT_ALL(comm->exchange(comm, NULL, out, 8, size, in, 8, before) == FWA_ERROR);
    free(out);
    free(in);
    free(expected);
}

static void barrier_holds_until_the_last(void **state) {
    (void)state;
    for (int late = 0; late < world->size; late++) {
        double start =
            MPI_Wtime(); // before all have met: a rank that leaves the meeting late still sees the whole wait
        MPI_Barrier(MPI_COMM_WORLD);
        if (world->rank == late) usleep(150000);
        fwa_status status = comm->barrier(comm);
        ASSERT_ALL(status == FWA_OK && MPI_Wtime() - start >= 0.15);
    }
}

static bool sent_is(const fwa_comm *c, int64_t reduced, int64_t broadcast, int64_t gathered, int64_t scattered,
                    int64_t exchanged) {
    const fwa_comm_sent *s = &c->sent;
    return s->all_reduce == reduced && s->broadcast == broadcast && s->all_gather == gathered &&
           s->reduce_scatter == scattered && s->exchange == exchanged;
}

static fwa_comm *own_group(void) {
    fwa_comm *own = NULL;
    MPI_Comm all = MPI_COMM_WORLD;
    ASSERT_ALL(fwa_comm_mpi_create(&own, &all) == FWA_OK);
    return own;
}

// Counted by hand: elements times their size, a broadcast at its root alone, an exchange's side that sends.
static void what_a_rank_gives_is_counted(void **state) {
    (void)state;
    fwa_comm *own = own_group();
    const int n = own->size, rank = own->rank;
    double from[8 * 64] = {0}, to[8 * 64];
    fwa_comm_request *request;
    bool good = n <= 64 && sent_is(own, 0, 0, 0, 0, 0);
    good &= own->all_reduce(own, NULL, from, 7, FWA_F64, FWA_REDUCE_SUM) == FWA_OK;                  // 56 bytes
    good &= own->all_reduce_start(own, NULL, from, 5, FWA_BF16, FWA_REDUCE_SUM, &request) == FWA_OK; // 10
    good &= own->wait(own, NULL, request) == FWA_OK;
    good &= own->broadcast(own, NULL, from, 3, FWA_F32, n - 1) == FWA_OK;   // 12 at the last rank
    good &= own->all_gather(own, NULL, from, to, 6, FWA_I32) == FWA_OK;     // 24
    good &= own->reduce_scatter(own, NULL, from, to, 2, FWA_F64) == FWA_OK; // 16 for each rank
    const bool sends = rank<n - 1, receives = rank> 0;
    good &= own->exchange(own, NULL, sends ? from : NULL, 100, rank + 1, receives ? to : NULL, 100, rank - 1) == FWA_OK;
    good &= own->barrier(own) == FWA_OK;
    good &= sent_is(own, 66, rank == n - 1 ? 12 : 0, 24, 16 * n, sends ? 100 : 0);
    ASSERT_ALL(good);
    own->destroy(own);
}

static void a_missing_rank_is_named_in_time(void **state) {
    (void)state;
    if (world->size == 1) return;
    fwa_comm *own = own_group();
    own->set_timeout(own, 0.4);
    double start = MPI_Wtime();
    bool good = true;
    if (world->rank > 0) {
        float x[3] = {1, 2, 3};
        good &= own->all_reduce(own, NULL, x, 3, FWA_F32, FWA_REDUCE_SUM) == FWA_TIMEOUT;
        const char *text = fwa_error_message();
        good &= strstr(text, "all_reduce of 12 bytes") && strstr(text, "from rank 0") && strstr(text, "0.4 s");
        good &= MPI_Wtime() - start < 3;
        good &= own->barrier(own) == FWA_TIMEOUT; // at once: the group is lost
        good &= MPI_Wtime() - start < 3;
    }
    ASSERT_ALL(good);
    own->destroy(own);
}

static void unequal_sizes_are_an_error(void **state) {
    (void)state;
    if (world->size == 1) return;
    fwa_comm *own = own_group();
    own->set_timeout(own, 5);
    float from[5] = {0}, to[5 * 64];
    bool good = own->all_gather(own, NULL, from, to, world->rank == 0 ? 4 : 5, FWA_F32) == FWA_COMM;
    good &= own->all_gather(own, NULL, from, to, 1, FWA_F32) == FWA_COMM;
    ASSERT_ALL(good);
    own->destroy(own);
}

int main(int argc, char **argv) {
    if (fwa_world_create(&world, &argc, &argv) != FWA_OK) {
        fprintf(stderr, "%s\n%s", fwa_error_message(), fwa_error_trace());
        return 1;
    }
    comm = world->all;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_reduce_gives_rank_order_bits),
        cmocka_unit_test(order_matters_in_the_test_data),
        cmocka_unit_test(max_and_min_keep_a_nan),
        cmocka_unit_test(started_sums_survive_other_calls),
        cmocka_unit_test(five_hundred_and_twelve_at_a_time),
        cmocka_unit_test(gather_puts_ranks_in_order),
        cmocka_unit_test(scatter_sums_in_rank_order),
        cmocka_unit_test(broadcast_from_every_root),
        cmocka_unit_test(exchange_in_a_ring_and_in_a_line),
        cmocka_unit_test(barrier_holds_until_the_last),
        cmocka_unit_test(what_a_rank_gives_is_counted),
        cmocka_unit_test(a_missing_rank_is_named_in_time),
        cmocka_unit_test(unequal_sizes_are_an_error),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fwa_world_destroy(world);
    return failed;
}
