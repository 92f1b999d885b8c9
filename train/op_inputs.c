// Reads options and inputs of a case and refuses what cannot be meant, by name and value.
#include "train/op_inputs.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define AT(member) offsetof(fwa_op_call, member)

const fwa_op_tensor fwa_op_inputs[] = {
    {"q", AT(call.q), AT(grads.dq), "BTqK", FWA_OP_ACTIVATION},
    {"k", AT(call.k), AT(grads.dk), "BTqK", FWA_OP_ACTIVATION},
    {"v", AT(call.v), AT(grads.dv), "BTHV", FWA_OP_ACTIVATION},
    {"beta", AT(call.beta), AT(grads.dbeta), "BTHC", FWA_OP_MASTER},
    {"lambda", AT(call.lambda), AT(grads.dlambda), "BTH", FWA_OP_MASTER},
    {"log_decay", AT(call.log_decay), AT(grads.dlog_decay), "BTH", FWA_OP_MASTER},
    {"reset", AT(call.reset), 0, "BT", FWA_OP_FLAGS},
    {"S0", AT(call.in.S), AT(grads.d_in.S), "BHKV", FWA_OP_MASTER},
    {"z0", AT(call.in.z), AT(grads.d_in.z), "BHK", FWA_OP_MASTER},
    {"k_prev", AT(call.in.k_last), AT(grads.d_in.k_last), "BqK", FWA_OP_MASTER},
    {"tail_x", AT(call.in.tail_x), AT(grads.d_in.tail_x), "BnqK", FWA_OP_MASTER},
    {"tail_v", AT(call.in.tail_v), AT(grads.d_in.tail_v), "BnHV", FWA_OP_MASTER},
    {0},
};

const fwa_op_tensor fwa_op_outputs[] = {
    {"o", AT(call.o), AT(grads.d_o), "BTHV", FWA_OP_ACTIVATION},
    {"S", AT(call.out.S), AT(grads.d_out.S), "BHKV", FWA_OP_MASTER},
    {"z", AT(call.out.z), AT(grads.d_out.z), "BHK", FWA_OP_MASTER},
    {"k_last", AT(call.out.k_last), AT(grads.d_out.k_last), "BqK", FWA_OP_MASTER},
    {"tail_x_out", AT(call.out.tail_x), AT(grads.d_out.tail_x), "BmqK", FWA_OP_MASTER},
    {"tail_v_out", AT(call.out.tail_v), AT(grads.d_out.tail_v), "BmHV", FWA_OP_MASTER},
    {0},
};

const char *const fwa_op_attributes[] = {"window", "eps", "eps_gamma",   "scale_coupled",   "detach_scale", "eta_max",
                                         "shift",  "raw", "direct_step", "normalized_read", "eps_attn",     NULL};

static bool is(const char *a, const char *b) {
    return strcmp(a, b) == 0;
}

bool fwa_op_given(const fwa_case *c, const char *path) {
    const fwa_tensor t = fwa_case_tensor(c, path);
    return fwa_tensor_present(t) && fwa_tensor_count(t) > 0;
}

static const fwa_op_tensor *find(const fwa_op_tensor *list, const char *name) {
    for (; list->name; list++)
        if (is(list->name, name)) return list;
    return NULL;
}

// The output whose gradient in/<name> is; NULL: none.
static const fwa_op_tensor *find_arriving(const char *name) {
    return name[0] == 'd' ? find(fwa_op_outputs, name + 1) : NULL;
}

bool fwa_op_arrives(const fwa_case *c) {
    for (int i = 0; i < c->tensor_count; i++) {
        const char *path = c->tensors[i].path;
        if (strncmp(path, "in/", 3) == 0 && find_arriving(path + 3)) return true;
    }
    return false;
}

