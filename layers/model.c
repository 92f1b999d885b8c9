// A language model.
#include "layers/model.h"

#include <stdlib.h>
#include <string.h>

#include "layers/mixer_ring.h"
#include "layers/norm.h"

static fwa_status check_spec(const fwa_model_spec *spec) {
    FWA_CHECK(spec->L >= 1 && spec->L <= FWA_MAX_LAYERS, FWA_CONFIG, "model: got %lld layers, expected 1 to %d",
              (long long)spec->L, FWA_MAX_LAYERS);
    FWA_CHECK(
        spec->D > 0 && spec->H > 0 && spec->K > 0 && spec->F >= 0, FWA_CONFIG,
        "model: got width %lld, %lld head%s of size %lld, ffn %lld; every size must be positive, or ffn 0 for no MLP",
        (long long)spec->D, (long long)spec->H, fwa_plural(spec->H), (long long)spec->K, (long long)spec->F);
    FWA_CHECK(spec->vocab > 0 && spec->vocab <= spec->N, FWA_CONFIG,
              "model: got %lld ids in a vocabulary of %lld; expected 1 to all of them", (long long)spec->vocab,
              (long long)spec->N);
    FWA_CHECK(spec->mixer_count > 0 && spec->mixer_count <= FWA_MAX_MIXERS, FWA_CONFIG,
              "model: got %d mixers, expected 1 to %d", spec->mixer_count, FWA_MAX_MIXERS);
    for (int l = 0; l < spec->L; l++)
        FWA_CHECK(spec->layer_mixer[l] >= 0 && spec->layer_mixer[l] < spec->mixer_count, FWA_CONFIG,
                  "model: layer %d wants mixer %d of %d", l, spec->layer_mixer[l], spec->mixer_count);
    return FWA_OK;
}

static fwa_status plan_params(fwa_model *model, const fwa_backend *backend) {
    const fwa_model_spec *spec = &model->spec;
    const fwa_param_scope first = {&model->params, "", 0}, last = {&model->params, "", (int)spec->L + 1};
    fwa_param embedding = fwa_param_matrix(spec->N, spec->D, 0.02);
    embedding.width_scaled = false;
    FWA_TRY(fwa_params_add(&first, "embedding.weight", embedding, &model->embedding));
    for (int l = 0; l < spec->L; l++)
        FWA_TRY(fwa_block_plan(&model->blocks[l], &model->params, spec, l, backend, l + 1));
    return fwa_norm_plan(&model->final_norm, &last, "norm.weight", spec->D);
}

fwa_status fwa_model_create(fwa_model **out, const fwa_model_spec *spec, const fwa_backend *backend, bool train) {
    fwa_status status = FWA_OK;
    *out = NULL;
    FWA_TRY(check_spec(spec));
    fwa_model *model = calloc(1, sizeof *model);
    FWA_CHECK(model, FWA_MEMORY, "model: out of memory");
    model->spec = *spec;
    model->blocks = calloc((size_t)spec->L, sizeof *model->blocks);
    FWA_CHECK_GOTO(model->blocks, FWA_MEMORY, fail, "model: out of memory for %lld blocks", (long long)spec->L);
    FWA_TRY_GOTO(plan_params(model, backend), fail);
    FWA_TRY_GOTO(fwa_params_plan(&model->params, backend->compute, backend->master, train), fail);
    *out = model;
    return FWA_OK;
fail:
    fwa_model_destroy(model);
    return status;
}

fwa_status fwa_model_commit(fwa_model *model, fwa_backend *backend, uint64_t seed) {
    FWA_TRY(fwa_params_commit(&model->params, backend));
    return fwa_params_initialize(&model->params, backend, seed);
}

void fwa_model_destroy(fwa_model *model) {
    if (!model) return;
    fwa_params_destroy(&model->params);
    free(model->blocks);
    free(model);
}

