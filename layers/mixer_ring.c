// A mixer layer over pieces of sequences.
#include "layers/mixer_ring.h"

#include <stdlib.h>
#include <string.h>

#include "layers/mixer_passes.h"

// Groups in the ring, at most, for every rank: n ranks idle for (n-1) of the n-1 + groups steps of a pass. Fewer where
// kernels hand states over in the middle of a call, and a group that does not fill the device takes as long as all.
enum { GROUPS_A_RANK = 4, GROUPS_HANDED_OVER = 1 };

// Sizes of what a piece needs.
typedef struct ring {
    bool matrix;            // states go round
    bool shared;            // groups share one query head, and add up its gradients
    bool shifted;           // x_t = k_{t-1}
    int64_t conv, columns;  // rows in front of the piece for the convolutions, and their columns of the projection
    int64_t keys, values;   // wanted rows in front of the piece
    int64_t n;              // pairs that come in
    int64_t nb, nq, nh;     // sequences, query heads and value heads of a group
    int64_t groups, across; // their number; of those that share sequences
    int64_t state;          // elements of a group's state
} ring;

// FWA_RING_GROUPS in the environment of all ranks takes the place of the number above, for measuring.
static int64_t most_groups(const fwa_layer_context *ctx, bool handed_over) {
    const char *asked = getenv("FWA_RING_GROUPS");
    const int64_t most = asked ? strtoll(asked, NULL, 10) : 0;
    return most > 0 ? most : (int64_t)(handed_over ? GROUPS_HANDED_OVER : GROUPS_A_RANK) * ctx->sp->size;
}

static fwa_status check_most_groups(void) {
    const char *asked = getenv("FWA_RING_GROUPS");
    char *end = NULL;
    FWA_CHECK(!asked || (strtoll(asked, &end, 10) > 0 && !*end), FWA_USAGE,
              "FWA_RING_GROUPS: got '%s', expected a whole number above 0", asked);
    return FWA_OK;
}

// The most groups of ctx->heads heads, sequences before heads. Value heads of one query head part only where
// no key comes in, as its gradient would have to be added up, too.
static void choose_groups(const fwa_layer_context *ctx, const fwa_mixer_shape *s, bool handed_over, ring *r) {
    const int64_t most = r->matrix ? most_groups(ctx, handed_over) : 1;
    const bool one = s->Hq == 1 && r->keys == 0;
    r->groups = r->across = 1;
    for (int64_t i = 1; i <= ctx->B * s->H; i++) {
        const int64_t sequences = fwa_min(i, ctx->B), heads = i / sequences;
        const bool whole = sequences * heads == i && ctx->B % sequences == 0 && (one ? s->H : s->Hq) % heads == 0;
        if (i > most || !whole || ctx->B * s->H / i < ctx->heads) continue;
        r->groups = i;
        r->across = heads;
    }
    r->shared = one && r->across > 1;
    r->nb = ctx->B / (r->groups / r->across);
    r->nq = one ? 1 : s->Hq / r->across;
    r->nh = s->H / r->across;
}

static ring ring_of(const fwa_mixer_layer *layer, const fwa_layer_context *ctx) {
    const fwa_mixer_spec *spec = layer->spec;
    const fwa_mixer_shape *s = &layer->shape;
    ring r = {.matrix = spec->rule->state == FWA_STATE_MATRIX};
    r.shifted = (spec->rule->switches & FWA_SWITCH_SHIFT) && spec->options.shift == FWA_SHIFT_NEXT_LATENT;
    r.conv = fwa_max(0, spec->conv - 1);
    r.columns = layer->v.at + layer->v.columns;
    r.values = r.matrix ? spec->options.window - 1 : ctx->sp->size * ctx->T;
    r.keys = r.values + (r.shifted ? 1 : 0);
    // The first token of a sequence has no pair under next_latent.
    r.n = fwa_min(r.values, fwa_max(0, ctx->position - (r.shifted ? 1 : 0)));
    choose_groups(ctx, s, layer->kernels->hands_over, &r);
    r.state = r.matrix ? r.nb * r.nh * s->K * (s->V + (spec->options.normalized_read ? 1 : 0)) : 0;
    return r;
}

