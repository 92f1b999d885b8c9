// The driver of all CPU mixers (mixer_common.h). Threads share out (sequence, query/key head) pairs; the value heads of
// one query/key head run one after another in one thread, so that dq and dk have one order of summation.
#include "kernels/cpu/mixer_common.h"

#include <omp.h>

#include "core/shape.h"
#include "kernels/cpu/head.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/rounded.h"

// Bytes of one head's part of `saved`: the core's, and under a normalised read o before the division [T,V+1].
typedef struct saved_layout {
    int64_t core, raw; // elements
    size_t bytes;
} saved_layout;

static saved_layout plan_saved(const fwa_mixer_kit *kit, const fwa_head *head) {
    saved_layout layout = {.core = kit->core->saved(&head->task)};
    if (head->call->options.normalized_read) layout.raw = head->task.T * head->task.V;
    layout.bytes = (size_t)fwa_round_up((layout.core + layout.raw) * (int64_t)sizeof(real), 64);
    return layout;
}

static fwa_rate_task make_rate(const fwa_head *head, bool backward, void *work) {
    const fwa_mixer_call *call = head->call;
    const fwa_core_task *task = &head->task;
    return (fwa_rate_task){
        .options = &call->options,
        .T = task->T,
        .n = task->n,
        .K = task->K,
        .columns = head->columns,
        .first = head->first,
        .x = head->x,
        .beta = fwa_tensor_present(call->beta) ? head->scalars[0] : NULL,
        .lambda = fwa_tensor_present(call->lambda) ? head->scalars[1] : NULL,
        .log_decay = fwa_tensor_present(call->log_decay) ? head->scalars[2] : NULL,
        .backward = backward,
        .energy = head->energy,
        .denergy = head->denergy,
        .work = work,
        .w = head->w,
        .gamma = head->gamma,
        .dw = head->dw,
        .dgamma = head->dgamma,
        .dbeta = head->dscalars[0],
        .dlambda = head->dscalars[1],
        .dlog_decay = head->dscalars[2],
        .dx = head->dx,
    };
}

// Bytes that the energy of the rate needs, behind a head's layout.
static int64_t rate_work(const fwa_mixer_kit *kit, const fwa_head *head, bool backward) {
    const fwa_rate_task rate = make_rate(head, backward, NULL);
    return kit->rate->energy ? (int64_t)kit->rate->energy->work(&rate) : 0;
}

static fwa_head plan_head(const fwa_mixer_kit *kit, const fwa_backend *backend, const fwa_mixer_call *call,
                          bool backward, char *memory) {
    fwa_head head = FWA_T(fwa_head_plan)(kit->rule, call, kit->decay_first, backward, memory);
    head.task.rounds = backend->rounds;
    return head;
}

// Bytes of one thread's scratch.
static size_t plan_scratch(const fwa_mixer_kit *kit, const fwa_backend *backend, const fwa_mixer_call *call,
                           bool backward) {
    const fwa_head head = plan_head(kit, backend, call, backward, NULL);
    fwa_bump bump = {.used = head.bytes};
    FWA_TAKE(&bump, char, rate_work(kit, &head, backward));
    FWA_TAKE(&bump, char, (int64_t)kit->core->scratch(&head.task, backward));
    return bump.used;
}

// What stands in scratch in front of the threads' parts while gates are summed: sums of every group of run_gates.
static size_t gates_bytes(const fwa_mixer_call *call) {
    return (size_t)fwa_round_up(call->shape.B * call->shape.Hq * (int64_t)sizeof(fwa_gate_sums), 64);
}

fwa_status FWA_T(fwa_mixer_cpu_sizes)(const fwa_mixer_kit *kit, const fwa_backend *backend, const fwa_mixer_call *call,
                                      size_t *saved, size_t *scratch) {
    FWA_CHECK(kit->core->core == kit->rule->core, FWA_ERROR,
              "%s: the descriptor names core %d of fwa_core, its kernels are of core %d, expected the same in both",
              kit->rule->name, (int)kit->rule->core, (int)kit->core->core);
    FWA_TRY(fwa_mixer_check_options(kit->rule, call));
    const bool rounds = kit->core->rounds && call->form == FWA_FORM_CHUNK && !call->options.normalized_read;
    FWA_CHECK(!backend->rounds || rounds, FWA_UNSUPPORTED,
              "%s: bf16 on the CPU, which shows what rounding on a GPU does, is for the chunk form of rules on the "
              "additive and delta cores, without the normalised read; f32 and f64 are for all",
              kit->rule->name);
    const fwa_head head = plan_head(kit, backend, call, false, NULL);
    const int64_t heads = call->shape.B * call->shape.H;
    *saved = call->save ? (size_t)heads * plan_saved(kit, &head).bytes : 0;
    const size_t forward = plan_scratch(kit, backend, call, false);
    const size_t backward = call->save ? plan_scratch(kit, backend, call, true) : 0;
    *scratch = (size_t)backend->threads * (forward > backward ? forward : backward);
    const size_t gates = gates_bytes(call) + (size_t)backend->threads * forward;
    if (call->save && kit->rate->gates && gates > *scratch) *scratch = gates;
    return FWA_OK;
}

