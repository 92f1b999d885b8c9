// A language model: embedding, blocks, final norm, tied head. Plan, commit, forward, backward.
//
// fwa_model holds the parameters; fwa_activations the memory for one shape [B,T], of which there can be several
// (training, evaluation at other lengths) over the same parameters. Not collective. Both are owned by the caller.
#ifndef FWA_LAYERS_MODEL_H
#define FWA_LAYERS_MODEL_H

#include "layers/block.h"
#include "layers/head.h"
#include "layers/memory.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fwa_model {
    fwa_model_spec spec;
    fwa_params params;
    int embedding, final_norm;
    fwa_block *blocks; // [L]
} fwa_model;

// Plans a model: parameters with names, shapes and memory, nothing allocated. `train`: with gradients and moments.
// FWA_CONFIG, FWA_UNSUPPORTED: such a model cannot be.
// Buckets: 0 embedding, 1..L blocks, L+1 final norm.
FWA_MUST_CHECK fwa_status fwa_model_create(fwa_model **out, const fwa_model_spec *spec, const fwa_backend *backend,
                                           bool train);
// Allocates and initialises.
FWA_MUST_CHECK fwa_status fwa_model_commit(fwa_model *model, fwa_backend *backend, uint64_t seed);
void fwa_model_destroy(fwa_model *model);

typedef struct fwa_activations {
    fwa_layer_context ctx;
    const fwa_model *model; // borrowed
    bool train;
    fwa_arena *kept, *scratch;        // activations; gradients and the rules' scratch
    fwa_tensor tokens, targets;       // i32 [R]
    fwa_tensor *x;                    // [L+1] residual stream before block l; two buffers alternate without training
    fwa_block_acts *blocks;           // [L]
    fwa_block_scratch *block_scratch; // [L], views of the same memory
    fwa_tensor n, rstd;               // final norm
    fwa_tensor dx;                    // gradient of the residual stream
    fwa_head_acts head;
    int64_t reach; // steps in front of a piece of which document starts are fetched
    int L;
} fwa_activations;

// Where the pieces of sequences are: {NULL, 0} for whole ones.
typedef struct fwa_pieces {
    fwa_comm *sp;  // layers/context.h
    int64_t heads; // the most threads that a rank of sp has
} fwa_pieces;

// Plans activations of `model` for B sequences of T tokens, or for the pieces of T tokens of longer ones that the ranks
// of pieces.sp, which is borrowed, hold. With more than one rank, what runs these activations is Collective over sp.
FWA_MUST_CHECK fwa_status fwa_activations_create(fwa_activations **out, const fwa_model *model, fwa_backend *backend,
                                                 int64_t B, int64_t T, bool train, fwa_pieces pieces);
// The same for segments of T tokens of the sequences of `memory`, which is borrowed: for fwa_model_read.
FWA_MUST_CHECK fwa_status fwa_activations_create_over(fwa_activations **out, fwa_memory *memory, int64_t T);
FWA_MUST_CHECK fwa_status fwa_activations_commit(fwa_activations *acts);
void fwa_activations_destroy(fwa_activations *acts);

// Called when the gradients of `bucket` are complete.
typedef struct fwa_bucket_hook {
    fwa_status (*done)(void *user, int bucket);
    void *user;
} fwa_bucket_hook;

// Copies a batch in: tokens, targets i32 [B,T] in host memory.
FWA_MUST_CHECK fwa_status fwa_model_load(fwa_activations *acts, const int32_t *tokens, const int32_t *targets);
// Forward, loss into *state (device memory), backward: gradients are added to. hook may be NULL. Model and activations
// must have been planned for training.
FWA_MUST_CHECK fwa_status fwa_model_train(fwa_activations *acts, fwa_step_state *state, const fwa_bucket_hook *hook);
// Whether some rule of the model has gates (fwa_gate_sums).
bool fwa_model_has_gates(const fwa_model *model);
// Behind fwa_model_train, before another batch: adds the gates of the batch's tokens in every layer l < L whose rule
// has some to sums[l] (device memory).
FWA_MUST_CHECK fwa_status fwa_model_gates(const fwa_activations *acts, fwa_gate_sums *sums);
// Forward and loss only; predictions in acts->head.prediction.
FWA_MUST_CHECK fwa_status fwa_model_evaluate(fwa_activations *acts, fwa_step_state *state);
// Rows first .. first+count-1 of [B*T].
typedef struct fwa_rows {
    int64_t first, count;
} fwa_rows;
// The same of some rows alone, which saves the head the others: tokens i32 [B,T], and targets of the rows of
// ranges[0 .. n), one behind the other, in host memory. Losses and predictions stand in this order in front of
// acts->head's. Of activations without training; each row in one range at most, at least one row.
FWA_MUST_CHECK fwa_status fwa_model_score(fwa_activations *acts, const int32_t *tokens, const int32_t *targets,
                                          const fwa_rows *ranges, int64_t n, fwa_step_state *state);
// Over a memory: reads T tokens of each sequence, tokens i32 [B,T] in host memory, as what follows those before, and
// keeps what they leave. FWA_CONFIG where a cache has no room for them.
FWA_MUST_CHECK fwa_status fwa_model_read(fwa_activations *acts, const int32_t *tokens);
// acts->head.logits [B,N] act: of what follows the segment of T = 1 that was read last.
FWA_MUST_CHECK fwa_status fwa_model_logits(fwa_activations *acts);

#ifdef __cplusplus
}
#endif
#endif