int64_t fwa_mixer_ring_reach(const fwa_mixer_layer *layer, const fwa_layer_context *ctx) {
    const ring r = ring_of(layer, ctx);
    return fwa_max(r.conv, r.values);
}

// Type of the rows that come in: what the rules take of a window, as they were computed of a cache, which is long.
static fwa_dtype row_type(const fwa_layer_context *ctx, const ring *r) {
    return r->matrix ? ctx->backend->master : ctx->backend->compute;
}

static bool is_first(const fwa_layer_context *ctx) {
    return ctx->sp->rank == 0;
}

static bool is_last(const fwa_layer_context *ctx) {
    return ctx->sp->rank == ctx->sp->size - 1;
}

// What stands in scratch. Planned with no memory behind it for its size.
typedef struct ring_scratch {
    fwa_tensor rule;           // u8, of one group's call
    fwa_tensor send, receive;  // [state] mst: of one group
    fwa_tensor dconv;          // act, as cut.conv
    fwa_tensor dkeys, dvalues; // as cut.keys and cut.values
    fwa_tensor dq, dk;         // act: of a group that shares its query head
    fwa_tensor rows;           // act: keys or values on their way, where the types differ
    fwa_tensor halo;           // u8, of fwa_halo_*
    size_t bytes;
} ring_scratch;

static fwa_tensor take(ring_scratch *s, char *base, fwa_dtype dtype, int ndim, const int64_t *shape) {
    fwa_tensor t = fwa_tensor_nd(base ? base + s->bytes : NULL, dtype, ndim, shape);
    const int64_t bytes = (int64_t)fwa_tensor_bytes(t);
    s->bytes += (size_t)fwa_round_up(bytes, 256);
    return bytes > 0 ? t : fwa_tensor_absent();
}

static int64_t row_bytes(const fwa_layer_context *ctx, int64_t columns) {
    return columns * (int64_t)fwa_dtype_size(ctx->backend->compute);
}

static ring_scratch lay_out(const fwa_mixer_layer *layer, const fwa_layer_context *ctx, const ring *r, size_t rule,
                            char *base) {
    const fwa_mixer_shape *s = &layer->shape;
    const fwa_dtype act = ctx->backend->compute, mst = ctx->backend->master, type = row_type(ctx, r);
    const int64_t B = ctx->B, keys = fwa_halo_rows(ctx, r->keys), values = fwa_halo_rows(ctx, r->values);
    const int64_t conv = is_first(ctx) ? 0 : r->conv, width = fwa_max(s->Hq * s->K, s->H * s->V);
    size_t message = fwa_halo_scratch(ctx, r->conv, (size_t)row_bytes(ctx, r->columns));
    const size_t pairs = fwa_halo_scratch(ctx, r->keys, (size_t)row_bytes(ctx, width));
    ring_scratch x;
    memset(&x, 0, sizeof x);
    if (pairs > message) message = pairs;
    x.rule = take(&x, base, FWA_U8, 1, (int64_t[]){(int64_t)rule});
    x.halo = take(&x, base, FWA_U8, 1, (int64_t[]){(int64_t)message});
    x.send = take(&x, base, mst, 1, (int64_t[]){r->state});
    x.receive = take(&x, base, mst, 1, (int64_t[]){r->state});
    x.dconv = take(&x, base, act, 3, (int64_t[]){B, conv, r->columns});
    x.dkeys = take(&x, base, type, 4, (int64_t[]){B, keys, s->Hq, s->K});
    x.dvalues = take(&x, base, type, 4, (int64_t[]){B, values, s->H, s->V});
    if (r->shared) {
        x.dq = take(&x, base, act, 4, (int64_t[]){r->nb, ctx->T, 1, s->K});
        x.dk = take(&x, base, act, 4, (int64_t[]){r->nb, ctx->T, 1, s->K});
    }
    if (act != type) x.rows = take(&x, base, act, 2, (int64_t[]){B * keys, width});
    return x;
}

