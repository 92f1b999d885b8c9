// What a piece of a sequence sees of the rows before it: nothing from before the last document start among them.
// x [B,n,C], reset [B,n].
#include <string.h>

#include "kernels/cpu/arguments.h"
#include "kernels/cpu/ops_cpu.h"

fwa_status FWA_T(fwa_halo_mask_cpu)(fwa_stream *stream, fwa_tensor x, fwa_tensor reset) {
    (void)stream;
    FWA_EXPECT_DIMS(x, 3);
    const int64_t B = x.shape[0], n = x.shape[1], C = x.shape[2];
    FWA_EXPECT(x, FWA_REAL_DTYPE, 3, B, n, C);
    FWA_EXPECT(reset, FWA_U8, 2, B, n);
    for (int64_t b = 0; b < B; b++) {
        const uint8_t *starts = (const uint8_t *)reset.data + b * reset.stride[0];
        real *rows = (real *)x.data + b * x.stride[0];
        int64_t first = n - 1;
        while (first > 0 && !starts[first]) first--;
        for (int64_t j = 0; j < first; j++) memset(rows + j * x.stride[1], 0, (size_t)C * sizeof *rows);
    }
    return FWA_OK;
}
