// Sums over rows, as gradients of weights that all rows share: out[c] += sum_r f(r, c).
//
// Inside a parallel region: each thread owns columns and takes the rows in order, in blocks whose partial sum keeps
// single precision accurate over many rows. The order is the same for every number of threads.
#ifndef FWA_KERNELS_CPU_COLUMN_SUM_H
#define FWA_KERNELS_CPU_COLUMN_SUM_H

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/real.h"

#define FWA_SUM_ROWS    128
#define FWA_SUM_COLUMNS 256

// sum[i] += f(row, begin + i) for 0 <= i < count.
typedef void fwa_column_adder(const void *context, int64_t row, int64_t begin, int64_t count, real *__restrict sum);

static inline void fwa_column_sum(real *out, int64_t rows, int64_t columns, fwa_column_adder *adder,
                                  const void *context) {
    int64_t own_begin, own_end;
    fwa_own_columns(columns, &own_begin, &own_end);
    for (int64_t block = 0; block < rows; block += FWA_SUM_ROWS) {
        int64_t block_end = fwa_min(rows, block + FWA_SUM_ROWS);
        for (int64_t begin = own_begin; begin < own_end; begin += FWA_SUM_COLUMNS) {
            int64_t count = fwa_min(FWA_SUM_COLUMNS, own_end - begin);
            real sum[FWA_SUM_COLUMNS] = {0};
            for (int64_t r = block; r < block_end; r++) adder(context, r, begin, count, sum);
            for (int64_t i = 0; i < count; i++) out[begin + i] += sum[i];
        }
    }
}

#endif
