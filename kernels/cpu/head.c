// Moves one head between the tensors of a call and contiguous arrays (head.h).
#include "kernels/cpu/head.h"

#include "core/shape.h"
#include "kernels/cpu/lanes.h"

static real *at3(fwa_tensor t, int64_t i, int64_t j, int64_t k) {
    return (real *)t.data + i * t.stride[0] + j * t.stride[1] + k * t.stride[2];
}

static real *at2(fwa_tensor t, int64_t i, int64_t j) {
    return (real *)t.data + i * t.stride[0] + j * t.stride[1];
}

static bool normalized(const fwa_head *head) {
    return head->call->options.normalized_read;
}

static fwa_core_task plan_task(const fwa_rule *rule, const fwa_mixer_call *call, bool decay_first) {
    const fwa_mixer_options *options = &call->options;
    const fwa_mixer_shape *shape = &call->shape;
    const int64_t n = fwa_tail_rows(call->in.tail_x);
    return (fwa_core_task){
        .T = shape->T,
        .n = n,
        .K = shape->K,
        .V = shape->V + (options->normalized_read ? 1 : 0),
        .halo = rule->state == FWA_STATE_CACHE ? n + shape->T : options->window - 1,
        .chunk = call->form == FWA_FORM_PARALLEL ? n + shape->T : options->chunk,
        .form = call->form,
        .save = call->save,
        .before = options->read == FWA_READ_BEFORE_WRITE,
        .decay_first = decay_first,
        .scale = (real)pow((double)shape->K, rule->qk_scale_power),
    };
}

fwa_head FWA_T(fwa_head_plan)(const fwa_rule *rule, const fwa_mixer_call *call, bool decay_first, bool backward,
                              char *memory) {
    fwa_head head = {.rule = rule, .call = call, .task = plan_task(rule, call, decay_first)};
    const int64_t T = head.task.T, K = head.task.K, V = head.task.V, rows = head.task.n + T;
    fwa_bump bump = {.base = memory};
    head.rows = rows;
    head.columns = rule->inputs & FWA_INPUT_BETA_CHANNEL ? V : 1;
    head.shifted = (rule->switches & FWA_SWITCH_SHIFT) && call->options.shift == FWA_SHIFT_NEXT_LATENT;
    head.q = FWA_TAKE(&bump, real, T * K);
    head.x = FWA_TAKE(&bump, real, rows * K);
    head.v = FWA_TAKE(&bump, real, rows * V);
    head.o = FWA_TAKE(&bump, real, T * V);
    head.S = FWA_TAKE(&bump, real, K * V);
    head.w = FWA_TAKE(&bump, real, T * head.columns);
    head.gamma = FWA_TAKE(&bump, real, T * head.columns);
    for (int i = 0; i < 3; i++) head.scalars[i] = FWA_TAKE(&bump, real, T * (i ? 1 : head.columns));
    head.first = FWA_TAKE(&bump, int64_t, T);
    head.drop = FWA_TAKE(&bump, uint8_t, T);
    head.energy = FWA_TAKE(&bump, double, T);
    if (backward) {
        head.d_o = FWA_TAKE(&bump, real, T * V);
        head.dq = FWA_TAKE(&bump, real, T * K);
        head.dx = FWA_TAKE(&bump, real, rows * K);
        head.dv = FWA_TAKE(&bump, real, rows * V);
        head.dS = FWA_TAKE(&bump, real, K * V);
        head.dw = FWA_TAKE(&bump, real, T * head.columns);
        head.dgamma = FWA_TAKE(&bump, real, T * head.columns);
        for (int i = 0; i < 3; i++) head.dscalars[i] = FWA_TAKE(&bump, real, T * (i ? 1 : head.columns));
        head.denergy = FWA_TAKE(&bump, double, T);
    }
    head.bytes = bump.used;
    head.task.first = head.first;
    head.task.drop = head.drop;
    head.task.q = head.q;
    head.task.x = head.x;
    head.task.v = head.v;
    head.task.w = head.w;
    head.task.gamma = head.gamma;
    head.task.o = head.o;
    head.task.S = head.S;
    head.task.scratch = (fwa_bump){.base = memory ? memory + bump.used : NULL};
    return head;
}

// First pair of the document that the tail ends with.
static int64_t tail_start(const fwa_head *head, int64_t b) {
    const fwa_tensor reset = head->call->tail_reset;
    for (int64_t j = fwa_tensor_present(reset) ? head->task.n - 1 : -1; j >= 0; j--)
        if (((const uint8_t *)reset.data)[b * reset.stride[0] + j]) return j + (head->shifted ? 1 : 0);
    return 0;
}

void FWA_T(fwa_head_windows)(fwa_head *head, int64_t b) {
    const fwa_tensor reset = head->call->reset;
    const int64_t n = head->task.n;
    const bool fresh = head->shifted && !fwa_tensor_present(head->call->in.k_last);
    int64_t start = fresh ? n + 1 : tail_start(head, b); // first pair of the document
    for (int64_t t = 0; t < head->task.T; t++) {
        const bool drop = fwa_tensor_present(reset) && ((const uint8_t *)reset.data)[b * reset.stride[0] + t];
        if (drop) start = n + t + (head->shifted ? 1 : 0);
        head->drop[t] = drop;
        head->first[t] = fwa_max(start, n + t - head->task.halo);
    }
}

