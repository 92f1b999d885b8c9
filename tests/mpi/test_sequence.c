// Sequences cut into pieces over ranks: losses, gradients and gates of every rule, in every setting, are those of whole
// sequences; so is the rule itself, bit by bit, where pieces are whole chunks.
#include "mpi_support.h"

#include "model_case.h"
#include "rule_variants.h"

#include "dist/world.h"
#include "layers/mixer_ring.h"

enum { B = MODEL_B, most_layers = 4 };

static fwa_world *world;
static fwa_gate_sums gates[most_layers]; // of the batch that was trained last

typedef struct batch {
    int64_t B, T;
    int32_t *tokens, *targets; // [B,T]
} batch;

// Every seventh token is `document`, every fifth target is missing.
static batch new_batch(int64_t T, int64_t vocab, int32_t document) {
    batch all = {B, T, check_alloc((size_t)(B * T) * sizeof(int32_t)), check_alloc((size_t)(B * T) * sizeof(int32_t))};
    for (int64_t r = 0; r < B * T; r++) {
        all.tokens[r] = (int32_t)fwa_rng_below(3, 0, (uint64_t)r, (uint64_t)vocab);
        if (document >= 0 && fwa_rng_below(3, 2, (uint64_t)r, 5) == 0) all.tokens[r] = document;
        all.targets[r] = r % 5 == 1 ? -1 : (int32_t)fwa_rng_below(3, 1, (uint64_t)r, (uint64_t)vocab);
    }
    return all;
}

// Of sequences [first, first + count) the columns [begin, begin + T).
static batch piece_of(const batch *all, int64_t first, int64_t count, int64_t begin, int64_t T) {
    const size_t bytes = (size_t)(count * T) * sizeof(int32_t);
    batch piece = {count, T, check_alloc(bytes), check_alloc(bytes)};
    for (int64_t b = 0; b < count; b++) {
        const int64_t from = (first + b) * all->T + begin;
        memcpy(piece.tokens + b * T, all->tokens + from, (size_t)T * sizeof(int32_t));
        memcpy(piece.targets + b * T, all->targets + from, (size_t)T * sizeof(int32_t));
    }
    return piece;
}

// The sums of one batch in *c, those of all ranks of `all` added up where sequences are cut over `sp`; gradients only
// where `train`.
static bool run(model_case *c, const batch *data, fwa_comm *sp, fwa_comm *all, bool train) {
    fwa_activations *acts = NULL;
    fwa_tensor gradients = model_gradients(c);
    bool good =
        fwa_activations_create(&acts, c->model, c->backend, data->B, data->T, train, (fwa_pieces){sp, 1}) == FWA_OK;
    good = good && fwa_activations_commit(acts) == FWA_OK;
    model_clear(c);
    good = good && fwa_model_load(acts, data->tokens, data->targets) == FWA_OK;
    good = good && (train ? fwa_model_train(acts, &c->state, NULL) : fwa_model_evaluate(acts, &c->state)) == FWA_OK;
    memset(gates, 0, sizeof gates);
    good = good && c->model->spec.L <= most_layers;
    if (train) good = good && fwa_model_gates(acts, gates) == FWA_OK;
    fwa_activations_destroy(acts);
    if (!good || !all) return good;
    good = !train || all->all_reduce(all, NULL, gates, most_layers * FWA_GATE_SUMS, FWA_F64, FWA_REDUCE_SUM) == FWA_OK;
    good = good && all->all_reduce(all, NULL, &c->state.loss_sum, 2, FWA_F64, FWA_REDUCE_SUM) == FWA_OK;
    if (!good || !train) return good;
    return all->all_reduce(all, NULL, gradients.data, gradients.shape[0], FWA_F64, FWA_REDUCE_SUM) == FWA_OK;
}

static bool same_sums(const fwa_step_state *a, const fwa_step_state *b) {
    return a->valid == b->valid && fabs(a->loss_sum - b->loss_sum) <= 1e-10 * fabs(b->loss_sum);
}

