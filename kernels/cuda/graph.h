// Recorded work on CUDA: graph_record and its companions of core/backend.h.
#ifndef FWA_KERNELS_CUDA_GRAPH_H
#define FWA_KERNELS_CUDA_GRAPH_H

#include "core/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

FWA_MUST_CHECK fwa_status fwa_cuda_graph_record(fwa_backend *backend, fwa_stream *stream,
                                                fwa_status (*work)(void *user), void *user, fwa_graph **out);
FWA_MUST_CHECK fwa_status fwa_cuda_graph_launch(fwa_backend *backend, fwa_stream *stream, fwa_graph *graph);
void fwa_cuda_graph_destroy(fwa_backend *backend, fwa_graph *graph);

#ifdef __cplusplus
}
#endif
#endif
