// The CUDA backend: device memory, streams with their workspace, events, and the checks of driver and GPU.
//
// One backend drives one device. Its functions may be called from any thread; operators only from the thread that
// created the backend, where its device is the current one. Copies run in stream order: what was downloaded is there
// after stream_synchronize. Pageable host memory that is uploaded may be reused at once. Uploads of up to 8 MiB and
// downloads of up to 1 MiB do not make the host wait: they pass through pinned memory of the backend (staging.h), or,
// as downloads into memory of host_alloc, need none.
#include "kernels/backends.h"

#include <cstdio>
#include <cstdlib>

#include "kernels/cuda/cudnn.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/fill_rows.h"
#include "kernels/cuda/graph.h"
#include "kernels/cuda/products.h"
#include "kernels/cuda/ranges.h"
#include "kernels/cuda/staging.h"

struct fwa_event {
    cudaEvent_t handle;
};

namespace {

constexpr int oldest_major = 8; // compute_80 is the PTX that the build carries

// What the backend owns besides its main stream.
struct resources {
    fwa_cuda_products *products;
    fwa_cudnn *cudnn;
    fwa_cuda_staging *staging;
};

resources *resources_of(const fwa_backend *backend) {
    return static_cast<resources *>(backend->impl);
}

fwa_status use(const fwa_backend *backend) {
    FWA_CUDA_TRY(cudaSetDevice(backend->device));
    return FWA_OK;
}

// `what` stands in the message: "a tensor".
fwa_status allocate(const fwa_backend *backend, const char *what, void **out, size_t bytes) {
    FWA_TRY(use(backend));
    const cudaError_t error = cudaMalloc(out, bytes > 0 ? bytes : 1);
    size_t available = 0, total = 0;
    if (error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        (void)cudaMemGetInfo(&available, &total);
    }
    FWA_CHECK(error != cudaErrorMemoryAllocation, FWA_MEMORY,
              "CUDA device %d has no %zu bytes for %s: %zu of its %zu bytes are free", backend->device, bytes, what,
              available, total);
    FWA_CUDA_TRY(error);
    return FWA_OK;
}

fwa_status device_alloc(fwa_backend *backend, void **out, size_t bytes) {
    FWA_TRY(allocate(backend, "tensors", out, bytes));
    return FWA_OK;
}

void device_free(fwa_backend *backend, void *memory) {
    if (cudaSetDevice(backend->device) == cudaSuccess) (void)cudaFree(memory);
}

fwa_status host_alloc(fwa_backend *backend, void **out, size_t bytes) {
    FWA_TRY(use(backend));
    FWA_CUDA_TRY(cudaMallocHost(out, bytes > 0 ? bytes : 1));
    return FWA_OK;
}

void host_free(fwa_backend *backend, void *memory) {
    if (cudaSetDevice(backend->device) == cudaSuccess) (void)cudaFreeHost(memory);
}

fwa_status copy_async(fwa_backend *backend, fwa_stream *stream, void *to, const void *from, size_t bytes,
                      cudaMemcpyKind kind) {
    if (bytes == 0) return FWA_OK;
    FWA_TRY(use(backend));
    FWA_CUDA_TRY(cudaMemcpyAsync(to, from, bytes, kind, stream->handle));
    return FWA_OK;
}

fwa_status upload(fwa_backend *backend, fwa_stream *stream, void *device, const void *host, size_t bytes) {
    if (bytes == 0) return FWA_OK;
    bool done = false;
    FWA_TRY(use(backend));
    FWA_TRY(fwa_cuda_staging_upload(resources_of(backend)->staging, stream->handle, device, host, bytes, &done));
    if (!done) FWA_TRY(copy_async(backend, stream, device, host, bytes, cudaMemcpyHostToDevice));
    return FWA_OK;
}

fwa_status download(fwa_backend *backend, fwa_stream *stream, void *host, const void *device, size_t bytes) {
    if (bytes == 0) return FWA_OK;
    bool done = false;
    FWA_TRY(use(backend));
    FWA_TRY(fwa_cuda_staging_download(resources_of(backend)->staging, stream->handle, host, device, bytes, &done));
    if (!done) FWA_TRY(copy_async(backend, stream, host, device, bytes, cudaMemcpyDeviceToHost));
    return FWA_OK;
}

fwa_status copy(fwa_backend *backend, fwa_stream *stream, void *to, const void *from, size_t bytes) {
    FWA_TRY(copy_async(backend, stream, to, from, bytes, cudaMemcpyDeviceToDevice));
    return FWA_OK;
}

fwa_status fill(fwa_backend *backend, fwa_stream *stream, void *to, int byte, size_t bytes) {
    if (bytes == 0) return FWA_OK;
    FWA_TRY(use(backend));
    FWA_CUDA_TRY(cudaMemsetAsync(to, byte, bytes, stream->handle));
    return FWA_OK;
}

fwa_status fill_rows(fwa_backend *backend, fwa_stream *stream, void *to, int byte, size_t bytes, size_t stride,
                     size_t rows) {
    FWA_TRY(use(backend));
    FWA_TRY(fwa_cuda_fill_rows(stream->handle, to, byte, bytes, stride, rows));
    return FWA_OK;
}

fwa_status copy_rows(fwa_backend *backend, fwa_stream *stream, void *to, size_t to_stride, const void *from,
                     size_t from_stride, size_t bytes, size_t rows) {
    if (bytes == 0 || rows == 0) return FWA_OK;
    FWA_TRY(use(backend));
    FWA_CUDA_TRY(
        cudaMemcpy2DAsync(to, to_stride, from, from_stride, bytes, rows, cudaMemcpyDeviceToDevice, stream->handle));
    return FWA_OK;
}

void stream_destroy(fwa_backend *backend, fwa_stream *stream) {
    if (!stream) return;
    if (cudaSetDevice(backend->device) == cudaSuccess) {
        if (stream->handle) (void)cudaStreamSynchronize(stream->handle);
        if (stream->handle) (void)cudaStreamDestroy(stream->handle);
        if (stream->workspace) (void)cudaFree(stream->workspace);
    }
    free(stream);
}

fwa_status stream_open(fwa_backend *backend, fwa_stream *stream) {
    FWA_TRY(use(backend));
    FWA_CUDA_TRY(cudaStreamCreateWithFlags(&stream->handle, cudaStreamNonBlocking));
    FWA_TRY(allocate(backend, "the workspace of a stream", &stream->workspace, FWA_CUDA_WORKSPACE_BYTES));
    FWA_CUDA_TRY(cudaDeviceGetAttribute(&stream->multiprocessors, cudaDevAttrMultiProcessorCount, backend->device));
    FWA_CUDA_TRY(
        cudaDeviceGetAttribute(&stream->shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, backend->device));
    stream->products = resources_of(backend)->products;
    stream->cudnn = resources_of(backend)->cudnn;
    return FWA_OK;
}

fwa_status stream_create(fwa_backend *backend, fwa_stream **out) {
    fwa_stream *stream = static_cast<fwa_stream *>(calloc(1, sizeof(fwa_stream)));
    FWA_CHECK(stream, FWA_MEMORY, "cannot allocate a stream");
    fwa_status status = stream_open(backend, stream);
    if (status != FWA_OK) {
        stream_destroy(backend, stream);
        return fwa_error_pass(status, __FILE__, __LINE__, __func__);
    }
    *out = stream;
    return FWA_OK;
}

fwa_status stream_synchronize(fwa_backend *backend, fwa_stream *stream) {
    FWA_TRY(use(backend));
    FWA_CUDA_TRY(cudaStreamSynchronize(stream->handle));
    return FWA_OK;
}

void *native_stream(fwa_stream *stream) {
    return stream->handle;
}

fwa_status make_event(fwa_backend *backend, fwa_event **out, unsigned flags) {
    FWA_TRY(use(backend));
    cudaEvent_t handle = nullptr;
    FWA_CUDA_TRY(cudaEventCreateWithFlags(&handle, flags));
    fwa_event *event = static_cast<fwa_event *>(malloc(sizeof(fwa_event)));
    if (!event) (void)cudaEventDestroy(handle);
    FWA_CHECK(event, FWA_MEMORY, "cannot allocate an event");
    event->handle = handle;
    *out = event;
    return FWA_OK;
}

fwa_status event_create(fwa_backend *backend, fwa_event **out) {
    FWA_TRY(make_event(backend, out, cudaEventDisableTiming | cudaEventBlockingSync));
    return FWA_OK;
}

fwa_status timer_create(fwa_backend *backend, fwa_event **out) {
    FWA_TRY(make_event(backend, out, cudaEventDefault));
    return FWA_OK;
}

fwa_status timer_seconds(fwa_backend *backend, fwa_event *from, fwa_event *to, double *seconds) {
    FWA_TRY(use(backend));
    float milliseconds = 0;
    FWA_CUDA_TRY(cudaEventElapsedTime(&milliseconds, from->handle, to->handle));
    *seconds = 1e-3 * static_cast<double>(milliseconds);
    return FWA_OK;
}

void event_destroy(fwa_backend *backend, fwa_event *event) {
    if (!event) return;
    if (cudaSetDevice(backend->device) == cudaSuccess) (void)cudaEventDestroy(event->handle);
    free(event);
}

fwa_status event_record(fwa_backend *backend, fwa_event *event, fwa_stream *stream) {
    FWA_TRY(use(backend));
    FWA_CUDA_TRY(cudaEventRecord(event->handle, stream->handle));
    return FWA_OK;
}

fwa_status event_synchronize(fwa_backend *backend, fwa_event *event) {
    FWA_TRY(use(backend));
    FWA_CUDA_TRY(cudaEventSynchronize(event->handle));
    return FWA_OK;
}

fwa_status stream_wait(fwa_backend *backend, fwa_stream *stream, fwa_event *event) {
    FWA_TRY(use(backend));
    FWA_CUDA_TRY(cudaStreamWaitEvent(stream->handle, event->handle, 0));
    return FWA_OK;
}

fwa_status memory(fwa_backend *backend, size_t *used, size_t *total) {
    FWA_TRY(use(backend));
    size_t available = 0;
    FWA_CUDA_TRY(cudaMemGetInfo(&available, total));
    *used = *total - available;
    return FWA_OK;
}

fwa_status choices(fwa_backend *backend, char **records) {
    FWA_TRY(use(backend));
    FWA_TRY(fwa_cuda_products_records(resources_of(backend)->products, records));
    return FWA_OK;
}

fwa_status choose(fwa_backend *backend, const char *records, int *taken, int *passed_over) {
    FWA_TRY(use(backend));
    FWA_TRY(fwa_cuda_products_take(resources_of(backend)->products, records, taken, passed_over));
    return FWA_OK;
}

void destroy(fwa_backend *backend) {
    if (!backend) return;
    stream_destroy(backend, backend->stream);
    resources *owned = resources_of(backend);
    if (owned && cudaSetDevice(backend->device) == cudaSuccess) {
        fwa_cuda_products_destroy(owned->products);
        fwa_cudnn_destroy(owned->cudnn);
        fwa_cuda_staging_destroy(owned->staging);
    }
    free(owned);
    free(backend);
}

fwa_status open(fwa_backend *backend) {
    FWA_TRY(use(backend));
    resources *owned = static_cast<resources *>(calloc(1, sizeof(resources)));
    FWA_CHECK(owned, FWA_MEMORY, "cannot allocate a backend");
    backend->impl = owned;
    FWA_TRY(fwa_cuda_products_create(&owned->products, backend));
    FWA_TRY(fwa_cudnn_create(&owned->cudnn));
    FWA_TRY(fwa_cuda_staging_create(&owned->staging));
    FWA_TRY(stream_create(backend, &backend->stream));
    return FWA_OK;
}

fwa_status check_device(int device) {
    int major = 0, minor = 0;
    FWA_CUDA_TRY(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    FWA_CUDA_TRY(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
    FWA_CHECK(major >= oldest_major, FWA_UNSUPPORTED,
              "CUDA device %d has compute capability %d.%d, expected %d.0 or newer; choose another one with "
              "CUDA_VISIBLE_DEVICES",
              device, major, minor, oldest_major);
    return FWA_OK;
}

} // namespace

extern "C" {

fwa_status fwa_cuda_status(cudaError_t error, const char *what, const char *file, int line, const char *function) {
    if (error == cudaSuccess) return FWA_OK;
    (void)cudaGetLastError();
    fwa_status code = FWA_BACKEND;
    if (error == cudaErrorMemoryAllocation) code = FWA_MEMORY;
    if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorUnsupportedPtxVersion) code = FWA_UNSUPPORTED;
    return fwa_error_raise(code, file, line, function, "%s: %s (%s)", what, cudaGetErrorString(error),
                           cudaGetErrorName(error));
}

fwa_status fwa_backend_cuda_count(int *count) {
    *count = 0;
    int driver = 0, runtime = 0;
    FWA_CUDA_TRY(cudaRuntimeGetVersion(&runtime));
    cudaError_t error = cudaDriverGetVersion(&driver);
    if (error == cudaSuccess) error = cudaGetDeviceCount(count);
    if (error != cudaSuccess) (void)cudaGetLastError();
    FWA_CHECK(error != cudaErrorStubLibrary, FWA_UNSUPPORTED,
              "the CUDA driver found is a stub for linking; remove its folder from LD_LIBRARY_PATH");
    FWA_CHECK(driver > 0, FWA_UNSUPPORTED,
              "no NVIDIA driver is installed here; run on the CPU backend instead (run.backend: cpu)");
    FWA_CHECK(
        error != cudaErrorInsufficientDriver && error != cudaErrorSystemDriverMismatch, FWA_UNSUPPORTED,
        "the NVIDIA driver is too old: it supports CUDA %d.%d, this build needs %d.%d; install a newer driver, build "
        "with the older CUDA, or run on the CPU backend (run.backend: cpu)",
        driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    if (error == cudaErrorNoDevice) return FWA_OK;
    FWA_CUDA_TRY(error);
    return FWA_OK;
}

fwa_status fwa_backend_cuda_create(fwa_backend **out, fwa_dtype precision, int device) {
    FWA_TRY(check_device(device));
    fwa_backend *backend = static_cast<fwa_backend *>(malloc(sizeof(fwa_backend)));
    FWA_CHECK(backend, FWA_MEMORY, "cannot allocate a backend");
    *backend = {
        .kind = FWA_BACKEND_CUDA,
        .name = "cuda",
        .device = device,
        .threads = 1,
        .compute = precision,
        .master = FWA_F32,
        .ops = nullptr,
        .plan_only = false,
        .rounds = false,
        .deterministic = false,
        .stream = nullptr,
        .ranges = fwa_cuda_ranges(),
        .impl = nullptr,
        .alloc = device_alloc,
        .free = device_free,
        .host_alloc = host_alloc,
        .host_free = host_free,
        .upload = upload,
        .download = download,
        .copy = copy,
        .fill = fill,
        .fill_rows = fill_rows,
        .copy_rows = copy_rows,
        .stream_create = stream_create,
        .stream_destroy = stream_destroy,
        .stream_synchronize = stream_synchronize,
        .native_stream = native_stream,
        .event_create = event_create,
        .event_destroy = event_destroy,
        .event_record = event_record,
        .event_synchronize = event_synchronize,
        .stream_wait = stream_wait,
        .graph_record = fwa_cuda_graph_record,
        .graph_launch = fwa_cuda_graph_launch,
        .graph_destroy = fwa_cuda_graph_destroy,
        .timer_create = timer_create,
        .timer_seconds = timer_seconds,
        .memory = memory,
        .choices = choices,
        .choose = choose,
        .destroy = destroy,
    };
    const fwa_status status = open(backend);
    if (status != FWA_OK) {
        destroy(backend);
        return fwa_error_pass(status, __FILE__, __LINE__, __func__);
    }
    *out = backend;
    return FWA_OK;
}

fwa_status fwa_backend_cuda_describe(int device, char *text, size_t size) {
    cudaDeviceProp properties;
    int driver = 0;
    FWA_CUDA_TRY(cudaGetDeviceProperties(&properties, device));
    FWA_CUDA_TRY(cudaDriverGetVersion(&driver));
    snprintf(text, size, "%s, %.1f GiB, compute capability %d.%d, %d multiprocessors, driver for CUDA %d.%d",
             properties.name, (double)properties.totalGlobalMem / (1 << 30), properties.major, properties.minor,
             properties.multiProcessorCount, driver / 1000, driver % 1000 / 10);
    return FWA_OK;
}

} // extern "C"
