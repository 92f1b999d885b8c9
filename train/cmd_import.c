// fwa import FOLDER RUN [key.path=value ...]
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "core/shape.h"
#include "io/files.h"
#include "train/arguments.h"
#include "train/commands.h"
#include "train/convert/export.h"
#include "train/libraries.h"
#include "train/run.h"
#include "train/setup.h"

typedef struct import_job {
    fwa_arguments arguments;
    fwa_safetensors file;
    fwa_export_layout layout;
    fwa_config *config;
    fwa_backend *backend; // plans only
    fwa_model *model;     // its parameters have no memory
    fwa_named_tensor *weights;
    bool *taken; // [file.count]
    int64_t step, tokens;
} import_job;

static void release(import_job *i) {
    for (int p = 0; i->weights && p < i->model->params.count; p++) free(i->weights[p].tensor.data);
    free(i->weights);
    free(i->taken);
    fwa_model_destroy(i->model);
    if (i->backend) i->backend->destroy(i->backend);
    fwa_config_destroy(i->config);
    fwa_safetensors_close(&i->file);
}

// The rows of a tensor that the file holds: LLaMA's layout has no row for ids that do not exist.
static int64_t stored_rows(const import_job *in, const fwa_named_tensor *weight) {
    const fwa_model_spec *spec = &in->model->spec;
    return in->layout == FWA_EXPORT_LLAMA && !strcmp(weight->name, "embedding.weight") ? fwa_min(spec->vocab, spec->N)
                                                                                       : weight->shape[0];
}

static fwa_status check_shape(const import_job *in, const fwa_named_tensor *weight, const fwa_safetensor *tensor) {
    char wanted[96];
    bool same = tensor->ndim == weight->tensor.ndim;
    for (int d = 0; d < weight->tensor.ndim && same; d++)
        same = tensor->shape[d] == weight->shape[d] || (d == 0 && tensor->shape[0] == stored_rows(in, weight));
    fwa_tensor_text(weight->tensor, wanted);
    FWA_CHECK(same, FWA_FORMAT, "%s: %s has %d sizes, the first %lld, but %s is %s in the configuration beside it",
              in->file.path, tensor->name, tensor->ndim, (long long)tensor->shape[0], weight->name, wanted);
    return FWA_OK;
}

static fwa_status read_weight(import_job *in, fwa_named_tensor *weight) {
    char name[FWA_SAFETENSORS_NAME];
    snprintf(name, sizeof name, "%s", weight->name);
    FWA_CHECK(in->layout == FWA_EXPORT_OWN || fwa_llama_name(weight->name, name), FWA_CONFIG,
              "parameter %s has no place in LLaMA's layout", weight->name);
    const fwa_safetensor *tensor = fwa_safetensors_find(&in->file, name);
    FWA_CHECK(tensor, FWA_FORMAT, "%s: has no tensor %s", in->file.path, name);
    FWA_TRY(check_shape(in, weight, tensor));
    in->taken[tensor - in->file.at] = true;
    weight->tensor.data = calloc(1, fwa_tensor_bytes(weight->tensor) + 1);
    FWA_CHECK(weight->tensor.data, FWA_MEMORY, "no memory for %s", weight->name);
    FWA_TRY(fwa_safetensors_read(&in->file, tensor, weight->tensor.dtype, weight->tensor.data));
    const double factor = in->layout == FWA_EXPORT_LLAMA ? fwa_llama_factor(weight->name, &in->model->spec) : 1.0;
    for (int64_t i = 0; factor != 1.0 && i < fwa_tensor_count(weight->tensor); i++) {
        if (weight->tensor.dtype == FWA_F64)
            ((double *)weight->tensor.data)[i] /= factor;
        else
            ((float *)weight->tensor.data)[i] = (float)(((float *)weight->tensor.data)[i] / factor);
    }
    return FWA_OK;
}