static bool same_gates(const fwa_gate_sums *a, const fwa_gate_sums *b) {
    return a->steps == b->steps && a->clamped == b->clamped && fabs(a->eta - b->eta) <= 1e-10 * b->eta &&
           fabs(a->alpha - b->alpha) <= 1e-10 * b->alpha && fabs(a->ridge - b->ridge) <= 1e-10 * b->ridge;
}

// Every parameter's gradient; a rule's that no token reaches is 0 both ways.
static bool same_gradients(const model_case *c, fwa_tensor expected, const char *what) {
    const char *base = model_gradients(c).data;
    for (int p = 0; p < c->model->params.count; p++) {
        fwa_tensor got = param_grad(c, p), wanted = got;
        wanted.data = (char *)expected.data + ((char *)got.data - base);
        const double error = check_error(got, wanted);
        if (error <= 1e-9) continue;
        fprintf(stderr, "%s: %s: error %.3g\n", what, c->model->params.at[p].name, error);
        return false;
    }
    return true;
}

// As the world is split: data ranks share out the sequences, the others cut them into pieces of T tokens.
static bool pieces_equal_whole(const fwa_model_spec *spec, int64_t T, const char *what) {
    model_case c;
    const int32_t document = spec->reset_documents ? spec->document : -1;
    const int64_t each = B / world->dp_size;
    model_open(&c, spec);
    batch all = new_batch(T * world->sp_size, spec->vocab, document);
    batch mine = piece_of(&all, world->dp_rank * each, each, world->sp_rank * T, T);
    bool good = run(&c, &all, NULL, NULL, true);
    fwa_step_state sums = c.state;
    fwa_gate_sums whole[most_layers];
    memcpy(whole, gates, sizeof whole);
    fwa_tensor expected = check_duplicate(model_gradients(&c));
    good = good && run(&c, &mine, world->sp, world->all, true);
    good = good && same_sums(&c.state, &sums) && same_gradients(&c, expected, what);
    for (int l = 0; l < most_layers; l++) good = good && same_gates(&gates[l], &whole[l]);
    good = good && run(&c, &mine, world->sp, world->all, false) && same_sums(&c.state, &sums);
    if (!good)
        fprintf(stderr, "rank %d: %s, %s, T %lld: loss %.17g of %g, expected %.17g of %g\n", world->rank,
                spec->mixer[0].name, what, (long long)T, c.state.loss_sum, c.state.valid, sums.loss_sum, sums.valid);
    model_close(&c);
    check_release(NULL);
    return good;
}

// Pieces of 5 tokens, and of one: shorter than the convolutions, the windows and a chunk.
static void losses_and_gradients_equal_those_of_whole_sequences(void **state) {
    (void)state;
    EACH_RULE(rule) {
        model_variant list[MODEL_VARIANTS_MOST];
        const int count = model_variants(rule, list);
        bool good = true;
        for (int i = 0; i < count; i++)
            for (int64_t T = i ? 5 : 1; T <= 5; T += i ? 5 : 1)
                good &= pieces_equal_whole(&list[i].spec, T, list[i].name);
        ASSERT_ALL(good);
    }
}

// Two data ranks, each with one of the sequences.
static void data_ranks_beside_them(void **state) {
    (void)state;
    if (world->size % 2) return;
    ASSERT_ALL(fwa_world_split(world, world->size / 2) == FWA_OK);
    EACH_RULE(rule) {
        const fwa_model_spec spec = model_spec_pair(rule, next_rule(rule));
        ASSERT_ALL(pieces_equal_whole(&spec, 3, "data ranks"));
    }
    ASSERT_ALL(fwa_world_split(world, world->size) == FWA_OK);
}

