// The table of commands.
#include "train/help.h"

#include <string.h>

#include "io/config.h"
#include "train/commands.h"

// A line of text a line, whatever its length.
// clang-format off
static const fwa_command commands[] = {
    {"train",
     "CONFIG.yaml [key.path=value ...] [--resume none|auto|PATH] [--init-from CHECKPOINT] [--dry-run] [--print-config]",
     "train a model, on one process or under mpirun",
     "Reads CONFIG.yaml and the files it is based on, then the overrides in order; docs/configuration.md lists every key.\n"
     "\n"
     "  --resume none    start fresh; refuses a run folder that has checkpoints (default)\n"
     "  --resume auto    continue from the newest sound checkpoint of the run folder, or start fresh\n"
     "  --resume PATH    continue from this checkpoint or from the newest one of this run folder; later ones of run.name\n"
     "                   are set aside (checkpoints/set_aside_N)\n"
     "  --init-from C    start at step 0 with the weights of checkpoint or run C\n"
     "  --dry-run        print model, parameter count and memory plan; train and write nothing\n"
     "  --print-config   print the resolved configuration\n"
     "\n"
     "SIGTERM, SIGINT, SIGHUP, SIGUSR1 or SIGUSR2 to any rank: all ranks save at the next step and leave with exit\n"
     "code 75; a second SIGTERM or SIGINT more than a second later ends a rank at once.\n"
     "Exit codes: 0 finished, 1 runtime error, 2 usage, configuration or data, 3 non-finite loss, 4 communication\n"
     "time-out, 75 saved after a signal.\n",
     fwa_cmd_train},
    {"eval",
     "RUN_OR_CHECKPOINT [FILE ...] [--task ppl|mc|addition] [--examples N] [--batch N] [--json FILE] [--tokenizer T]\n"
     "                [run.backend=B] [run.threads=N] [train.precision=P]\n"
     "                ppl: [--context N] [--stride N] [--words N] [--field NAME]\n"
     "                mc: [--shots K] [--seed N] [--cut] [--scores FILE]\n"
     "                addition: [--widths A-B|upto|exact] [--greedy] [--grid A-B[:STEP]]",
     "perplexity, multiple choice, or exact match of the addition task",
     "Measures a checkpoint, on one process or under mpirun; docs/evaluation.md says how. The task is the one the model\n"
     "was trained on unless --task names another. Backend and threads are those of this machine unless they are given.\n"
     "Scores do not depend on batch size, padding and number of ranks.\n"
     "\n"
     "ppl: perplexity by token, byte and word of token shards (*.bin), text files or JSONL; without FILE of data.val.\n"
     "  --context N      tokens of a window (default: the length of the sequences in training)\n"
     "  --stride N       new tokens in each window, so that all have a longer past (default: the whole window)\n"
     "  --words N        divide by this number of words instead of those in the text\n"
     "  --field NAME     member of a JSONL line with a document's text (default text)\n"
     "mc: accuracy on files of questions, JSONL or the llm.c layout (*.bin), and their mean over the tasks of the paper:\n"
     "the most probable choice, also by character (as lm-evaluation-harness does) and by token of the choice; of contexts\n"
     "whose last word is wanted (LAMBADA) accuracy and perplexity.\n"
     "  --shots K        solved questions of the same file in front of each, drawn with --seed N (default 0)\n"
     "  --cut            contexts beyond the length that attention was trained on lose their beginning\n"
     "  --scores FILE    every question's log-probabilities and choices, a JSON object a line\n"
     "addition: exact match by operand width, without --widths up to half beyond the trained range. `upto` draws widths\n"
     "of operands from 1..width, `exact` gives both operands that width; --widths 33-48,exact measures one of them.\n"
     "  --greedy         decodes the answers token by token, too\n"
     "  --grid A-B:STEP  instead over all pairs of widths A, A+STEP, ... and B, the one of the first operand, the other of\n"
     "                   the second (bracket format)\n"
     "\n"
     "  --examples N     at most so many questions or windows; of addition examples a width (default 1000)\n"
     "                   or a pair of widths (200)\n"
     "  --batch N        sequences at a time (default 16; addition 100)\n"
     "  --tokenizer T    folder with GPT-2's encoder.json and vocab.bpe (default data/gpt2), or bytes\n"
     "  --json FILE      results as an object\n",
     fwa_cmd_eval},
    {"generate",
     "RUN_OR_CHECKPOINT [--prompt TEXT | --prompt-file FILE] [--tokens N] [--temperature T] [--top-k K] [--top-p P]\n"
     "                [--seed N] [--state-in FILE] [--state-out FILE] [--tokenizer T] [--context N] [--no-mark]\n"
     "                [--ignore-end] [--json FILE] [run.backend=B] [run.threads=N] [train.precision=P]",
     "go on from a text, token by token, with the memory of what was read saved or restored",
     "Reads the prompt and prints what the model makes of it, to the end of the text or for --tokens N (default 128; 0:\n"
     "read only). A token takes the same time and memory however much was read, except where a layer has softmax\n"
     "attention, whose cache has room for --context N tokens (default: the length of the sequences in training).\n"
     "\n"
     "  --prompt-file F    the text is in a file, or - for standard input\n"
     "  --temperature T    logits are divided by T (default 1); 0: always the most probable token\n"
     "  --top-k K          draws from the K most probable tokens (default 0: all)\n"
     "  --top-p P          and of these from the most probable ones with share P together (default 1)\n"
     "  --seed N           the same command with the same seed makes the same text (default 0)\n"
     "  --state-out FILE   writes the memory behind the last token (HDF5)\n"
     "  --state-in FILE    goes on from such a memory: as if the texts had been read in one run, bit by bit\n"
     "  --ignore-end       goes on behind the end of a text\n"
     "  --no-mark          a fresh text does not start with a document mark\n"
     "  --tokenizer T      folder with GPT-2's encoder.json and vocab.bpe (default data/gpt2), or bytes\n"
     "  --json FILE        tokens, times and memory as an object\n",
     fwa_cmd_generate},
    {"sweep",
     "SWEEP.yaml [key.path=value ...] [--base CONFIG.yaml] [--list | --table | --point N | --words N]\n"
     "                 [--jobs N|gpus] [--gpus-per-job G] [--launch COMMAND] [--eval WORDS ...] [--csv FILE]",
     "train the points of a sweep file",
     "Every point is a run folder run.dir/SWEEP/POINT; docs/sweeps.md has the file's format. Finished points are\n"
     "skipped, interrupted ones continue, a point that fails does not keep the others from training. At the end a\n"
     "table with mean and standard deviation over seeds, and every point in run.dir/SWEEP/results.csv. Words\n"
     "key.path=value hold for all points.\n"
     "\n"
     "  --list         number, state and name of every point; trains nothing\n"
     "  --table        the table and the CSV of what there is; trains nothing\n"
     "  --point N      trains point N of the list only\n"
     "  --words N      prints the words that train point N, one a line, for scripts\n"
     "  --base C       another base than the file's\n"
     "  --jobs N       trains N points at once (1 to 64; default 1), each on its own GPU of CUDA_VISIBLE_DEVICES and\n"
     "                 its share of the cores; gpus: as many as the GPUs suffice for. What a point prints is then in\n"
     "                 run.dir/SWEEP/POINT.out\n"
     "  --gpus-per-job G  GPUs of each of these points (default 1): as many as --launch starts ranks\n"
     "  --launch 'C'   starts every point with this command in front, such as 'mpirun -np 4'\n"
     "  --eval 'W'     behind every point that finishes, once: fwa eval POINT W --json POINT/eval-W.json, such as\n"
     "                 '--widths 32-48'; exact match of the addition task then stands in the table. As often as\n"
     "                 there are evaluations\n"
     "  --csv FILE     where the CSV goes\n"
     "\n"
     "SIGTERM, SIGINT, SIGHUP, SIGUSR1 or SIGUSR2: the points under way save, and the sweep leaves with exit code 75; the same\n"
     "command continues it. Exit codes: 0 all points finished or stopped by train.stop_after, 1 some failed, 2 the\n"
     "sweep or a point's configuration is wrong, 75 stopped by a signal; with --point that of the point.\n",
     fwa_cmd_sweep},
    {"report", "RUN ... [-o FILE] [--title TEXT] [--figures FOLDER] [--tensorboard FOLDER]",
     "draw runs into one HTML page, or a table",
     "RUN is a run folder, or a folder that holds run folders, such as a sweep's. The page needs no other file and no\n"
     "JavaScript: losses and perplexity by tokens, learning rate, gradient norm, throughput, and how configurations\n"
     "differ. Runs that differ in the seed only become one line, with mean and standard deviation. Results that\n"
     "`fwa eval RUN --json RUN/FILE.json` left in a run folder are shown as well.\n"
     "\n"
     "  -o FILE              default report.html; FILE.md or FILE.csv is a table, a line a configuration\n"
     "  --title TEXT         default: the name of the run or of the folder\n"
     "  --figures F          writes the figures as SVG files into folder F, too\n"
     "  --tensorboard F      writes event files for TensorBoard into folder F, too\n",
     fwa_cmd_report},
    {"export",
     "RUN_OR_CHECKPOINT FOLDER [--to safetensors|llama] [--dtype f32|bf16] [--tokenizer FOLDER] [--logits N]\n"
     "                  [run.backend=B] [run.threads=N] [train.precision=P]",
     "write a model for other programs",
     "Makes FOLDER, which must be new or empty, with model.safetensors and config.json (docs/export.md).\n"
     "\n"
     "  --to safetensors   parameters under their own names, read by tools/fwa_torch.py (default)\n"
     "  --to llama         as the transformers library reads LLaMA models; for models of softmax attention\n"
     "  --dtype D          of the weights: f32, or f64 after training in f64 (default), or bf16\n"
     "  --tokenizer F      GPT-2's files of folder F beside it, under the names that the transformers library knows\n"
     "  --logits N         logits.safetensors, too: N tokens and what this program's model answers to them, to compare\n"
     "                     with; backend, threads and precision by the settings\n",
     fwa_cmd_export},
    {"import", "FOLDER RUN [key.path=value ...]", "make a run folder of an exported model",
     "FOLDER holds model.safetensors and config.json: an export of either kind, or a LLaMA model with tied embeddings.\n"
     "RUN gets a checkpoint with the weights, for `fwa eval`, `fwa generate`, and `fwa train --init-from RUN`; moments of\n"
     "the optimizer do not travel. Words key.path=value change its configuration.\n",
     fwa_cmd_import},
    {"bench",
     "step CONFIG.yaml [key.path=value ...] [--steps N] [--eager] [--no-overlap] [--profile]\n"
     "                 | op [all|rules|operators|NAME ...] [--backend auto|cpu|cuda] [--dtype f64|f32|bf16] [--B N] [--T N]\n"
     "                      [--H N] [--K N] [--V N] [--D N] [--F N] [--N N] [--earlier N] [--window N]\n"
     "                      [--form chunk|recurrent] [--repeats N] [--threads N] [--json]\n"
     "                 | comm [--backend cpu|cuda] [--from BYTES] [--to BYTES] [--ctas N]\n"
     "                 | io [--to FOLDER] [--parameters N] [--repeats N]",
     "time training steps, mixing rules, operators, communication or checkpoints, after a check",
     "step: whole training steps on random tokens, after a check that the first loss is what the initial weights must\n"
     "give and that a repeated batch is learned. ms_host: what the host takes to give a step to the device.\n"
     "exchanged_bytes: between ranks that share sequences, beside what is expected. --eager: call by call, where a GPU\n"
     "would run recorded graphs. --no-overlap: gradients are summed over ranks behind the backward pass instead of\n"
     "during it. --profile: three more steps by parts, as debug.profile has them: where the time goes, for every rank\n"
     "of a sequence.\n"
     "op: forward and backward of mixing rules and operators by name (gemm: all products; default: all). B sequences\n"
     "of T tokens, H heads with keys of K and values of V, width D, F of the MLP, N tokens in the vocabulary; --earlier\n"
     "N: behind N keys and values, as a piece of a sequence is (rules with a cache). --window N: of rules that have\n"
     "one, instead of their own. Results must equal the CPU's in f64 first. Median ms; bytes and FLOPs that the work\n"
     "needs, a second; share of the floor, the time that a plain copy of these bytes or a large product of these\n"
     "FLOPs takes on the same device, whichever is longer (above 100 %: a cache held the data). --json: one object a\n"
     "line, with all numbers.\n"
     "comm: all-reduce, all-gather, reduce-scatter and exchange (each rank sends to the next) between the ranks, from\n"
     "8 B to 256 MB: MPI on the cpu, NCCL on cuda with --ctas thread blocks (0: as NCCL likes). Checks every result\n"
     "for its exact value first. algbw: bytes over time; busbw, which compares with the hardware whatever the number\n"
     "n of ranks: algbw x 2(n-1)/n for all-reduce, x (n-1)/n for all-gather and reduce-scatter.\n"
     "io: writes checkpoints of N parameters (default 16,000,000; 12 bytes each) into a new folder (default\n"
     "bench-io), each rank its rows, reads them back, compares every value, and removes the folder. One that is stopped\n"
     "leaves it.\n",
     fwa_cmd_bench},
    {"op",
     "[--rule R] --in CASE.h5 --out ANSWER.h5 | --check CASE.h5 [CASE.h5 ...] [--out ANSWER.h5] [--tolerance E]\n"
     "              [--form recurrent|parallel|chunk] [--chunk N] [--backend cpu|cuda] [--dtype f64|f32|bf16]",
     "run a mixing rule on a case file, or check the answers that the file holds",
     "A case is an HDF5 file. Attributes: rule, and as the rule has them window, eps, eps_gamma, eta_max (0: off),\n"
     "eps_attn, and 0 or 1: scale_coupled, detach_scale, shift (1: next latent), raw (1: read after write),\n"
     "direct_step, normalized_read; what is missing stands at the rule's default. Group in/: q, k [B,T,Hq,K],\n"
     "v [B,T,H,V], as the rule takes them beta, lambda, log_decay [B,T,H], and where there are any reset [B,T],\n"
     "S0 [B,H,K,V], z0, k_prev [B,Hq,K], tail_x, tail_v, and gradients that arrive: do, dS, dz, dk_last,\n"
     "dtail_x_out, dtail_v_out.\n"
     "\n"
     "  --out FILE     write out/ and, where a gradient arrives, grad/ (d + name of the input), in float64\n"
     "  --check CASE   print the error of every tensor in the case's own out/ and grad/; exit code 1 if one is above\n"
     "                 the tolerance. Error: RMS of the difference over RMS of the tensor; absolute where the tensor\n"
     "                 is 0 and for a single token over an empty memory\n"
     "  --tolerance E  default 1e-9 in f64, 1e-4 in f32, 0.02 in bf16\n"
     "  --form F       default chunk, with --chunk 64\n"
     "  --dtype T      default f64 on the cpu, f32 on cuda. bf16 on the cpu: the chunk form with bf16 where the kernels\n"
     "                 of a GPU have it, for rules on the additive and delta cores\n"
     "\n"
     "Without --rule the case's attribute says which rule; both must agree. Bad input ends with exit code 2 and a\n"
     "message that names the dataset, and writes nothing.\n",
     fwa_cmd_op},
    {"data",
     "tokenize INPUT ... --out FOLDER [--tokenizer FOLDER|bytes] [--format text|jsonl] [--field NAME]\n"
     "                [--documents file|line] [--val SHARE] [--seed N] [--shard-tokens N] [--threads N]\n"
     "                | inspect SHARD ... [--tokenizer FOLDER|bytes] [--samples N] [--length N] [--json FILE]\n"
     "                | addition [--format bracket|paper] [--width-min N] [--width-max N] [--split train|val] [--seed N]\n"
     "                [--first N] [--examples N] [--json]",
     "make token shards from text, look into them, or show examples of the addition task",
     "tokenize: text files, or JSONL (*.jsonl, *.ndjson) with an object a line, to FOLDER/train_000000.bin, ... and\n"
     "FOLDER/val_000000.bin, ..., each document behind the tokenizer's document mark. INPUT is a path, a pattern in\n"
     "quotes, or - for standard input. FOLDER must be new or empty; it is made when all is written, so a run that was\n"
     "stopped leaves at most FOLDER.tmp, which the next one takes.\n"
     "\n"
     "  --tokenizer T      folder with GPT-2's encoder.json and vocab.bpe (default data/gpt2), or bytes\n"
     "  --format F         default: by the name of the first INPUT\n"
     "  --field NAME       member of the object with the text (default text)\n"
     "  --documents D      a text file is a document (default), or a line of it is\n"
     "  --val SHARE        documents for validation (default 0.01), chosen by a hash of text and --seed (default 0):\n"
     "                     equal documents fall to the same side, whatever else is in the input\n"
     "  --shard-tokens N   tokens of a file (default 100000000)\n"
     "  --threads N        default: the cores that this process may use; the files do not depend on it\n"
     "\n"
     "inspect: header, documents and their lengths, the most frequent tokens, and samples as text. SHARD is a path or a\n"
     "pattern in quotes.\n"
     "\n"
     "  --tokenizer T      decodes; default data/gpt2 where there is one, else ids are shown\n"
     "  --samples N        documents shown, spread evenly (default 3), of each --length N tokens (default 48)\n"
     "  --json FILE        the same numbers as an object\n"
     "\n"
     "addition: the examples that training draws, one a line (docs/addition.md). Without options those of\n"
     "configs/addition/base.yaml; --format, the widths and --seed are the keys task.format, task.width_min,\n"
     "task.width_max and run.seed.\n"
     "\n"
     "  --split S          train (default) or val\n"
     "  --first N          number of the first one (default 0), of --examples N (default 10)\n"
     "  --json             a line is an object: number, question, answer, tokens with begin and end, and answer_at, the\n"
     "                     place of the answer's first token\n",
     fwa_cmd_data},
    {"checkpoint",
     "list RUN ... | verify RUN_OR_CHECKPOINT ... | diff A B [--tolerance E]\n"
     "                      | pack RUN_OR_CHECKPOINT --out FILE.h5",
     "list, check, compare and pack checkpoints",
     "A run stands for its newest sound checkpoint in diff and pack, for all of them in list and verify.\n"
     "\n"
     "  list      step, time, size, shards, tokens; sizes of files are checked\n"
     "  verify    reads everything: digests of all files, rows of all tensors; names each damaged file. Exit code 1 if\n"
     "            there is one\n"
     "  diff      compares what two checkpoints hold, whatever the number of ranks that wrote them: state, keys that\n"
     "            define the run, masters and moments. Exit code 1 if they differ; --tolerance E lets tensors pass\n"
     "            whose difference has a relative RMS of at most E (default 0: every bit)\n"
     "  pack      writes the weights as one plain HDF5 file, a new one, that needs no shards\n"
     "\n"
     "docs/checkpoint.md describes the files.\n",
     fwa_cmd_checkpoint},
    {"info", "", "rules, operators, backends and versions of this build", "", fwa_cmd_info},
};
// clang-format on

#define COMMANDS (sizeof commands / sizeof *commands)

const fwa_command *fwa_command_find(const char *name) {
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    return NULL;
}

static void list(FILE *out) {
    fprintf(out, "fwa: distributed pretraining of fast-weight language models\n\nusage: fwa COMMAND ...\n\n");
    for (size_t i = 0; i < COMMANDS; i++) fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].summary);
    fprintf(out, "\n  help       this list; `fwa help COMMAND` a command's page; `fwa help configuration` every key\n"
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
