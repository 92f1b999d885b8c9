// fwa export RUN_OR_CHECKPOINT FOLDER [--to safetensors|llama] [--dtype f32|bf16] [--tokenizer FOLDER] [--logits N]
//            [run.backend=B] [run.threads=N] [train.precision=P]
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/bf16.h"
#include "core/log.h"
#include "core/shape.h"
#include "train/arguments.h"
#include "train/commands.h"
#include "train/convert/export.h"
#include "train/convert/export_folder.h"
#include "train/convert/export_logits.h"
#include "train/eval/loaded.h"
#include "train/run.h"
#include "train/setup.h"

typedef struct export_job {
    fwa_world *world;
    const fwa_arguments *arguments;
    fwa_checkpoint *checkpoint; // borrowed, while it is written
    fwa_config *config;
    fwa_model_spec spec;
    fwa_export_layout layout;
    bool bf16; // else as the masters are
    const char *tokenizer;
    int64_t logits; // tokens to write logits of; 0: none
} export_job;

static fwa_dtype stored_type(const export_job *e, const fwa_named_tensor *about) {
    return e->bf16 ? FWA_BF16 : about->tensor.dtype;
}

// What the file has of parameter `index`: in LLaMA's layout without the rows of ids that do not exist.
static fwa_status describe(const export_job *e, int index, fwa_safetensor *out) {
    const fwa_named_tensor *about = fwa_checkpoint_about(e->checkpoint, index);
    char name[FWA_SAFETENSORS_NAME];
    int64_t shape[FWA_MAX_DIMS];
    snprintf(name, sizeof name, "%s", about->name);
    memcpy(shape, about->shape, sizeof shape);
    if (e->layout == FWA_EXPORT_LLAMA) {
        FWA_CHECK(fwa_llama_name(about->name, name), FWA_CONFIG, "parameter %s has no place in LLaMA's layout",
                  about->name);
        if (!strcmp(about->name, "embedding.weight")) shape[0] = e->spec.vocab;
    }
    *out = fwa_safetensor_about(name, stored_type(e, about), about->tensor.ndim, shape);
    return FWA_OK;
}

// In place: elements become no wider.
static void convert(fwa_tensor *tensor, int64_t count, double factor, bool bf16) {
    for (int64_t i = 0; i < count; i++) {
        const double value = factor * fwa_tensor_real(*tensor, i);
        if (bf16)
            ((uint16_t *)tensor->data)[i] = fwa_bf16_from_float((float)value);
        else if (tensor->dtype == FWA_F64)
            ((double *)tensor->data)[i] = value;
        else
            ((float *)tensor->data)[i] = (float)value;
    }
}

static fwa_status put_parameter(const export_job *e, int index, const fwa_safetensor *as,
                                fwa_safetensors_writer *writer) {
    fwa_named_tensor whole;
    FWA_TRY(fwa_checkpoint_read_whole(e->checkpoint, FWA_PART_MASTER, index, &whole));
    const double factor = e->layout == FWA_EXPORT_LLAMA ? fwa_llama_factor(whole.name, &e->spec) : 1.0;
    if (factor != 1.0 || e->bf16) convert(&whole.tensor, fwa_tensor_count(whole.tensor), factor, e->bf16);
    const fwa_status status = fwa_safetensors_put(writer, whole.tensor.data, as->bytes);
    free(whole.tensor.data);
    return status;
}

static fwa_status put_all(const export_job *e, const fwa_safetensor *tensors, fwa_safetensors_writer *writer) {
    for (int i = 0; i < fwa_checkpoint_count(e->checkpoint); i++) FWA_TRY(put_parameter(e, i, &tensors[i], writer));
    return FWA_OK;
}

static fwa_status write_weights(const export_job *e, const char *path) {
    const int count = fwa_checkpoint_count(e->checkpoint);
    fwa_safetensors_writer *writer = NULL;
    fwa_safetensor *tensors = calloc((size_t)count, sizeof *tensors);
    fwa_status status = FWA_OK, ended;
    FWA_CHECK(tensors, FWA_MEMORY, "no memory for %d parameters", count);
    for (int i = 0; i < count; i++) FWA_TRY_GOTO(describe(e, i, &tensors[i]), done);
    FWA_TRY_GOTO(fwa_safetensors_begin(&writer, path, tensors, count), done);
    status = put_all(e, tensors, writer);
    ended = fwa_safetensors_end(writer, status == FWA_OK);
    if (status == FWA_OK) status = ended;
done:
    free(tensors);
    return status;
}

static fwa_status write_description(const export_job *e, const char *path) {
    const fwa_checkpoint_state *state = fwa_checkpoint_get_state(e->checkpoint);
    const fwa_named_tensor *first = fwa_checkpoint_about(e->checkpoint, 0);
    const char *type = e->bf16 ? "bfloat16" : first->tensor.dtype == FWA_F64 ? "float64" : "float32";
    char *json = NULL;
    if (e->layout == FWA_EXPORT_LLAMA)
        FWA_TRY(fwa_export_describe_llama(state, e->config, &e->spec, type, &json));
    else
        FWA_TRY(fwa_export_describe(state, e->config, &e->spec, &json));
    fwa_status status = fwa_write_text(path, json);
    free(json);
    return status;
}

// The first of two names that is there, copied.
static fwa_status copy_either(const char *from, const char *one, const char *other, const char *to) {
    char path[FWA_PATH_MAX], *text = NULL;
    FWA_TRY(fwa_path_format(path, "%s/%s", from, one));
    if (!fwa_path_exists(path)) FWA_TRY(fwa_path_format(path, "%s/%s", from, other));
    FWA_CHECK(fwa_path_exists(path), FWA_CONFIG, "--tokenizer %s: has neither %s nor %s", from, one, other);
    FWA_TRY(fwa_read_text(path, &text));
    fwa_status status = fwa_write_text(to, text);
    free(text);
    return status;
}