static fwa_tensor slice(fwa_tensor t, int dim, int64_t start, int64_t count) {
    return t.ndim > 0 ? fwa_tensor_slice(t, dim, start, count) : t;
}

// First sequence and first group of heads of group g.
static int64_t first_sequence(const ring *r, int64_t g) {
    return g / r->across * r->nb;
}

// The group's part of t [B,T,heads,...]; of a tensor without heads its sequences.
static fwa_tensor of_group(const ring *r, fwa_tensor t, int64_t g, int64_t heads) {
    t = slice(t, 0, first_sequence(r, g), r->nb);
    return heads > 0 ? slice(t, 2, g % r->across * heads, heads) : t;
}

// The same of a tensor of query heads.
static fwa_tensor of_queries(const ring *r, fwa_tensor t, int64_t g) {
    return of_group(r, t, g, r->shared ? 0 : r->nq);
}

// Row `row` of t [B,rows,heads,K] as [B,heads,K].
static fwa_tensor row_of(fwa_tensor t, int64_t row) {
    fwa_tensor out = slice(t, 1, row, 1);
    for (int i = 1; i < 3; i++) {
        out.shape[i] = out.shape[i + 1];
        out.stride[i] = out.stride[i + 1];
    }
    out.ndim = 3;
    return out;
}

// S, and z under a normalised read, in memory of r->state elements.
static void view_state(const fwa_mixer_layer *layer, const ring *r, fwa_dtype mst, char *at, fwa_mixer_state *state) {
    const fwa_mixer_shape *s = &layer->shape;
    const int64_t count = r->nb * r->nh * s->K * s->V;
    state->S = fwa_tensor_4d(at, mst, r->nb, r->nh, s->K, s->V);
    if (layer->spec->options.normalized_read)
        state->z = fwa_tensor_3d(at ? at + (size_t)count * fwa_dtype_size(mst) : NULL, mst, r->nb, r->nh, s->K);
}

// k_last and tails of group g, of states or of their gradients.
static void view_pairs(const ring *r, fwa_tensor keys, fwa_tensor values, int64_t g, fwa_mixer_state *state) {
    if (r->shifted && keys.ndim) state->k_last = row_of(of_queries(r, keys, g), keys.shape[1] - 1);
    if (r->n == 0) return;
    state->tail_x = slice(of_queries(r, keys, g), 1, 0, r->n);
    state->tail_v = slice(of_group(r, values, g, r->nh), 1, values.shape[1] - r->n, r->n);
}

static fwa_mixer_call call_of(const fwa_mixer_layer *layer, const fwa_layer_context *ctx, bool train,
                              const fwa_mixer_acts *acts, const ring *r, int64_t g) {
    fwa_mixer_call call = fwa_mixer_layer_call(layer, ctx, train, acts, fwa_tensor_absent());
    const fwa_tensor states = acts->cut.states, before = ctx->reset_before;
    call.shape.B = r->nb;
    call.shape.Hq = r->nq;
    call.shape.H = r->nh;
    call.q = of_queries(r, call.q, g);
    call.k = of_queries(r, call.k, g);
    call.v = of_group(r, call.v, g, r->nh);
    call.o = of_group(r, call.o, g, r->nh);
    call.beta = of_group(r, call.beta, g, r->nh);
    call.lambda = of_group(r, call.lambda, g, r->nh);
    call.log_decay = of_group(r, call.log_decay, g, r->nh);
    call.reset = of_group(r, call.reset, g, 0);
    if (states.ndim) view_state(layer, r, states.dtype, fwa_tensor_slice(states, 0, g, 1).data, &call.in);
    view_pairs(r, acts->cut.keys, acts->cut.values, g, &call.in);
    if (before.ndim && r->n > 0) call.tail_reset = slice(of_group(r, before, g, 0), 1, before.shape[1] - r->n, r->n);
    call.saved =
        slice(call.saved, 0, g * (fwa_tensor_count(call.saved) / r->groups), fwa_tensor_count(call.saved) / r->groups);
    return call;
}