static int64_t size_of(const fwa_op_call *op, char letter) {
    const fwa_mixer_shape *s = &op->call.shape;
    const int64_t n = fwa_tail_rows(op->call.in.tail_x);
    switch (letter) {
    case 'B':
        return s->B;
    case 'T':
        return s->T;
    case 'q':
        return s->Hq;
    case 'H':
        return s->H;
    case 'K':
        return s->K;
    case 'n':
        return n;
    case 'm':
        return fwa_mixer_tail_rows(op->rule, &op->call.options, s->T, n, op->call.in.k_last.ndim > 0);
    default:
        return s->V;
    }
}

int fwa_op_shape(const fwa_op_call *op, const fwa_op_tensor *entry, int64_t shape[FWA_MAX_DIMS]) {
    int ndim = 0;
    for (const char *letter = entry->sizes; *letter; letter++)
        if (*letter != 'C' || (op->rule->inputs & FWA_INPUT_BETA_CHANNEL)) shape[ndim++] = size_of(op, *letter);
    return ndim;
}

bool fwa_op_leaves(const fwa_op_call *op, const fwa_op_tensor *output) {
    const bool matrix = op->rule->state == FWA_STATE_MATRIX;
    if (is(output->name, "o")) return true;
    if (is(output->name, "z")) return matrix && op->call.options.normalized_read;
    if (is(output->name, "S") || is(output->name, "k_last")) return matrix;
    return size_of(op, 'm') > 0 && op->call.reset.ndim == 0;
}

fwa_status fwa_op_rule(const fwa_case *c, const char *name, const fwa_rule **rule) {
    char written[sizeof c->rule];
    snprintf(written, sizeof written, "%s", c->rule);
    char *suffix = strstr(written, "_normalized");
    if (suffix && !suffix[strlen("_normalized")]) *suffix = '\0';
    FWA_CHECK(name || written[0], FWA_FORMAT, "the case has no attribute rule: name one with --rule");
    *rule = fwa_rule_find(name ? name : written);
    FWA_CHECK(*rule, name ? FWA_USAGE : FWA_FORMAT, "%s '%s': no such rule; `fwa info` lists them",
              name ? "--rule" : "attribute rule", name ? name : c->rule);
    FWA_CHECK(!written[0] || is((*rule)->name, written), FWA_FORMAT,
              "the attribute rule is '%s', expected '%s' as --rule says", c->rule, name);
    return FWA_OK;
}

// An attribute that is 0 or 1, into *flag; stays as it is where the case has none. A rule without the option accepts
// the value that it stands for.
static fwa_status read_flag(const fwa_op_call *op, const fwa_case *c, const char *name, unsigned option, bool *flag) {
    double value;
    if (!fwa_case_number(c, name, &value)) return FWA_OK;
    FWA_CHECK(value == 0 || value == 1, FWA_FORMAT, "attribute %s is %g, expected 0 or 1", name, value);
    FWA_CHECK((op->rule->switches & option) || *flag == (value == 1), FWA_FORMAT,
              "attribute %s is %g: rule %s has no such option, expected %d or no attribute", name, value,
              op->rule->name, *flag);
    *flag = value == 1;
    return FWA_OK;
}

static fwa_status read_window(fwa_op_call *op, const fwa_case *c) {
    double value;
    if (!fwa_case_number(c, "window", &value)) return FWA_OK;
    FWA_CHECK(value >= 1 && value <= 1e9 && value == floor(value), FWA_FORMAT,
              "attribute window is %g, expected a whole number of at least 1", value);
    FWA_CHECK((op->rule->switches & FWA_SWITCH_WINDOW) || value == 1, FWA_FORMAT,
              "attribute window is %g: rule %s has no window, expected 1 or no attribute", value, op->rule->name);
    op->call.options.window = (int64_t)value;
    return FWA_OK;
}