// GPT-2's files under the names that the transformers library looks for.
static fwa_status copy_tokenizer(const fwa_folder *folder, const char *from) {
    char path[FWA_PATH_MAX];
    FWA_TRY(fwa_folder_file(folder, "vocab.json", path));
    FWA_TRY(copy_either(from, "vocab.json", "encoder.json", path));
    FWA_TRY(fwa_folder_file(folder, "merges.txt", path));
    FWA_TRY(copy_either(from, "merges.txt", "vocab.bpe", path));
    FWA_TRY(fwa_folder_file(folder, "tokenizer_config.json", path));
    return fwa_write_text(path, "{\"tokenizer_class\": \"GPT2Tokenizer\", \"bos_token\": \"<|endoftext|>\", "
                                "\"eos_token\": \"<|endoftext|>\", \"unk_token\": \"<|endoftext|>\", "
                                "\"add_prefix_space\": false, \"clean_up_tokenization_spaces\": false}\n");
}

static fwa_status fill_folder(const export_job *e, const fwa_folder *folder) {
    char path[FWA_PATH_MAX];
    FWA_TRY(fwa_folder_file(folder, "model.safetensors", path));
    FWA_TRY(write_weights(e, path));
    FWA_TRY(fwa_folder_file(folder, "config.json", path));
    FWA_TRY(write_description(e, path));
    if (e->tokenizer) FWA_TRY(copy_tokenizer(folder, e->tokenizer));
    if (!e->logits) return FWA_OK;
    FWA_TRY(fwa_folder_file(folder, "logits.safetensors", path));
    return fwa_export_logits(e->world, fwa_checkpoint_path(e->checkpoint), e->arguments, e->logits, path);
}

static fwa_status describe_model(export_job *e) {
    fwa_config_destroy(e->config);
    e->config = NULL;
    FWA_TRY(fwa_config_parse(&e->config, fwa_checkpoint_get_state(e->checkpoint)->config,
                             fwa_checkpoint_path(e->checkpoint), NULL, 0));
    FWA_TRY(fwa_setup_model(&e->spec, e->config, fwa_source_vocab(e->config)));
    return e->layout == FWA_EXPORT_LLAMA ? fwa_llama_check(&e->spec) : FWA_OK;
}

static fwa_status write_all(void *user, fwa_checkpoint *checkpoint) {
    export_job *e = user;
    fwa_folder folder;
    e->checkpoint = checkpoint;
    FWA_TRY(describe_model(e));
    FWA_TRY(fwa_folder_begin(&folder, e->arguments->at[1]));
    fwa_status status = fill_folder(e, &folder);
    if (status == FWA_OK) status = fwa_folder_end(&folder);
    if (status != FWA_OK) fwa_drop_folder(folder.temporary);
    FWA_TRY(status);
    fwa_log_info("%s: %s, step %lld, %d tensors", folder.path,
                 e->layout == FWA_EXPORT_LLAMA ? "LLaMA's layout" : "own names",
                 (long long)fwa_checkpoint_get_state(e->checkpoint)->step, fwa_checkpoint_count(e->checkpoint));
    return FWA_OK;
}

static fwa_status read_options(export_job *e, const fwa_arguments *arguments) {
    const char *to = fwa_arguments_value(arguments, "--to", "safetensors");
    const char *dtype = fwa_arguments_value(arguments, "--dtype", "f32");
    FWA_CHECK(arguments->count >= 2, FWA_USAGE,
              "fwa export: expected a run folder or checkpoint, and a new folder (fwa help export)");
    for (int i = 2; i < arguments->count; i++)
        FWA_CHECK(fwa_loaded_is_setting(arguments->at[i]), FWA_USAGE,
                  "fwa export: got '%s' behind the folder, expected settings run.backend, run.threads, train.precision",
                  arguments->at[i]);
    FWA_CHECK(!strcmp(to, "safetensors") || !strcmp(to, "llama"), FWA_USAGE, "--to '%s': expected safetensors or llama",
              to);
    FWA_CHECK(!strcmp(dtype, "f32") || !strcmp(dtype, "bf16"), FWA_USAGE, "--dtype '%s': expected f32 or bf16", dtype);
    e->layout = !strcmp(to, "llama") ? FWA_EXPORT_LLAMA : FWA_EXPORT_OWN;
    e->bf16 = !strcmp(dtype, "bf16");
    e->tokenizer = fwa_arguments_value(arguments, "--tokenizer", NULL);
    return fwa_arguments_integer(arguments, "--logits", 0, 1, 1 << 16, &e->logits);
}

fwa_status fwa_cmd_export(fwa_world *world, int argc, char **argv) {
    static const fwa_option options[] = {
        {"--to", true}, {"--dtype", true}, {"--tokenizer", true}, {"--logits", true}, {NULL, false}};
    fwa_arguments arguments;
    export_job e;
    memset(&e, 0, sizeof e);
    FWA_TRY(fwa_arguments_parse(&arguments, options, argc, argv));
    FWA_TRY(read_options(&e, &arguments));
    FWA_CHECK(world->size == 1, FWA_USAGE, "fwa export: start it without mpirun or srun");
    e.world = world;
    e.arguments = &arguments;
    fwa_status status = fwa_run_read_checkpoint(world, arguments.at[0], write_all, &e);
    fwa_config_destroy(e.config);
    return status;
}
