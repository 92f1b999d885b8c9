// Softmax attention on cuDNN. Each pass is one graph, written operation by operation as its attention engines know it:
// they recognise the whole and run it as one blocked kernel, without scores in memory.
//
// For cuDNN tensors are [B,H,T,K]; the strides say that heads lie between tokens. K enters transposed, and V in the
// backward pass. lse belongs to the pattern, wanted or not. D_t = d_o_t . o_t passes through memory. dq comes from the
// scores' gradients, which cuDNN then keeps in memory, [B,H,T,T] in bf16: the same bits in every run, where dq summed
// in fp32 by atomic additions, the other pattern, is not faster (B 32, T 1024, 6 heads of 128, H200: 0.41 and 0.43 ms).
//
// Earlier keys are a pass of their own without a mask, forward only: its o and lse, in scratch, are merged with those
// of the sequence's own keys.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/shape.h"
#include "kernels/backends.h"
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/cudnn.h"
#include "kernels/cuda/cudnn_graph.cuh"

namespace {

using namespace fwa;
using graph = cudnn_graph;

// Bytes of scores' gradients: a batch with more is cut into parts, a sequence with more is refused.
constexpr int64_t part_bytes = int64_t{1} << 30, most_bytes = int64_t{4} << 30;

// Names of what lies in memory, and of scalars.
enum number : int64_t { at_q = 1, at_k, at_v, at_o, at_lse, at_d_o, at_dq, at_dk, at_dv, at_sums };
enum pass : int64_t { own_forward, own_backward, earlier_forward };
enum scalar_number : int64_t { at_scale = 100, at_masked, at_one };

graph::size flipped(graph::size s) {
    std::swap(s.n[2], s.n[3]);
    return s;
}

// [B,T,H,K] as cuDNN's [B,H,T,K], or [B,H,K,T].
graph::tensor heads(graph &g, int64_t number, const fwa_tensor &t, bool transposed = false) {
    const graph::size n = {{t.shape[0], t.shape[2], t.shape[1], t.shape[3]}};
    const graph::size stride = {{t.stride[0], t.stride[2], t.stride[1], 1}};
    return g.memory(number, CUDNN_DATA_BFLOAT16, transposed ? flipped(n) : n, transposed ? flipped(stride) : stride);
}

// [B,H,T,1] in fp32
graph::tensor of_rows(graph &g, int64_t number, const fwa_mixer_shape &s) {
    return g.memory(number, CUDNN_DATA_FLOAT, {{s.B, s.H, s.T, 1}}, {{s.H * s.T, s.T, 1, 1}});
}

// scale q k^T, all of it: [B,H,T,T]
graph::tensor scores(graph &g, graph::tensor q, graph::tensor k_transposed, graph::tensor scale) {
    return g.pointwise(CUDNN_POINTWISE_MUL, g.matmul(q, k_transposed), &scale);
}

// `masked` above the diagonal.
graph::tensor causal(graph &g, graph::tensor s) {
    const graph::tensor masked = g.scalar(at_masked, CUDNN_DATA_FLOAT), query = g.index(s, 2), key = g.index(s, 3);
    const graph::tensor seen = g.compare(CUDNN_POINTWISE_CMP_GE, query, key);
    return g.pointwise(CUDNN_POINTWISE_BINARY_SELECT, s, &masked, &seen);
}

// m = max_j s_j, l = sum_j e^{s_j - m}, lse = m + ln l, o = (e^{s - m} / l) v
void add_forward(graph &g, const attention_task &a, bool is_causal) {
    const graph::tensor scale = g.scalar(at_scale, CUDNN_DATA_FLOAT);
    const graph::tensor q = heads(g, at_q, a.q), k = heads(g, at_k, a.k, true);
    const graph::tensor all = scores(g, q, k, scale), s = is_causal ? causal(g, all) : all;
    const graph::tensor m = g.reduce(CUDNN_REDUCE_TENSOR_MAX, s);
    const graph::tensor e = g.pointwise(CUDNN_POINTWISE_EXP, g.pointwise(CUDNN_POINTWISE_SUB, s, &m));
    const graph::tensor l = g.reduce(CUDNN_REDUCE_TENSOR_ADD, e);
    const graph::tensor log = g.pointwise(CUDNN_POINTWISE_LOG, l);
    g.pointwise_into(of_rows(g, at_lse, a.shape), CUDNN_POINTWISE_ADD, m, &log);
    const graph::tensor p = g.pointwise(CUDNN_POINTWISE_DIV, e, &l, nullptr, CUDNN_DATA_BFLOAT16);
    g.matmul_into(heads(g, at_o, a.o), p, heads(g, at_v, a.v));
}

// D = sum_c d_o o, p = e^{s - lse}, dv = p^T d_o, ds = scale p (d_o v^T - D), dk = ds^T q, dq = ds k
void add_backward(graph &g, const attention_task &a) {
    const graph::tensor scale = g.scalar(at_scale, CUDNN_DATA_FLOAT), one = g.scalar(at_one, CUDNN_DATA_FLOAT);
    const graph::tensor q = heads(g, at_q, a.q), k = heads(g, at_k, a.k, true), v = heads(g, at_v, a.v, true);
    const graph::tensor o = heads(g, at_o, a.o), d_o = heads(g, at_d_o, a.d_o);
    const graph::tensor lse = of_rows(g, at_lse, a.shape), sums = of_rows(g, at_sums, a.shape);
    const graph::tensor D = g.reduce(CUDNN_REDUCE_TENSOR_ADD, g.pointwise(CUDNN_POINTWISE_MUL, d_o, &o));
    g.pointwise_into(sums, CUDNN_POINTWISE_MUL, D, &one);
    const graph::tensor s = scores(g, q, k, scale);
    const graph::tensor p = g.pointwise(CUDNN_POINTWISE_EXP, causal(g, g.pointwise(CUDNN_POINTWISE_SUB, s, &lse)));
    g.matmul_into(heads(g, at_dv, a.dv), g.transpose(p, CUDNN_DATA_BFLOAT16), d_o);
    const graph::tensor dp = g.pointwise(CUDNN_POINTWISE_SUB, g.matmul(d_o, v), &sums);
    const graph::tensor ds = g.pointwise(CUDNN_POINTWISE_MUL, g.pointwise(CUDNN_POINTWISE_MUL, dp, &p), &scale);
    g.matmul_into(heads(g, at_dk, a.dk), g.transpose(ds, CUDNN_DATA_BFLOAT16), q);
    g.matmul_into(heads(g, at_dq, a.dq), ds, g.transpose(k, CUDNN_DATA_BFLOAT16));
}

// What a plan is made for.
struct pass_kind {
    int64_t which, keys;
    fwa_mixer_shape shape;
    int64_t strides[8][3];
};

pass_kind kind_of(const attention_task &a, pass which) {
    pass_kind kind = {which, a.k.shape[1], a.shape, {}};
    const fwa_tensor tensors[] = {a.q, a.k, a.v, a.o, a.d_o, a.dq, a.dk, a.dv};
    for (int i = 0; i < (which == own_backward ? 8 : 4); i++)
        memcpy(kind.strides[i], tensors[i].stride, sizeof kind.strides[i]);
    return kind;
}

} // namespace

