// Finds rules, their kernels and backends by name. The only place, with the build, that knows whether CUDA is there.
#ifndef FWA_KERNELS_REGISTRY_H
#define FWA_KERNELS_REGISTRY_H

#include "kernels/ops.h"
#include "kernels/rule.h"

#ifdef __cplusplus
extern "C" {
#endif

int fwa_rule_count(void);
const fwa_rule *fwa_rule_at(int index);                            // in the order of mixers.def
const fwa_rule *fwa_rule_find(const char *name);                   // NULL if there is none
bool fwa_rule_on_backend(const char *name, fwa_backend_kind kind); // per mixers.def, whether built or not

// Kernels of `rule` for this backend and its precision; FWA_UNSUPPORTED names both.
FWA_MUST_CHECK fwa_status fwa_mixer_find(const fwa_backend *backend, const fwa_rule *rule, const fwa_mixer **out);

// Creates a backend. precision: f64 or f32 on the CPU, bf16 or f32 on CUDA. threads 0: the cores this process may use.
// FWA_UNSUPPORTED says why a backend cannot run here (not built, no device, driver too old). Caller: out->destroy(out).
FWA_MUST_CHECK fwa_status fwa_backend_create(fwa_backend **out, fwa_backend_kind kind, fwa_dtype precision, int device,
                                             int threads);
// A backend to plan memory with, for any precision, on any machine: nothing can run on it. The rules' saved and scratch
// bytes are those of the CPU kernels (of f32 for bf16) with `threads` threads. Caller: out->destroy(out).
FWA_MUST_CHECK fwa_status fwa_backend_create_plan(fwa_backend **out, fwa_dtype precision, int threads);
bool fwa_backend_built(fwa_backend_kind kind);
const char *fwa_backend_kind_name(fwa_backend_kind kind); // "cpu", "cuda"
int fwa_backend_device_count(fwa_backend_kind kind);      // visible devices; CPU: 1
// One line about a device into `text`: its name first, then memory and what else tells it apart.
FWA_MUST_CHECK fwa_status fwa_backend_describe(fwa_backend_kind kind, int device, char *text, size_t size);
// Names and versions of the libraries of all backends built in, with commas between them.
void fwa_backend_libraries(char *text, size_t size);
const char *fwa_backend_cudnn(void); // version of the cuDNN that the CUDA backend can use, NULL: none built in

// The operators of ops.def, in its order; whether a backend's sources have one does not depend on what was built.
int fwa_op_count(void);
const char *fwa_op_name(int index);
bool fwa_op_on_backend(int index, fwa_backend_kind kind);

// FWA_UNSUPPORTED lists every operator that the backend's table lacks; FWA_OK if none. For refusals at start-up.
FWA_MUST_CHECK fwa_status fwa_backend_complete(const fwa_backend *backend);

#ifdef __cplusplus
}
#endif
#endif
