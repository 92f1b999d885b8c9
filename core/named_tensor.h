// A tensor with its name and meaning: how io sees parameters without knowing models.
#ifndef FWA_CORE_NAMED_TENSOR_H
#define FWA_CORE_NAMED_TENSOR_H

#include "core/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FWA_NAME_MAX 96

typedef struct fwa_named_tensor {
    char name[FWA_NAME_MAX];     // dotted: "blocks.3.mixer.q.weight"
    fwa_tensor tensor;           // the rows held here, logical columns (row stride may be larger); host memory for io
    int64_t shape[FWA_MAX_DIMS]; // logical shape of the whole tensor, tensor.ndim sizes
    int64_t row_start;           // first row (dimension 0) held here; the rows held are tensor.shape[0]
    char init[48];               // how it was initialised, for people: "normal 0.02"
    bool decay;                  // weight decay applies
} fwa_named_tensor;

// Whether these are of tensors with the same logical shape.
static inline bool fwa_named_tensor_alike(const fwa_named_tensor *a, const fwa_named_tensor *b) {
    bool alike = a->tensor.ndim == b->tensor.ndim;
    for (int d = 0; alike && d < a->tensor.ndim; d++) alike = a->shape[d] == b->shape[d];
    return alike;
}

#ifdef __cplusplus
}
#endif
#endif
