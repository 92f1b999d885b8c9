// The registry: rules from mixers.def, operators from ops.def, and the choice of a backend.
#include "kernels/registry.h"

#include <stdio.h>
#include <string.h>

#include "kernels/backends.h"
#include "kernels/cpu/mixers_cpu.h"
#include "kernels/cpu/ops_cpu.h"

#define MARK_CPU      false
#define MARK_CPU_CUDA true

// Rules and their kernels.

#ifdef FWA_WITH_CUDA
#define CUDA_DECLARE_CPU(name)
#define CUDA_DECLARE_CPU_CUDA(name) extern const fwa_mixer fwa_mixer_##name##_cuda_f32, fwa_mixer_##name##_cuda_bf16;
#define FWA_MIXER(name, backends)   CUDA_DECLARE_##backends(name)
#include "kernels/mixers.def"
#undef FWA_MIXER
#define CUDA_MIXERS_CPU(name)       NULL, NULL
#define CUDA_MIXERS_CPU_CUDA(name)  &fwa_mixer_##name##_cuda_f32, &fwa_mixer_##name##_cuda_bf16
#define CUDA_MIXERS(name, backends) CUDA_MIXERS_##backends(name)
#else
#define CUDA_MIXERS(name, backends) NULL, NULL
#endif

typedef struct rule_entry {
    const fwa_rule *rule;
    bool cuda; // has CUDA sources
    const fwa_mixer *cpu_f32, *cpu_f64, *cuda_f32, *cuda_bf16;
} rule_entry;

static const rule_entry rules[] = {
#define FWA_MIXER(name, backends)                                                                                      \
    {&fwa_rule_##name, MARK_##backends, &fwa_mixer_##name##_cpu_f32, &fwa_mixer_##name##_cpu_f64,                      \
     CUDA_MIXERS(name, backends)},
#include "kernels/mixers.def"
#undef FWA_MIXER
};
enum { RULE_COUNT = sizeof rules / sizeof rules[0] };

int fwa_rule_count(void) {
    return RULE_COUNT;
}

const fwa_rule *fwa_rule_at(int index) {
    return index >= 0 && index < RULE_COUNT ? rules[index].rule : NULL;
}

static const rule_entry *find_entry(const char *name) {
    for (int i = 0; i < RULE_COUNT; i++) {
        if (strcmp(rules[i].rule->name, name) == 0) return &rules[i];
    }
    return NULL;
}

const fwa_rule *fwa_rule_find(const char *name) {
    const rule_entry *entry = find_entry(name);
    return entry ? entry->rule : NULL;
}

bool fwa_rule_on_backend(const char *name, fwa_backend_kind kind) {
    const rule_entry *entry = find_entry(name);
    return entry && (kind == FWA_BACKEND_CPU || entry->cuda);
}

static const fwa_mixer *pick_mixer(const rule_entry *entry, fwa_backend_kind kind, fwa_dtype precision) {
    if (kind == FWA_BACKEND_CUDA) {
        if (precision == FWA_F32) return entry->cuda_f32;
        return precision == FWA_BF16 ? entry->cuda_bf16 : NULL;
    }
    if (precision == FWA_F32) return entry->cpu_f32;
    return precision == FWA_F64 ? entry->cpu_f64 : NULL;
}

fwa_status fwa_mixer_find(const fwa_backend *backend, const fwa_rule *rule, const fwa_mixer **out) {
    const rule_entry *entry = find_entry(rule->name);
    fwa_dtype precision = backend->plan_only && backend->compute == FWA_BF16 ? FWA_F32 : backend->compute;
    const fwa_mixer *mixer = entry ? pick_mixer(entry, backend->kind, precision) : NULL;
    FWA_CHECK(mixer, FWA_UNSUPPORTED, "the %s backend has no rule '%s' in %s; `fwa info` lists what it has",
              backend->name, rule->name, fwa_dtype_name(backend->compute));
    *out = mixer;
    return FWA_OK;
}

