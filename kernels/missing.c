// What stands in a table where a backend has no kernel: one function an operator that answers FWA_UNSUPPORTED.
#include "kernels/backends.h"

#include "kernels/registry.h"

fwa_status fwa_op_missing(const char *backend, fwa_dtype precision, const char *op) {
    FWA_FAIL(FWA_UNSUPPORTED, "the %s backend has no operator '%s' in %s; `fwa info` lists what it has", backend, op,
             fwa_dtype_name(precision));
}

static void ignore(fwa_stream *stream, ...) {
    (void)stream;
}

#define FWA_OP(backends, name, parameters, arguments)                                                                  \
    fwa_status fwa_##name##_missing_cuda_f32 parameters {                                                              \
        ignore arguments;                                                                                              \
        return fwa_op_missing("cuda", FWA_F32, #name);                                                                 \
    }                                                                                                                  \
    fwa_status fwa_##name##_missing_cuda_bf16 parameters {                                                             \
        ignore arguments;                                                                                              \
        return fwa_op_missing("cuda", FWA_BF16, #name);                                                                \
    }
#include "kernels/ops.def"
#undef FWA_OP

#define FWA_OP(backends, name, parameters, arguments) .name = fwa_##name##_missing_cuda_f32,
const fwa_ops fwa_ops_missing_cuda_f32 = {
#include "kernels/ops.def"
};
#undef FWA_OP

#define FWA_OP(backends, name, parameters, arguments) .name = fwa_##name##_missing_cuda_bf16,
const fwa_ops fwa_ops_missing_cuda_bf16 = {
#include "kernels/ops.def"
};
#undef FWA_OP
