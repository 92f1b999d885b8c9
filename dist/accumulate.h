// Folds the contributions of all ranks, in rank order: the only place where a reduction does arithmetic.
#ifndef FWA_DIST_ACCUMULATE_H
#define FWA_DIST_ACCUMULATE_H

#include "core/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

// to[i] = op(op(from[0][i], from[1][i]), from[2][i]) ... for i < count. bf16 is folded in fp32 and rounded once;
// integers wrap around; MAX and MIN of a NaN are NaN. `to` may be one of the sources. Not collective; cannot fail.
void fwa_accumulate(fwa_dtype dtype, fwa_reduce op, void *to, const void *const *from, int sources, int64_t count);

#ifdef __cplusplus
}
#endif
#endif