// Operators.

#define FWA_OP(backends, name, parameters, arguments) .name = fwa_##name##_cpu_f32,
const fwa_ops fwa_ops_cpu_f32 = {
#include "kernels/ops.def"
};
#undef FWA_OP

#define FWA_OP(backends, name, parameters, arguments) .name = fwa_##name##_cpu_f64,
const fwa_ops fwa_ops_cpu_f64 = {
#include "kernels/ops.def"
};
#undef FWA_OP

typedef struct op_entry {
    const char *name;
    bool cuda; // has CUDA sources
} op_entry;

static const op_entry ops[] = {
#define FWA_OP(backends, name, parameters, arguments) {#name, MARK_##backends},
#include "kernels/ops.def"
#undef FWA_OP
};
enum { OP_COUNT = sizeof ops / sizeof ops[0] };

int fwa_op_count(void) {
    return OP_COUNT;
}

const char *fwa_op_name(int index) {
    return index >= 0 && index < OP_COUNT ? ops[index].name : NULL;
}

bool fwa_op_on_backend(int index, fwa_backend_kind kind) {
    return index >= 0 && index < OP_COUNT && (kind == FWA_BACKEND_CPU || ops[index].cuda);
}

fwa_status fwa_backend_complete(const fwa_backend *backend) {
    if (backend->kind == FWA_BACKEND_CPU) return FWA_OK;
    char missing[1024] = "";
    size_t length = 0;
    int count = 0;
    for (int i = 0; i < OP_COUNT; i++) {
        if (ops[i].cuda) continue;
        count++;
        size_t more = strlen(ops[i].name) + 2;
        if (length + more >= sizeof missing) continue;
        length += (size_t)snprintf(missing + length, sizeof missing - length, "%s%s", length ? ", " : "", ops[i].name);
    }
    FWA_CHECK(count == 0, FWA_UNSUPPORTED,
              "the %s backend lacks %d of %d operators in %s (%s); run on the CPU backend (run.backend: cpu)",
              backend->name, count, OP_COUNT, fwa_dtype_name(backend->compute), missing);
    return FWA_OK;
}

// Backends.

const char *fwa_backend_kind_name(fwa_backend_kind kind) {
    return kind == FWA_BACKEND_CUDA ? "cuda" : "cpu";
}

#ifdef FWA_WITH_CUDA
void fwa_backend_libraries(char *text, size_t size) {
    char cpu[64], cuda[128];
    fwa_backend_cpu_libraries(cpu, sizeof cpu);
    fwa_backend_cuda_libraries(cuda, sizeof cuda);
    snprintf(text, size, "%s, %s", cpu, cuda);
}

bool fwa_backend_built(fwa_backend_kind kind) {
    return kind == FWA_BACKEND_CPU || kind == FWA_BACKEND_CUDA;
}

const char *fwa_backend_cudnn(void) {
    return fwa_backend_cuda_cudnn();
}

static fwa_status cuda_count(int *count) {
    return fwa_backend_cuda_count(count);
}

static fwa_status cuda_create(fwa_backend **out, fwa_dtype precision, int device) {
    FWA_TRY(fwa_backend_cuda_create(out, precision, device));
    (*out)->ops = precision == FWA_BF16 ? &fwa_ops_cuda_bf16 : &fwa_ops_cuda_f32;
    return FWA_OK;
}

static fwa_status cuda_describe(int device, char *text, size_t size) {
    return fwa_backend_cuda_describe(device, text, size);
}
#else
void fwa_backend_libraries(char *text, size_t size) {
    fwa_backend_cpu_libraries(text, size);
}

bool fwa_backend_built(fwa_backend_kind kind) {
    return kind == FWA_BACKEND_CPU;
}

const char *fwa_backend_cudnn(void) {
    return NULL;
}

