// The table a run starts with.
#include "train/startup.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/log.h"
#include "core/version.h"
#include "kernels/registry.h"
#include "train/flops.h"
#include "train/libraries.h"
#include "train/memory.h"
#include "train/progress.h"
#include "train/snapshot.h"

// Tokens of a whole sequence.
static int64_t sequence(const fwa_trainer *t) {
    return t->acts->ctx.T * t->world->sp_size;
}

double fwa_startup_flops(const fwa_trainer *t) {
    const fwa_model_spec *spec = &t->model->spec;
    fwa_flops_model model = {.parameters = fwa_params_count(&t->model->params) - spec->N * spec->D,
                             .D = spec->D,
                             .N = spec->N,
                             .mixer_forward = 0.0};
    for (int l = 0; l < spec->L; l++) {
        const fwa_mixer_spec *mixer = &spec->mixer[spec->layer_mixer[l]];
        const fwa_mixer_shape shape = fwa_mixer_spec_shape(spec, mixer, t->acts->ctx.B, sequence(t));
        fwa_flops_mixer sizes = {.core = mixer->rule->core,
                                 .T = shape.T,
                                 .Hq = shape.Hq,
                                 .H = shape.H,
                                 .K = shape.K,
                                 .V = shape.V,
                                 .C = mixer->options.chunk,
                                 .B = mixer->options.window};
        model.mixer_forward += fwa_flops_mixer_forward(&sizes);
    }
    return fwa_flops_token(&model);
}

fwa_status fwa_startup_peak(const fwa_backend *backend, double *peak) {
    char device[256];
    *peak = NAN;
    if (backend->kind == FWA_BACKEND_CPU) return FWA_OK;
    FWA_TRY(fwa_backend_describe(backend->kind, backend->device, device, sizeof device));
    device[strcspn(device, ",")] = '\0'; // the name stands first
    *peak = fwa_flops_device_peak(device);
    return FWA_OK;
}

static void log_mixers(const fwa_model_spec *spec) {
    for (int i = 0; i < spec->mixer_count; i++) {
        const fwa_mixer_spec *mixer = &spec->mixer[i];
        int layers = 0;
        for (int l = 0; l < spec->L; l++) layers += spec->layer_mixer[l] == i;
        if (layers == 0) continue;
        fwa_log_info("  mixer       %s: rule %s (%s), %d of %lld layer%s, window %lld, chunk %lld", mixer->name,
                     mixer->rule->name, mixer->rule->title, layers, (long long)spec->L, fwa_plural(spec->L),
                     (long long)mixer->options.window, (long long)mixer->options.chunk);
    }
}

static void log_memory(const fwa_trainer *t) {
    char total[32], classes[256];
    const fwa_memory_plan plan = fwa_memory_planned(t);
    fwa_log_info("  memory      %s a rank: %s", fwa_text_bytes((int64_t)plan.total, total),
                 fwa_memory_text(&plan, classes));
}

static void log_data(const fwa_trainer *t) {
    char a[32], b[32];
    const fwa_config *config = t->config;
    const double needed = (double)config->train.steps * (double)config->train.global_batch;
    if (config->task.examples > 0) {
        fwa_log_info("  data        %s: %s example%s packed into %s sequence%s a step", t->source->name,
                     fwa_text_count(config->task.examples, a), fwa_plural(config->task.examples),
                     fwa_text_count(config->train.global_batch, b), fwa_plural(config->train.global_batch));
        return;
    }
    if (!t->source || t->source->sequences[FWA_SPLIT_TRAIN] == INT64_MAX) {
        fwa_log_info("  data        %s", t->source ? t->source->name : config->data.train);
        return;
    }
    fwa_log_info(
        "  data        %s: %s training sequence%s, %s of validation; %.2f epochs", t->source->name,
        fwa_text_count(t->source->sequences[FWA_SPLIT_TRAIN], a), fwa_plural(t->source->sequences[FWA_SPLIT_TRAIN]),
        fwa_text_count(t->source->sequences[FWA_SPLIT_VAL], b), needed / (double)t->source->sequences[FWA_SPLIT_TRAIN]);
}

static void log_checkpoints(const fwa_trainer *t) {
    char bytes[32], every[64];
    const fwa_config *config = t->config;
    snprintf(every, sizeof every, "every %lld step%s", (long long)config->checkpoint.every,
             fwa_plural(config->checkpoint.every));
    fwa_log_info("  checkpoints %s, from a copy of %s in the host memory of rank 0%s",
                 config->checkpoint.every > 0 ? every : "at the end",
                 fwa_text_bytes((int64_t)fwa_snapshot_bytes(&t->model->params), bytes),
                 t->sharded ? ", as much in that of every rank" : "");
}

void fwa_startup_log(const fwa_trainer *t, const fwa_run *run) {
    const fwa_model_spec *spec = &t->model->spec;
    const fwa_config *config = t->config;
    char a[32], b[32];
    fwa_log_info("fwa %s%s", config->run.name, run ? "" : " (dry run: nothing is trained or written)");
    fwa_log_info("  program     %s", fwa_version_text());
    fwa_log_info("  libraries   %s", fwa_libraries_text());
    if (run) fwa_log_info("  command     %s", run->command);
    fwa_log_info("  model       %lld layer%s, width %lld, %lld head%s of %lld, ffn %lld, vocabulary %lld of %lld",
                 (long long)spec->L, fwa_plural(spec->L), (long long)spec->D, (long long)spec->H, fwa_plural(spec->H),
                 (long long)spec->K, (long long)spec->F, (long long)spec->vocab, (long long)spec->N);
    log_mixers(spec);
    fwa_log_info("  parameters  %s (%.3g FLOP a token)", fwa_text_count(fwa_params_count(&t->model->params), a),
                 fwa_startup_flops(t));
    log_memory(t);
    fwa_log_info(
        "  layout      %d rank%s: %d data x %d sequence; %lld x %lld sequence%s of %lld token%s a rank and step",
        t->world->size, fwa_plural(t->world->size), t->world->dp_size, t->world->sp_size, (long long)t->accumulation,
        (long long)config->train.micro_batch, fwa_plural(config->train.micro_batch), (long long)t->acts->ctx.T,
        fwa_plural(t->acts->ctx.T));
    fwa_log_info("  batch       %s sequence%s, %s tokens a step, %lld step%s",
                 fwa_text_count(config->train.global_batch, a), fwa_plural(config->train.global_batch),
                 fwa_text_count(config->train.global_batch * sequence(t), b), (long long)config->train.steps,
                 fwa_plural(config->train.steps));
    log_data(t);
    log_checkpoints(t);
    if (run)
        fwa_log_info("  run folder  %s (configuration %016llx)", run->path,
                     (unsigned long long)fwa_config_hash(config));
}