// Residual stream: every x kept for training, two alternating buffers otherwise.
static fwa_status plan_stream(fwa_activations *acts, int64_t D) {
    const int64_t shape[] = {acts->ctx.B * acts->ctx.T, D};
    for (int l = 0; l <= acts->L; l++) {
        if (l >= 2 && !acts->train) continue;
        FWA_TRY(fwa_arena_plan(acts->kept, &acts->x[l], acts->ctx.backend->compute, 2, shape));
    }
    return FWA_OK;
}

// Steps in front of a piece whose document starts some layer asks for.
static int64_t reach(const fwa_activations *acts, const fwa_model *model) {
    int64_t most = 0;
    for (int l = 0; l < acts->L && fwa_sequence_cut(&acts->ctx); l++)
        most = fwa_max(most, fwa_mixer_ring_reach(&model->blocks[l].mixer, &acts->ctx));
    return most;
}

// Where documents start, here and in front.
static fwa_status plan_documents(fwa_activations *acts, const fwa_model *model, size_t *scratch_bytes) {
    const int64_t here[] = {acts->ctx.B, acts->ctx.T};
    acts->reach = reach(acts, model);
    FWA_TRY(fwa_arena_plan(acts->kept, &acts->ctx.reset, FWA_U8, 2, here));
    if (acts->reach == 0) return FWA_OK;
    const int64_t before[] = {acts->ctx.B, fwa_halo_rows(&acts->ctx, acts->reach)};
    const size_t bytes = fwa_halo_scratch(&acts->ctx, acts->reach, 1);
    if (bytes > *scratch_bytes) *scratch_bytes = bytes;
    return before[1] > 0 ? fwa_arena_plan(acts->kept, &acts->ctx.reset_before, FWA_U8, 2, before) : FWA_OK;
}

// Whether document starts are looked for in the tokens. Over a memory its owner does (fwa_memory_forget).
static bool resets(const fwa_activations *acts) {
    return acts->model->spec.reset_documents && !acts->ctx.memory;
}

static fwa_status plan_activations(fwa_activations *acts, const fwa_model *model) {
    const fwa_layer_context *ctx = &acts->ctx;
    int64_t R = ctx->B * ctx->T, D = model->spec.D;
    const int64_t rows[] = {R}, stream[] = {R, D};
    size_t scratch_bytes = 0;
    FWA_TRY(fwa_arena_plan(acts->kept, &acts->tokens, FWA_I32, 1, rows));
    FWA_TRY(fwa_arena_plan(acts->kept, &acts->targets, FWA_I32, 1, rows));
    if (resets(acts)) FWA_TRY(plan_documents(acts, model, &scratch_bytes));
    FWA_TRY(plan_stream(acts, D));
    FWA_TRY(fwa_arena_plan(acts->kept, &acts->n, ctx->backend->compute, 2, stream));
    FWA_TRY(fwa_arena_plan(acts->kept, &acts->rstd, ctx->backend->master, 1, rows));
    size_t mark = fwa_arena_mark(acts->kept);
    for (int l = 0; l < acts->L; l++) {
        if (!acts->train) fwa_arena_rewind(acts->kept, mark);
        FWA_TRY(fwa_block_plan_acts(&model->blocks[l], ctx, acts->train, acts->kept, &acts->blocks[l], &scratch_bytes));
    }
    if (acts->train) FWA_TRY(fwa_arena_plan(acts->scratch, &acts->dx, ctx->backend->compute, 2, stream));
    mark = fwa_arena_mark(acts->scratch);
    for (int l = 0; l < acts->L; l++) {
        fwa_arena_rewind(acts->scratch, mark);
        FWA_TRY(fwa_block_plan_scratch(&model->blocks[l], ctx, acts->train, acts->scratch, &acts->block_scratch[l],
                                       scratch_bytes));
    }
    // The head runs between the blocks' forward and backward passes, so its logits share their scratch; loss and
    // predictions stay where they are until the next batch.
    fwa_arena_rewind(acts->scratch, mark);
    return fwa_head_plan_acts(ctx, &model->spec, acts->scratch, acts->kept, &acts->head);
}