static bool needless(const char *name) { // tables that older files hold
    return strstr(name, "rotary_emb.inv_freq") || !strcmp(name, "lm_head.weight");
}

static fwa_status read_weights(import_job *in) {
    const fwa_params *params = &in->model->params;
    in->weights = calloc((size_t)params->count, sizeof *in->weights);
    in->taken = calloc((size_t)in->file.count + 1, sizeof *in->taken);
    FWA_CHECK(in->weights && in->taken, FWA_MEMORY, "no memory for %d parameters", params->count);
    for (int p = 0; p < params->count; p++) {
        fwa_named_tensor *weight = &in->weights[p];
        *weight = fwa_param_named(&params->at[p], FWA_PARAM_MASTER);
        weight->row_start = 0;
        weight->tensor = fwa_tensor_nd(NULL, in->backend->master, params->at[p].ndim, weight->shape);
        FWA_TRY(read_weight(in, weight));
    }
    for (int t = 0; t < in->file.count; t++)
        FWA_CHECK(in->taken[t] || needless(in->file.at[t].name), FWA_FORMAT,
                  "%s: holds tensor %s, which the model of the configuration beside it does not have", in->file.path,
                  in->file.at[t].name);
    return FWA_OK;
}

static fwa_status write_checkpoint(const import_job *in, const char *run, const char *folder, const char *text) {
    const fwa_named_tensor *const parts[FWA_PART_COUNT] = {[FWA_PART_MASTER] = in->weights};
    char command[FWA_PATH_MAX];
    fwa_checkpoint_writer *writer = NULL;
    fwa_status status;
    snprintf(command, sizeof command, "fwa import %.1500s %.1500s", folder, run);
    const fwa_checkpoint_state state = {.step = in->step,
                                        .tokens = in->tokens,
                                        .seed = in->config->run.seed,
                                        .config_hash = fwa_config_hash(in->config),
                                        .best_val_loss = (double)NAN,
                                        .config = text,
                                        .version = fwa_program_text(),
                                        .command = command,
                                        .choices = ""};
    const int64_t bytes = fwa_params_count(&in->model->params) * (int64_t)fwa_dtype_size(in->backend->master);
    FWA_TRY(fwa_checkpoint_begin(&writer, run, in->step, 0, bytes));
    FWA_TRY_GOTO(fwa_checkpoint_write_shard(writer, parts, in->model->params.count), done);
    FWA_TRY_GOTO(fwa_checkpoint_publish(writer, 1, &state), done);
done:
    fwa_checkpoint_end(writer);
    return status;
}

static fwa_status check_new(const char *run) {
    char path[FWA_PATH_MAX];
    int64_t *steps = NULL;
    int count = 0;
    FWA_TRY(fwa_checkpoint_steps(run, &steps, &count));
    free(steps);
    FWA_CHECK(count == 0, FWA_CONFIG, "%s has checkpoints already: name a new run folder", run);
    FWA_TRY(fwa_path_format(path, "%s/metrics.jsonl", run));
    FWA_CHECK(!fwa_path_exists(path), FWA_CONFIG, "%s is the folder of a training: name a new run folder", run);
    return FWA_OK;
}

// The configuration first: a folder that has the checkpoint is complete, and what was interrupted can be started again.
static fwa_status write_files(const import_job *in, const char *run, const char *folder) {
    char path[FWA_PATH_MAX];
    FWA_TRY(fwa_path_format(path, "%s/config.yaml", run));
    char *text = fwa_config_text(in->config);
    FWA_CHECK(text, FWA_MEMORY, "no memory for the configuration");
    fwa_status status = fwa_write_text(path, text);
    if (status == FWA_OK) status = write_checkpoint(in, run, folder, text);
    free(text);
    FWA_TRY(status);
    return FWA_OK;
}

