// What AdamW updates as one tensor, checked and described.
#include "core/shape.h"
#include "kernels/ops.h"

static fwa_status check_dense(fwa_tensor t, const char *name, fwa_dtype dtype, int64_t count) {
    FWA_CHECK(t.data && t.dtype == dtype && fwa_tensor_count(t) == count && fwa_tensor_dense(t), FWA_ERROR,
              "%s: got %lld elements of %s%s, expected a dense tensor of %lld of %s", name,
              (long long)fwa_tensor_count(t), fwa_dtype_name(t.dtype), t.data ? "" : ", absent", (long long)count,
              fwa_dtype_name(dtype));
    return FWA_OK;
}

fwa_status fwa_adamw_part_make(fwa_adamw_part *part, const fwa_adamw_part *before, fwa_dtype compute, fwa_tensor master,
                               fwa_tensor copy, fwa_tensor grad, fwa_tensor m, fwa_tensor v) {
    const fwa_dtype type = compute == FWA_BF16 ? FWA_F32 : compute;
    const int64_t n = fwa_tensor_count(master);
    const bool copied = fwa_tensor_present(copy) && copy.data != master.data;
    FWA_TRY(check_dense(master, "master", type, n));
    FWA_TRY(check_dense(grad, "grad", type, n));
    FWA_TRY(check_dense(m, "m", type, n));
    FWA_TRY(check_dense(v, "v", type, n));
    // Vectors keep their values in the masters' type in every precision.
    if (copied) FWA_TRY(check_dense(copy, "copy", copy.dtype == type ? type : compute, n));
    *part = (fwa_adamw_part){.master = master.data,
                             .copy = copied ? copy.data : NULL,
                             .m = m.data,
                             .v = v.data,
                             .grad = grad.data,
                             .count = n,
                             .first = before ? before->first + fwa_ceil_div(before->count, FWA_ADAMW_PIECE) : 0,
                             .lr_scale = 1,
                             .decay = 1,
                             .copy_type = copied ? copy.dtype : type};
    return FWA_OK;
}