// Whether an earlier group has written the gradients of this one's queries and keys.
static bool adds(const ring *r, int64_t g) {
    return r->shared && g % r->across > 0;
}

static fwa_mixer_grads grads_of(const fwa_mixer_layer *layer, const fwa_layer_context *ctx, const fwa_mixer_scratch *d,
                                const ring *r, const ring_scratch *x, int64_t g) {
    const fwa_mixer_grads all = fwa_mixer_layer_grads(layer, ctx, d);
    fwa_mixer_grads grads;
    memset(&grads, 0, sizeof grads);
    grads.d_o = of_group(r, all.d_o, g, r->nh);
    grads.dq = adds(r, g) ? x->dq : of_queries(r, all.dq, g);
    grads.dk = adds(r, g) ? x->dk : of_queries(r, all.dk, g);
    grads.dv = of_group(r, all.dv, g, r->nh);
    grads.dbeta = of_group(r, all.dbeta, g, r->nh);
    grads.dlambda = of_group(r, all.dlambda, g, r->nh);
    grads.dlog_decay = of_group(r, all.dlog_decay, g, r->nh);
    view_pairs(r, x->dkeys, x->dvalues, g, &grads.d_in);
    return grads;
}

// Bytes of one group's call. Its state leaves unless the piece is the last one.
static fwa_status call_sizes(const fwa_mixer_layer *layer, const fwa_layer_context *ctx, bool train,
                             const fwa_mixer_acts *acts, const ring *r, size_t *saved, size_t *scratch) {
    fwa_mixer_call call = call_of(layer, ctx, train, acts, r, 0);
    if (r->matrix && !is_last(ctx)) view_state(layer, r, ctx->backend->master, NULL, &call.out);
    FWA_TRY(layer->kernels->sizes(ctx->backend, &call, saved, scratch));
    *saved = (size_t)fwa_round_up((int64_t)*saved, 256);
    return FWA_OK;
}

fwa_status fwa_mixer_ring_plan(const fwa_mixer_layer *layer, const fwa_layer_context *ctx, bool train, fwa_arena *arena,
                               fwa_mixer_acts *acts, size_t *scratch_bytes) {
    const fwa_mixer_shape *s = &layer->shape;
    const fwa_dtype act = ctx->backend->compute, mst = ctx->backend->master;
    const ring r = ring_of(layer, ctx);
    const fwa_dtype type = row_type(ctx, &r);
    const int64_t B = ctx->B, keys = fwa_halo_rows(ctx, r.keys), values = fwa_halo_rows(ctx, r.values);
    fwa_mixer_cut *cut = &acts->cut;
    FWA_TRY(check_most_groups());
    if (r.conv > 0 && !is_first(ctx))
        FWA_TRY(fwa_arena_plan(arena, &cut->conv, act, 3, (int64_t[]){B, r.conv, r.columns}));
    if (keys > 0) FWA_TRY(fwa_arena_plan(arena, &cut->keys, type, 4, (int64_t[]){B, keys, s->Hq, s->K}));
    if (values > 0) FWA_TRY(fwa_arena_plan(arena, &cut->values, type, 4, (int64_t[]){B, values, s->H, s->V}));
    if (r.matrix && !is_first(ctx))
        FWA_TRY(fwa_arena_plan(arena, &cut->states, mst, 2, (int64_t[]){r.groups, r.state}));
    size_t saved = 0, rule = 0;
    FWA_TRY(call_sizes(layer, ctx, train, acts, &r, &saved, &rule));
    if (saved > 0) FWA_TRY(fwa_arena_plan_bytes(arena, &acts->saved, (size_t)r.groups * saved));
    const ring_scratch x = lay_out(layer, ctx, &r, rule, NULL);
    if (x.bytes > *scratch_bytes) *scratch_bytes = x.bytes;
    return FWA_OK;
}