// Looks once more when no other process can come in between.
static fwa_status write_run(const import_job *in, const char *run, const char *folder) {
    int lock;
    FWA_TRY(fwa_make_folders(run));
    FWA_TRY(fwa_run_lock(run, &lock));
    fwa_status status = check_new(run);
    if (status == FWA_OK) status = write_files(in, run, folder);
    close(lock);
    return status;
}

// The configuration with the run's own name, under the words of the command line.
static fwa_status make_config(import_job *in, const char *path, const char *run, const fwa_arguments *arguments) {
    char dir[FWA_PATH_MAX], where[FWA_PATH_MAX + 16], name[FWA_PATH_MAX + 16], *text = NULL;
    FWA_TRY(fwa_path_format(dir, "%s", run));
    char *slash = strrchr(dir, '/');
    snprintf(name, sizeof name, "run.name=%s", slash ? slash + 1 : dir);
    if (slash) slash[slash == dir] = '\0';
    snprintf(where, sizeof where, "run.dir=%s", slash ? dir : ".");
    FWA_TRY(fwa_import_describe(path, &text, &in->layout, &in->step, &in->tokens));
    const char **words = calloc((size_t)arguments->count, sizeof *words);
    fwa_status status;
    FWA_CHECK_GOTO(words, FWA_MEMORY, done, "no memory for %d words", arguments->count);
    words[0] = where;
    words[1] = name;
    for (int i = 2; i < arguments->count; i++) words[i] = arguments->at[i];
    FWA_TRY_GOTO(fwa_config_parse(&in->config, text, path, words, arguments->count), done);
done:
    free(words);
    free(text);
    FWA_TRY(status);
    return fwa_config_finish(in->config);
}

static fwa_status make_model(import_job *in, const fwa_world *world) {
    fwa_model_spec spec;
    FWA_TRY(fwa_setup_model(&spec, in->config, fwa_source_vocab(in->config)));
    if (in->layout == FWA_EXPORT_LLAMA) FWA_TRY(fwa_llama_check(&spec));
    FWA_TRY(fwa_setup_backend(&in->backend, in->config, world, true));
    return fwa_model_create(&in->model, &spec, in->backend, false);
}

static fwa_status read_all(import_job *in, const fwa_world *world) {
    const fwa_arguments *arguments = &in->arguments;
    char path[FWA_PATH_MAX], run[FWA_PATH_MAX];
    FWA_TRY(fwa_path_format(run, "%s", arguments->at[1]));
    fwa_path_trim(run);
    FWA_TRY(check_new(run));
    FWA_TRY(fwa_path_format(path, "%s/config.json", arguments->at[0]));
    FWA_TRY(make_config(in, path, run, arguments));
    FWA_TRY(make_model(in, world));
    FWA_TRY(fwa_path_format(path, "%s/model.safetensors", arguments->at[0]));
    FWA_TRY(fwa_safetensors_open(&in->file, path));
    FWA_TRY(read_weights(in));
    FWA_TRY(write_run(in, run, arguments->at[0]));
    fwa_log_info("%s: checkpoint of step %lld with %d tensors; train on with --init-from %s", run, (long long)in->step,
                 in->model->params.count, run);
    return FWA_OK;
}

static fwa_status import(import_job *in, const fwa_world *world, int argc, char **argv) {
    static const fwa_option options[] = {{NULL, false}};
    FWA_TRY(fwa_arguments_parse(&in->arguments, options, argc, argv));
    FWA_CHECK(in->arguments.count >= 2, FWA_USAGE,
              "fwa import: expected a folder of fwa export, and a new run folder (fwa help import)");
    FWA_CHECK(world->size == 1, FWA_USAGE, "fwa import: start it without mpirun or srun");
    return read_all(in, world);
}

fwa_status fwa_cmd_import(fwa_world *world, int argc, char **argv) {
    import_job *in = calloc(1, sizeof *in);
    FWA_CHECK(in, FWA_MEMORY, "fwa import: out of memory");
    fwa_status status = import(in, world, argc, argv);
    release(in);
    free(in);
    return status;
}
