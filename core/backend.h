// A backend: memory, streams, events, and the table of operators for one precision. Interface only; the backends
// themselves stand in kernels/. Not collective.
#ifndef FWA_CORE_BACKEND_H
#define FWA_CORE_BACKEND_H

#include <stdbool.h>

#include "core/status.h"
#include "core/types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct fwa_ops; // kernels/ops.h

typedef enum fwa_backend_kind { FWA_BACKEND_CPU, FWA_BACKEND_CUDA } fwa_backend_kind;

// Work given to one stream runs in order; streams meet through events. On the CPU every call has finished when it
// returns and streams and events are tokens only.
typedef struct fwa_stream fwa_stream;
typedef struct fwa_event fwa_event;
typedef struct fwa_graph fwa_graph; // work recorded once, to be launched as a whole
typedef struct fwa_backend fwa_backend;
typedef struct fwa_ranges fwa_ranges; // core/range.h

struct fwa_backend {
    fwa_backend_kind kind;
    const char *name;  // "cpu", "cuda"
    int device;        // ordinal on this node; 0 on the CPU
    int threads;       // OpenMP threads of this rank; 1 for CUDA
    fwa_dtype compute; // activations and the weights that products read: f64, f32, bf16
    fwa_dtype master;  // master weights, gradients, moments, statistics, gates: f64 in f64, else f32
    const struct fwa_ops *ops;
    bool plan_only;     // sizes may be asked, nothing runs: the plan of a precision that this machine may lack
    bool rounds;        // CPU: chunk forms round to bf16 what a GPU's bf16 kernels do; set before sizes are asked
    bool deterministic; // set before the first operator: nothing is chosen by measurement, sums keep one order
    fwa_stream *stream; // the main stream
    fwa_ranges *ranges; // who is told of the parts of a step; NULL: nobody
    void *impl;

    fwa_status (*alloc)(fwa_backend *, void **out, size_t bytes); // device memory, 256-byte aligned
    void (*free)(fwa_backend *, void *);
    // Host memory that a download fills without a detour; not for uploads.
    fwa_status (*host_alloc)(fwa_backend *, void **out, size_t bytes);
    void (*host_free)(fwa_backend *, void *);
    // `host` may be changed or freed as soon as upload returns; what download fills counts after stream_synchronize, or
    // event_synchronize for an event recorded behind it.
    fwa_status (*upload)(fwa_backend *, fwa_stream *, void *device, const void *host, size_t bytes);   // host -> device
    fwa_status (*download)(fwa_backend *, fwa_stream *, void *host, const void *device, size_t bytes); // device -> host
    fwa_status (*copy)(fwa_backend *, fwa_stream *, void *to, const void *from, size_t bytes);         // on the device
    fwa_status (*fill)(fwa_backend *, fwa_stream *, void *to, int byte, size_t bytes);
    // The same for `bytes` bytes of each of `rows` rows that stand `stride` bytes apart.
    fwa_status (*fill_rows)(fwa_backend *, fwa_stream *, void *to, int byte, size_t bytes, size_t stride, size_t rows);
    // On the device, `bytes` bytes of each of `rows` rows; strides are bytes between rows.
    fwa_status (*copy_rows)(fwa_backend *, fwa_stream *, void *to, size_t to_stride, const void *from,
                            size_t from_stride, size_t bytes, size_t rows);
    fwa_status (*stream_create)(fwa_backend *, fwa_stream **out);
    void (*stream_destroy)(fwa_backend *, fwa_stream *);
    fwa_status (*stream_synchronize)(fwa_backend *, fwa_stream *);
    void *(*native_stream)(fwa_stream *); // what other libraries call the stream: a cudaStream_t; NULL on the CPU
    fwa_status (*event_create)(fwa_backend *, fwa_event **out);
    void (*event_destroy)(fwa_backend *, fwa_event *);
    fwa_status (*event_record)(fwa_backend *, fwa_event *, fwa_stream *);
    fwa_status (*event_synchronize)(fwa_backend *, fwa_event *); // the host waits for what was before the event
    fwa_status (*stream_wait)(fwa_backend *, fwa_stream *, fwa_event *);
    // Records what `work` gives to `stream`, and to streams that meet it through events, without running it. The work
    // must have run before, so that what operators measure, load and build on first use is there; it neither waits for
    // the device nor allocates nor copies to or from the host, and all that may change between launches is in device
    // memory. All three are NULL on a backend whose calls have finished when they return.
    fwa_status (*graph_record)(fwa_backend *, fwa_stream *, fwa_status (*work)(void *user), void *user,
                               fwa_graph **out);
    fwa_status (*graph_launch)(fwa_backend *, fwa_stream *, fwa_graph *);
    void (*graph_destroy)(fwa_backend *, fwa_graph *); // NULL is fine
    // An event that keeps the time at which its stream came to it, and the seconds between two of them, which the
    // streams must have passed (stream_synchronize).
    fwa_status (*timer_create)(fwa_backend *, fwa_event **out);
    fwa_status (*timer_seconds)(fwa_backend *, fwa_event *from, fwa_event *to, double *seconds);
    // Bytes of this device (CPU: of this process, of the machine).
    fwa_status (*memory)(fwa_backend *, size_t *used, size_t *total);
    // What measurement has chosen so far (algorithms of matrix products), for another process that is to choose alike:
    // a record a line, of name=value pairs parted by tabs. The caller frees *records; "" where nothing was measured.
    fwa_status (*choices)(fwa_backend *, char **records);
    // Takes such records over, in place of choices for the same; counts those that are and those that do not fit this
    // device, library or program. Nothing where deterministic.
    fwa_status (*choose)(fwa_backend *, const char *records, int *taken, int *passed_over);
    void (*destroy)(fwa_backend *);
};

#ifdef __cplusplus
}
#endif
#endif
