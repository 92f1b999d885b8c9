// The driver of all CUDA mixers: checks a call, lays out `saved` and `scratch`, and runs moves, rate and core in order
// on the stream. Nothing is allocated and the host never waits. The general kernels serve f32 and bf16 calls alike:
// moves convert, everything between is fp32. In front of them stand fast paths for what is trained.
#ifndef FWA_KERNELS_CUDA_MIXER_COMMON_CUH
#define FWA_KERNELS_CUDA_MIXER_COMMON_CUH

#include "kernels/cpu/mixers_cpu.h"
#include "kernels/cuda/core.cuh"
#include "kernels/cuda/mixers_cuda.h"
#include "kernels/cuda/rate.cuh"

namespace fwa {

// What a rule is made of.
struct mixer_kit {
    const fwa_rule *rule;
    const core *kernels;
    rate_kind rate;
    bool decay_first; // delta core: the decay acts before the residual is taken
};

// Kernels that take some calls of a core from tensor to tensor, without the dense arrays: bf16 in the chunk form, on
// Hopper. The list stands in mixer_common.cu; a call that none of them takes runs on the general kernel, and the log
// says why.
struct fast_path {
    const core *instead_of;
    const char *kernel; // named in the log
    // Null: takes the call; otherwise why not. Looks at the rule's rate, sizes, options and presence of state alone.
    const char *(*refusal)(const mixer_kit &kit, const fwa_mixer_call *call);
    // Bytes that a pass needs.
    fwa_status (*bytes)(const mixer_kit &kit, const fwa_mixer_call *call, bool backward, size_t *saved,
                        size_t *scratch);
    // Of a call that is checked, in memory of that size. Both call receive_states and send_states.
    fwa_status (*forward)(const mixer_kit &kit, cudaStream_t stream, const fwa_mixer_call *call);
    fwa_status (*backward)(const mixer_kit &kit, cudaStream_t stream, const fwa_mixer_call *call,
                           const fwa_mixer_grads *grads);
};
extern const fast_path chunk_additive;                            // chunk_additive.cu
extern const fast_path chunk_delta;                               // chunk_delta.cu
extern const fast_path chunk_column_additive, chunk_column_delta; // chunk_column.cu
extern const fast_path chunk_window;                              // chunk_window.cu

// The handover of a call, where it has one.
inline fwa_status receive_states(const fwa_mixer_call *call) {
    return call->handover ? call->handover->receive(call->handover->context) : FWA_OK;
}
inline fwa_status send_states(const fwa_mixer_call *call) {
    return call->handover ? call->handover->send(call->handover->context) : FWA_OK;
}

// Sizes, options and views of a call; of its gradients.
fwa_status mixer_describe(const mixer_kit &kit, const fwa_mixer_call *call, mixer_task *task);
void mixer_describe_grads(const fwa_mixer_grads *grads, mixer_task *task);

fwa_status mixer_sizes(const mixer_kit &kit, const fwa_backend *backend, const fwa_mixer_call *call, size_t *saved,
                       size_t *scratch);
fwa_status mixer_forward(const mixer_kit &kit, const fwa_backend *backend, fwa_stream *stream,
                         const fwa_mixer_call *call);
fwa_status mixer_backward(const mixer_kit &kit, const fwa_backend *backend, fwa_stream *stream,
                          const fwa_mixer_call *call, const fwa_mixer_grads *grads);
fwa_status mixer_gates(const mixer_kit &kit, const fwa_backend *backend, fwa_stream *stream, const fwa_mixer_call *call,
                       fwa_gate_sums *sums);

} // namespace fwa

// Defines fwa_mixer_<name>_cuda_f32 and _bf16; once a file.
#define FWA_MIXER_CUDA(name, core_impl, rate_impl, decay_first_flag)                                                   \
    namespace {                                                                                                        \
    const fwa::mixer_kit kit = {&fwa_rule_##name, &fwa::core_impl, fwa::rate_kind::rate_impl, decay_first_flag};       \
    fwa_status sizes(const fwa_backend *backend, const fwa_mixer_call *call, size_t *saved, size_t *scratch) {         \
        return fwa::mixer_sizes(kit, backend, call, saved, scratch);                                                   \
    }                                                                                                                  \
    fwa_status forward(const fwa_backend *backend, fwa_stream *stream, const fwa_mixer_call *call) {                   \
        return fwa::mixer_forward(kit, backend, stream, call);                                                         \
    }                                                                                                                  \
    fwa_status backward(const fwa_backend *backend, fwa_stream *stream, const fwa_mixer_call *call,                    \
                        const fwa_mixer_grads *grads) {                                                                \
        return fwa::mixer_backward(kit, backend, stream, call, grads);                                                 \
    }                                                                                                                  \
    fwa_status gates(const fwa_backend *backend, fwa_stream *stream, const fwa_mixer_call *call,                       \
                     fwa_gate_sums *sums) {                                                                            \
        return fwa::mixer_gates(kit, backend, stream, call, sums);                                                     \
    }                                                                                                                  \
    }                                                                                                                  \
    extern "C" {                                                                                                       \
    const fwa_mixer fwa_mixer_##name##_cuda_f32 = {&fwa_rule_##name, sizes, forward, backward, gates, true};           \
    const fwa_mixer fwa_mixer_##name##_cuda_bf16 = {&fwa_rule_##name, sizes, forward, backward, gates, true};          \
    }

#endif