// Row n + t of x stands for no pair.
static bool row_is_empty(const fwa_head *head, int64_t t) {
    return head->first[t] > head->task.n + t;
}

void FWA_T(fwa_head_gather_keys)(const fwa_head *head, int64_t b, int64_t hq) {
    const fwa_mixer_call *call = head->call;
    const int64_t n = head->task.n, K = head->task.K;
    for (int64_t j = 0; j < n; j++) fwa_copy(head->x + j * K, at3(call->in.tail_x, b, j, hq), K);
    for (int64_t t = 0; t < head->task.T; t++) {
        real *row = head->x + (n + t) * K;
        fwa_copy(head->q + t * K, at3(call->q, b, t, hq), K);
        if (row_is_empty(head, t))
            fwa_zero(row, K);
        else if (!head->shifted)
            fwa_copy(row, at3(call->k, b, t, hq), K);
        else
            fwa_copy(row, t ? at3(call->k, b, t - 1, hq) : at2(call->in.k_last, b, hq), K);
    }
}

// Element [b,t,h] of a scalar, or the first of its values per channel.
static real *scalar_at(fwa_tensor t, int64_t b, int64_t time, int64_t h) {
    return t.ndim == 4 ? at3(t, b, time, h) : at2(t, b, time) + h;
}

static void gather_scalar(real *to, fwa_tensor from, int64_t b, int64_t h, int64_t T) {
    const int64_t columns = from.ndim == 4 ? from.shape[3] : 1;
    if (!fwa_tensor_present(from)) return;
    for (int64_t t = 0; t < T; t++) fwa_copy(to + t * columns, scalar_at(from, b, t, h), columns);
}

static void scatter_scalar(fwa_tensor to, const real *from, int64_t b, int64_t h, int64_t T) {
    const int64_t columns = to.ndim == 4 ? to.shape[3] : 1;
    if (!fwa_tensor_present(to)) return;
    for (int64_t t = 0; t < T; t++) fwa_copy(scalar_at(to, b, t, h), from + t * columns, columns);
}

// S [K,V] and its extra column z into `to` [K, V or V+1]; absent: zeros.
static void gather_state(const fwa_head *head, real *to, const fwa_mixer_state *from, int64_t b, int64_t h) {
    const int64_t K = head->task.K, V = head->call->shape.V, width = head->task.V;
    fwa_zero(to, K * width);
    for (int64_t k = 0; k < K; k++) {
        if (fwa_tensor_present(from->S)) fwa_copy(to + k * width, at3(from->S, b, h, k), V);
        if (normalized(head) && fwa_tensor_present(from->z)) to[k * width + V] = at2(from->z, b, h)[k];
    }
}

static void scatter_state(const fwa_head *head, const fwa_mixer_state *to, const real *from, int64_t b, int64_t h) {
    const int64_t K = head->task.K, V = head->call->shape.V, width = head->task.V;
    for (int64_t k = 0; k < K; k++) {
        if (fwa_tensor_present(to->S)) fwa_copy(at3(to->S, b, h, k), from + k * width, V);
        if (normalized(head) && fwa_tensor_present(to->z)) at2(to->z, b, h)[k] = from[k * width + V];
    }
}

void FWA_T(fwa_head_gather_values)(const fwa_head *head, int64_t b, int64_t h) {
    const fwa_mixer_call *call = head->call;
    const int64_t T = head->task.T, n = head->task.n, V = call->shape.V, width = head->task.V;
    for (int64_t j = 0; j < head->rows; j++) {
        real *row = head->v + j * width;
        fwa_copy(row, j < n ? at3(call->in.tail_v, b, j, h) : at3(call->v, b, j - n, h), V);
        if (normalized(head)) row[V] = 1;
    }
    gather_scalar(head->scalars[0], call->beta, b, h, T);
    gather_scalar(head->scalars[1], call->lambda, b, h, T);
    gather_scalar(head->scalars[2], call->log_decay, b, h, T);
    gather_state(head, head->S, &call->in, b, h);
}

// o = S^T q / (z^T q + eps_attn)
static void divide_read(const fwa_head *head, real *o, const real *raw) {
    const int64_t V = head->call->shape.V;
    const real inverse = 1 / (raw[V] + (real)head->call->options.eps_attn);
    fwa_scaled(o, inverse, raw, V);
}

void FWA_T(fwa_head_scatter_values)(const fwa_head *head, int64_t b, int64_t h, real *raw) {
    const fwa_mixer_call *call = head->call;
    const int64_t T = head->task.T, V = call->shape.V, width = head->task.V, leaving = fwa_tail_rows(call->out.tail_v);
    if (raw) fwa_copy(raw, head->o, T * width);
    for (int64_t t = 0; t < T; t++) {
        if (normalized(head))
            divide_read(head, at3(call->o, b, t, h), head->o + t * width);
        else
            fwa_copy(at3(call->o, b, t, h), head->o + t * width, V);
    }
    scatter_state(head, &call->out, head->S, b, h);
    for (int64_t i = 0; i < leaving; i++)
        fwa_copy(at3(call->out.tail_v, b, i, h), head->v + (head->rows - leaving + i) * width, V);
}

