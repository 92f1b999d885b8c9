// LLaMA's layout, as the transformers library reads it: names, and what of a model it cannot hold.
#include <stdio.h>
#include <string.h>

#include "train/convert/export.h"

static const char *const parts[][2] = {
    {"norm1.weight", "input_layernorm.weight"},      {"mixer.q.weight", "self_attn.q_proj.weight"},
    {"mixer.k.weight", "self_attn.k_proj.weight"},   {"mixer.v.weight", "self_attn.v_proj.weight"},
    {"mixer.out.weight", "self_attn.o_proj.weight"}, {"norm2.weight", "post_attention_layernorm.weight"},
    {"mlp.gate.weight", "mlp.gate_proj.weight"},     {"mlp.up.weight", "mlp.up_proj.weight"},
    {"mlp.down.weight", "mlp.down_proj.weight"}};

bool fwa_llama_name(const char *name, char out[FWA_SAFETENSORS_NAME]) {
    int layer = 0, length = 0;
    if (!strcmp(name, "embedding.weight")) {
        snprintf(out, FWA_SAFETENSORS_NAME, "model.embed_tokens.weight");
        return true;
    }
    if (!strcmp(name, "norm.weight")) {
        snprintf(out, FWA_SAFETENSORS_NAME, "model.norm.weight");
        return true;
    }
    if (sscanf(name, "blocks.%d.%n", &layer, &length) != 1 || !length) return false;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (strcmp(name + length, parts[i][0]) != 0) continue;
        snprintf(out, FWA_SAFETENSORS_NAME, "model.layers.%d.%s", layer, parts[i][1]);
        return true;
    }
    return false;
}

double fwa_llama_factor(const char *name, const fwa_model_spec *spec) {
    return !strcmp(name, "norm.weight") ? spec->logit_scale : 1.0;
}

fwa_status fwa_llama_check(const fwa_model_spec *spec) {
    for (int64_t l = 0; l < spec->L; l++) {
        const fwa_mixer_spec *mixer = &spec->mixer[spec->layer_mixer[l]];
        FWA_CHECK(!strcmp(mixer->rule->name, "softmax"), FWA_CONFIG,
                  "layer %lld has rule %s, but LLaMA's layout holds softmax attention only; export with --to "
                  "safetensors",
                  (long long)l, mixer->rule->name);
        FWA_CHECK(mixer->rotary, FWA_CONFIG,
                  "layer %lld has rotary false, but LLaMA's layout has rotary positions in every layer; export with "
                  "--to safetensors",
                  (long long)l);
    }
    FWA_CHECK(spec->F > 0, FWA_CONFIG,
              "model.ffn is 0, but LLaMA's layout has a SwiGLU in every layer; export with --to safetensors");
    FWA_CHECK(!spec->reset_documents, FWA_CONFIG,
              "data.reset_documents is true, but LLaMA's layout knows no documents; export with --to safetensors");
    return FWA_OK;
}