static void documents_end_at_the_same_tokens(void **state) {
    (void)state;
    EACH_RULE(rule) {
        bool good = true;
        for (int same_step = 0; same_step < 2; same_step++)
            for (int64_t T = 1; T <= 6; T++) {
                fwa_model_spec spec = model_spec(rule);
                spec.reset_documents = true;
                spec.document = 2;
                if (rule->switches & FWA_SWITCH_WINDOW) spec.mixer[0].options.window = 6;
                if (rule->switches & FWA_SWITCH_SHIFT && same_step) spec.mixer[0].options.shift = FWA_SHIFT_SAME_STEP;
                good &= pieces_equal_whole(&spec, T, "documents");
            }
        ASSERT_ALL(good);
    }
}

// A mixer layer between its projection and its output: the rule's inputs at random, [B,T].
typedef struct rule_case {
    fwa_layer_context ctx;
    fwa_arena *kept, *scratch;
    fwa_mixer_acts acts;
    fwa_mixer_scratch d;
} rule_case;

static void open_rule(rule_case *r, model_case *c, int64_t T, fwa_comm *sp) {
    const fwa_block *block = &c->model->blocks[0];
    size_t bytes = 0;
    memset(r, 0, sizeof *r);
    r->ctx =
        (fwa_layer_context){.backend = c->backend, .params = &c->model->params, .sp = sp, .heads = 1, .B = B, .T = T};
    r->ctx.position = sp ? sp->rank * T : 0;
    check_ok(fwa_arena_create(&r->kept, "kept"));
    check_ok(fwa_arena_create(&r->scratch, "scratch"));
    check_ok(fwa_mixer_layer_plan_acts(&block->mixer, &r->ctx, true, r->kept, &r->acts, &bytes));
    check_ok(fwa_mixer_layer_plan_scratch(&block->mixer, &r->ctx, r->scratch, &r->d));
    check_ok(fwa_arena_plan_bytes(r->scratch, &r->d.bytes, bytes));
    check_ok(fwa_arena_commit(r->kept, c->backend));
    check_ok(fwa_arena_commit(r->scratch, c->backend));
}

static void close_rule(rule_case *r) {
    fwa_arena_destroy(r->kept);
    fwa_arena_destroy(r->scratch);
}

// The inputs of a piece are columns of those of the whole: element [b,t,i] is a function of where the token stands.
static void fill_rows_at(fwa_tensor t, int64_t position, uint64_t stream, double low, double high) {
    const int64_t T = t.ndim ? t.shape[1] : 1, n = t.ndim ? fwa_tensor_count(t) / (B * T) : 0;
    for (int64_t i = 0; i < B * T * n; i++) {
        const int64_t b = i / (T * n), at = i / n % T + position;
        check_set(t, i, low + (high - low) * fwa_rng_uniform(stream, (uint64_t)b, (uint64_t)(at * n + i % n)));
    }
}

static void fill_rule(rule_case *r, const fwa_mixer_layer *layer) {
    const int64_t at = r->ctx.position;
    const fwa_mixer_call call = fwa_mixer_layer_call(layer, &r->ctx, true, &r->acts, r->d.bytes);
    fill_rows_at(call.q, at, 1, -1, 1);
    fill_rows_at(call.k, at, 2, -1, 1);
    fill_rows_at(call.v, at, 3, -1, 1);
    fill_rows_at(r->acts.beta, at, 4, 0.1, 0.9);
    fill_rows_at(r->acts.lambda, at, 5, 0, 0.6);
    fill_rows_at(r->acts.log_decay, at, 6, -1, 0);
    fill_rows_at(r->d.d_o, at, 7, -1, 1);
}

// Whether rows of t [B,T,...] are those of `whole` from `position` on, bit by bit.
static bool same_rows(fwa_tensor t, fwa_tensor whole, int64_t position) {
    return t.ndim == 0 || check_differences(t, fwa_tensor_slice(whole, 1, position, t.shape[1])) == 0;
}

