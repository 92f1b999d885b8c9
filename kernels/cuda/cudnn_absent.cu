// A build without cuDNN: attention never runs on it.
#include "kernels/backends.h"
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/cudnn.h"

namespace fwa {

namespace {

const char *refusal(fwa_stream *, const attention_task &, bool, size_t *) {
    return "this build has no cuDNN";
}

fwa_status run(fwa_stream *, const attention_task &) {
    FWA_FAIL(FWA_UNSUPPORTED, "this build has no cuDNN");
}

} // namespace

const attention_kernel attention_cudnn = {"cudnn", refusal, run, run};

} // namespace fwa

extern "C" {

fwa_status fwa_cudnn_create(fwa_cudnn **out) {
    *out = nullptr;
    return FWA_OK;
}

void fwa_cudnn_destroy(fwa_cudnn *) {}

const char *fwa_backend_cuda_cudnn(void) {
    return nullptr;
}

} // extern "C"
