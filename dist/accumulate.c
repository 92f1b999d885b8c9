// Rank-order folds for every element type: element i never depends on where a message was cut.
#include "dist/accumulate.h"

#include <math.h>
#include <string.h>

#include "core/bf16.h"
#include "core/shape.h"

enum { BLOCK = 1024 }; // elements folded at a time; lets `to` be one of the sources

// Element type in memory, and the type that it is summed in.
typedef double element_f64, wide_f64;
typedef float element_f32, wide_f32, wide_bf16;
typedef uint16_t element_bf16;
typedef int32_t element_i32, wide_i32;
typedef int64_t element_i64, wide_i64;
typedef uint8_t element_u8, wide_u8;

#define SAME(x)         (x)
#define NEVER(x)        0
#define FLOAT_ADD(a, b) ((a) + (b))
#define WRAP_U8(a, b)   ((uint8_t)((unsigned)(a) + (unsigned)(b)))
#define WRAP_I32(a, b)  ((int32_t)((uint32_t)(a) + (uint32_t)(b)))
#define WRAP_I64(a, b)  ((int64_t)((uint64_t)(a) + (uint64_t)(b)))

#define DEFINE_ACCUMULATE(dtype, LOAD, STORE, ADD, IS_NAN)                                                             \
    static void fold_##dtype(fwa_reduce op, wide_##dtype *sum, const element_##dtype *from, int64_t n) {               \
        if (op == FWA_REDUCE_SUM) {                                                                                    \
            for (int64_t i = 0; i < n; i++) sum[i] = ADD(sum[i], LOAD(from[i]));                                       \
        } else if (op == FWA_REDUCE_MAX) {                                                                             \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                wide_##dtype x = LOAD(from[i]);                                                                        \
                sum[i] = x > sum[i] || IS_NAN(x) ? x : sum[i];                                                         \
            }                                                                                                          \
        } else {                                                                                                       \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                wide_##dtype x = LOAD(from[i]);                                                                        \
                sum[i] = x < sum[i] || IS_NAN(x) ? x : sum[i];                                                         \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static void accumulate_##dtype(fwa_reduce op, void *to, const void *const *from, int sources, int64_t count) {     \
        wide_##dtype sum[BLOCK];                                                                                       \
        for (int64_t start = 0; start < count; start += BLOCK) {                                                       \
            int64_t n = fwa_min(BLOCK, count - start);                                                                 \
            const element_##dtype *first = (const element_##dtype *)from[0] + start;                                   \
            element_##dtype *out = (element_##dtype *)to + start;                                                      \
            for (int64_t i = 0; i < n; i++) sum[i] = LOAD(first[i]);                                                   \
            for (int s = 1; s < sources; s++) fold_##dtype(op, sum, (const element_##dtype *)from[s] + start, n);      \
            for (int64_t i = 0; i < n; i++) out[i] = STORE(sum[i]);                                                    \
        }                                                                                                              \
    }

DEFINE_ACCUMULATE(f64, SAME, SAME, FLOAT_ADD, isnan)
DEFINE_ACCUMULATE(f32, SAME, SAME, FLOAT_ADD, isnan)
DEFINE_ACCUMULATE(bf16, fwa_bf16_to_float, fwa_bf16_from_float, FLOAT_ADD, isnan)
DEFINE_ACCUMULATE(i32, SAME, SAME, WRAP_I32, NEVER)
DEFINE_ACCUMULATE(i64, SAME, SAME, WRAP_I64, NEVER)
DEFINE_ACCUMULATE(u8, SAME, SAME, WRAP_U8, NEVER)

void fwa_accumulate(fwa_dtype dtype, fwa_reduce op, void *to, const void *const *from, int sources, int64_t count) {
    switch (dtype) {
    case FWA_F64:
        accumulate_f64(op, to, from, sources, count);
        break;
    case FWA_F32:
        accumulate_f32(op, to, from, sources, count);
        break;
    case FWA_BF16:
        accumulate_bf16(op, to, from, sources, count);
        break;
    case FWA_I32:
        accumulate_i32(op, to, from, sources, count);
        break;
    case FWA_I64:
        accumulate_i64(op, to, from, sources, count);
        break;
    case FWA_U8:
        accumulate_u8(op, to, from, sources, count);
        break;
    case FWA_DTYPE_COUNT:
        break;
    }
}