static fwa_status cuda_count(int *count) {
    *count = 0;
    FWA_FAIL(FWA_UNSUPPORTED, "this build of fwa has no CUDA backend; configure with FWA_CUDA=ON where nvcc is found, "
                              "or run on the CPU backend (run.backend: cpu)");
}

static fwa_status cuda_create(fwa_backend **out, fwa_dtype precision, int device) {
    (void)out, (void)precision, (void)device;
    FWA_FAIL(FWA_ERROR, "no CUDA backend in this build");
}

static fwa_status cuda_describe(int device, char *text, size_t size) {
    (void)device, (void)text, (void)size;
    FWA_FAIL(FWA_ERROR, "no CUDA backend in this build");
}
#endif

// FWA_UNSUPPORTED unless CUDA can be used and has this device.
static fwa_status expect_cuda_device(int device) {
    int count = 0;
    FWA_TRY(cuda_count(&count));
    FWA_CHECK(count > 0, FWA_UNSUPPORTED,
              "no CUDA device is visible (see nvidia-smi and CUDA_VISIBLE_DEVICES); "
              "run on the CPU backend instead (run.backend: cpu)");
    FWA_CHECK(device >= 0 && device < count, FWA_UNSUPPORTED, "CUDA device %d, and the number of visible ones is %d",
              device, count);
    return FWA_OK;
}

static fwa_status create_cuda(fwa_backend **out, fwa_dtype precision, int device) {
    FWA_CHECK(precision == FWA_BF16 || precision == FWA_F32, FWA_UNSUPPORTED,
              "the cuda backend computes in bf16 or f32, not %s; f64 runs on the CPU backend",
              fwa_dtype_name(precision));
    FWA_TRY(expect_cuda_device(device));
    FWA_TRY(cuda_create(out, precision, device));
    return FWA_OK;
}

static fwa_status create_cpu(fwa_backend **out, fwa_dtype precision, int device, int threads, bool plan_only) {
    FWA_CHECK(precision == FWA_F64 || precision == FWA_F32, FWA_UNSUPPORTED,
              "the cpu backend computes in f32 or f64, not %s (train.precision: f32)", fwa_dtype_name(precision));
    FWA_CHECK(device == 0, FWA_UNSUPPORTED, "CPU device %d; there is only device 0", device);
    FWA_CHECK(threads >= 0, FWA_CONFIG, "%d threads; expected 1 or more, or 0 for all cores of this process", threads);
    FWA_TRY(fwa_backend_cpu_create(out, precision, threads, plan_only));
    (*out)->ops = precision == FWA_F64 ? &fwa_ops_cpu_f64 : &fwa_ops_cpu_f32;
    return FWA_OK;
}

fwa_status fwa_backend_create(fwa_backend **out, fwa_backend_kind kind, fwa_dtype precision, int device, int threads) {
    *out = NULL;
    if (kind == FWA_BACKEND_CUDA) return create_cuda(out, precision, device);
    return create_cpu(out, precision, device, threads, false);
}

fwa_status fwa_backend_create_plan(fwa_backend **out, fwa_dtype precision, int threads) {
    FWA_TRY(create_cpu(out, precision == FWA_F64 ? FWA_F64 : FWA_F32, 0, threads, true));
    (*out)->compute = precision;
    return FWA_OK;
}

int fwa_backend_device_count(fwa_backend_kind kind) {
    if (kind == FWA_BACKEND_CPU) return 1;
    int count = 0;
    if (cuda_count(&count) != FWA_OK) fwa_error_clear();
    return count;
}

fwa_status fwa_backend_describe(fwa_backend_kind kind, int device, char *text, size_t size) {
    if (kind == FWA_BACKEND_CPU) {
        FWA_TRY(fwa_backend_cpu_describe(text, size));
        return FWA_OK;
    }
    FWA_TRY(expect_cuda_device(device));
    FWA_TRY(cuda_describe(device, text, size));
    return FWA_OK;
}