static fwa_status create_activations(fwa_activations **out, const fwa_model *model, bool train,
                                     const fwa_layer_context *ctx) {
    fwa_status status = FWA_OK;
    fwa_activations *acts = calloc(1, sizeof *acts);
    FWA_CHECK(acts, FWA_MEMORY, "activations: out of memory");
    size_t L = (size_t)model->spec.L;
    acts->model = model;
    acts->L = (int)L;
    acts->train = train;
    acts->ctx = *ctx;
    acts->x = calloc(L + 1, sizeof *acts->x);
    acts->blocks = calloc(L, sizeof *acts->blocks);
    acts->block_scratch = calloc(L, sizeof *acts->block_scratch);
    FWA_CHECK_GOTO(acts->x && acts->blocks && acts->block_scratch, FWA_MEMORY, fail, "activations: out of memory");
    FWA_TRY_GOTO(fwa_arena_create(&acts->kept, train ? "activations" : "activations (evaluation)"), fail);
    FWA_TRY_GOTO(fwa_arena_create(&acts->scratch, train ? "scratch" : "scratch (evaluation)"), fail);
    FWA_TRY_GOTO(plan_activations(acts, model), fail);
    *out = acts;
    return FWA_OK;
fail:
    fwa_activations_destroy(acts);
    return status;
}

fwa_status fwa_activations_create(fwa_activations **out, const fwa_model *model, fwa_backend *backend, int64_t B,
                                  int64_t T, bool train, fwa_pieces pieces) {
    const fwa_layer_context ctx = {.backend = backend,
                                   .params = &model->params,
                                   .sp = pieces.sp,
                                   .heads = pieces.heads,
                                   .B = B,
                                   .T = T,
                                   .position = pieces.sp ? pieces.sp->rank * T : 0};
    return create_activations(out, model, train, &ctx);
}

fwa_status fwa_activations_create_over(fwa_activations **out, fwa_memory *memory, int64_t T) {
    const fwa_layer_context ctx = {
        .backend = memory->backend, .params = &memory->model->params, .memory = memory, .B = memory->B, .T = T};
    return create_activations(out, memory->model, false, &ctx);
}

fwa_status fwa_activations_commit(fwa_activations *acts) {
    FWA_TRY(fwa_arena_commit(acts->kept, acts->ctx.backend));
    FWA_TRY(fwa_arena_commit(acts->scratch, acts->ctx.backend));
    if (!acts->train)
        for (int l = 2; l <= acts->L; l++) acts->x[l] = acts->x[l % 2];
    return FWA_OK;
}

void fwa_activations_destroy(fwa_activations *acts) {
    if (!acts) return;
    fwa_arena_destroy(acts->kept);
    fwa_arena_destroy(acts->scratch);
    free(acts->x);
    free(acts->blocks);
    free(acts->block_scratch);
    free(acts);
}

fwa_status fwa_model_load(fwa_activations *acts, const int32_t *tokens, const int32_t *targets) {
    fwa_backend *backend = acts->ctx.backend;
    size_t bytes = fwa_tensor_bytes(acts->tokens);
    FWA_TRY(backend->upload(backend, backend->stream, acts->tokens.data, tokens, bytes));
    return backend->upload(backend, backend->stream, acts->targets.data, targets, bytes);
}

static fwa_status find_documents(const fwa_activations *acts) {
    const fwa_layer_context *ctx = &acts->ctx;
    const int64_t B = ctx->B, T = ctx->T;
    fwa_tensor before = ctx->reset_before;
    if (fwa_tensor_present(before)) before = fwa_tensor_as_3d(before, B, before.shape[1], 1);
    FWA_TRY(ctx->backend->ops->document_starts(ctx->backend->stream, fwa_tensor_1d(ctx->reset.data, FWA_U8, B * T),
                                               acts->tokens, acts->model->spec.document));
    if (acts->reach == 0) return FWA_OK;
    return fwa_halo_forward(ctx, before, fwa_tensor_as_3d(ctx->reset, B, T, 1), acts->reach,
                            acts->block_scratch[0].mixer.bytes);
}