// The layout of scratch for a call that has been planned.
static fwa_status open_scratch(const fwa_mixer_layer *layer, const fwa_layer_context *ctx, bool train,
                               const fwa_mixer_acts *acts, const ring *r, fwa_tensor scratch, ring_scratch *x) {
    size_t saved, rule;
    FWA_TRY(call_sizes(layer, ctx, train, acts, r, &saved, &rule));
    *x = lay_out(layer, ctx, r, rule, scratch.data);
    return FWA_OK;
}

// The rows of `columns` columns of the projection, or of its gradient, that the convolutions read.
static fwa_tensor conv_rows(const fwa_layer_context *ctx, const ring *r, fwa_tensor proj) {
    return fwa_tensor_as_3d(fwa_tensor_slice(proj, 1, 0, r->columns), ctx->B, ctx->T, r->columns);
}

// Rows from before the last document start in front of this piece are not seen by its convolutions.
static fwa_status mask_conv(const fwa_layer_context *ctx, const ring *r, fwa_tensor conv) {
    const int64_t rows = fwa_halo_rows(ctx, r->conv);
    const fwa_tensor before = ctx->reset_before;
    if (!fwa_tensor_present(before) || !fwa_tensor_present(conv)) return FWA_OK;
    return ctx->backend->ops->halo_mask(ctx->backend->stream, fwa_tensor_slice(conv, 1, r->conv - rows, rows),
                                        fwa_tensor_slice(before, 1, before.shape[1] - rows, rows));
}

fwa_status fwa_mixer_ring_conv(const fwa_mixer_layer *layer, const fwa_layer_context *ctx, const fwa_mixer_acts *acts,
                               fwa_tensor scratch) {
    const ring r = ring_of(layer, ctx);
    if (r.conv == 0) return FWA_OK;
    FWA_TRY(fwa_halo_forward(ctx, acts->cut.conv, conv_rows(ctx, &r, acts->proj), r.conv, scratch));
    return mask_conv(ctx, &r, acts->cut.conv);
}

fwa_tensor fwa_mixer_ring_dconv(const fwa_mixer_layer *layer, const fwa_layer_context *ctx,
                                const fwa_mixer_scratch *d) {
    if (!fwa_sequence_cut(ctx)) return fwa_tensor_absent();
    const ring r = ring_of(layer, ctx);
    return lay_out(layer, ctx, &r, 0, d->bytes.data).dconv;
}

fwa_status fwa_mixer_ring_conv_backward(const fwa_mixer_layer *layer, const fwa_layer_context *ctx,
                                        const fwa_mixer_scratch *d) {
    const ring r = ring_of(layer, ctx);
    if (r.conv == 0) return FWA_OK;
    const ring_scratch x = lay_out(layer, ctx, &r, 0, d->bytes.data);
    FWA_TRY(mask_conv(ctx, &r, x.dconv));
    return fwa_halo_backward(ctx, conv_rows(ctx, &r, d->dproj), x.dconv, r.conv, x.halo);
}

// t [B,rows,heads,K] as [B,rows,heads*K]; of another type in front of it in `rows`.
static fwa_tensor rows_like(const ring_scratch *x, fwa_tensor t, fwa_dtype act) {
    if (!fwa_tensor_present(t)) return t;
    void *data = t.dtype == act ? t.data : x->rows.data;
    return fwa_tensor_3d(data, act, t.shape[0], t.shape[1], t.shape[2] * t.shape[3]);
}

// kept [B,rows,heads,K] = the rows of x [B,T,heads,K] act in front of this piece.
static fwa_status receive_rows(const fwa_layer_context *ctx, const ring_scratch *s, fwa_tensor kept, fwa_tensor x,
                               int64_t wanted) {
    if (wanted == 0) return FWA_OK;
    const fwa_tensor rows = rows_like(s, kept, x.dtype);
    const fwa_tensor here = fwa_tensor_as_3d(x, ctx->B, ctx->T, x.shape[2] * x.shape[3]);
    FWA_TRY(fwa_halo_forward(ctx, rows, here, wanted, s->halo));
    if (!fwa_tensor_present(kept) || kept.dtype == x.dtype) return FWA_OK;
    return ctx->backend->ops->cast(ctx->backend->stream, fwa_tensor_1d(kept.data, kept.dtype, fwa_tensor_count(kept)),
                                   fwa_tensor_1d(rows.data, rows.dtype, fwa_tensor_count(rows)));
}

