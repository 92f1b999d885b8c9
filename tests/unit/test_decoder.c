// Decoding over documents: what a text says behind the last document start is what it says alone, however it is read.
#include "tests/trainer_case.h"

#include "core/rng.h"
#include "train/eval/decoder.h"
#include "train/tasks/addition.h"

enum { TOKENS = 205 };

static fwa_world *world;
static const int starts[] = {0, 20, 70, 71, 130}; // the last one inside a block of 64 that could be read at once

static const double *ask(fwa_decoder *d, const int32_t *tokens, int count, int step) {
    for (int i = 0; i < count; i += step)
        check_ok(fwa_decoder_take(d, tokens + i, i + step < count ? step : count - i));
    check_ok(fwa_decoder_ask(d));
    return d->logits;
}

static void a_document_starts_anew(void **state) {
    (void)state;
    static const struct {
        const char *rule, *setting;
    } rules[] = {{"model.mixer.rule=falcon3a", "model.mixer.chunk=64"},
                 {"model.mixer.rule=gated_deltanet", "model.mixer.chunk=64"},
                 {"model.mixer.rule=softmax", "model.mixer.rotary=true"},
                 {"model.mixer.rule=softmax", "model.mixer.rotary=false"},
                 {"model.mixer.rule=retnet", "model.mixer.rotary=false"}};
    for (size_t r = 0; r < sizeof rules / sizeof *rules; r++) {
        trainer_case c;
        fwa_decoder *whole, *last;
        int32_t tokens[TOKENS];
        trainer_case_open(&c, world,
                          (const char *const[]){rules[r].rule, rules[r].setting, "data.reset_documents=true",
                                                "train.precision=f64", NULL});
        const fwa_loaded loaded = {.config = c.config, .backend = c.trainer->backend, .model = c.trainer->model};
        for (int i = 0; i < TOKENS; i++) tokens[i] = (int32_t)fwa_rng_below(1, 0, (uint64_t)i, 256);
        for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) tokens[starts[i]] = FWA_ADDITION_BEGIN;
        static const int steps[] = {TOKENS, 1, 33};
        for (int s = 0; s < 3; s++) {
            check_ok(fwa_decoder_create(&whole, &loaded, 1, 256));
            check_ok(fwa_decoder_create(&last, &loaded, 1, 256));
            const double *got = ask(whole, tokens, TOKENS, steps[s]);
            const double *expected = ask(last, tokens + 130, TOKENS - 130, TOKENS);
            for (int i = 0; i < FWA_ADDITION_VOCAB; i++)
                if (!(fabs(got[i] - expected[i]) <= 1e-9))
                    fail_msg("%s, %s, %d at a time: logit %d is %.12g, expected %.12g", rules[r].rule, rules[r].setting,
                             steps[s], i, got[i], expected[i]);
            assert_int_equal(fwa_decoder_position(whole), TOKENS);
            fwa_decoder_destroy(whole);
            fwa_decoder_destroy(last);
        }
        trainer_case_close(&c);
    }
}

int main(int argc, char **argv) {
    if (fwa_world_create(&world, &argc, &argv) != FWA_OK || fwa_world_split(world, 1) != FWA_OK) return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(a_document_starts_anew, check_release)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fwa_world_destroy(world);
    return failed;
}