static fwa_status read_ridge(fwa_op_call *op, const fwa_case *c) {
    bool coupled = op->call.options.ridge == FWA_RIDGE_COUPLED;
    if (!(op->rule->switches & FWA_SWITCH_RIDGE)) return FWA_OK;
    FWA_TRY(read_flag(op, c, "scale_coupled", FWA_SWITCH_RIDGE, &coupled));
    FWA_TRY(read_flag(op, c, "detach_scale", FWA_SWITCH_RIDGE, &op->call.options.detach_scale));
    op->call.options.ridge = coupled ? FWA_RIDGE_COUPLED : FWA_RIDGE_UNCOUPLED;
    return FWA_OK;
}

fwa_status fwa_op_read_options(fwa_op_call *op, const fwa_case *c) {
    fwa_mixer_options *o = &op->call.options;
    *o = fwa_mixer_options_default(op->rule);
    const struct {
        const char *name;
        double *value, below;
    } numbers[] = {{"eps", &o->eps, INFINITY},
                   {"eps_gamma", &o->eps_gamma, 1},
                   {"eta_max", &o->eta_max, INFINITY},
                   {"eps_attn", &o->eps_attn, INFINITY}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        fwa_case_number(c, numbers[i].name, numbers[i].value);
        FWA_CHECK(*numbers[i].value >= 0 && *numbers[i].value < numbers[i].below, FWA_FORMAT,
                  "attribute %s is %g, expected a number from 0 and below %g", numbers[i].name, *numbers[i].value,
                  numbers[i].below);
    }
    bool shift = o->shift == FWA_SHIFT_NEXT_LATENT, after = true, direct = o->step == FWA_STEP_DIRECT;
    FWA_TRY(read_flag(op, c, "shift", FWA_SWITCH_SHIFT, &shift));
    FWA_TRY(read_flag(op, c, "raw", FWA_SWITCH_READ, &after));
    FWA_TRY(read_flag(op, c, "direct_step", FWA_SWITCH_STEP, &direct));
    FWA_TRY(read_flag(op, c, "normalized_read", FWA_SWITCH_NORMALIZED_READ, &o->normalized_read));
    if (strstr(c->rule, "_normalized")) o->normalized_read = true;
    o->shift = shift ? FWA_SHIFT_NEXT_LATENT : FWA_SHIFT_SAME_STEP;
    o->read = after ? FWA_READ_AFTER_WRITE : FWA_READ_BEFORE_WRITE;
    o->step = direct ? FWA_STEP_DIRECT : FWA_STEP_NORMALIZED;
    FWA_TRY(read_window(op, c));
    return read_ridge(op, c);
}

// in/<name>, which must be there with four dimensions.
static fwa_status need_4d(const fwa_case *c, const char *path, const char *sizes, fwa_tensor *t) {
    char text[96];
    *t = fwa_case_tensor(c, path);
    FWA_CHECK(fwa_tensor_present(*t), FWA_FORMAT, "%s is missing, expected %s", path, sizes);
    FWA_CHECK(t->ndim == 4 && fwa_tensor_count(*t) > 0, FWA_FORMAT, "%s is %s, expected %s, none of them 0", path,
              fwa_tensor_text(*t, text), sizes);
    return FWA_OK;
}

fwa_status fwa_op_read_sizes(fwa_op_call *op, const fwa_case *c) {
    fwa_tensor q, v;
    fwa_mixer_call *call = &op->call;
    FWA_TRY(need_4d(c, "in/q", "[B, T, Hq, K]", &q));
    FWA_TRY(need_4d(c, "in/v", "[B, T, H, V]", &v));
    call->shape = (fwa_mixer_shape){
        .B = q.shape[0], .T = q.shape[1], .Hq = q.shape[2], .H = v.shape[2], .K = q.shape[3], .V = v.shape[3]};
    FWA_CHECK(v.shape[2] % q.shape[2] == 0, FWA_FORMAT, "in/v has %lld head%s, expected a multiple of the %lld of in/q",
              (long long)v.shape[2], fwa_plural(v.shape[2]), (long long)q.shape[2]);
    // Shapes without memory, by which the rows that leave are counted.
    if (fwa_op_given(c, "in/tail_x")) {
        FWA_TRY(need_4d(c, "in/tail_x", "[B, n, Hq, K]", &call->in.tail_x));
        call->in.tail_x.data = NULL;
    }
    if (fwa_op_given(c, "in/k_prev")) call->in.k_last.ndim = 3;
    if (fwa_op_given(c, "in/reset")) call->reset.ndim = 2;
    return FWA_OK;
}