// The state that came in, whatever its groups, against S and z at the end of the tokens in front.
static bool same_state(const rule_case *r, const model_case *c, const rule_case *whole) {
    const fwa_mixer_layer *layer = &c->model->blocks[0].mixer;
    const int64_t position = r->ctx.position, K = layer->shape.K, V = layer->shape.V, H = layer->shape.H;
    if (!r->acts.cut.states.ndim) return true;
    fwa_mixer_call call = fwa_mixer_layer_call(layer, &whole->ctx, true, &whole->acts, whole->d.bytes);
    call.shape.T = position;
    call.q = fwa_tensor_slice(call.q, 1, 0, position);
    call.k = fwa_tensor_slice(call.k, 1, 0, position);
    call.v = fwa_tensor_slice(call.v, 1, 0, position);
    call.o = check_new(FWA_F64, B, position, H, V);
    fwa_tensor *scalars[] = {&call.beta, &call.lambda, &call.log_decay};
    for (int i = 0; i < 3; i++)
        if (scalars[i]->ndim) *scalars[i] = fwa_tensor_slice(*scalars[i], 1, 0, position);
    call.out.S = check_new(FWA_F64, B, H, K, V);
    if (call.options.normalized_read) call.out.z = check_new(FWA_F64, B, H, K, 0);
    check_ok(layer->kernels->forward(c->backend, c->backend->stream, &call));
    // Groups follow each other by sequences, then heads, each with S and then z of its heads.
    const fwa_tensor states = r->acts.cut.states;
    const int64_t across = fwa_max(1, states.shape[0] / B), heads = H / across, each = fwa_max(1, B / states.shape[0]);
    bool same = true;
    for (int64_t b = 0; b < B; b++)
        for (int64_t h = 0; h < H; h++) {
            const int64_t g = b / each * across + h / heads, at = b % each * heads + h % heads;
            const double *state = (const double *)states.data + g * states.shape[1];
            const double *S = (const double *)call.out.S.data + (b * H + h) * K * V;
            same &= memcmp(state + at * K * V, S, (size_t)(K * V) * sizeof *S) == 0;
            if (!call.options.normalized_read) continue;
            const double *z = (const double *)call.out.z.data + (b * H + h) * K;
            same &= memcmp(state + each * heads * K * V + at * K, z, (size_t)K * sizeof *z) == 0;
        }
    return same;
}

// o, the states between pieces and the halos that come in, bit by bit; gradients to rounding.
static bool rule_equals_whole(const fwa_rule *rule, const fwa_mixer_options *options, int64_t T) {
    fwa_model_spec spec = model_spec(rule);
    spec.H = 4;
    spec.mixer[0].options = *options;
    model_case c;
    rule_case whole, mine;
    model_open(&c, &spec);
    open_rule(&whole, &c, T * world->size, NULL);
    open_rule(&mine, &c, T, world->sp);
    const fwa_mixer_layer *layer = &c.model->blocks[0].mixer;
    fill_rule(&whole, layer);
    fill_rule(&mine, layer);
    const fwa_mixer_call call = fwa_mixer_layer_call(layer, &whole.ctx, true, &whole.acts, whole.d.bytes);
    const int64_t at = mine.ctx.position, keys = fwa_tail_rows(mine.acts.cut.keys),
                  values = fwa_tail_rows(mine.acts.cut.values);
    bool good = layer->kernels->forward(c.backend, c.backend->stream, &call) == FWA_OK;
    good &= fwa_mixer_ring_forward(layer, &mine.ctx, true, &mine.acts, mine.d.bytes) == FWA_OK;
    if (rule->state == FWA_STATE_MATRIX)
        good &= same_rows(mine.acts.o, whole.acts.o, at);
    else
        good &= check_error(mine.acts.o, fwa_tensor_slice(whole.acts.o, 1, at, T)) < 1e-14;
    good &= same_rows(mine.acts.cut.keys, call.k, at - keys);
    good &= same_rows(mine.acts.cut.values, call.v, at - values);
    good &= same_state(&mine, &c, &whole);
    if (!good) fprintf(stderr, "rank %d: %s, T %lld: not the same\n", world->rank, rule->name, (long long)T);
    close_rule(&whole);
    close_rule(&mine);
    model_close(&c);
    check_release(NULL);
    return good;
}

