// The contract of a mixing rule: what it is (fwa_rule) and how a backend computes it (fwa_mixer).
//
// A rule maps features q, k, v and per-head scalars to o, carrying a state. Notation of docs/math/README.md §1, with
// x_t = k_{t-1} (next_latent) or k_t (same_step):
//
//   q, k [B,T,Hq,K]   v, o [B,T,H,V]   beta, lambda, log_decay [B,T,H]   (beta [B,T,H,V] where per channel)
//   S [B,H,K,V]       z [B,H,K]        k_last [B,Hq,K]       tail_x [B,n,Hq,K], tail_v [B,n,H,V]
//
// H is a multiple of Hq: value head h reads query/key head h / (H/Hq). q, k, v, o, S0 as the layer hands them are
// "act", scalars are "mst" (ops.def); state tensors are mst, but the rows of an incoming cache may also be act, and
// then all tails of the call are. The CPU kernels, in double, are the truth all others are held to.
#ifndef FWA_KERNELS_RULE_H
#define FWA_KERNELS_RULE_H

#include "core/backend.h"
#include "core/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

// Which chunk algebra the rule runs on.
typedef enum fwa_core {
    FWA_CORE_ADDITIVE,  // S += w x v^T: no unknowns inside a chunk
    FWA_CORE_DELTA,     // S += eta x (v - S^T x)^T: one unit-lower-triangular system a chunk
    FWA_CORE_COLUMN,    // as delta or additive with a step per value column
    FWA_CORE_WINDOW,    // residuals of the last B pairs
    FWA_CORE_ATTENTION, // softmax over all earlier tokens
    FWA_CORE_COUNT
} fwa_core;

typedef enum fwa_state_kind {
    FWA_STATE_MATRIX, // S, with k_last, tail, z as the rule needs them: constant size
    FWA_STATE_CACHE   // tail_x, tail_v hold all earlier keys and values: n grows
} fwa_state_kind;

// Forms of the same rule; a descriptor says which it has. Bits.
typedef enum fwa_form {
    FWA_FORM_RECURRENT = 1, // step by step (attention: one token against the cache); also how one token is decoded
    FWA_FORM_PARALLEL = 2,  // the whole sequence at once, O(T^2): the readable proof, CPU only
    FWA_FORM_CHUNK = 4      // what training uses (attention: blocked online softmax)
} fwa_form;

// Inputs besides q, k, v. Bits.
enum {
    FWA_INPUT_BETA = 1,         // step, one a head
    FWA_INPUT_BETA_CHANNEL = 2, // step, one a value channel
    FWA_INPUT_LAMBDA = 4,       // ridge (lbar); with FWA_SWITCH_RIDGE, without which the ridge is none
    FWA_INPUT_LOG_DECAY = 8     // log of the decay, <= 0
};

// Options that a rule understands; the configuration refuses the others. Bits.
enum {
    FWA_SWITCH_SHIFT = 1,
    FWA_SWITCH_READ = 2,
    FWA_SWITCH_STEP = 4,  // and eps, eta_max
    FWA_SWITCH_RIDGE = 8, // and eps_gamma, detach_scale
    FWA_SWITCH_WINDOW = 16,
    FWA_SWITCH_NORMALIZED_READ = 32,
    FWA_SWITCH_PHI = 64,
    FWA_SWITCH_QK_NORM = 128,
    FWA_SWITCH_ROTARY = 256,       // the layer rotates q and k unless configured not to
    FWA_SWITCH_CONV = 512,         // the layer runs short convolutions and SiLU on q, k, v
    FWA_SWITCH_GATE = 1024,        // the layer norms o over each head and, where configured, gates it
    FWA_SWITCH_DECAY = 2048,       // log_decay is a constant of head and layer that the layer fills in (fwa_decay)
    FWA_SWITCH_QUERY_SCALE = 4096, // the layer multiplies q by K^{-1/2}
    // Mamba-2's block: one head of q and k for all, of its own size K; v = delta x and a skip of x around the memory,
    // delta being that of the decay; norm over all heads together, behind the gate.
    FWA_SWITCH_STATE_SPACE = 8192
};

