// One CPU source, two precisions: every file in this folder that includes real.h is compiled twice, with FWA_REAL_BITS
// 32 and 64. `real` is the element type, FWA_T(name) the symbol: name_f32 or name_f64, FWA_BLAS(gemm) the BLAS routine.
#ifndef FWA_KERNELS_CPU_REAL_H
#define FWA_KERNELS_CPU_REAL_H

#include <cblas.h>
#include <math.h>
#include <tgmath.h>

#include "core/types.h"

#define FWA_PASTE_(a, b) a##b
#define FWA_PASTE(a, b)  FWA_PASTE_(a, b)

#if FWA_REAL_BITS == 32
typedef float real;
#define FWA_REAL_DTYPE FWA_F32
#define FWA_T(name)    FWA_PASTE(name, _f32)
#define FWA_BLAS(name) FWA_PASTE(cblas_s, name)
#elif FWA_REAL_BITS == 64
typedef double real;
#define FWA_REAL_DTYPE FWA_F64
#define FWA_T(name)    FWA_PASTE(name, _f64)
#define FWA_BLAS(name) FWA_PASTE(cblas_d, name)
#else
#error "compile with -DFWA_REAL_BITS=32 or 64"
#endif

#endif