// Whether the rule, with these options, takes in/<name>; *needed: it cannot do without.
static bool takes(const fwa_op_call *op, const char *name, bool *needed) {
    const unsigned inputs = op->rule->inputs;
    const bool matrix = op->rule->state == FWA_STATE_MATRIX;
    *needed = true;
    if (is(name, "q") || is(name, "k") || is(name, "v")) return true;
    if (is(name, "beta")) return (inputs & (FWA_INPUT_BETA | FWA_INPUT_BETA_CHANNEL)) != 0;
    if (is(name, "lambda")) return (inputs & FWA_INPUT_LAMBDA) != 0;
    if (is(name, "log_decay")) return (inputs & FWA_INPUT_LOG_DECAY) != 0;
    *needed = false;
    if (is(name, "reset")) return true;
    if (is(name, "z0")) return matrix && op->call.options.normalized_read;
    if (is(name, "tail_x") || is(name, "tail_v")) return !matrix || op->call.options.window > 1;
    return matrix;
}

static fwa_status check_shape(const fwa_op_call *op, const fwa_op_tensor *entry, const char *path, fwa_tensor t) {
    int64_t shape[FWA_MAX_DIMS];
    char got[96], expected[96];
    const int ndim = fwa_op_shape(op, entry, shape);
    const fwa_tensor wanted = fwa_tensor_nd(NULL, FWA_F64, ndim, shape);
    bool same = t.ndim == ndim;
    for (int d = 0; same && d < ndim; d++) same = t.shape[d] == shape[d];
    FWA_CHECK(same, FWA_FORMAT, "%s is %s, expected %s: in/q gives B, T, Hq, K, in/v gives H, V", path,
              fwa_tensor_text(t, got), fwa_tensor_text(wanted, expected));
    return FWA_OK;
}

// "in/beta: element [1, 5, 0] is 2.5, expected ..."
static fwa_status refuse(const char *path, fwa_tensor t, int64_t index, const char *expectation) {
    char place[96];
    size_t used = 0;
    int64_t stride = fwa_tensor_count(t);
    for (int d = 0; d < t.ndim && used < sizeof place; d++) {
        const int64_t before = stride;
        stride /= t.shape[d];
        used += (size_t)snprintf(place + used, sizeof place - used, "%s%lld", d ? ", " : "",
                                 (long long)(index % before / stride));
    }
    FWA_FAIL(FWA_FORMAT, "%s: element [%s] is %g, expected %s", path, place, ((const double *)t.data)[index],
             expectation);
}

typedef struct range {
    double low, high;
    bool open; // the ends are outside
    const char *expectation;
} range;

static range range_of(const fwa_op_call *op, const char *name) {
    const fwa_mixer_options *o = &op->call.options;
    const range finite = {-INFINITY, INFINITY, true, "a finite number"};
    const bool any_step = (op->rule->switches & FWA_SWITCH_STEP) && o->step == FWA_STEP_DIRECT;
    if (is(name, "beta") && !any_step) return (range){0, 2, true, "a number in (0, 2), unless the step is direct"};
    if (is(name, "lambda")) return (range){0, HUGE_VAL, false, "a finite number of at least 0"};
    if (is(name, "log_decay")) return (range){-HUGE_VAL, 0, false, "a finite number of at most 0"};
    if (is(name, "reset")) return (range){0, 1, false, "0 or 1"};
    const bool feature = is(name, "q") || is(name, "k") || is(name, "k_prev") || is(name, "tail_x") || is(name, "z0");
    if (feature && o->normalized_read)
        return (range){0, HUGE_VAL, false, "a finite number of at least 0: a normalised read divides by q . z"};
    return finite;
}

