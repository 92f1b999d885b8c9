// A mixer_case (tests/mixer_case.h, f64 on the host) run on the GPU: its tensors in device memory in the types of a
// backend, inputs rounded there and on the host alike, outputs full of NaN before every run.
#ifndef FWA_TESTS_GPU_DEVICE_MIXER_H
#define FWA_TESTS_GPU_DEVICE_MIXER_H

#include "tests/gpu/device_check.h"
#include "tests/mixer_case.h"

typedef struct device_mixer {
    mixer_case *host;
    mixer_case copy; // of `host`, with its tensors on the device
    fwa_backend *cuda;
    const fwa_mixer *mixer;
} device_mixer;

// Features are activations; scalars and states are fp32, but for caches that are activations, too.
static inline fwa_dtype device_mixer_type(const device_mixer *d, const char *name) {
    const bool feature = strlen(name) == 1 && strchr("qkvo", name[0]);
    const bool row = d->host->spec.act_tail && !strncmp(name, "tail_", 5);
    return feature || row ? d->cuda->compute : d->cuda->master;
}

static inline void device_mixer_value(device_mixer *d, size_t offset, const char *name) {
    const fwa_tensor from = *case_at(d->host, offset);
    if (fwa_tensor_present(from))
        *case_at(&d->copy, offset) = device_from(d->cuda, from, device_mixer_type(d, name), 0);
}

static inline void device_mixer_place(device_mixer *d, size_t offset, const char *name) {
    const fwa_tensor like = *case_at(d->host, offset);
    if (fwa_tensor_present(like))
        *case_at(&d->copy, offset) = device_poisoned(d->cuda, like, device_mixer_type(d, name), 0);
}

static inline fwa_tensor device_mixer_bytes(fwa_backend *cuda, size_t bytes) {
    fwa_tensor t = fwa_tensor_1d(NULL, FWA_U8, (int64_t)bytes);
    check_ok(cuda->alloc(cuda, &t.data, bytes));
    return t;
}

// `host` is filled already; form FWA_FORM_CHUNK or FWA_FORM_RECURRENT.
static inline device_mixer device_mixer_new(fwa_backend *cuda, mixer_case *host, fwa_form form) {
    device_mixer d = {.host = host, .copy = *host, .cuda = cuda};
    size_t saved, scratch;
    check_ok(fwa_mixer_find(cuda, host->spec.rule, &d.mixer));
    for (int i = 0; i < CASE_INPUTS; i++) {
        device_mixer_value(&d, case_inputs[i].value, case_inputs[i].name);
        device_mixer_place(&d, case_inputs[i].gradient, case_inputs[i].name);
    }
    for (int i = 0; i < CASE_OUTPUTS; i++) {
        device_mixer_place(&d, case_outputs[i].value, case_outputs[i].name);
        device_mixer_value(&d, case_outputs[i].gradient, case_outputs[i].name);
    }
    if (fwa_tensor_present(host->call.reset)) d.copy.call.reset = device_from(cuda, host->call.reset, FWA_U8, 0);
    if (fwa_tensor_present(host->call.tail_reset))
        d.copy.call.tail_reset = device_from(cuda, host->call.tail_reset, FWA_U8, 0);
    d.copy.call.form = form;
    check_ok(d.mixer->sizes(cuda, &d.copy.call, &saved, &scratch));
    d.copy.call.saved = device_mixer_bytes(cuda, saved);
    d.copy.call.scratch = device_mixer_bytes(cuda, scratch);
    return d;
}

static inline void device_mixer_poison(device_mixer *d, fwa_tensor t) {
    if (t.data) check_ok(d->cuda->fill(d->cuda, d->cuda->stream, t.data, 0xFF, fwa_tensor_bytes(t)));
}

static inline void device_mixer_forward(device_mixer *d) {
    for (int i = 0; i < CASE_OUTPUTS; i++) device_mixer_poison(d, *case_at(&d->copy, case_outputs[i].value));
    device_mixer_poison(d, d->copy.call.saved);
    device_mixer_poison(d, d->copy.call.scratch);
    check_ok(d->mixer->forward(d->cuda, d->cuda->stream, &d->copy.call));
}

