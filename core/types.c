// Sizes and names of the element types.
#include "core/types.h"

size_t fwa_dtype_size(fwa_dtype dtype) {
    static const size_t sizes[FWA_DTYPE_COUNT] = {
        [FWA_F64] = 8, [FWA_F32] = 4, [FWA_BF16] = 2, [FWA_I32] = 4, [FWA_I64] = 8, [FWA_U8] = 1,
    };
    return (unsigned)dtype < FWA_DTYPE_COUNT ? sizes[dtype] : 0;
}

const char *fwa_dtype_name(fwa_dtype dtype) {
    static const char *const names[FWA_DTYPE_COUNT] = {
        [FWA_F64] = "f64", [FWA_F32] = "f32", [FWA_BF16] = "bf16",
        [FWA_I32] = "i32", [FWA_I64] = "i64", [FWA_U8] = "u8",
    };
    return (unsigned)dtype < FWA_DTYPE_COUNT ? names[dtype] : "unknown";
}