// dx [B,T,heads,K] act += what the ranks behind have for it; `d` is what this one has for those before.
static fwa_status return_rows(const fwa_layer_context *ctx, const ring_scratch *s, fwa_tensor dx, fwa_tensor d,
                              int64_t wanted) {
    if (wanted == 0) return FWA_OK;
    const fwa_tensor rows = rows_like(s, d, dx.dtype);
    if (fwa_tensor_present(d) && d.dtype != dx.dtype)
        FWA_TRY(ctx->backend->ops->cast(ctx->backend->stream,
                                        fwa_tensor_1d(rows.data, rows.dtype, fwa_tensor_count(rows)),
                                        fwa_tensor_1d(d.data, d.dtype, fwa_tensor_count(d))));
    const fwa_tensor here = fwa_tensor_as_3d(dx, ctx->B, ctx->T, dx.shape[2] * dx.shape[3]);
    return fwa_halo_backward(ctx, here, rows, wanted, s->halo);
}

// One step of the ring: `send` to the rank `step` further on, `receive` from the one as far back; absent: that side has
// nothing to do.
static fwa_status pass_on(const fwa_layer_context *ctx, fwa_tensor send, fwa_tensor receive, int step) {
    fwa_comm *sp = ctx->sp;
    const bool sends = fwa_tensor_present(send), receives = fwa_tensor_present(receive);
    if (!sends && !receives) return FWA_OK;
    return sp->exchange(sp, ctx->backend->stream, send.data, sends ? (int64_t)fwa_tensor_bytes(send) : 0,
                        sends ? sp->rank + step : 0, receive.data, receives ? (int64_t)fwa_tensor_bytes(receive) : 0,
                        receives ? sp->rank - step : 0);
}

// A group's state on its way while its call is under way.
typedef struct handing {
    const fwa_layer_context *ctx;
    fwa_tensor send, receive;
    int step;
} handing;

static fwa_status receive_state(void *context) {
    const handing *h = context;
    return pass_on(h->ctx, fwa_tensor_absent(), h->receive, h->step);
}

static fwa_status send_state(void *context) {
    const handing *h = context;
    return pass_on(h->ctx, h->send, fwa_tensor_absent(), h->step);
}

// While this rank works on group g, the next one works on group g - 1, whose state it gets as this one gets that of g:
// in front of the call, or where its kernels ask for it.
fwa_status fwa_mixer_ring_forward(const fwa_mixer_layer *layer, const fwa_layer_context *ctx, bool train,
                                  const fwa_mixer_acts *acts, fwa_tensor scratch) {
    const ring r = ring_of(layer, ctx);
    const fwa_backend *backend = ctx->backend;
    const fwa_tensor none = fwa_tensor_absent();
    ring_scratch x;
    FWA_TRY(open_scratch(layer, ctx, train, acts, &r, scratch, &x));
    const fwa_mixer_call all = fwa_mixer_layer_call(layer, ctx, train, acts, none);
    FWA_TRY(receive_rows(ctx, &x, acts->cut.keys, all.k, r.keys));
    FWA_TRY(receive_rows(ctx, &x, acts->cut.values, all.v, r.values));
    const fwa_tensor send = is_last(ctx) ? none : x.send;
    const bool hands_over = layer->kernels->hands_over;
    for (int64_t g = 0; g < r.groups; g++) {
        fwa_mixer_call call = call_of(layer, ctx, train, acts, &r, g);
        handing states = {ctx, send, slice(acts->cut.states, 0, g, 1), 1};
        const fwa_handover handover = {&states, receive_state, send_state};
        if (hands_over)
            call.handover = &handover;
        else
            FWA_TRY(pass_on(ctx, g ? send : none, states.receive, 1));
        call.scratch = x.rule;
        if (fwa_tensor_present(send)) view_state(layer, &r, send.dtype, send.data, &call.out);
        FWA_TRY(layer->kernels->forward(backend, backend->stream, &call));
    }
    return hands_over ? FWA_OK : pass_on(ctx, send, none, 1);
}

