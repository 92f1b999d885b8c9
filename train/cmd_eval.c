// fwa eval RUN_OR_CHECKPOINT [--task ppl|mc|addition] [FILE ...] [key.path=value ...] ...
#include "io/files.h"
#include "train/agreement.h"
#include "train/commands.h"
#include "train/eval/eval.h"

typedef fwa_status (*task_function)(fwa_world *world, const fwa_loaded *loaded, const fwa_eval_request *request);

static const task_function tasks[] = {[FWA_EVAL_PERPLEXITY] = fwa_eval_perplexity,
                                      [FWA_EVAL_CHOICES] = fwa_eval_choices,
                                      [FWA_EVAL_ADDITION] = fwa_eval_addition};

// Before the work whose results they get.
static fwa_status check_targets(const fwa_eval_request *r) {
    if (r->json) FWA_TRY(fwa_file_check_target("--json", r->json));
    return r->scores ? fwa_file_check_target("--scores", r->scores) : FWA_OK;
}

fwa_status fwa_cmd_eval(fwa_world *world, int argc, char **argv) {
    fwa_arguments arguments;
    fwa_eval_request request;
    fwa_loaded loaded;
    FWA_TRY(fwa_world_agree(world, fwa_eval_request_read(&request, &arguments, argc, argv)));
    FWA_TRY(fwa_agree_options(world, fwa_eval_options, &arguments));
    FWA_TRY(fwa_world_split(world, 1));
    FWA_TRY(fwa_world_agree(world, world->rank == 0 ? check_targets(&request) : FWA_OK));
    fwa_status status = fwa_loaded_open(&loaded, world, arguments.at[0], request.words, request.word_count);
    if (status == FWA_OK) status = fwa_eval_request_suit(&request, &arguments, loaded.config, loaded.attention);
    if (status == FWA_OK) status = tasks[request.task](world, &loaded, &request);
    fwa_loaded_close(&loaded);
    return status;
}
