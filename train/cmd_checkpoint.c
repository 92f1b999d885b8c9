// fwa checkpoint list RUN... | verify RUN_OR_CHECKPOINT... | diff A B [--tolerance E] | pack RUN_OR_CHECKPOINT --out
// FILE
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "core/clock.h"
#include "io/checkpoint.h"
#include "io/files.h"
#include "train/arguments.h"
#include "train/checkpoint_diff.h"
#include "train/commands.h"
#include "train/progress.h"
#include "train/run.h"

// What is done with each checkpoint that a word of the command line names.
typedef struct visit {
    fwa_status (*one)(struct visit *, const char *path, const char *name);
    int count, damaged;
    bool in_run; // checkpoints are those that stand in a run folder, not named one by one
} visit;

// A run that trains removes old checkpoints, also while they are looked at.
static bool is_gone(const visit *v, const char *path) {
    return v->in_run && !fwa_path_exists(path);
}

static fwa_status visit_run(visit *v, const char *run) {
    int64_t *steps = NULL;
    int count = 0;
    FWA_TRY(fwa_checkpoint_steps(run, &steps, &count));
    fwa_status status = FWA_OK;
    for (int i = count - 1; i >= 0 && status == FWA_OK; i--) {
        char path[FWA_PATH_MAX], name[64];
        snprintf(name, sizeof name, "step_%08lld", (long long)steps[i]);
        status = fwa_path_format(path, "%s/checkpoints/%s", run, name);
        if (status == FWA_OK) status = v->one(v, path, name);
    }
    free(steps);
    return status;
}

// `word` is a checkpoint, also one without its manifest, or a run folder.
static fwa_status visit_word(visit *v, const char *word) {
    char manifest[FWA_PATH_MAX], checkpoints[FWA_PATH_MAX], plain[FWA_PATH_MAX];
    struct stat info;
    FWA_CHECK(stat(word, &info) == 0, FWA_CONFIG, "%s: no such run folder or checkpoint", word);
    FWA_CHECK(S_ISDIR(info.st_mode), FWA_CONFIG, "%s is a file, expected the folder of a run or a checkpoint", word);
    FWA_TRY(fwa_path_format(plain, "%s", word));
    fwa_path_trim(plain);
    word = plain;
    FWA_TRY(fwa_path_format(manifest, "%s/manifest.json", word));
    FWA_TRY(fwa_path_format(checkpoints, "%s/checkpoints", word));
    const char *slash = strrchr(word, '/'), *name = slash ? slash + 1 : word;
    if (fwa_path_exists(manifest) || (!fwa_path_exists(checkpoints) && strncmp(name, "step_", 5) == 0))
        return v->one(v, word, name);
    printf("%s\n", word);
    int before = v->count;
    v->in_run = true;
    fwa_status status = visit_run(v, word);
    v->in_run = false;
    FWA_TRY(status);
    if (v->count == before) printf("  no checkpoints\n");
    return FWA_OK;
}

static fwa_status visit_words(visit *v, const fwa_arguments *a, const char *action) {
    FWA_CHECK(a->count > 0, FWA_USAGE, "fwa checkpoint %s: expected run folders or checkpoints (fwa help checkpoint)",
              action);
    for (int i = 0; i < a->count; i++) FWA_TRY(visit_word(v, a->at[i]));
    return FWA_OK;
}

// Bytes of the files of a folder.
static int64_t folder_bytes(const char *path) {
    struct dirent **entries;
    int64_t bytes = 0;
    int count = scandir(path, &entries, NULL, NULL);
    for (int i = 0; i < count; i++) {
        char file[FWA_PATH_MAX];
        struct stat info;
        if (fwa_path_format(file, "%s/%s", path, entries[i]->d_name) == FWA_OK && stat(file, &info) == 0 &&
            S_ISREG(info.st_mode))
            bytes += info.st_size;
        free(entries[i]);
    }
    if (count >= 0) free(entries);
    return bytes;
}