static fwa_status check_memory(const fwa_mixer_kit *kit, const fwa_backend *backend, const fwa_mixer_call *call) {
    size_t saved, scratch;
    FWA_TRY(FWA_T(fwa_mixer_cpu_sizes)(kit, backend, call, &saved, &scratch));
    return fwa_mixer_check_memory(kit->rule, call, saved, scratch);
}

static bool worth_threads(const fwa_mixer_call *call) {
    const fwa_mixer_shape *shape = &call->shape;
    return fwa_parallel(shape->B * shape->H * shape->T * shape->K * shape->V);
}

static real *head_saved(const fwa_mixer_call *call, const saved_layout *layout, int64_t b, int64_t h) {
    if (!call->save) return NULL;
    return (real *)((char *)call->saved.data + (size_t)(b * call->shape.H + h) * layout->bytes);
}

// What the value heads of a query/key head share.
static void gather_group(fwa_head *head, int64_t b, int64_t hq) {
    FWA_T(fwa_head_windows)(head, b);
    FWA_T(fwa_head_gather_keys)(head, b, hq);
    fwa_round_where(head->task.rounds, head->q, head->task.T * head->task.K);
    fwa_round_where(head->task.rounds, head->x, head->rows * head->task.K);
}

static void group_forward(const fwa_mixer_kit *kit, fwa_head *head, void *work, const saved_layout *layout, int64_t b,
                          int64_t hq) {
    const fwa_mixer_call *call = head->call;
    const int64_t group = call->shape.H / call->shape.Hq;
    const fwa_rate_task rate = make_rate(head, false, work);
    gather_group(head, b, hq);
    if (kit->rate->energy) kit->rate->energy->forward(&rate);
    for (int64_t h = hq * group; h < (hq + 1) * group; h++) {
        FWA_T(fwa_head_gather_values)(head, b, h);
        fwa_round_where(head->task.rounds, head->v, head->rows * head->task.V);
        kit->rate->forward(&rate);
        head->task.saved = head_saved(call, layout, b, h);
        kit->core->forward(&head->task);
        fwa_round_where(head->task.rounds, head->o, head->task.T * head->task.V);
        real *raw = layout->raw && call->save ? head->task.saved + layout->core : NULL;
        FWA_T(fwa_head_scatter_values)(head, b, h, raw);
    }
    FWA_T(fwa_head_scatter_keys)(head, b, hq);
}

static void group_backward(const fwa_mixer_kit *kit, fwa_head *head, void *work, const saved_layout *layout,
                           const fwa_mixer_grads *grads, int64_t b, int64_t hq) {
    const fwa_mixer_call *call = head->call;
    const int64_t group = call->shape.H / call->shape.Hq;
    const fwa_rate_task rate = make_rate(head, true, work);
    const fwa_core_grads core_grads = {head->d_o, head->dq, head->dx, head->dv, head->dw, head->dgamma, head->dS};
    gather_group(head, b, hq);
    fwa_zero(head->dq, head->task.T * head->task.K);
    fwa_zero(head->dx, head->rows * head->task.K);
    memset(head->denergy, 0, (size_t)head->task.T * sizeof *head->denergy);
    if (kit->rate->energy) kit->rate->energy->forward(&rate);
    for (int64_t h = hq * group; h < (hq + 1) * group; h++) {
        head->task.saved = head_saved(call, layout, b, h);
        FWA_T(fwa_head_gather_values)(head, b, h);
        FWA_T(fwa_head_gather_grads)(head, grads, b, h, layout->raw ? head->task.saved + layout->core : NULL);
        fwa_round_where(head->task.rounds, head->v, head->rows * head->task.V);
        fwa_round_where(head->task.rounds, head->d_o, head->task.T * head->task.V);
        kit->rate->forward(&rate);
        kit->core->backward(&head->task, &core_grads);
        kit->rate->backward(&rate);
        fwa_round_where(head->task.rounds, head->dv + head->task.n * head->task.V, head->task.T * head->task.V);
        FWA_T(fwa_head_scatter_value_grads)(head, grads, b, h);
    }
    if (kit->rate->energy) kit->rate->energy->backward(&rate);
    fwa_round_where(head->task.rounds, head->dq, head->task.T * head->task.K);
    fwa_round_where(head->task.rounds, head->dx + head->task.n * head->task.K, head->task.T * head->task.K);
    FWA_T(fwa_head_scatter_key_grads)(head, grads, b, hq);
}