static fwa_status forward(const fwa_activations *acts) {
    const fwa_model *model = acts->model;
    const fwa_layer_context *ctx = &acts->ctx;
    const fwa_backend *backend = ctx->backend;
    fwa_range_begin(backend, "embedding forward");
    if (resets(acts)) FWA_TRY(find_documents(acts));
    FWA_TRY(
        backend->ops->embedding_forward(backend->stream, acts->x[0], fwa_value(ctx, model->embedding), acts->tokens));
    fwa_range_end(backend);
    for (int l = 0; l < acts->L; l++) {
        fwa_range_begin_numbered(backend, FWA_RANGE_BLOCK, l);
        FWA_TRY(fwa_block_forward(&model->blocks[l], ctx, acts->train, &acts->blocks[l], &acts->block_scratch[l],
                                  acts->x[l + 1], acts->x[l]));
        fwa_range_end(backend);
    }
    return fwa_norm_forward(ctx, model->final_norm, acts->n, acts->rstd, acts->x[acts->L]);
}

static fwa_status done(const fwa_bucket_hook *hook, int bucket) {
    return hook ? hook->done(hook->user, bucket) : FWA_OK;
}

fwa_status fwa_model_train(fwa_activations *acts, fwa_step_state *state, const fwa_bucket_hook *hook) {
    const fwa_model *model = acts->model;
    const fwa_layer_context *ctx = &acts->ctx;
    const fwa_backend *backend = ctx->backend;
    int L = acts->L;
    FWA_CHECK(acts->train && model->params.arena[FWA_PARAM_GRAD], FWA_ERROR,
              "training needs a model and activations planned for it; these are for evaluation");
    FWA_TRY(forward(acts));
    // The gradient of the final norm's output takes the memory of the output itself: the head is the last to read it.
    FWA_TRY(fwa_head_run(ctx, &model->spec, model->embedding, &acts->head, acts->n, acts->n, acts->targets, state));
    FWA_TRY(fwa_norm_backward(ctx, model->final_norm, acts->dx, acts->n, acts->x[L], acts->rstd, false));
    FWA_TRY(done(hook, L + 1));
    for (int l = L - 1; l >= 0; l--) {
        fwa_range_begin_numbered(backend, FWA_RANGE_BLOCK, l);
        FWA_TRY(fwa_block_backward(&model->blocks[l], ctx, &acts->blocks[l], &acts->block_scratch[l], acts->dx,
                                   acts->x[l]));
        fwa_range_end(backend);
        FWA_TRY(done(hook, l + 1));
    }
    FWA_TRY_RANGE(
        backend, "embedding backward",
        backend->ops->embedding_backward(backend->stream, fwa_grad(ctx, model->embedding), acts->dx, acts->tokens));
    return done(hook, 0);
}

bool fwa_model_has_gates(const fwa_model *model) {
    for (int64_t l = 0; l < model->spec.L; l++)
        if (fwa_mixer_layer_has_gates(&model->blocks[l].mixer)) return true;
    return false;
}

fwa_status fwa_model_gates(const fwa_activations *acts, fwa_gate_sums *sums) {
    for (int l = 0; l < acts->L; l++)
        FWA_TRY(fwa_mixer_layer_gates(&acts->model->blocks[l].mixer, &acts->ctx, &acts->blocks[l].mixer,
                                      acts->block_scratch[l].mixer.bytes, sums + l));
    return FWA_OK;
}