static void print_time(const char *path) {
    char text[32] = "?";
    struct stat info;
    struct tm local;
    if (stat(path, &info) == 0 && localtime_r(&info.st_mtime, &local))
        strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local);
    printf("  %s", text);
}

static fwa_status list_one(visit *v, const char *path, const char *name) {
    char bytes[32], tokens[32];
    fwa_checkpoint *checkpoint;
    v->count++;
    fwa_status status = fwa_checkpoint_open_quick(&checkpoint, path);
    printf("  %s", name);
    if (status != FWA_OK && is_gone(v, path)) {
        printf("  removed by its run just now\n");
        return FWA_OK;
    }
    print_time(path);
    printf("  %9s", fwa_text_bytes(folder_bytes(path), bytes));
    if (status != FWA_OK) {
        v->damaged++;
        printf("  damaged: %s\n", fwa_error_message());
        return FWA_OK;
    }
    const fwa_checkpoint_state *state = fwa_checkpoint_get_state(checkpoint);
    int ranks = fwa_checkpoint_ranks(checkpoint);
    printf("  %d shard%s  %s tokens", ranks, fwa_plural(ranks), fwa_text_count(state->tokens, tokens));
    if (state->skipped > 0) printf("  %lld skipped", (long long)state->skipped);
    if (!isnan(state->best_val_loss)) printf("  best val %.4f", state->best_val_loss);
    printf("\n");
    fwa_checkpoint_close(checkpoint);
    return FWA_OK;
}

static fwa_status run_list(fwa_world *world, int argc, char **argv) {
    (void)world;
    static const fwa_option options[] = {{NULL, false}};
    fwa_arguments arguments;
    visit v = {.one = list_one};
    FWA_TRY(fwa_arguments_parse(&arguments, options, argc, argv));
    return visit_words(&v, &arguments, "list");
}

typedef struct file_sums {
    const visit *visit;
    const char *path; // of the checkpoint
    int files;
    int64_t bytes;
    bool told; // a problem was
} file_sums;

static void tell_file(void *user, const char *file, int64_t bytes, const char *problem) {
    file_sums *sums = user;
    (void)file; // every problem names it
    sums->files++;
    sums->bytes += bytes;
    if (!problem || is_gone(sums->visit, sums->path)) return;
    printf("%s    %s\n", sums->told ? "" : " damaged:\n", problem);
    sums->told = true;
}

static fwa_status verify_one(visit *v, const char *path, const char *name) {
    char bytes[32];
    file_sums sums = {.visit = v, .path = path};
    v->count++;
    printf("  %s ", name);
    fflush(stdout);
    double start = fwa_clock_seconds();
    fwa_status status = fwa_checkpoint_verify(path, tell_file, &sums);
    double seconds = fwa_clock_seconds() - start;
    if (status == FWA_OK) {
        printf(" sound: %d files, %s, %.2f GB/s\n", sums.files, fwa_text_bytes(sums.bytes, bytes),
               seconds > 0.0 ? 1e-9 * (double)sums.bytes / seconds : 0.0);
        return FWA_OK;
    }
    if (status != FWA_FORMAT && status != FWA_IO) return status;
    if (is_gone(v, path)) {
        printf("%s removed by its run just now\n", sums.told ? "   " : "");
        return FWA_OK;
    }
    if (!sums.told) printf(" damaged:\n    %s\n", fwa_error_message());
    v->damaged++;
    return FWA_OK;
}

static fwa_status run_verify(fwa_world *world, int argc, char **argv) {
    (void)world;
    static const fwa_option options[] = {{NULL, false}};
    fwa_arguments arguments;
    visit v = {.one = verify_one};
    FWA_TRY(fwa_arguments_parse(&arguments, options, argc, argv));
    FWA_TRY(visit_words(&v, &arguments, "verify"));
    fflush(stdout);
    FWA_CHECK(v.count > 0, FWA_CONFIG, "nothing verified: no checkpoints there");
    FWA_CHECK(v.damaged == 0, FWA_FAULTY, "%d of %d checkpoint%s damaged", v.damaged, v.count, fwa_plural(v.count));
    return FWA_OK;
}

