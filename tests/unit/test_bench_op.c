// What `fwa bench op` rests on: bytes and FLOPs of operators, a case for every operator, comparisons that can fail, and
// shares of a floor.
#include "tests/check.h"

#include "train/bench/case.h"
#include "train/bench/floor.h"

static fwa_backend *open_cpu(fwa_dtype precision) {
    fwa_backend *backend;
    check_ok(fwa_backend_create(&backend, FWA_BACKEND_CPU, precision, 0, 1));
    return backend;
}

typedef struct record {
    fwa_cost sum;
    int calls[64];
} record;

static void add(void *user, int op, fwa_cost cost) {
    record *r = user;
    r->sum.bytes += cost.bytes;
    r->sum.flops += cost.flops;
    r->calls[op]++;
}

static void cost_is(const record *r, double bytes, double flops) {
    if (r->sum.bytes != bytes || r->sum.flops != flops)
        fail_msg("got %.0f bytes and %.0f FLOPs, expected %.0f and %.0f", r->sum.bytes, r->sum.flops, bytes, flops);
}

static void products_and_sums_are_counted(void **state) {
    (void)state;
    fwa_backend *cpu = open_cpu(FWA_F32);
    const fwa_ops *own = cpu->ops;
    fwa_tensor d = check_new(FWA_F32, 3, 5, 0, 0), a = check_new(FWA_F32, 7, 3, 0, 0),
               b = check_new(FWA_F32, 5, 7, 0, 0);
    record r = {0};
    check_ok(fwa_op_meter_start(cpu, add, &r));
    check_status(fwa_op_meter_start(cpu, add, &r), FWA_ERROR);
    check_ok(cpu->ops->gemm(cpu->stream, d, a, true, b, true, fwa_tensor_absent(), 1, 0));
    cost_is(&r, 4 * (15 + 21 + 35), 2 * 3 * 5 * 7);
    check_ok(cpu->ops->gemm(cpu->stream, d, a, true, b, true, fwa_tensor_absent(), 1, 1));
    cost_is(&r, 4 * (15 + 21 + 35) * 2 + 4 * 15, 2 * 2 * 3 * 5 * 7);
    r.sum = (fwa_cost){0, 0};
    check_ok(cpu->ops->add(cpu->stream, d, d)); // two reads and a write
    cost_is(&r, 4 * 15 * 3, 0);
    const int before = r.calls[0];
    check_status(cpu->ops->gemm(cpu->stream, d, a, false, b, true, fwa_tensor_absent(), 1, 0), FWA_ERROR);
    assert_int_equal(r.calls[0], before); // what failed costs nothing
    fwa_op_meter_stop(cpu);
    assert_ptr_equal(cpu->ops, own);
    cpu->destroy(cpu);
}

static void lookups_count_the_rows_they_reach(void **state) {
    (void)state;
    fwa_backend *cpu = open_cpu(FWA_F32);
    fwa_tensor w = check_new(FWA_F32, 1000, 8, 0, 0), y = check_new(FWA_F32, 4, 8, 0, 0);
    fwa_tensor tokens = check_new(FWA_I32, 4, 0, 0, 0);
    record r = {0};
    check_fill_value(tokens, 3);
    check_ok(fwa_op_meter_start(cpu, add, &r));
    check_ok(cpu->ops->embedding_forward(cpu->stream, y, w, tokens));
    cost_is(&r, 4 * (32 + 32 + 4), 0);
    check_ok(cpu->ops->embedding_backward(cpu->stream, w, y, tokens));
    cost_is(&r, 4 * (32 + 32 + 4) + 4 * (2 * 32 + 32 + 4), 0);
    fwa_op_meter_stop(cpu);
    cpu->destroy(cpu);
}

static const fwa_bench_sizes small = {2, 9, 2, 2, 4, 6, 10, 12, 21, 3, 0};

static void every_operator_has_a_case(void **state) {
    (void)state;
    fwa_backend *cpu = open_cpu(FWA_F32);
    record r = {0};
    assert_true(fwa_op_count() <= 64);
    check_ok(fwa_op_meter_start(cpu, add, &r));
    for (int i = 0; i < fwa_bench_operator_count(); i++) {
        const fwa_bench_case *of = fwa_bench_operator(i);
        fwa_bench_call call;
        check_ok(fwa_bench_open(&call, cpu, of, &small, FWA_FORM_CHUNK));
        check_ok(fwa_bench_refill(&call, cpu));
        for (int pass = 0; pass < 2; pass++)
            if (of->pass[pass]) check_ok(of->pass[pass](&call));
        fwa_bench_close(&call);
    }
    fwa_op_meter_stop(cpu);
    for (int i = 0; i < fwa_op_count(); i++)
        if (r.calls[i] == 0) fail_msg("operator %s has no case in train/bench/operators.c", fwa_op_name(i));
    cpu->destroy(cpu);
}