fwa_status fwa_model_evaluate(fwa_activations *acts, fwa_step_state *state) {
    const fwa_model *model = acts->model;
    FWA_TRY(forward(acts));
    return fwa_head_run(&acts->ctx, &model->spec, model->embedding, &acts->head, fwa_tensor_absent(), acts->n,
                        acts->targets, state);
}

// The ranges' rows of the final norm behind each other, in the buffer of the residual stream that nobody reads any
// more.
static fwa_status gather_rows(const fwa_activations *acts, const fwa_rows *ranges, int64_t n, fwa_tensor *out) {
    fwa_backend *backend = acts->ctx.backend;
    const size_t row = (size_t)acts->n.shape[1] * fwa_dtype_size(acts->n.dtype);
    const fwa_tensor spare = acts->x[acts->L - 1];
    int64_t rows = 0;
    for (int64_t i = 0; i < n; rows += ranges[i++].count)
        FWA_TRY(backend->copy(backend, backend->stream, (char *)spare.data + (size_t)rows * row,
                              (const char *)acts->n.data + (size_t)ranges[i].first * row,
                              (size_t)ranges[i].count * row));
    *out = fwa_tensor_slice(spare, 0, 0, rows);
    return FWA_OK;
}

fwa_status fwa_model_score(fwa_activations *acts, const int32_t *tokens, const int32_t *targets, const fwa_rows *ranges,
                           int64_t n, fwa_step_state *state) {
    fwa_backend *backend = acts->ctx.backend;
    const fwa_model *model = acts->model;
    fwa_tensor rows, wanted;
    FWA_CHECK(!acts->train && n > 0, FWA_ERROR,
              "scores of rows are of activations for evaluation, and of one at least");
    FWA_TRY(backend->upload(backend, backend->stream, acts->tokens.data, tokens, fwa_tensor_bytes(acts->tokens)));
    FWA_TRY(forward(acts));
    FWA_TRY(gather_rows(acts, ranges, n, &rows));
    wanted = fwa_tensor_slice(acts->targets, 0, 0, rows.shape[0]);
    FWA_TRY(backend->upload(backend, backend->stream, wanted.data, targets, fwa_tensor_bytes(wanted)));
    return fwa_head_run(&acts->ctx, &model->spec, model->embedding, &acts->head, fwa_tensor_absent(), rows, wanted,
                        state);
}

fwa_status fwa_model_read(fwa_activations *acts, const int32_t *tokens) {
    fwa_backend *backend = acts->ctx.backend;
    fwa_memory *memory = acts->ctx.memory;
    const int64_t T = acts->ctx.T;
    FWA_CHECK(memory, FWA_ERROR, "reading on needs activations over a memory; these are of whole sequences");
    FWA_CHECK(memory->capacity == 0 || memory->held + T <= memory->capacity, FWA_CONFIG,
              "the caches of attention have room for %lld, got %lld more than the %lld that they hold",
              (long long)memory->capacity, (long long)T, (long long)memory->held);
    acts->ctx.position = memory->position;
    FWA_TRY(backend->upload(backend, backend->stream, acts->tokens.data, tokens, fwa_tensor_bytes(acts->tokens)));
    FWA_TRY(forward(acts));
    memory->position += T;
    memory->held += T;
    memory->now = 1 - memory->now;
    return FWA_OK;
}

fwa_status fwa_model_logits(fwa_activations *acts) {
    const fwa_model *model = acts->model;
    const fwa_layer_context *ctx = &acts->ctx;
    FWA_CHECK(ctx->memory && ctx->T == 1 && acts->head.rows >= ctx->B, FWA_ERROR,
              "logits are given for segments of one token over a memory, got %lld tokens", (long long)ctx->T);
    return ctx->backend->ops->gemm(ctx->backend->stream, acts->head.logits, acts->n, false,
                                   fwa_value(ctx, model->embedding), true, fwa_tensor_absent(), model->spec.logit_scale,
                                   0.0);
}