static fwa_status open_word(fwa_checkpoint **checkpoint, const char *word) {
    char path[2048];
    FWA_TRY(fwa_run_find_checkpoint(word, path));
    return fwa_checkpoint_open(checkpoint, path);
}

static fwa_status run_diff(fwa_world *world, int argc, char **argv) {
    (void)world;
    static const fwa_option options[] = {{"--tolerance", true}, {NULL, false}};
    fwa_arguments arguments;
    fwa_checkpoint *a = NULL, *b = NULL;
    bool same = false;
    char *end;
    FWA_TRY(fwa_arguments_parse(&arguments, options, argc, argv));
    FWA_CHECK(arguments.count == 2, FWA_USAGE,
              "fwa checkpoint diff: got %d word%s, expected two runs or checkpoints (fwa help checkpoint)",
              arguments.count, fwa_plural(arguments.count));
    const char *text = fwa_arguments_value(&arguments, "--tolerance", "0");
    const double tolerance = strtod(text, &end);
    FWA_CHECK(end != text && !*end && tolerance >= 0.0, FWA_USAGE, "--tolerance '%s': expected a number >= 0", text);
    fwa_status status = open_word(&a, arguments.at[0]);
    if (status == FWA_OK) status = open_word(&b, arguments.at[1]);
    if (status == FWA_OK) status = fwa_checkpoint_diff(a, b, tolerance, stdout, &same);
    fflush(stdout);
    if (status == FWA_OK && !same)
        status = fwa_error_raise(FWA_FAULTY, __FILE__, __LINE__, __func__, "%s and %s differ", fwa_checkpoint_path(a),
                                 fwa_checkpoint_path(b));
    fwa_checkpoint_close(a);
    fwa_checkpoint_close(b);
    return status;
}

static fwa_status write_pack(void *user, fwa_checkpoint *checkpoint) {
    const char *out = user;
    FWA_TRY(fwa_checkpoint_pack(checkpoint, out));
    printf("%s: %d parameters of %s\n", out, fwa_checkpoint_count(checkpoint), fwa_checkpoint_path(checkpoint));
    return FWA_OK;
}

static fwa_status run_pack(fwa_world *world, int argc, char **argv) {
    static const fwa_option options[] = {{"--out", true}, {NULL, false}};
    fwa_arguments arguments;
    FWA_TRY(fwa_arguments_parse(&arguments, options, argc, argv));
    const char *out = fwa_arguments_value(&arguments, "--out", NULL);
    FWA_CHECK(arguments.count == 1 && out && out[0], FWA_USAGE,
              "fwa checkpoint pack: expected one run or checkpoint and --out FILE.h5 (fwa help checkpoint)");
    FWA_TRY(fwa_file_check_target("--out", out));
    FWA_CHECK(!fwa_path_exists(out), FWA_CONFIG, "--out %s: there is such a file already: remove it, or name another",
              out);
    return fwa_run_read_checkpoint(world, arguments.at[0], write_pack, (void *)out);
}

fwa_status fwa_cmd_checkpoint(fwa_world *world, int argc, char **argv) {
    static struct {
        const char *word;
        char name[20];
        fwa_status (*run)(fwa_world *, int, char **);
    } actions[] = {{"list", "checkpoint list", run_list},
                   {"verify", "checkpoint verify", run_verify},
                   {"diff", "checkpoint diff", run_diff},
                   {"pack", "checkpoint pack", run_pack}};
    FWA_CHECK(world->size == 1, FWA_USAGE, "fwa checkpoint: %d processes, expected one: start it without mpirun",
              world->size);
    FWA_CHECK(argc >= 2, FWA_USAGE, "fwa checkpoint: expected list, verify, diff or pack (fwa help checkpoint)");
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++) {
        if (strcmp(argv[1], actions[i].word) != 0) continue;
        argv[1] = actions[i].name;
        return actions[i].run(world, argc - 1, argv + 1);
    }
    FWA_FAIL(FWA_USAGE, "fwa checkpoint '%s': expected list, verify, diff or pack", argv[1]);
}
