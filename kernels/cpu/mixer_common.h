// The driver of all CPU mixers: checks a call, hands one sequence and head after another to the rule's rate and core,
// and moves features, states and gradients between tensors and the contiguous arrays that they work on.
#ifndef FWA_KERNELS_CPU_MIXER_COMMON_H
#define FWA_KERNELS_CPU_MIXER_COMMON_H

#include "kernels/cpu/core.h"
#include "kernels/cpu/mixers_cpu.h"
#include "kernels/cpu/rate.h"

// What a rule is made of.
typedef struct fwa_mixer_kit {
    const fwa_rule *rule;
    const fwa_core_impl *core;
    const fwa_rate_impl *rate;
    bool decay_first; // delta core: the decay acts before the residual is taken
} fwa_mixer_kit;

// The functions of fwa_mixer (rule.h) for a rule that is made of `kit`.
fwa_status FWA_T(fwa_mixer_cpu_sizes)(const fwa_mixer_kit *kit, const fwa_backend *backend, const fwa_mixer_call *call,
                                      size_t *saved, size_t *scratch);
fwa_status FWA_T(fwa_mixer_cpu_forward)(const fwa_mixer_kit *kit, const fwa_backend *backend,
                                        const fwa_mixer_call *call);
fwa_status FWA_T(fwa_mixer_cpu_backward)(const fwa_mixer_kit *kit, const fwa_backend *backend,
                                         const fwa_mixer_call *call, const fwa_mixer_grads *grads);
fwa_status FWA_T(fwa_mixer_cpu_gates)(const fwa_mixer_kit *kit, const fwa_backend *backend, const fwa_mixer_call *call,
                                      fwa_gate_sums *sums);

// Defines fwa_mixer_<name>_cpu_<precision>; once a file.
#define FWA_MIXER_CPU(name, core_impl, rate_impl, decay_first_flag)                                                    \
    static const fwa_mixer_kit kit = {                                                                                 \
        .rule = &fwa_rule_##name,                                                                                      \
        .core = &FWA_T(core_impl),                                                                                     \
        .rate = &FWA_T(rate_impl),                                                                                     \
        .decay_first = decay_first_flag,                                                                               \
    };                                                                                                                 \
    static fwa_status mixer_sizes(const fwa_backend *backend, const fwa_mixer_call *call, size_t *saved,               \
                                  size_t *scratch) {                                                                   \
        return FWA_T(fwa_mixer_cpu_sizes)(&kit, backend, call, saved, scratch);                                        \
    }                                                                                                                  \
    static fwa_status mixer_forward(const fwa_backend *backend, fwa_stream *stream, const fwa_mixer_call *call) {      \
        (void)stream;                                                                                                  \
        return FWA_T(fwa_mixer_cpu_forward)(&kit, backend, call);                                                      \
    }                                                                                                                  \
    static fwa_status mixer_backward(const fwa_backend *backend, fwa_stream *stream, const fwa_mixer_call *call,       \
                                     const fwa_mixer_grads *grads) {                                                   \
        (void)stream;                                                                                                  \
        return FWA_T(fwa_mixer_cpu_backward)(&kit, backend, call, grads);                                              \
    }                                                                                                                  \
    static fwa_status mixer_gates(const fwa_backend *backend, fwa_stream *stream, const fwa_mixer_call *call,          \
                                  fwa_gate_sums *sums) {                                                               \
        (void)stream;                                                                                                  \
        return FWA_T(fwa_mixer_cpu_gates)(&kit, backend, call, sums);                                                  \
    }                                                                                                                  \
    const fwa_mixer FWA_T(fwa_mixer_##name##_cpu) = {                                                                  \
        .rule = &fwa_rule_##name,                                                                                      \
        .sizes = mixer_sizes,                                                                                          \
        .forward = mixer_forward,                                                                                      \
        .backward = mixer_backward,                                                                                    \
        .gates = mixer_gates,                                                                                          \
    };

#endif