static fwa_status check_values(const fwa_op_call *op, const char *path, const char *name, fwa_tensor t) {
    const range r = range_of(op, name);
    const double *x = t.data;
    for (int64_t i = 0, n = fwa_tensor_count(t); i < n; i++) {
        bool good = isfinite(x[i]) && (r.open ? x[i] > r.low && x[i] < r.high : x[i] >= r.low && x[i] <= r.high);
        if (is(name, "reset")) good = x[i] == 0 || x[i] == 1;
        if (!good) return refuse(path, t, i, r.expectation);
    }
    return FWA_OK;
}

static fwa_status check_dataset(const fwa_op_call *op, const char *path, fwa_tensor t) {
    const char *name = path + 3;
    const fwa_op_tensor *input = find(fwa_op_inputs, name), *arriving = find_arriving(name);
    bool needed;
    FWA_CHECK(input || arriving, FWA_FORMAT,
              "%s: no such input; expected q, k, v, beta, lambda, log_decay, reset, S0, z0, k_prev, tail_x, tail_v, or "
              "the gradient of an output: do, dS, dz, dk_last, dtail_x_out, dtail_v_out",
              path);
    if (fwa_tensor_count(t) == 0) return FWA_OK; // a tail of no pairs is none
    FWA_CHECK(input ? takes(op, name, &needed) : fwa_op_leaves(op, arriving), FWA_FORMAT,
              "%s: rule %s with these attributes has no %s, expected no such dataset", path, op->rule->name, name);
    FWA_TRY(check_shape(op, input ? input : arriving, path, t));
    return check_values(op, path, name, t);
}

// Inputs that come together.
static fwa_status check_state(const fwa_op_call *op, const fwa_case *c) {
    const bool matrix = op->rule->state == FWA_STATE_MATRIX;
    const bool shifted = op->call.options.shift == FWA_SHIFT_NEXT_LATENT;
    FWA_CHECK(fwa_op_given(c, "in/tail_x") == fwa_op_given(c, "in/tail_v"), FWA_FORMAT,
              "one of in/tail_x and in/tail_v is given, expected both or none");
    FWA_CHECK(!fwa_op_given(c, "in/tail_x") || !matrix || !shifted || fwa_op_given(c, "in/k_prev"), FWA_FORMAT,
              "in/k_prev is missing, expected the last key before the segment, since it has in/tail_x and shift 1");
    FWA_CHECK(!matrix || fwa_tail_rows(op->call.in.tail_x) < op->call.options.window, FWA_FORMAT,
              "in/tail_x has %lld pair%s, expected at most window - 1 = %lld",
              (long long)fwa_tail_rows(op->call.in.tail_x), fwa_plural(fwa_tail_rows(op->call.in.tail_x)),
              (long long)op->call.options.window - 1);
    FWA_CHECK(!op->call.options.normalized_read || fwa_op_given(c, "in/S0") == fwa_op_given(c, "in/z0"), FWA_FORMAT,
              "one of in/S0 and in/z0 is given, expected both or none under a normalised read");
    return FWA_OK;
}

fwa_status fwa_op_check_inputs(const fwa_op_call *op, const fwa_case *c) {
    char path[32];
    for (const fwa_op_tensor *entry = fwa_op_inputs; entry->name; entry++) {
        bool needed;
        snprintf(path, sizeof path, "in/%s", entry->name);
        if (!takes(op, entry->name, &needed) || !needed) continue;
        FWA_CHECK(fwa_op_given(c, path), FWA_FORMAT, "%s is missing: rule %s takes it", path, op->rule->name);
    }
    FWA_TRY(check_state(op, c));
    for (int i = 0; i < c->tensor_count; i++)
        if (strncmp(c->tensors[i].path, "in/", 3) == 0)
            FWA_TRY(check_dataset(op, c->tensors[i].path, c->tensors[i].tensor));
    return FWA_OK;
}
