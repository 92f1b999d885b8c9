// Which libraries compute on a GPU.
#include <cstdio>

#include <cublasLt.h>
#include <cuda_runtime.h>

#include "kernels/backends.h"

namespace {

int major(int version) {
    return version / 1000;
}
int minor(int version) {
    return version % 1000 / 10;
}

} // namespace

// Versions are 1000 major + 10 minor; without a driver its version is 0.
void fwa_backend_cuda_libraries(char *text, size_t size) {
    int runtime = 0, driver = 0;
    const char *cudnn = fwa_backend_cuda_cudnn();
    if (cudaRuntimeGetVersion(&runtime) != cudaSuccess || cudaDriverGetVersion(&driver) != cudaSuccess)
        (void)cudaGetLastError();
    std::snprintf(text, size, "CUDA %d.%d, driver for CUDA %d.%d, cuBLASLt %zu%s%s", major(runtime), minor(runtime),
                  major(driver), minor(driver), cublasLtGetVersion(), cudnn ? ", cuDNN " : "", cudnn ? cudnn : "");
}
