// Which BLAS computes the products of a CPU.
#include <stdio.h>

#include "kernels/backends.h"
#include "kernels/cpu/real.h"

#if FWA_REAL_BITS == 64
// "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH Zen ...": name and version.
void fwa_backend_cpu_libraries(char *text, size_t size) {
    int name = 0, end = 0;
    const char *config = openblas_get_config();
    sscanf(config, "%*s%n%*s%n", &name, &end);
    snprintf(text, size, "%.*s", end > 0 ? end : name, config);
}
#endif