// Cut on chunk boundaries: pieces of one and of three chunks.
static void rules_are_the_same_bit_by_bit(void **state) {
    (void)state;
    if (world->size == 1) return; // nothing is cut
    EACH_RULE(rule) {
        fwa_mixer_options list[VARIANTS_MOST];
        const int count = rule_variants(rule, list);
        bool good = true;
        for (int i = 0; i < count; i++) {
            list[i].chunk = 4;
            good &= rule_equals_whole(rule, &list[i], 4) && rule_equals_whole(rule, &list[i], 12);
        }
        ASSERT_ALL(good);
    }
}

static struct {
    fwa_status (*exchange)(fwa_comm *, fwa_stream *, const void *, int64_t, int, void *, int64_t, int);
    int64_t sent;
} wire;

static fwa_status counted_exchange(fwa_comm *comm, fwa_stream *stream, const void *send, int64_t send_bytes, int to,
                                   void *recv, int64_t recv_bytes, int from) {
    if (send) wire.sent += send_bytes;
    return wire.exchange(comm, stream, send, send_bytes, to, recv, recv_bytes, from);
}

// Bytes over one boundary between pieces, one way, for one layer (docs/sequence_parallel.md).
static int64_t boundary_bytes(const fwa_mixer_layer *layer) {
    const fwa_mixer_shape *s = &layer->shape;
    const fwa_mixer_options *o = &layer->spec->options;
    const int64_t keys = s->Hq * s->K, values = s->H * s->V;
    int64_t elements = layer->spec->conv > 0 ? (layer->spec->conv - 1) * (2 * keys + values) : 0;
    elements += (o->window - 1) * (keys + values) + (o->shift == FWA_SHIFT_NEXT_LATENT ? keys : 0);
    elements += s->H * s->K * (s->V + (o->normalized_read ? 1 : 0));
    return B * elements * (int64_t)sizeof(double);
}

// A step moves the same bytes for pieces of any length, forward and backward; only attention's grow.
static void what_travels_does_not_grow_with_the_sequence(void **state) {
    (void)state;
    fwa_comm *sp = world->sp;
    wire.exchange = sp->exchange;
    sp->exchange = counted_exchange;
    EACH_RULE(rule) {
        fwa_model_spec spec = model_spec(rule);
        bool good = true;
        for (int64_t T = 12; T <= 24; T += 12) {
            model_case c;
            model_open(&c, &spec);
            const int64_t each = boundary_bytes(&c.model->blocks[0].mixer) * spec.L;
            const int64_t ends = (world->sp_rank < world->sp_size - 1) + (world->sp_rank > 0);
            batch all = new_batch(T * world->sp_size, spec.vocab, -1),
                  mine = piece_of(&all, 0, B, world->sp_rank * T, T);
            wire.sent = 0;
            good &= run(&c, &mine, sp, NULL, true);
            const bool as_said = rule->state != FWA_STATE_MATRIX || wire.sent == each * ends;
            good &= as_said;
            if (!as_said)
                fprintf(stderr, "%s, T %lld: %lld bytes, expected %lld\n", rule->name, (long long)T,
                        (long long)wire.sent, (long long)(each * ends));
            model_close(&c);
            check_release(NULL);
        }
        ASSERT_ALL(good);
    }
    sp->exchange = wire.exchange;
}

int main(int argc, char **argv) {
    if (fwa_world_create(&world, &argc, &argv) != FWA_OK) {
        fprintf(stderr, "%s\n%s\n", fwa_error_message(), fwa_error_trace());
        return 1;
    }
    fwa_world_set_timeout(world, 30); // a rank that fails alone leaves the others in an exchange
    if (fwa_world_split(world, world->size) != FWA_OK) fwa_world_abort(world, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_are_the_same_bit_by_bit),
        cmocka_unit_test(losses_and_gradients_equal_those_of_whole_sequences),
        cmocka_unit_test(what_travels_does_not_grow_with_the_sequence),
        cmocka_unit_test(data_ranks_beside_them),
        cmocka_unit_test(documents_end_at_the_same_tokens),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fwa_world_destroy(world);
    return failed;
}