// How options move so that a limit holds, for each of the two rules that understands the option. Bits.
enum {
    FWA_LIMIT_SAME_STEP = 1,
    FWA_LIMIT_NEXT_LATENT = 2,
    FWA_LIMIT_DIRECT = 4, // step direct, eta_max off
    FWA_LIMIT_NO_RIDGE = 8,
    FWA_LIMIT_NORMALIZED_READ = 16
};

// A limit in which the rule equals another one, tested with gradients: "with window = 1 falcon3a equals falcon1a".
// Inputs that both rules take are the same for both.
typedef struct fwa_rule_limit {
    const char *condition; // for people
    const char *equals;    // name of the other rule
    int64_t window;        // 0: keep
    int detach_scale;      // -1: keep; set for both rules
    unsigned moves;        // FWA_LIMIT bits
    unsigned fixed;        // one FWA_INPUT bit: this input is `value` everywhere; 0: none
    double value;
} fwa_rule_limit;

typedef struct fwa_rule {
    const char *name;
    const char *title;     // one line for people
    const char *equations; // numbers in the paper, or where else the rule comes from
    fwa_core core;
    fwa_state_kind state;
    unsigned inputs, switches, forms;
    fwa_shift default_shift; // where the rule has that switch; without it x_t = k_t
    int64_t default_window;
    bool default_detach_scale;
    fwa_norm default_qk_norm;     // rms where a descriptor does not say
    double default_beta_range;    // the layer's beta lies in (0, this); where the rule has a beta
    double qk_scale_power;        // the operator multiplies q . k by K^power: -1/2 for softmax, 0 elsewhere
    const fwa_rule_limit *limits; // ends with {0}; NULL: none
} fwa_rule;

typedef struct fwa_mixer_options {
    fwa_shift shift;
    fwa_read read;
    fwa_step_kind step;
    fwa_ridge ridge;   // none: lambda is taken as 0 and may be absent
    bool detach_scale; // no gradient through E in lambda = lbar E
    bool normalized_read;
    int64_t window; // B >= 1
    int64_t chunk;  // C >= 1
    double eps, eps_gamma;
    double eta_max;  // 0: off
    double eps_attn; // of the normalised read
} fwa_mixer_options;

// The defaults of docs/math/README.md §6 for a rule: after_write, normalized, coupled, eps 1e-3, eps_gamma 0.01,
// eta_max 1.999, chunk 64, its own shift, window and detach_scale; same_step, direct, none where it has no such switch.
fwa_mixer_options fwa_mixer_options_default(const fwa_rule *rule);

typedef struct fwa_mixer_shape {
    int64_t B, T, Hq, H, K, V;
} fwa_mixer_shape;

// State into or out of a segment, or the gradient of one. Absent tensors: a fresh sequence has none; S without k_last
// is a fresh sequence over a given memory (eta_1 = 0 still holds under next_latent). tail without k_last is refused
// there.
typedef struct fwa_mixer_state {
    fwa_tensor S, z, k_last, tail_x, tail_v;
} fwa_mixer_state;

// How states travel between ranks while a call is under way, for kernels that have `hands_over`. They give the stream
// all work that needs no incoming state, then call receive(), which gives it what completes in.S and in.z (in the
// backward pass those of d_out), and send() as soon as out.S and out.z (those of d_in) are complete behind what the
// stream has been given: work that needs and makes no state comes behind. Each once, on the calling thread.
typedef struct fwa_handover {
    void *context;
    fwa_status (*receive)(void *context);
    fwa_status (*send)(void *context);
} fwa_handover;

// One call. Memory is the caller's: outputs, `saved` (written by forward where `save`, read by backward, untouched
// between), `scratch` (free between calls); sizes from fwa_mixer.sizes.
typedef struct fwa_mixer_call {
    fwa_mixer_options options;
    fwa_mixer_shape shape;
    fwa_form form;
    bool save;                                   // a backward pass will follow
    fwa_tensor q, k, v, beta, lambda, log_decay; // scalars absent where the rule does not take them
    fwa_tensor reset;                            // u8 [B,T], 1 at a document's first token; absent: none
    fwa_mixer_state in;
    fwa_tensor tail_reset;        // the same of the steps of the incoming tail [B,n]; absent: no document starts there
    fwa_tensor o;                 // overwritten; under `save` it stays for the backward pass, as `saved` does
    fwa_mixer_state out;          // tensors that are present are overwritten; absent ones are not computed
    fwa_tensor saved, scratch;    // u8
    const fwa_handover *handover; // null: the incoming states are complete
} fwa_mixer_call;

