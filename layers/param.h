// The parameter table: every weight of a model with its name, shape, initial value and optimizer group, and the memory
// of the classes that hold it (values, master, gradients, moments).
//
// Layers add their parameters while the model is planned; afterwards fwa_params_plan sizes the memory and
// fwa_params_commit allocates it. A parameter has a logical shape (counts, checkpoints) and a storage shape whose last
// sizes may be rounded up; what lies beyond the logical part is zero and stays zero. Not collective.
#ifndef FWA_LAYERS_PARAM_H
#define FWA_LAYERS_PARAM_H

#include "core/arena.h"
#include "core/named_tensor.h"
#include "kernels/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

// Stored rows are rounded up to this many elements where a size may be odd: 16 bytes in bf16, what fast loads want.
#define FWA_ROW_ALIGN 8

typedef enum fwa_init_kind {
    FWA_INIT_CONSTANT,        // a
    FWA_INIT_NORMAL,          // N(0, a)
    FWA_INIT_UNIFORM,         // U(-a, a)
    FWA_INIT_LOG,             // log of U(a, b)
    FWA_INIT_INVERSE_SOFTPLUS // x with softplus(x) = e^u, u from U(log a, log b)
} fwa_init_kind;

typedef struct fwa_init {
    fwa_init_kind kind;
    double a, b;
} fwa_init;

typedef enum fwa_param_class {
    FWA_PARAM_MASTER, // master weights (mst)
    FWA_PARAM_VALUE,  // what operators read: act for matrices, mst for vectors; the master itself where the types agree
    FWA_PARAM_GRAD,   // gradient of the summed loss (mst)
    FWA_PARAM_M,
    FWA_PARAM_V,
    FWA_PARAM_CLASS_COUNT
} fwa_param_class;

typedef struct fwa_param {
    char name[FWA_NAME_MAX];
    int ndim;
    int64_t shape[FWA_MAX_DIMS];   // logical
    int64_t storage[FWA_MAX_DIMS]; // >= shape
    fwa_init init;
    bool matrix;             // read by products: value in the compute type
    bool decay;              // weight decay applies
    bool width_scaled;       // learning rate x base width / d_model: 2-D matrices inside blocks
    bool packed;             // lies directly behind the parameter before it
    int bucket;              // gradients of one bucket are contiguous and finished together
    int64_t row_start, rows; // stored rows that this rank updates: all, unless sharded (layers/shard.h)
    fwa_tensor tensor[FWA_PARAM_CLASS_COUNT]; // storage shape; of a sharded class only `rows` rows
} fwa_param;

typedef struct fwa_params {
    fwa_param *at;
    int count, capacity, buckets;
    fwa_arena *arena[FWA_PARAM_CLASS_COUNT]; // VALUE is NULL where values are the masters
} fwa_params;

// Where a layer puts its parameters.
typedef struct fwa_param_scope {
    fwa_params *params;
    const char *prefix; // in front of their names: "blocks.3"; "" for none
    int bucket;
} fwa_param_scope;

// A matrix [rows, columns] inside a block, N(0, deviation) at the start: read by products, decayed, width-scaled.
fwa_param fwa_param_matrix(int64_t rows, int64_t columns, double deviation);
// All else (norms, biases, convolutions): [rows, columns], or [rows] where columns is 0; no decay.
fwa_param fwa_param_plain(int64_t rows, int64_t columns, fwa_init init);
// Appends `param` under "prefix.name" and returns its index through *index.
FWA_MUST_CHECK fwa_status fwa_params_add(const fwa_param_scope *scope, const char *name, fwa_param param, int *index);
// Sizes the classes; no memory yet. `train`: gradients and moments too.
FWA_MUST_CHECK fwa_status fwa_params_plan(fwa_params *params, fwa_dtype compute, fwa_dtype master, bool train);
FWA_MUST_CHECK fwa_status fwa_params_commit(fwa_params *params, fwa_backend *backend);
void fwa_params_destroy(fwa_params *params);

int64_t fwa_params_count(const fwa_params *params);                       // logical elements of all parameters
size_t fwa_params_bytes(const fwa_params *params, fwa_param_class which); // of one class

// Writes initial values: element i of a parameter is a function of (seed, name, i), whatever the layout.
FWA_MUST_CHECK fwa_status fwa_params_initialize(fwa_params *params, fwa_backend *backend, uint64_t seed);
// values = masters in the compute type (nothing to do where they are the same memory), of the rows held here.
FWA_MUST_CHECK fwa_status fwa_params_refresh(fwa_params *params, fwa_backend *backend);

// The parameters first .. first+count-1, packed in memory, as one matrix [sum of rows, columns] of a class.
fwa_tensor fwa_params_packed(const fwa_params *params, int first, int count, fwa_param_class which);
// The gradients of one bucket as one dense vector.
fwa_tensor fwa_params_bucket(const fwa_params *params, int bucket);
// Clears the gradients of all parameters but matrices: to those a backward pass adds (fwa_layer_context.fresh).
FWA_MUST_CHECK fwa_status fwa_params_clear_added(const fwa_params *params, fwa_backend *backend);
// The stored rows of a class that this rank updates. After commit.
fwa_tensor fwa_param_rows(const fwa_param *param, fwa_param_class which);
// Logical view of a parameter for io; the tensor points to the class's own memory. Of masters and moments: the rows
// that this rank updates.
fwa_named_tensor fwa_param_named(const fwa_param *param, fwa_param_class which);

#ifdef __cplusplus
}
#endif
#endif