static void group_gates(const fwa_mixer_kit *kit, fwa_head *head, void *work, fwa_gate_sums *sums, int64_t b,
                        int64_t hq) {
    const int64_t group = head->call->shape.H / head->call->shape.Hq;
    const fwa_rate_task rate = make_rate(head, false, work);
    gather_group(head, b, hq);
    if (kit->rate->energy) kit->rate->energy->forward(&rate);
    memset(sums, 0, sizeof *sums);
    for (int64_t h = hq * group; h < (hq + 1) * group; h++) {
        FWA_T(fwa_head_gather_values)(head, b, h);
        kit->rate->gates(&rate, sums);
    }
}

// Runs every group on the backend's threads; grads NULL: forward. Products inside run on one thread:
// omp_set_num_threads there concerns this region alone.
static void run_groups(const fwa_mixer_kit *kit, const fwa_backend *backend, const fwa_mixer_call *call,
                       const fwa_mixer_grads *grads) {
    const int64_t Hq = call->shape.Hq, groups = call->shape.B * Hq;
    const int threads = worth_threads(call) ? (int)fwa_min(backend->threads, groups) : 1;
    const size_t stride = plan_scratch(kit, backend, call, grads != NULL);
#pragma omp parallel num_threads(threads)
    {
        omp_set_num_threads(1);
        char *memory = (char *)call->scratch.data + (size_t)omp_get_thread_num() * stride;
        fwa_head head = plan_head(kit, backend, call, grads != NULL, memory);
        const saved_layout layout = plan_saved(kit, &head);
        void *work = FWA_TAKE(&head.task.scratch, char, rate_work(kit, &head, grads != NULL));
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < groups; i++) {
            if (grads)
                group_backward(kit, &head, work, &layout, grads, i / Hq, i % Hq);
            else
                group_forward(kit, &head, work, &layout, i / Hq, i % Hq);
        }
    }
}

fwa_status FWA_T(fwa_mixer_cpu_forward)(const fwa_mixer_kit *kit, const fwa_backend *backend,
                                        const fwa_mixer_call *call) {
    FWA_TRY(fwa_mixer_check(kit->rule, backend, call));
    FWA_TRY(check_memory(kit, backend, call));
    run_groups(kit, backend, call, NULL);
    return FWA_OK;
}

fwa_status FWA_T(fwa_mixer_cpu_backward)(const fwa_mixer_kit *kit, const fwa_backend *backend,
                                         const fwa_mixer_call *call, const fwa_mixer_grads *grads) {
    FWA_TRY(fwa_mixer_check(kit->rule, backend, call));
    FWA_TRY(fwa_mixer_check_grads(kit->rule, backend, call, grads));
    FWA_TRY(check_memory(kit, backend, call));
    run_groups(kit, backend, call, grads);
    return FWA_OK;
}

static void run_gates(const fwa_mixer_kit *kit, const fwa_backend *backend, const fwa_mixer_call *call,
                      fwa_gate_sums *sums) {
    const int64_t Hq = call->shape.Hq, groups = call->shape.B * Hq;
    const int threads = worth_threads(call) ? (int)fwa_min(backend->threads, groups) : 1;
    const size_t stride = plan_scratch(kit, backend, call, false), front = gates_bytes(call);
    fwa_gate_sums *parts = call->scratch.data;
#pragma omp parallel num_threads(threads)
    {
        char *memory = (char *)call->scratch.data + front + (size_t)omp_get_thread_num() * stride;
        fwa_head head = plan_head(kit, backend, call, false, memory);
        void *work = FWA_TAKE(&head.task.scratch, char, rate_work(kit, &head, false));
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < groups; i++) group_gates(kit, &head, work, &parts[i], i / Hq, i % Hq);
    }
    for (int64_t i = 0; i < groups; i++) {
        sums->steps += parts[i].steps;
        sums->eta += parts[i].eta;
        sums->alpha += parts[i].alpha;
        sums->ridge += parts[i].ridge;
        sums->clamped += parts[i].clamped;
    }
}

fwa_status FWA_T(fwa_mixer_cpu_gates)(const fwa_mixer_kit *kit, const fwa_backend *backend, const fwa_mixer_call *call,
                                      fwa_gate_sums *sums) {
    FWA_TRY(fwa_mixer_check(kit->rule, backend, call));
    FWA_CHECK(call->save, FWA_ERROR, "%s: gates are summed of calls that save", kit->rule->name);
    FWA_TRY(check_memory(kit, backend, call));
    if (kit->rate->gates) run_gates(kit, backend, call, sums);
    return FWA_OK;
}
