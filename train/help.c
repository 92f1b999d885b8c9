// The table of commands.
#include "train/help.h"

#include <string.h>

#include "io/config.h"
#include "train/commands.h"

static const fwa_command commands[] = {
    {"train",
     "CONFIG.yaml [key.path=value ...] [--resume none|auto|PATH] [--init-from CHECKPOINT] [--dry-run] [--print-config]",
     "train a model, on one process or under mpirun",
     "Reads CONFIG.yaml and the files it is based on, then the overrides in order; docs/configuration.md lists every "
     "key.\n"
     "\n"
     "  --resume none    start fresh; refuses a run folder that has checkpoints (default)\n"
     "  --resume auto    continue from the newest sound checkpoint of the run folder, or start fresh\n"
     "  --resume PATH    continue from this checkpoint or from the newest one of this run folder\n"
     "  --init-from C    start at step 0 with the weights of checkpoint or run C\n"
     "  --dry-run        print model, parameter count and memory plan; train and write nothing\n"
     "  --print-config   print the resolved configuration\n"
     "\n"
     "SIGTERM, SIGUSR1 or SIGUSR2 to any rank: all ranks save at the next step and leave with exit code 75.\n"
     "Exit codes: 0 finished, 1 runtime error, 2 usage, configuration or data, 3 non-finite loss, 4 communication\n"
     "time-out, 75 saved after a signal.\n",
     fwa_cmd_train},
    {"eval", "RUN_OR_CHECKPOINT [--task addition] [--widths A-B] [--examples N] [--batch N] [--json FILE]",
     "exact match of the addition task by operand width",
     "Measures a checkpoint in both ways: `upto` draws operand widths from 1..width, `exact` gives both operands that\n"
     "width. Without --widths: up to half beyond the trained range.\n",
     fwa_cmd_eval},
    {"bench", "step CONFIG.yaml [key.path=value ...] [--steps N] | op [--rule R] [--shape BxTxHxK] [--repeats N]",
     "time training steps or mixing rules, after a check",
     "step: whole training steps on random tokens; checks first that a repeated batch is learned.\n"
     "op: forward and backward of a mixing rule; checks first that its chunk form equals the recurrence.\n",
     fwa_cmd_bench},
    {"info", "", "rules, operators, backends and versions of this build", "", fwa_cmd_info},
};

#define COMMANDS (sizeof commands / sizeof *commands)

const fwa_command *fwa_command_find(const char *name) {
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    return NULL;
}

static void list(FILE *out) {
    fprintf(out, "fwa: distributed pretraining of fast-weight language models\n\nusage: fwa COMMAND ...\n\n");
    for (size_t i = 0; i < COMMANDS; i++) fprintf(out, "  %-8s %s\n", commands[i].name, commands[i].summary);
    fprintf(out, "\n  help     this list; `fwa help COMMAND` a command's page; `fwa help configuration` every key\n"
                 "  --version\n");
}

int fwa_help(const char *name, FILE *out, int failed) {
    if (!name) {
        list(out);
        return failed ? 2 : 0;
    }
    if (strcmp(name, "configuration") == 0) return fwa_config_reference(out) == FWA_OK ? 0 : 1;
    const fwa_command *command = fwa_command_find(name);
    if (!command) {
        fprintf(stderr, "fwa: no command '%s'\n\n", name);
        list(stderr);
        return 2;
    }
    fprintf(out, "usage: fwa %s %s\n\n%s.\n\n%s", command->name, command->arguments, command->summary,
            command->details);
    return 0;
}
