// Sequences read in segments over a memory give the outputs of the whole, for every setting of every rule and any cut;
// a forgotten document leaves nothing behind; caches refuse what they have no room for.
#include "tests/model_case.h"

enum { DOCUMENT = 16 };
#define LIMIT 1e-10 // sums in other orders; measured: 2e-14

static const int cuts[][MODEL_T] = {{1, 1, 1, 1, 1, 1, 1}, {3, 1, 3}, {2, 5}, {7}, {6, 1}};

typedef struct reader {
    fwa_memory *memory;
    fwa_activations *acts[MODEL_T + 1]; // by length
} reader;

static void reader_open(reader *r, model_case *c, int64_t capacity) {
    memset(r, 0, sizeof *r);
    check_ok(fwa_memory_create(&r->memory, c->model, c->backend, MODEL_B, capacity));
    for (int T = 1; T <= MODEL_T; T++) {
        check_ok(fwa_activations_create_over(&r->acts[T], r->memory, T));
        check_ok(fwa_activations_commit(r->acts[T]));
    }
}

static void reader_close(reader *r) {
    for (int T = 1; T <= MODEL_T; T++) fwa_activations_destroy(r->acts[T]);
    fwa_memory_destroy(r->memory);
}

// Reads tokens start .. start+T-1 of both sequences.
static fwa_activations *read_segment(reader *r, const model_case *c, int start, int T) {
    int32_t tokens[MODEL_ROWS];
    for (int b = 0; b < MODEL_B; b++)
        memcpy(tokens + b * T, c->tokens + b * MODEL_T + start, (size_t)T * sizeof *tokens);
    check_ok(fwa_model_read(r->acts[T], tokens));
    return r->acts[T];
}

// Rows of x [B*T,...] of the segment that starts at `start` of sequences of MODEL_T.
static void check_segment(const fwa_activations *got, const model_case *c, int start, int T) {
    const fwa_tensor n = fwa_tensor_as_3d(c->acts->n, MODEL_B, MODEL_T, c->model->spec.D);
    const fwa_tensor expected = fwa_tensor_slice(n, 1, start, T);
    check_close(fwa_tensor_as_3d(got->n, MODEL_B, T, c->model->spec.D), expected, LIMIT);
}

static void check_cuts(const fwa_model_spec *spec) {
    model_case c;
    model_open(&c, spec);
    model_evaluate(&c, c.acts);
    const fwa_tensor logits = fwa_tensor_as_3d(c.acts->head.logits, MODEL_B, MODEL_T, spec->N);
    reader r;
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        reader_open(&r, &c, MODEL_T);
        for (int p = 0, start = 0; start < MODEL_T; start += cuts[i][p++]) {
            fwa_activations *acts = read_segment(&r, &c, start, cuts[i][p]);
            check_segment(acts, &c, start, cuts[i][p]);
            if (cuts[i][p] > 1) continue;
            check_ok(fwa_model_logits(acts));
            check_close(fwa_tensor_as_3d(acts->head.logits, MODEL_B, 1, spec->N), fwa_tensor_slice(logits, 1, start, 1),
                        LIMIT);
        }
        reader_close(&r);
    }
    model_close(&c);
    check_release(NULL);
}

static void test_segments_equal_the_whole(void **state) {
    (void)state;
    model_variant variants[MODEL_VARIANTS_MOST];
    for (int r = 0; r < fwa_rule_count(); r++)
        for (int i = 0, count = model_variants(fwa_rule_at(r), variants); i < count; i++) check_cuts(&variants[i].spec);
}

// Documents start at token 3 of both sequences: the whole empties its states there.
static void test_forgetting_starts_a_document(void **state) {
    (void)state;
    fwa_model_spec spec = model_spec_hybrid();
    spec.reset_documents = true;
    spec.document = DOCUMENT;
    model_case c;
    model_open(&c, &spec);
    for (int row = 0; row < MODEL_ROWS; row++) c.tokens[row] %= DOCUMENT;
    c.tokens[3] = c.tokens[MODEL_T + 3] = DOCUMENT;
    model_evaluate(&c, c.acts);
    reader r;
    reader_open(&r, &c, 4); // room for a document
    check_segment(read_segment(&r, &c, 0, 2), &c, 0, 2);
    check_segment(read_segment(&r, &c, 2, 1), &c, 2, 1);
    check_ok(fwa_memory_forget(r.memory));
    check_segment(read_segment(&r, &c, 3, 1), &c, 3, 1);
    check_segment(read_segment(&r, &c, 4, 3), &c, 4, 3);
    reader_close(&r);
    model_close(&c);
    check_release(NULL);
}

static void test_full_caches_refuse(void **state) {
    (void)state;
    fwa_model_spec spec = model_spec(fwa_rule_find("softmax"));
    model_case c;
    model_open(&c, &spec);
    model_evaluate(&c, c.acts);
    reader r;
    reader_open(&r, &c, 4);
    assert_int_equal(r.memory->capacity, 4);
    read_segment(&r, &c, 0, 3);
    assert_int_equal(fwa_model_read(r.acts[2], c.tokens), FWA_CONFIG);
    assert_non_null(strstr(fwa_error_message(), "room for 4"));
    check_segment(read_segment(&r, &c, 3, 1), &c, 3, 1);
    reader_close(&r);
    assert_int_equal(fwa_model_read(c.acts, c.tokens), FWA_ERROR);
    model_close(&c);
    check_release(NULL);
}

// What one memory holds, put into another one, goes on in the same way, bit by bit.
static void test_parts_are_the_whole_memory(void **state) {
    (void)state;
    fwa_model_spec spec = model_spec_hybrid();
    fwa_memory_part from[6 * FWA_MAX_LAYERS], to[6 * FWA_MAX_LAYERS];
    for (int held = 0; held < MODEL_T; held++) {
        model_case c;
        reader one, other;
        model_open(&c, &spec);
        reader_open(&one, &c, MODEL_T);
        reader_open(&other, &c, MODEL_T);
        for (int t = 0; t < held; t++) read_segment(&one, &c, t, 1);
        other.memory->position = one.memory->position;
        other.memory->held = one.memory->held;
        const int count = fwa_memory_parts(one.memory, from);
        assert_int_equal(fwa_memory_parts(other.memory, to), count);
        for (int i = 0; i < count; i++) {
            assert_string_equal(from[i].name, to[i].name);
            check_copy(to[i].tensor, from[i].tensor);
        }
        const fwa_tensor a = read_segment(&one, &c, held, MODEL_T - held)->n;
        assert_int_equal(check_differences(read_segment(&other, &c, held, MODEL_T - held)->n, a), 0);
        reader_close(&one);
        reader_close(&other);
        model_close(&c);
        check_release(NULL);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_segments_equal_the_whole),
        cmocka_unit_test(test_forgetting_starts_a_document),
        cmocka_unit_test(test_full_caches_refuse),
        cmocka_unit_test(test_parts_are_the_whole_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