void FWA_T(fwa_head_scatter_keys)(const fwa_head *head, int64_t b, int64_t hq) {
    const fwa_mixer_call *call = head->call;
    const int64_t K = head->task.K, leaving = fwa_tail_rows(call->out.tail_x);
    if (fwa_tensor_present(call->out.k_last))
        fwa_copy(at2(call->out.k_last, b, hq), at3(call->k, b, head->task.T - 1, hq), K);
    for (int64_t i = 0; i < leaving; i++)
        fwa_copy(at3(call->out.tail_x, b, i, hq), head->x + (head->rows - leaving + i) * K, K);
}

void FWA_T(fwa_head_gather_grads)(const fwa_head *head, const fwa_mixer_grads *grads, int64_t b, int64_t h,
                                  const real *raw) {
    const fwa_mixer_call *call = head->call;
    const int64_t T = head->task.T, V = call->shape.V, width = head->task.V;
    for (int64_t t = 0; t < T; t++) {
        real *row = head->d_o + t * width;
        if (!fwa_tensor_present(grads->d_o)) {
            fwa_zero(row, width);
        } else if (!normalized(head)) {
            fwa_copy(row, at3(grads->d_o, b, t, h), V);
        } else {
            const real *d_o = at3(grads->d_o, b, t, h), *sums = raw + t * width;
            const real inverse = 1 / (sums[V] + (real)call->options.eps_attn);
            fwa_scaled(row, inverse, d_o, V);
            row[V] = -fwa_dot(row, sums, V) * inverse;
        }
    }
    gather_state(head, head->dS, &grads->d_out, b, h);
    fwa_zero(head->dv, head->rows * width);
    const int64_t leaving = fwa_tail_rows(grads->d_out.tail_v);
    for (int64_t i = 0; i < leaving; i++)
        fwa_copy(head->dv + (head->rows - leaving + i) * width, at3(grads->d_out.tail_v, b, i, h), V);
}

void FWA_T(fwa_head_scatter_value_grads)(const fwa_head *head, const fwa_mixer_grads *grads, int64_t b, int64_t h) {
    const int64_t T = head->task.T, n = head->task.n, V = head->call->shape.V, width = head->task.V;
    for (int64_t j = 0; j < head->rows; j++) {
        const fwa_tensor to = j < n ? grads->d_in.tail_v : grads->dv;
        if (fwa_tensor_present(to)) fwa_copy(at3(to, b, j < n ? j : j - n, h), head->dv + j * width, V);
    }
    scatter_scalar(grads->dbeta, head->dscalars[0], b, h, T);
    scatter_scalar(grads->dlambda, head->dscalars[1], b, h, T);
    scatter_scalar(grads->dlog_decay, head->dscalars[2], b, h, T);
    scatter_state(head, &grads->d_in, head->dS, b, h);
}

// dk_t: from the pair that k_t became (row n+t+1 or n+t), and from k_last.
static void scatter_dk(const fwa_head *head, const fwa_mixer_grads *grads, int64_t b, int64_t hq) {
    const int64_t T = head->task.T, K = head->task.K;
    for (int64_t t = 0; t < T; t++) {
        real *dk = at3(grads->dk, b, t, hq);
        const int64_t step = head->shifted ? t + 1 : t;
        if (step == T || row_is_empty(head, step))
            fwa_zero(dk, K);
        else
            fwa_copy(dk, head->dx + (head->task.n + step) * K, K);
        if (t == T - 1 && fwa_tensor_present(grads->d_out.k_last)) fwa_axpy(dk, 1, at2(grads->d_out.k_last, b, hq), K);
    }
}

void FWA_T(fwa_head_scatter_key_grads)(const fwa_head *head, const fwa_mixer_grads *grads, int64_t b, int64_t hq) {
    const int64_t T = head->task.T, n = head->task.n, K = head->task.K, leaving = fwa_tail_rows(grads->d_out.tail_x);
    for (int64_t i = 0; i < leaving; i++)
        fwa_axpy(head->dx + (head->rows - leaving + i) * K, 1, at3(grads->d_out.tail_x, b, i, hq), K);
    for (int64_t t = 0; fwa_tensor_present(grads->dq) && t < T; t++)
        fwa_copy(at3(grads->dq, b, t, hq), head->dq + t * K, K);
    if (fwa_tensor_present(grads->dk)) scatter_dk(head, grads, b, hq);
    for (int64_t j = 0; fwa_tensor_present(grads->d_in.tail_x) && j < n; j++)
        fwa_copy(at3(grads->d_in.tail_x, b, j, hq), head->dx + j * K, K);
    if (fwa_tensor_present(grads->d_in.k_last)) {
        real *d = at2(grads->d_in.k_last, b, hq);
        if (head->shifted && !row_is_empty(head, 0))
            fwa_copy(d, head->dx + n * K, K);
        else
            fwa_zero(d, K);
    }
}