static inline void device_mixer_backward(device_mixer *d) {
    for (int i = 0; i < CASE_INPUTS; i++) device_mixer_poison(d, *case_at(&d->copy, case_inputs[i].gradient));
    device_mixer_poison(d, d->copy.call.scratch);
    check_ok(d->mixer->backward(d->cuda, d->cuda->stream, &d->copy.call, &d->copy.grads));
    check_ok(d->cuda->stream_synchronize(d->cuda, d->cuda->stream));
}

// Entry i of all outputs and gradients of inputs, and its place in a case.
static inline const case_tensor *device_mixer_entry(int i, size_t *offset, bool *gradient) {
    *gradient = i < CASE_INPUTS;
    const case_tensor *entry = *gradient ? &case_inputs[i] : &case_outputs[i - CASE_INPUTS];
    *offset = *gradient ? entry->gradient : entry->value;
    return entry;
}

// Reads output or gradient `offset` of the device back into the host case.
static inline void device_mixer_fetch(device_mixer *d, size_t offset) {
    const fwa_tensor to = *case_at(d->host, offset);
    if (fwa_tensor_present(to)) check_copy(to, device_read(d->cuda, *case_at(&d->copy, offset)));
}

static inline void device_mixer_fetch_all(device_mixer *d) {
    size_t offset;
    bool gradient;
    for (int i = 0; i < CASE_INPUTS + CASE_OUTPUTS; i++) {
        device_mixer_entry(i, &offset, &gradient);
        device_mixer_fetch(d, offset);
    }
}

// Sums of gates, twice: the same bits.
static inline fwa_gate_sums device_mixer_gates(device_mixer *d) {
    fwa_gate_sums sums[2];
    void *memory = NULL;
    check_ok(d->cuda->alloc(d->cuda, &memory, sizeof sums[0]));
    for (int i = 0; i < 2; i++) {
        device_mixer_poison(d, d->copy.call.scratch);
        check_ok(d->cuda->fill(d->cuda, d->cuda->stream, memory, 0, sizeof sums[0]));
        check_ok(d->mixer->gates(d->cuda, d->cuda->stream, &d->copy.call, memory));
        check_ok(d->cuda->download(d->cuda, d->cuda->stream, &sums[i], memory, sizeof sums[0]));
        check_ok(d->cuda->stream_synchronize(d->cuda, d->cuda->stream));
    }
    assert_memory_equal(&sums[0], &sums[1], sizeof sums[0]);
    d->cuda->free(d->cuda, memory);
    return sums[0];
}

// Forward and backward several times: the same bits in everything that is written.
static inline void device_mixer_repeat(device_mixer *d, int runs) {
    fwa_tensor first[CASE_INPUTS + CASE_OUTPUTS] = {{0}};
    for (int run = 0; run < runs; run++) {
        device_mixer_forward(d);
        device_mixer_backward(d);
        for (int i = 0; i < CASE_INPUTS + CASE_OUTPUTS; i++) {
            size_t offset;
            bool gradient;
            device_mixer_entry(i, &offset, &gradient);
            if (!fwa_tensor_present(*case_at(d->host, offset))) continue;
            const fwa_tensor now = device_read(d->cuda, *case_at(&d->copy, offset));
            if (run == 0) first[i] = now;
            assert_int_equal(check_differences(now, first[i]), 0);
        }
    }
}

static inline void device_mixer_release(device_mixer *d) {
    for (int i = 0; i < CASE_INPUTS + CASE_OUTPUTS; i++) {
        const case_tensor *entry = i < CASE_INPUTS ? &case_inputs[i] : &case_outputs[i - CASE_INPUTS];
        d->cuda->free(d->cuda, case_at(&d->copy, entry->value)->data);
        d->cuda->free(d->cuda, case_at(&d->copy, entry->gradient)->data);
    }
    d->cuda->free(d->cuda, d->copy.call.reset.data);
    d->cuda->free(d->cuda, d->copy.call.tail_reset.data);
    d->cuda->free(d->cuda, d->copy.call.saved.data);
    d->cuda->free(d->cuda, d->copy.call.scratch.data);
}

#endif
