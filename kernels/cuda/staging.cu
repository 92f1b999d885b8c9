// The slots of staging.h. One lock orders their taking; a slot is free again when the event after its upload has come,
// or when the function that copies a download out has run. Uploads of several slots go piece by piece.
#include "kernels/cuda/staging.h"

#include <atomic>
#include <cstring>
#include <mutex>
#include <new>

namespace {

constexpr int slots = 16;
constexpr size_t slot_bytes = (size_t)1 << 20;
constexpr size_t most_upload = slots / 2 * slot_bytes, most_download = slot_bytes;

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
    int next; // slot to be tried first: the one taken longest ago
    slot at[slots];
};

namespace {

bool is_free(const slot &one) {
    const state use = one.use.load(std::memory_order_acquire);
    return use == FREE || (use == UPLOAD && cudaEventQuery(one.read) == cudaSuccess);
}

// A free slot, or one whose upload is over; *out NULL where there is none. The caller holds the lock.
fwa_status take(fwa_cuda_staging *staging, slot **out) {
    slot *waited = nullptr;
    *out = nullptr;
    for (int i = 0; i < slots && !*out; i++) {
        slot *one = &staging->at[(staging->next + i) % slots];
        if (is_free(*one)) *out = one;
        if (!waited && one->use.load(std::memory_order_acquire) == UPLOAD) waited = one;
    }
    (void)cudaGetLastError(); // an event that has not come is no error
    if (!*out && waited) {
        FWA_CUDA_TRY(cudaEventSynchronize(waited->read));
        *out = waited;
    }
    if (*out) staging->next = static_cast<int>(*out - staging->at + 1) % slots;
    return FWA_OK;
}

fwa_status check_stream(cudaStream_t stream) {
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    FWA_CUDA_TRY(cudaStreamIsCapturing(stream, &capture));
    FWA_CHECK(capture == cudaStreamCaptureStatusNone, FWA_ERROR,
              "got a copy between host and device in work that is being recorded, expected none");
    return FWA_OK;
}

fwa_status is_pinned(const void *host, bool *yes) {
    cudaPointerAttributes attributes;
    FWA_CUDA_TRY(cudaPointerGetAttributes(&attributes, host));
    *yes = attributes.type == cudaMemoryTypeHost;
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
        FWA_CUDA_TRY(cudaEventCreateWithFlags(&staging->at[i].read, cudaEventDisableTiming | cudaEventBlockingSync));
    }
    return FWA_OK;
}

// A piece that fits into a slot.
fwa_status upload_piece(fwa_cuda_staging *staging, cudaStream_t stream, void *device, const void *host, size_t bytes,
                        bool *done) {
    slot *one = nullptr;
    const std::lock_guard<std::mutex> guard(staging->lock);
    FWA_TRY(take(staging, &one));
    *done = one != nullptr;
    if (!one) return FWA_OK;
    memcpy(one->memory, host, bytes);
    FWA_CUDA_TRY(cudaMemcpyAsync(device, one->memory, bytes, cudaMemcpyHostToDevice, stream));
    FWA_CUDA_TRY(cudaEventRecord(one->read, stream));
    one->use.store(UPLOAD, std::memory_order_release);
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
    FWA_TRY(check_stream(stream));
    *done = bytes <= most_upload;
    for (size_t at = 0; at < bytes && *done; at += slot_bytes)
        FWA_TRY(upload_piece(staging, stream, static_cast<char *>(device) + at, static_cast<const char *>(host) + at,
                             bytes - at < slot_bytes ? bytes - at : slot_bytes, done));
    return FWA_OK;
}

fwa_status fwa_cuda_staging_download(fwa_cuda_staging *staging, cudaStream_t stream, void *host, const void *device,
                                     size_t bytes, bool *done) {
    bool pinned = false;
    *done = false;
    FWA_TRY(check_stream(stream));
    FWA_TRY(is_pinned(host, &pinned));
    if (pinned || bytes > most_download) return FWA_OK;
    slot *one = nullptr;
    const std::lock_guard<std::mutex> guard(staging->lock);
    FWA_TRY(take(staging, &one));
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
