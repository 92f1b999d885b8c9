// Which source a configuration names, and the hash that shows that two runs read the same data.
#include "train/tasks/task.h"

#include "core/shape.h"
#include "train/tasks/addition.h"

int64_t fwa_source_vocab(const fwa_config *config) {
    if (config->task.name == FWA_TASK_ADDITION) return FWA_ADDITION_VOCAB;
    return fwa_min(config->model.vocab_size, FWA_LM_VOCAB);
}

int32_t fwa_source_document(const fwa_config *config) {
    return config->task.name == FWA_TASK_ADDITION ? FWA_ADDITION_BEGIN : FWA_LM_DOCUMENT;
}

int64_t fwa_source_length(const fwa_config *config) {
    if (config->train.seq_len > 0) return config->train.seq_len;
    if (config->task.name == FWA_TASK_LM) return FWA_LM_LENGTH;
    return fwa_addition_length((fwa_addition_format)config->task.format, config->task.width_max) - 1;
}

fwa_status fwa_source_create(fwa_source **out, const fwa_config *config) {
    *out = NULL;
    switch ((fwa_task_kind)config->task.name) {
    case FWA_TASK_LM:
        FWA_TRY(fwa_source_lm_create(out, config));
        return FWA_OK;
    case FWA_TASK_ADDITION:
        FWA_TRY(fwa_source_addition_create(out, config));
        return FWA_OK;
    }
    FWA_FAIL(FWA_CONFIG, "task.name is number %d; expected lm or addition", config->task.name);
}

// A bijection of 64-bit words in which every input bit reaches every output bit.
static uint64_t mix(uint64_t x) {
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    return x ^ (x >> 32);
}

static uint64_t sequence_hash(int64_t number, int64_t T, const int32_t *tokens, const int32_t *targets) {
    uint64_t hash = mix((uint64_t)number + 0x9e3779b97f4a7c15u);
    for (int64_t t = 0; t < T; t++) {
        const uint64_t position = (uint64_t)(uint32_t)tokens[t] << 32 | (uint32_t)targets[t];
        hash = mix(hash * 3 + position);
    }
    return hash;
}

uint64_t fwa_batch_hash(int64_t first, int64_t count, int64_t T, const int32_t *tokens, const int32_t *targets) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < count; i++) sum += sequence_hash(first + i, T, tokens + i * T, targets + i * T);
    return sum;
}