// Gradients. d_o and d_out arrive (absent = 0); the rest is overwritten where present.
typedef struct fwa_mixer_grads {
    fwa_tensor d_o;
    fwa_mixer_state d_out;
    fwa_tensor dq, dk, dv, dbeta, dlambda, dlog_decay;
    fwa_mixer_state d_in;
} fwa_mixer_grads;

// What the gates of the Falcon rate come to (docs/math/README.md §6; (3.3), (4.16), (4.20)): sums over the steps of
// every value head, with a beta per value channel over their columns, where eta > 0. In the backend's memory.
typedef struct fwa_gate_sums {
    double steps; // their number
    double eta, alpha;
    double ridge;   // alpha / eta, the ridge that acts: lambda, less where alpha is clamped
    double clamped; // 1 where alpha is 1 - eps_gamma, else 0
} fwa_gate_sums;
#define FWA_GATE_SUMS ((int64_t)(sizeof(fwa_gate_sums) / sizeof(double))) // fields

// A rule on a backend, in one precision.
typedef struct fwa_mixer {
    const fwa_rule *rule;
    // Bytes of `saved` and `scratch` for a call with these options, shape, form, presence of state, type of an incoming
    // cache and strides.
    fwa_status (*sizes)(const fwa_backend *backend, const fwa_mixer_call *call, size_t *saved, size_t *scratch);
    fwa_status (*forward)(const fwa_backend *backend, fwa_stream *stream, const fwa_mixer_call *call);
    fwa_status (*backward)(const fwa_backend *backend, fwa_stream *stream, const fwa_mixer_call *call,
                           const fwa_mixer_grads *grads);
    // Adds the gates of a call that saves to *sums, in f64 and always in the same order; those of a step are f64 on a
    // CPU, f32 on a GPU. Reads k, beta, lambda, resets and incoming keys, uses scratch. Rules without FWA_INPUT_LAMBDA
    // add nothing.
    fwa_status (*gates)(const fwa_backend *backend, fwa_stream *stream, const fwa_mixer_call *call,
                        fwa_gate_sums *sums);
    bool hands_over; // calls receive and send of `handover`; else the states of a call are complete in front of it
} fwa_mixer;

// Rows of a tail or cache [B,n,Hq,K] (or v's), 0 for an absent one.
int64_t fwa_tail_rows(fwa_tensor tail);
// Rows of the tail that leave a segment: min(window - 1, pairs so far); for a cache n_in + T.
int64_t fwa_mixer_tail_rows(const fwa_rule *rule, const fwa_mixer_options *options, int64_t T, int64_t n_in,
                            bool has_k_prev);

// Checks a call against the rule: shapes, types, presence, option ranges, form. FWA_USAGE names what is wrong.
FWA_MUST_CHECK fwa_status fwa_mixer_check(const fwa_rule *rule, const fwa_backend *backend, const fwa_mixer_call *call);
// Its first part, for sizes(): shape numbers, options and form; reads no tensor but the row counts of tails.
FWA_MUST_CHECK fwa_status fwa_mixer_check_options(const fwa_rule *rule, const fwa_mixer_call *call);
// Checks the gradients of a checked call, whose `save` must be set: shapes and types of what is present.
FWA_MUST_CHECK fwa_status fwa_mixer_check_grads(const fwa_rule *rule, const fwa_backend *backend,
                                                const fwa_mixer_call *call, const fwa_mixer_grads *grads);
// Checks that a call's `saved` and `scratch` have at least the bytes that sizes() names.
FWA_MUST_CHECK fwa_status fwa_mixer_check_memory(const fwa_rule *rule, const fwa_mixer_call *call, size_t saved,
                                                 size_t scratch);

#ifdef __cplusplus
}
#endif
#endif