// Every case agrees with itself in f64, and does no longer with other bytes in the midst of a result.
static void every_wrong_result_is_found(void **state) {
    (void)state;
    fwa_backend *cpu = open_cpu(FWA_F32), *truth = open_cpu(FWA_F64);
    const int rules = fwa_rule_count(), operators = fwa_bench_operator_count();
    for (int i = 0; i < rules + operators; i++) {
        fwa_bench_case rule;
        fwa_bench_sizes sizes = small;
        if (i < rules) fwa_bench_rule_case(&rule, fwa_rule_at(i), &sizes);
        const fwa_bench_case *of = i < rules ? &rule : fwa_bench_operator(i - rules);
        fwa_bench_call calls[2];
        for (int c = 0; c < 2; c++) {
            check_ok(fwa_bench_open(&calls[c], c ? truth : cpu, of, &sizes, c ? FWA_FORM_RECURRENT : FWA_FORM_CHUNK));
            check_ok(fwa_bench_refill(&calls[c], cpu));
            for (int pass = 0; pass < 2; pass++)
                if (of->pass[pass]) check_ok(of->pass[pass](&calls[c]));
        }
        for (int a = 0; a < FWA_BENCH_ARGUMENTS; a++) {
            const fwa_bench_argument *argument = &of->argument[a];
            fwa_bench_error error;
            if (!argument->shape || argument->role == FWA_BENCH_IN) continue;
            check_ok(fwa_bench_compare(&calls[0], &calls[1], argument->backward, false, &error));
            if (!error.name || !(error.ratio <= 1))
                fail_msg("%s: %s is off by %g, limit %g", of->name, error.name ? error.name : "nothing", error.error,
                         error.limit);
            memset((char *)calls[0].t[a].data + fwa_tensor_bytes(calls[0].t[a]) / 16 * 8, 0x40, 8);
            check_ok(fwa_bench_compare(&calls[0], &calls[1], argument->backward, false, &error));
            if (!(error.ratio > 1)) fail_msg("%s: nobody saw that %s is wrong", of->name, argument->name);
            if (argument->type == FWA_BENCH_IDS || argument->type == FWA_BENCH_FLAGS) break;
            memset(calls[0].t[a].data, 0xFF, fwa_tensor_bytes(calls[0].t[a])); // NaN, in front of sound results
            check_ok(fwa_bench_compare(&calls[0], &calls[1], argument->backward, false, &error));
            if (error.ratio <= 1) fail_msg("%s: nobody saw that %s is NaN", of->name, argument->name);
            break;
        }
        fwa_bench_close(&calls[0]);
        fwa_bench_close(&calls[1]);
    }
    cpu->destroy(cpu);
    truth->destroy(truth);
}

static void values_are_those_of_the_host(void **state) {
    (void)state;
    fwa_backend *cpu = open_cpu(FWA_F32);
    const fwa_bench_range range = {-1, 3, false}, ids = {0, 50, true};
    const int64_t n = 2500000; // more than two periods
    fwa_tensor t = check_new(FWA_F32, n, 0, 0, 0), w = check_new(FWA_I32, n, 0, 0, 0);
    check_ok(fwa_bench_fill(cpu, t, 4, range));
    check_ok(fwa_bench_fill(cpu, w, 5, ids));
    for (int64_t i = 0; i < n; i += 1237) {
        if (check_get(t, i) != fwa_bench_value(4, i, range, FWA_F32)) fail_msg("element %lld", (long long)i);
        if (check_get(w, i) != fwa_bench_value(5, i, ids, FWA_I32)) fail_msg("id %lld", (long long)i);
    }
    assert_true(check_get(t, 0) != check_get(t, 1));
    cpu->destroy(cpu);
}

static void a_floor_is_the_longer_of_two_times(void **state) {
    (void)state;
    const fwa_floor floor = {.copy = 100, .product = 1000, .size = 1};
    assert_true(fwa_floor_seconds(&floor, (fwa_cost){200, 1000}) == 2.0);
    assert_true(fwa_floor_seconds(&floor, (fwa_cost){200, 4000}) == 4.0);
    assert_true(fwa_floor_share(&floor, (fwa_cost){200, 4000}, 8.0) == 0.5);
    fwa_backend *cpu = open_cpu(FWA_F32);
    fwa_floor measured;
    check_ok(fwa_floor_measure(cpu, (fwa_floor_room){NULL, 0}, &measured));
    assert_true(measured.copy > 1e8 && measured.product > 1e8);
    cpu->destroy(cpu);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(products_and_sums_are_counted, check_release),
        cmocka_unit_test_teardown(lookups_count_the_rows_they_reach, check_release),
        cmocka_unit_test_teardown(every_operator_has_a_case, check_release),
        cmocka_unit_test_teardown(every_wrong_result_is_found, check_release),
        cmocka_unit_test_teardown(values_are_those_of_the_host, check_release),
        cmocka_unit_test_teardown(a_floor_is_the_longer_of_two_times, check_release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