// One kind of pass; without a plan the reason.
struct fwa_cudnn_entry {
    pass_kind kind;
    cudnn_plan plan;
    char refusal[512];
    fwa_cudnn_entry *next;
};

struct fwa_cudnn {
    cudnnHandle_t handle; // null before the first plan
    fwa_cudnn_entry *entries;
};

namespace {

fwa_status make_plan(fwa_cudnn *cudnn, const attention_task &a, pass which, cudnn_plan *plan) {
    if (!cudnn->handle) FWA_TRY(cudnn_status(cudnnCreate(&cudnn->handle), "cudnnCreate"));
    graph g(cudnn->handle);
    if (which == own_backward)
        add_backward(g, a);
    else
        add_forward(g, a, which == own_forward);
    FWA_TRY(g.plan(plan));
    return FWA_OK;
}

bool has_earlier(const attention_task &a) {
    return a.earlier_k.ndim > 0;
}

const char *outside_limits(const attention_task &a, bool backward) {
    if (a.reset.ndim > 0) return "documents";
    if (backward && has_earlier(a)) return "keys in front of the sequence";
    if (a.shape.Hq != a.shape.H) return "query heads that value heads share";
    if (a.shape.K % 8 || a.shape.V % 8) return "heads of a size that is no multiple of 8";
    return a.shape.K > 128 || a.shape.V > 128 ? "heads larger than 128" : nullptr;
}

// The entry of a kind of pass, made when first asked for; null where memory ends.
fwa_cudnn_entry *entry_of(fwa_cudnn *cudnn, const attention_task &a, pass which) {
    const pass_kind kind = kind_of(a, which);
    for (fwa_cudnn_entry *e = cudnn->entries; e; e = e->next)
        if (memcmp(&e->kind, &kind, sizeof kind) == 0) return e;
    fwa_cudnn_entry *e = static_cast<fwa_cudnn_entry *>(calloc(1, sizeof(fwa_cudnn_entry)));
    if (!e) return nullptr;
    e->kind = kind;
    e->next = cudnn->entries;
    cudnn->entries = e;
    if (make_plan(cudnn, a, which, &e->plan) != FWA_OK) {
        snprintf(e->refusal, sizeof e->refusal, "%s", fwa_error_message());
        fwa_error_clear();
    }
    return e;
}

// The fewest equal parts of the batch whose scores' gradients [B,H,T,T], rounded up to blocks, are within `part_bytes`.
int64_t parts_of(const fwa_mixer_shape &s, bool backward) {
    const int64_t sequence = s.H * fwa_round_up(s.T, 64) * fwa_round_up(s.T, 128) * 2;
    int64_t parts = 1;
    while (backward && parts < s.B && (s.B % parts || s.B / parts * sequence > part_bytes)) parts++;
    return parts;
}

attention_task part_of(const attention_task &whole, int64_t parts, int64_t index) {
    attention_task a = whole;
    const fwa_mixer_shape &s = whole.shape;
    const int64_t first = s.B / parts * index;
    a.shape.B = s.B / parts;
    for (fwa_tensor *t : {&a.q, &a.k, &a.v, &a.o, &a.d_o, &a.dq, &a.dk, &a.dv}) {
        t->shape[0] = a.shape.B;
        if (t->data) t->data = static_cast<char *>(t->data) + first * t->stride[0] * 2;
    }
    if (a.lse) a.lse += first * s.H * s.T;
    return a;
}

// Bytes of one value a query in scratch: D, or lse where it is not to be saved. cuDNN's memory lies behind them.
size_t row_bytes(const fwa_mixer_shape &s) {
    return static_cast<size_t>(
        fwa_round_up(s.B * s.H * s.T * static_cast<int64_t>(sizeof(float)), FWA_ATTENTION_ALIGN));
}

// The bytes of one pass in scratch.
const char *refusal_of(fwa_stream *stream, const attention_task &a, pass which, size_t *scratch) {
    const fwa_cudnn_entry *e = entry_of(stream->cudnn, a, which);
    if (!e) return "out of memory";
    if (!e->plan.descriptor) return e->refusal;
    if (e->plan.workspace > most_bytes) return "scores' gradients of more than 4 GiB";
    *scratch = row_bytes(a.shape) + static_cast<size_t>(e->plan.workspace);
    return nullptr;
}

// The same queries over the earlier keys: o, lse and the pass's own scratch follow each other in scratch.
attention_task earlier_part(const attention_task &whole) {
    const fwa_mixer_shape &s = whole.shape;
    attention_task a = whole;
    const int64_t o_bytes = s.B * s.T * s.H * s.V * 2;
    auto *memory = static_cast<char *>(whole.scratch);
    a.k = whole.earlier_k, a.v = whole.earlier_v;
    a.o = fwa_tensor_4d(memory, FWA_BF16, s.B, s.T, s.H, s.V);
    if (memory) memory += fwa_round_up(o_bytes, FWA_ATTENTION_ALIGN);
    a.lse = reinterpret_cast<float *>(memory);
    a.scratch = memory ? memory + row_bytes(s) : nullptr;
    return a;
}

size_t earlier_bytes(const fwa_mixer_shape &s) {
    return static_cast<size_t>(fwa_round_up(s.B * s.T * s.H * s.V * 2, FWA_ATTENTION_ALIGN)) + row_bytes(s);
}

const char *refusal(fwa_stream *stream, const attention_task &a, bool backward, size_t *scratch) {
    if (const char *reason = outside_limits(a, backward)) return reason;
    const attention_task part = part_of(a, parts_of(a.shape, backward), 0);
    if (const char *reason = refusal_of(stream, part, backward ? own_backward : own_forward, scratch)) return reason;
    if (!has_earlier(a)) return nullptr;
    size_t earlier = 0;
    if (const char *reason = refusal_of(stream, earlier_part(a), earlier_forward, &earlier)) return reason;
    *scratch = fwa_max(*scratch, earlier) + earlier_bytes(a.shape);
    return nullptr;
}

fwa_status run(fwa_stream *stream, const attention_task &a, pass which) {
    fwa_cudnn *cudnn = stream->cudnn;
    const fwa_cudnn_entry *e = entry_of(cudnn, a, which);
    FWA_CHECK(e && e->plan.descriptor, FWA_UNSUPPORTED, "attention on cuDNN: %s", e ? e->refusal : "out of memory");
    const float masked = -INFINITY, one = 1.0f;
    cudnn_bindings on = {};
    on.add(at_q, a.q.data), on.add(at_k, a.k.data), on.add(at_v, a.v.data), on.add(at_o, a.o.data);
    on.add(at_scale, &a.scale);
    if (which != earlier_forward) on.add(at_masked, &masked);
    on.add(at_lse, a.lse ? a.lse : a.scratch);
    if (which == own_backward) {
        on.add(at_d_o, a.d_o.data), on.add(at_dq, a.dq.data), on.add(at_dk, a.dk.data), on.add(at_dv, a.dv.data);
        on.add(at_sums, a.scratch), on.add(at_one, &one);
    }
    FWA_TRY(cudnn_status(cudnnSetStream(cudnn->handle, stream->handle), "cudnnSetStream"));
    FWA_TRY(cudnn_run(cudnn->handle, e->plan, on, static_cast<char *>(a.scratch) + row_bytes(a.shape)));
    return FWA_OK;
}

// What the own pass needs of scratch lies behind the earlier one's results, where that one's has been.
fwa_status forward(fwa_stream *stream, const attention_task &a) {
    if (!has_earlier(a)) {
        FWA_TRY(run(stream, a, own_forward));
        return FWA_OK;
    }
    const attention_task earlier = earlier_part(a);
    attention_task own = a;
    own.scratch = earlier.scratch;
    own.lse = nullptr;
    FWA_TRY(run(stream, earlier, earlier_forward));
    FWA_TRY(run(stream, own, own_forward));
    const attention_other other = {static_cast<const __nv_bfloat16 *>(earlier.o.data), earlier.lse};
    return attention_merge(stream, a, static_cast<const float *>(own.scratch), other);
}

fwa_status backward(fwa_stream *stream, const attention_task &a) {
    const int64_t parts = parts_of(a.shape, true);
    for (int64_t i = 0; i < parts; i++) FWA_TRY(run(stream, part_of(a, parts, i), own_backward));
    return FWA_OK;
}

} // namespace

namespace fwa {
const attention_kernel attention_cudnn = {"cudnn", refusal, forward, backward};
}

extern "C" {

fwa_status fwa_cudnn_create(fwa_cudnn **out) {
    *out = static_cast<fwa_cudnn *>(calloc(1, sizeof(fwa_cudnn)));
    FWA_CHECK(*out, FWA_MEMORY, "cannot allocate what attention keeps of cuDNN");
    return FWA_OK;
}

void fwa_cudnn_destroy(fwa_cudnn *cudnn) {
    if (!cudnn) return;
    while (fwa_cudnn_entry *e = cudnn->entries) {
        cudnn->entries = e->next;
        if (e->plan.descriptor) (void)cudnnBackendDestroyDescriptor(e->plan.descriptor);
        free(e);
    }
    if (cudnn->handle) (void)cudnnDestroy(cudnn->handle);
    free(cudnn);
}

const char *fwa_backend_cuda_cudnn(void) {
    static char text[32];
    const int version = static_cast<int>(cudnnGetVersion());
    snprintf(text, sizeof text, "%d.%d.%d", version / 10000, version % 10000 / 100, version % 100);
    return text;
}

} // extern "C"
