// Recorded work: a stream is captured while the work is given to it, and what was captured becomes a CUDA graph.
//
// Captured in the mode in which other threads may go on calling CUDA (copies of a checkpoint, NCCL's own threads). A
// call that cannot be captured fails there and then, and the stream is as it was before. Work keeps the priority of the
// stream that it was given to.
#include "kernels/cuda/graph.h"

#include <cstdlib>

#include "kernels/cuda/device.h"

struct fwa_graph {
    cudaGraphExec_t handle;
};

namespace {

fwa_status capture(fwa_stream *stream, fwa_status (*work)(void *user), void *user, cudaGraph_t *out) {
    FWA_CUDA_TRY(cudaStreamBeginCapture(stream->handle, cudaStreamCaptureModeThreadLocal));
    const fwa_status status = work(user);
    const cudaError_t ended = cudaStreamEndCapture(stream->handle, out);
    if (ended != cudaSuccess) (void)cudaGetLastError();
    FWA_TRY(status); // says more than that the capture ended badly
    FWA_CUDA_TRY(ended);
    return FWA_OK;
}

fwa_status make_graph(cudaGraph_t captured, fwa_graph **out) {
    auto *graph = static_cast<fwa_graph *>(calloc(1, sizeof(fwa_graph)));
    FWA_CHECK(graph, FWA_MEMORY, "cannot allocate a graph");
    const cudaError_t error = cudaGraphInstantiate(&graph->handle, captured, cudaGraphInstantiateFlagUseNodePriority);
    const fwa_status status = fwa_cuda_status(error, "cudaGraphInstantiate", __FILE__, __LINE__, __func__);
    if (status != FWA_OK) free(graph);
    FWA_TRY(status);
    *out = graph;
    return FWA_OK;
}

} // namespace

extern "C" {

fwa_status fwa_cuda_graph_record(fwa_backend *backend, fwa_stream *stream, fwa_status (*work)(void *user), void *user,
                                 fwa_graph **out) {
    cudaGraph_t captured = nullptr;
    FWA_CUDA_TRY(cudaSetDevice(backend->device));
    fwa_status status = capture(stream, work, user, &captured);
    if (status == FWA_OK) status = make_graph(captured, out);
    if (captured) (void)cudaGraphDestroy(captured);
    FWA_TRY(status);
    return FWA_OK;
}

fwa_status fwa_cuda_graph_launch(fwa_backend *backend, fwa_stream *stream, fwa_graph *graph) {
    FWA_CUDA_TRY(cudaSetDevice(backend->device));
    FWA_CUDA_TRY(cudaGraphLaunch(graph->handle, stream->handle));
    return FWA_OK;
}

void fwa_cuda_graph_destroy(fwa_backend *backend, fwa_graph *graph) {
    if (!graph) return;
    if (cudaSetDevice(backend->device) == cudaSuccess) (void)cudaGraphExecDestroy(graph->handle);
    free(graph);
}

} // extern "C"
