// Model FLOPs per token, and the data-sheet rates they are divided by.
#include "train/flops.h"

#include <ctype.h>
#include <math.h>
#include <string.h>
#include <strings.h>

#include "core/shape.h"

double fwa_flops_mixer_forward(const fwa_flops_mixer *mixer) {
    const double Hq = (double)mixer->Hq, H = (double)mixer->H, K = (double)mixer->K, V = (double)mixer->V;
    const double T = (double)mixer->T, C = (double)fwa_min(mixer->C, mixer->T);
    const double pair = Hq * K + H * V;
    const double additive = (C + 1) * pair + 4 * H * K * V;
    const double delta = additive + (C - 1) * (H * K + H * V) + 2 * H * K * V;
    switch (mixer->core) { // no default: the compiler asks for the cost of a new core
    case FWA_CORE_ADDITIVE:
    case FWA_CORE_COLUMN:
        return additive;
    case FWA_CORE_DELTA:
        return delta;
    case FWA_CORE_WINDOW:
        return delta + (double)(mixer->B - 1) * (C + 1) * H * V;
    case FWA_CORE_ATTENTION:
        return (T + 1) * pair;
    case FWA_CORE_COUNT:
        break;
    }
    return NAN;
}

double fwa_flops_token(const fwa_flops_model *model) {
    return 6.0 * (double)model->parameters + 6.0 * (double)model->D * (double)model->N + 3.0 * model->mixer_forward;
}

// Longer names of a family stand before the shorter ones.
static const struct {
    const char *name;
    double peak;
} peaks[] = {
    {"B200", 2250e12},    {"GH200", 989e12}, {"H200 NVL", 835e12}, {"H200", 989e12}, {"H100 PCIe", 756e12},
    {"H100 NVL", 835e12}, {"H100", 989e12},  {"H800", 989e12},     {"H20", 148e12},  {"A100", 312e12},
    {"A800", 312e12},     {"A40", 149.7e12}, {"A30", 165e12},      {"A10", 125e12},  {"L40S", 362e12},
    {"L40", 181e12},      {"L4", 121e12},
};

// Whether `word` stands in `text` with no letter or digit on either side; case does not matter.
static int has_word(const char *text, const char *word) {
    const size_t length = strlen(word);
    for (const char *at = text; (at = strcasestr(at, word)) != NULL; at++) {
        if ((at == text || !isalnum((unsigned char)at[-1])) && !isalnum((unsigned char)at[length])) return 1;
    }
    return 0;
}

double fwa_flops_device_peak(const char *device) {
    if (has_word(device, "MIG")) return NAN;
    for (size_t i = 0; i < sizeof peaks / sizeof peaks[0]; i++) {
        if (has_word(device, peaks[i].name)) return peaks[i].peak;
    }
    return NAN;
}

double fwa_flops_mfu(double flops_per_token, double tokens_per_s, double device_peak, int devices) {
    return flops_per_token * tokens_per_s / (device_peak * devices);
}
