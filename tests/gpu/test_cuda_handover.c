// Kernels that hand states over in the middle of a call (fwa_handover) compute what they compute with complete states,
// bit for bit: S and z come in as NaN until receive() is called, and what is complete when send() is called is what
// leaves and is not written again. Every rule with a matrix state, all of which hand over, f32 and bf16, forward and
// backward, with sequences that chunk kernels cut into segments and with such as they do not.
#include "tests/gpu/device_cut.h"
#include "tests/rule_variants.h"

static fwa_backend *device[2]; // f32, bf16

// One pass of a call: where S and z arrive, their true values, where they leave, and what had left when they were sent.
typedef struct passing {
    fwa_backend *on;
    fwa_tensor *arrive[2], truth[2], *leave[2], sent[2];
    int received, gone;
} passing;

static void copy_on_device(fwa_backend *on, void *to, const void *from, size_t bytes) {
    check_ok(on->copy_rows(on, on->stream, to, bytes, from, bytes, bytes, 1));
}

static fwa_status receive(void *context) {
    passing *p = context;
    assert_int_equal(p->gone, 0);
    p->received++;
    for (int i = 0; i < 2; i++)
        if (p->truth[i].data) copy_on_device(p->on, p->arrive[i]->data, p->truth[i].data, device_extent(p->truth[i]));
    return FWA_OK;
}

static fwa_status send(void *context) {
    passing *p = context;
    assert_int_equal(p->received, 1);
    p->gone++;
    for (int i = 0; i < 2; i++) {
        if (!p->leave[i]->data) continue;
        const size_t bytes = device_extent(*p->leave[i]);
        copy_on_device(p->on, p->sent[i].data, p->leave[i]->data, bytes);
        check_ok(p->on->fill(p->on, p->on->stream, p->leave[i]->data, 0xFF, bytes));
    }
    return FWA_OK;
}

static passing passing_new(fwa_backend *on, fwa_tensor *S, fwa_tensor *z, fwa_tensor *S_out, fwa_tensor *z_out) {
    passing p = {.on = on, .arrive = {S, z}, .leave = {S_out, z_out}};
    for (int i = 0; i < 2; i++) {
        const fwa_tensor in = *p.arrive[i], out = *p.leave[i];
        if (in.data) {
            p.truth[i] = device_poisoned(on, in, in.dtype, 0);
            copy_on_device(on, p.truth[i].data, in.data, device_extent(in));
            check_ok(on->fill(on, on->stream, in.data, 0xFF, device_extent(in)));
        }
        if (out.data) p.sent[i] = device_poisoned(on, out, out.dtype, 0);
    }
    return p;
}

static bool all_poison(fwa_tensor t) {
    const unsigned char *bytes = t.data;
    for (size_t i = 0; i < device_extent(t); i++)
        if (bytes[i] != 0xFF) return false;
    return true;
}

// Nothing was written behind send(); then what was sent takes its place.
static void passing_end(passing *p, const char *what) {
    assert_int_equal(p->received, 1);
    assert_int_equal(p->gone, 1);
    for (int i = 0; i < 2; i++) {
        if (p->leave[i]->data) {
            if (!all_poison(device_read(p->on, *p->leave[i]))) fail_msg("%s: written again behind send()", what);
            copy_on_device(p->on, p->leave[i]->data, p->sent[i].data, device_extent(p->sent[i]));
            device_release(p->on, p->sent[i], 0);
        }
        if (p->arrive[i]->data) device_release(p->on, p->truth[i], 0);
    }
}

static void run_handed(device_mixer *d) {
    fwa_mixer_call *call = &d->copy.call;
    fwa_mixer_grads *grads = &d->copy.grads;
    passing p = passing_new(d->cuda, &call->in.S, &call->in.z, &call->out.S, &call->out.z);
    const fwa_handover handover = {&p, receive, send};
    call->handover = &handover;
    device_mixer_forward(d);
    passing_end(&p, "forward");
    p = passing_new(d->cuda, &grads->d_out.S, &grads->d_out.z, &grads->d_in.S, &grads->d_in.z);
    device_mixer_backward(d);
    passing_end(&p, "backward");
    call->handover = NULL;
}

static void compare_bits(device_mixer *plain, device_mixer *handed) {
    for (int i = 0; i < CASE_INPUTS + CASE_OUTPUTS; i++) {
        size_t offset;
        bool gradient;
        const case_tensor *entry = device_mixer_entry(i, &offset, &gradient);
        if (!fwa_tensor_present(*case_at(plain->host, offset))) continue;
        const fwa_tensor expected = device_read(plain->cuda, *case_at(&plain->copy, offset));
        const fwa_tensor got = device_read(handed->cuda, *case_at(&handed->copy, offset));
        if (check_differences(got, expected))
            fail_msg("%s %s: %s%s differs from that of complete states", plain->host->spec.rule->name,
                     fwa_dtype_name(plain->cuda->compute), gradient ? "d" : "", entry->name);
    }
}

static void check_case(fwa_backend *on, const fwa_rule *rule, fwa_mixer_options options, fwa_mixer_shape shape,
                       fwa_form form) {
    case_spec spec = spec_of(rule, options, shape);
    spec_carry(&spec, options.window - 1);
    mixer_case c = case_new(&spec);
    case_fill(&c, 51);
    case_unit_rows(c.call.k);
    device_mixer plain = device_mixer_new(on, &c, form), handed = device_mixer_new(on, &c, form);
    assert_true(plain.mixer->hands_over);
    device_mixer_forward(&plain);
    device_mixer_backward(&plain);
    run_handed(&handed);
    compare_bits(&plain, &handed);
    device_mixer_release(&plain);
    device_mixer_release(&handed);
    case_free(&c);
    check_release(NULL);
}

// Short sequences, and those that chunk kernels cut into segments of two chunks.
static void check_options(const fwa_rule *rule, fwa_mixer_options options) {
    const fwa_mixer_shape whole = {2, 150, 2, 4, 64, 64}, cut = {1, 330, 1, 2, 64, 128};
    check_case(device[0], rule, options, whole, FWA_FORM_RECURRENT);
    check_case(device[1], rule, options, whole, FWA_FORM_CHUNK);
    setenv("FWA_SEGMENT_CHUNKS", "2", 1);
    check_case(device[1], rule, options, cut, FWA_FORM_CHUNK);
    unsetenv("FWA_SEGMENT_CHUNKS");
}

static void states_are_handed_over(void **state) {
    (void)state;
    const char *only = getenv("FWA_TEST_RULE");
    EACH_RULE(rule) {
        if (rule->state != FWA_STATE_MATRIX || !fwa_rule_on_backend(rule->name, FWA_BACKEND_CUDA)) continue;
        if (only && strcmp(only, rule->name) != 0) continue;
        fwa_mixer_options options = fwa_mixer_options_default(rule);
        check_options(rule, options);
        if (rule->switches & FWA_SWITCH_READ) {
            options.read = FWA_READ_BEFORE_WRITE;
            check_options(rule, options);
        }
        options = fwa_mixer_options_default(rule);
        if (rule->switches & FWA_SWITCH_NORMALIZED_READ) {
            options.normalized_read = true;
            check_options(rule, options);
        }
    }
}

int main(void) {
    device[0] = device_open(FWA_F32);
    device[1] = device_open(FWA_BF16);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(states_are_handed_over, check_release),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (int i = 0; i < 2; i++) device[i]->destroy(device[i]);
    return failed;
}
