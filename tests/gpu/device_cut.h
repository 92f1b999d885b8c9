// Cut sequences on a GPU: the second part continues the first, and both together are the whole.
#ifndef FWA_TESTS_GPU_DEVICE_CUT_H
#define FWA_TESTS_GPU_DEVICE_CUT_H

#include "tests/gpu/device_judge.h"

static inline fwa_tensor time_slice(fwa_tensor t, const char *shape, int64_t start, int64_t count) {
    return shape[1] == 'T' ? fwa_tensor_slice(t, 1, start, count) : t;
}

// Inputs of a part from the whole, or from the states that the part before left.
static inline void fill_part(mixer_case *part, mixer_case *whole, mixer_case *before, int64_t start) {
    for (int i = 0; i < CASE_INPUTS; i++) {
        const fwa_tensor to = *case_at(part, case_inputs[i].value);
        if (!fwa_tensor_present(to)) continue;
        if (i < 6 || !before)
            check_copy(
                to, time_slice(*case_at(whole, case_inputs[i].value), case_inputs[i].shape, start, part->spec.shape.T));
        else // S0, z0, k_prev, tail_x, tail_v stand in the order of the outputs S, z, k_last, tail_x_out, tail_v_out
            check_copy(to, *case_at(before, case_outputs[i - 5].value));
    }
    check_copy(part->grads.d_o, fwa_tensor_slice(whole->grads.d_o, 1, start, part->spec.shape.T));
}

static inline void fill_part_grads(mixer_case *part, mixer_case *whole, mixer_case *behind) {
    for (int i = 1; i < CASE_OUTPUTS; i++) {
        const fwa_tensor to = *case_at(part, case_outputs[i].gradient);
        if (fwa_tensor_present(to))
            check_copy(to, behind ? *case_at(behind, case_inputs[i + 5].gradient)
                                  : *case_at(whole, case_outputs[i].gradient));
    }
}

static inline double root_mean_square(fwa_tensor t) {
    double sum = 0;
    for (int64_t i = 0; i < fwa_tensor_count(t); i++) sum += check_get(t, i) * check_get(t, i);
    return sqrt(sum / (double)fwa_tensor_count(t));
}

// The error of a part. That of a scalar's gradient in bf16 is relative to the whole where the part is smaller: a single
// step's may be what a cancellation leaves (dbeta of gated_deltanet: 0.11 of itself, emulated).
static inline double part_error(const fwa_backend *cuda, const char *name, fwa_tensor got, fwa_tensor expected,
                                fwa_tensor whole) {
    const double error = check_error(got, expected), all = root_mean_square(whole);
    if (cuda->compute != FWA_BF16 || !is_scalar(name)) return error;
    return all > 1e-12 ? error * fmin(1, root_mean_square(expected) / all) : error;
}

static inline void compare_part(const fwa_backend *cuda, mixer_case *part, mixer_case *whole, int64_t start,
                                bool first) {
    const int64_t T = part->spec.shape.T;
    judge(cuda, &part->spec, "o", false, check_error(part->call.o, fwa_tensor_slice(whole->call.o, 1, start, T)),
          limit_of(cuda, "o", false));
    for (int i = 0; i < (first ? CASE_INPUTS : 6); i++) {
        const fwa_tensor got = *case_at(part, case_inputs[i].gradient);
        if (!fwa_tensor_present(got)) continue;
        const fwa_tensor all = *case_at(whole, case_inputs[i].gradient);
        judge(cuda, &part->spec, case_inputs[i].name, true,
              part_error(cuda, case_inputs[i].name, got, time_slice(all, case_inputs[i].shape, start, T), all),
              limit_of(cuda, case_inputs[i].name, true));
    }
}

// Forward of both parts, then backward of both; gradients that the first part gets come from the second one's.
static inline void run_cut(fwa_backend *cuda, mixer_case *whole, int64_t cut, fwa_form form) {
    case_spec specs[2] = {whole->spec, whole->spec};
    mixer_case parts[2];
    device_mixer d[2];
    specs[0].shape.T = cut, specs[1].shape.T -= cut;
    for (int p = 0; p < 2; p++) {
        if (p == 1) {
            const fwa_tensor tail = parts[0].call.out.tail_x;
            specs[1].S0 = specs[1].k_prev = whole->spec.rule->state == FWA_STATE_MATRIX;
            specs[1].tail = fwa_tensor_present(tail) ? tail.shape[1] : 0;
        }
        parts[p] = case_new(&specs[p]);
        fill_part(&parts[p], whole, p ? &parts[0] : NULL, p ? cut : 0);
        for (int i = 1; i < CASE_OUTPUTS; i++) fill_present(*case_at(&parts[p], case_outputs[i].gradient), 0);
        d[p] = device_mixer_new(cuda, &parts[p], form);
        device_mixer_forward(&d[p]);
        for (int i = 0; i < CASE_OUTPUTS; i++) device_mixer_fetch(&d[p], case_outputs[i].value);
        device_mixer_release(&d[p]);
    }
    for (int p = 1; p >= 0; p--) {
        fill_part_grads(&parts[p], whole, p ? NULL : &parts[1]);
        d[p] = device_mixer_new(cuda, &parts[p], form);
        device_mixer_forward(&d[p]);
        device_mixer_backward(&d[p]);
        device_mixer_fetch_all(&d[p]);
        device_mixer_release(&d[p]);
        compare_part(cuda, &parts[p], whole, p ? cut : 0, p == 0);
    }
    case_free(&parts[0]);
    case_free(&parts[1]);
}

#endif