static fwa_status run_backward(const fwa_mixer_layer *layer, const fwa_layer_context *ctx, const fwa_mixer_acts *acts,
                               const fwa_mixer_scratch *d, const ring *r, const ring_scratch *x) {
    const fwa_backend *backend = ctx->backend;
    const fwa_tensor none = fwa_tensor_absent();
    const fwa_tensor send = is_first(ctx) ? none : x->send, receive = is_last(ctx) ? none : x->receive;
    const bool hands_over = layer->kernels->hands_over;
    for (int64_t g = 0; g < r->groups; g++) {
        fwa_mixer_call call = call_of(layer, ctx, true, acts, r, g);
        fwa_mixer_grads grads = grads_of(layer, ctx, d, r, x, g);
        handing states = {ctx, send, receive, -1};
        const fwa_handover handover = {&states, receive_state, send_state};
        if (hands_over)
            call.handover = &handover;
        else
            FWA_TRY(pass_on(ctx, g ? send : none, receive, -1));
        call.scratch = x->rule;
        if (fwa_tensor_present(receive)) view_state(layer, r, receive.dtype, receive.data, &grads.d_out);
        if (fwa_tensor_present(send)) view_state(layer, r, send.dtype, send.data, &grads.d_in);
        FWA_TRY(layer->kernels->backward(backend, backend->stream, &call, &grads));
        if (!adds(r, g)) continue;
        FWA_TRY(backend->ops->add(backend->stream, of_queries(r, d->dq, g), grads.dq));
        FWA_TRY(backend->ops->add(backend->stream, of_queries(r, d->dk, g), grads.dk));
    }
    return hands_over ? FWA_OK : pass_on(ctx, send, none, -1);
}

fwa_status fwa_mixer_ring_backward(const fwa_mixer_layer *layer, const fwa_layer_context *ctx,
                                   const fwa_mixer_acts *acts, const fwa_mixer_scratch *d) {
    const ring r = ring_of(layer, ctx);
    fwa_backend *backend = ctx->backend;
    ring_scratch x;
    FWA_TRY(open_scratch(layer, ctx, true, acts, &r, d->bytes, &x));
    // A value in front of the first pair that came in has no gradient.
    if (fwa_tensor_present(x.dvalues) && x.dvalues.shape[1] > r.n)
        FWA_TRY(backend->fill(backend, backend->stream, x.dvalues.data, 0, fwa_tensor_bytes(x.dvalues)));
    FWA_TRY(run_backward(layer, ctx, acts, d, &r, &x));
    const fwa_mixer_grads all = fwa_mixer_layer_grads(layer, ctx, d);
    FWA_TRY(return_rows(ctx, &x, all.dk, x.dkeys, r.keys));
    return return_rows(ctx, &x, all.dv, x.dvalues, r.values);
}

fwa_status fwa_mixer_ring_gates(const fwa_mixer_layer *layer, const fwa_layer_context *ctx, const fwa_mixer_acts *acts,
                                fwa_tensor scratch, fwa_gate_sums *sums) {
    const ring r = ring_of(layer, ctx);
    ring_scratch x;
    FWA_TRY(open_scratch(layer, ctx, true, acts, &r, scratch, &x));
    for (int64_t g = 0; g < r.groups; g++) {
        fwa_mixer_call call = call_of(layer, ctx, true, acts, &r, g);
        call.scratch = x.rule;
        FWA_TRY(layer->kernels->gates(ctx->backend, ctx->backend->stream, &call, sums));
    }
    return FWA_OK;
}
