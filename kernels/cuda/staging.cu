// The slots of staging.h. One lock orders their taking; a slot is free again when the event after its upload has come,
// or when the function that copies a download out has run.
#include "kernels/cuda/staging.h"

#include <atomic>
#include <cstring>
#include <mutex>
#include <new>

namespace {

constexpr int slots = 16;
constexpr size_t slot_bytes = (size_t)1 << 20;

enum state { FREE, UPLOAD, DOWNLOAD };

struct slot {
    char *memory;
    std::atomic<state> use;
    cudaEvent_t read; // of an upload: the stream is done with the memory
    void *host;       // of a download: where `bytes` go
    size_t bytes;
};

} // namespace

struct fwa_cuda_staging {
    std::mutex lock;
    char *memory;
    slot at[slots];
};

namespace {

// A free slot, or one whose upload is over; the caller holds the lock. NULL where there is none.
slot *take(fwa_cuda_staging *staging) {
    for (slot &one : staging->at) {
        const state use = one.use.load(std::memory_order_acquire);
        if (use == FREE || (use == UPLOAD && cudaEventQuery(one.read) == cudaSuccess)) return &one;
    }
    (void)cudaGetLastError(); // an event that has not come is no error
    return nullptr;
}

fwa_status fits(cudaStream_t stream, size_t bytes, bool *yes) {
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    FWA_CUDA_TRY(cudaStreamIsCapturing(stream, &capture));
    *yes = bytes <= slot_bytes && capture == cudaStreamCaptureStatusNone;
    return FWA_OK;
}

void copy_out(void *context) {
    slot *one = static_cast<slot *>(context);
    memcpy(one->host, one->memory, one->bytes);
    one->use.store(FREE, std::memory_order_release);
}

fwa_status open(fwa_cuda_staging *staging) {
    FWA_CUDA_TRY(cudaMallocHost(reinterpret_cast<void **>(&staging->memory), slots * slot_bytes));
    for (int i = 0; i < slots; i++) {
        staging->at[i].memory = staging->memory + i * slot_bytes;
        FWA_CUDA_TRY(cudaEventCreateWithFlags(&staging->at[i].read, cudaEventDisableTiming));
    }
    return FWA_OK;
}

} // namespace

extern "C" {

fwa_status fwa_cuda_staging_create(fwa_cuda_staging **out) {
    auto *staging = new (std::nothrow) fwa_cuda_staging();
    FWA_CHECK(staging, FWA_MEMORY, "cannot allocate staging memory");
    const fwa_status status = open(staging);
    if (status != FWA_OK) fwa_cuda_staging_destroy(staging);
    FWA_TRY(status);
    *out = staging;
    return FWA_OK;
}

void fwa_cuda_staging_destroy(fwa_cuda_staging *staging) {
    if (!staging) return;
    for (slot &one : staging->at)
        if (one.read) (void)cudaEventDestroy(one.read);
    if (staging->memory) (void)cudaFreeHost(staging->memory);
    delete staging;
}

fwa_status fwa_cuda_staging_upload(fwa_cuda_staging *staging, cudaStream_t stream, void *device, const void *host,
                                   size_t bytes, bool *done) {
    FWA_TRY(fits(stream, bytes, done));
    if (!*done) return FWA_OK;
    const std::lock_guard<std::mutex> guard(staging->lock);
    slot *one = take(staging);
    *done = one != nullptr;
    if (!one) return FWA_OK;
    memcpy(one->memory, host, bytes);
    FWA_CUDA_TRY(cudaMemcpyAsync(device, one->memory, bytes, cudaMemcpyHostToDevice, stream));
    FWA_CUDA_TRY(cudaEventRecord(one->read, stream));
    one->use.store(UPLOAD, std::memory_order_release);
    return FWA_OK;
}

fwa_status fwa_cuda_staging_download(fwa_cuda_staging *staging, cudaStream_t stream, void *host, const void *device,
                                     size_t bytes, bool *done) {
    FWA_TRY(fits(stream, bytes, done));
    if (!*done) return FWA_OK;
    const std::lock_guard<std::mutex> guard(staging->lock);
    slot *one = take(staging);
    *done = one != nullptr;
    if (!one) return FWA_OK;
    one->host = host;
    one->bytes = bytes;
    one->use.store(DOWNLOAD, std::memory_order_release);
    FWA_CUDA_TRY(cudaMemcpyAsync(one->memory, device, bytes, cudaMemcpyDeviceToHost, stream));
    FWA_CUDA_TRY(cudaLaunchHostFunc(stream, copy_out, one));
    return FWA_OK;
}

} // extern "C"
