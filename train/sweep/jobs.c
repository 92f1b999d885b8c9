// The queue of a sweep's points: places take them, train them, and evaluate them.
#include "train/sweep/jobs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "io/files.h"
#include "train/run.h"

enum { TRAINING = -1, TAIL_LINES = 6, TAIL_BYTES = 2048 };

// What a place is doing.
typedef struct job {
    bool busy;
    int point;
    int eval; // number of the evaluation under way, or TRAINING
    int code; // of the point's first failure
    int lock; // of the run folder while it is evaluated; -1: not held
} job;

typedef struct queue {
    const fwa_sweep_jobs *jobs;
    fwa_sweep_failures *failures;
    int next, end; // points that nobody has taken yet
    int under_way;
    bool stopped; // something was cut short
    job place[FWA_CHILDREN_MAX];
} queue;

static fwa_sweep_run *run_of(const queue *q, int place) {
    return &q->jobs->runs->run[q->place[place].point];
}

static fwa_status output_path(const queue *q, int place, char path[FWA_PATH_MAX]) {
    return fwa_path_format(path, "%s.out", run_of(q, place)->path);
}

// Whether what children print would be mixed on the terminal.
static bool prints_apart(const queue *q) {
    return q->jobs->places->count > 1;
}

// Variables of what runs in a place.
typedef struct environment {
    char devices[FWA_PATH_MAX];
    const char *list[4];
} environment;

// An mpirun of a place would bind its ranks to the first cores of the machine, as those of all other places do.
static fwa_status fill_environment(environment *e, const fwa_sweep_place *place) {
    int n = 0;
    e->list[n++] = e->devices;
    FWA_TRY(fwa_path_format(e->devices, "CUDA_VISIBLE_DEVICES=%s", place->devices));
    if (!getenv("OMPI_MCA_hwloc_base_binding_policy")) e->list[n++] = "OMPI_MCA_hwloc_base_binding_policy=none";
    if (!getenv("PRTE_MCA_hwloc_default_binding_policy")) e->list[n++] = "PRTE_MCA_hwloc_default_binding_policy=none";
    e->list[n] = NULL;
    return FWA_OK;
}

static fwa_status start_child(const queue *q, int place, char *const *words) {
    const fwa_sweep_places *places = q->jobs->places;
    char output[FWA_PATH_MAX];
    environment e;
    fwa_child child = {.argv = words};
    if (places->apart) {
        FWA_TRY(fill_environment(&e, &places->at[place]));
        child.environment = e.list;
        child.cores = &places->at[place].cores;
    }
    if (prints_apart(q)) {
        FWA_TRY(output_path(q, place, output));
        child.output = output;
    }
    return fwa_child_start(place, &child);
}

// This program with these words, behind those of --launch.
static fwa_status start_program(queue *q, int place, char *const *list) {
    const fwa_word_list *launch = q->jobs->launch;
    int n = 0, count = 0;
    while (list[count]) count++;
    char **all = calloc((size_t)(launch->count + count) + 2, sizeof *all);
    FWA_CHECK(all, FWA_MEMORY, "no memory for the words of a point");
    for (int i = 0; i < launch->count; i++) all[n++] = (char *)launch->at[i];
    all[n++] = (char *)q->jobs->program;
    for (int i = 0; i < count; i++) all[n++] = list[i];
    fwa_status status = start_child(q, place, all);
    free(all);
    FWA_TRY(status);
    q->place[place].busy = true;
    q->under_way++;
    return FWA_OK;
}

static fwa_status start_training(queue *q, int place) {
    char **list = NULL, output[FWA_PATH_MAX];
    FWA_TRY(fwa_make_folders(q->jobs->runs->folder));
    FWA_TRY(fwa_sweep_run_note(run_of(q, place), 0));
    FWA_TRY(output_path(q, place, output));
    unlink(output); // of an earlier start, if there was one
    FWA_TRY(fwa_sweep_words(q->jobs->runs, q->place[place].point, &list));
    q->place[place].eval = TRAINING;
    fwa_status status = start_program(q, place, list);
    fwa_sweep_words_free(list);
    return status;
}

static fwa_status start_eval(queue *q, int place, int index) {
    const fwa_sweep_eval *eval = &q->jobs->evals->at[index];
    char json[FWA_PATH_MAX], *list[FWA_WORD_LIST_MAX + 5] = {"eval", run_of(q, place)->path};
    int n = 2;
    FWA_TRY(fwa_path_format(json, "%s/%s", run_of(q, place)->path, eval->file));
    for (int i = 0; i < eval->words.count; i++) list[n++] = (char *)eval->words.at[i];
    list[n++] = "--json";
    list[n++] = json;
    q->place[place].eval = index;
    return start_program(q, place, list);
}

// The point of a place is done with.
static void end_job(queue *q, int place) {
    job *j = &q->place[place];
    if (j->lock >= 0) close(j->lock);
    j->lock = -1;
    if (j->code && !q->failures->count++) q->failures->code = j->code;
}

// Keeps other sweeps from making the same evaluations; *ours: they do not.
static fwa_status hold_folder(queue *q, int place, bool *ours) {
    job *j = &q->place[place];
    *ours = true;
    if (j->lock >= 0) return FWA_OK;
    fwa_status status = fwa_run_lock(run_of(q, place)->path, &j->lock);
    *ours = status != FWA_CONFIG;
    if (*ours) return status;
    fwa_error_clear();
    fwa_log_info("point %d: another process evaluates it", j->point + 1);
    return FWA_OK;
}

// The next evaluation, from number `index` on, that the point of a place lacks; without one the place is free.
static fwa_status evaluate(queue *q, int place, int index) {
    const fwa_sweep_evals *evals = q->jobs->evals;
    const fwa_sweep_run *run = run_of(q, place);
    bool ours = true;
    while (index < evals->count && !fwa_sweep_eval_due(evals, index, run)) index++;
    if (run->state == FWA_SWEEP_FINISHED && index < evals->count) {
        q->stopped |= fwa_child_stop_requested();
        if (!q->stopped) FWA_TRY(hold_folder(q, place, &ours));
        if (!q->stopped && ours) return start_eval(q, place, index);
    }
    end_job(q, place);
    return FWA_OK;
}

static void log_taken(const queue *q, int place) {
    const fwa_sweep_places *places = q->jobs->places;
    const fwa_sweep_place *at = &places->at[place];
    char state[64], where[128] = "";
    fwa_sweep_state_text(run_of(q, place), state);
    if (places->apart)
        snprintf(where, sizeof where, ", place %d of %d%s%.64s", place + 1, places->count,
                 at->devices[0] ? ", CUDA_VISIBLE_DEVICES=" : "", at->devices);
    fwa_log_info("point %d of %d, %s: %s%s", q->place[place].point + 1, q->jobs->runs->count,
                 run_of(q, place)->point->name, state, where);
}

// What has happened since the sweep began is looked at first: other sweeps may share the folder.
static fwa_status take(queue *q, int place) {
    q->place[place] = (job){.point = q->next++, .eval = TRAINING, .lock = -1};
    fwa_sweep_run *run = run_of(q, place);
    FWA_TRY(fwa_sweep_run_update(run));
    log_taken(q, place);
    if (run->state == FWA_SWEEP_RUNNING) return FWA_OK;
    return run->state == FWA_SWEEP_FINISHED ? evaluate(q, place, 0) : start_training(q, place);
}

// Every free place takes points until it has something to do.
static fwa_status fill(queue *q) {
    for (int p = 0; p < q->jobs->places->count; p++)
        while (!q->place[p].busy && q->next < q->end) {
            if (q->stopped || fwa_child_stop_requested()) {
                q->stopped = true;
                return FWA_OK;
            }
            FWA_TRY(take(q, p));
        }
    return FWA_OK;
}

// The last lines of what the children of a place have printed.
static void log_tail(const queue *q, int place) {
    char path[FWA_PATH_MAX], text[TAIL_BYTES + 1];
    if (!prints_apart(q) || output_path(q, place, path) != FWA_OK) return;
    FILE *file = fopen(path, "re");
    if (!file) return;
    if (fseek(file, -TAIL_BYTES, SEEK_END)) rewind(file);
    size_t length = fread(text, 1, TAIL_BYTES, file);
    fclose(file);
    while (length && text[length - 1] == '\n') length--;
    text[length] = '\0';
    char *line = text + length;
    for (int lines = 0; line > text && (line[-1] != '\n' || ++lines < TAIL_LINES);) line--;
    for (char *rest = line; (line = strsep(&rest, "\n"));) fwa_log_info("  | %s", line);
}

static void log_failure(const queue *q, int place, const char *what, int code) {
    const job *j = &q->place[place];
    fwa_log_warn("point %d, %s: %s with exit code %d", j->point + 1, run_of(q, place)->point->name, what, code);
    log_tail(q, place);
}

static void log_trained(const queue *q, int place) {
    const fwa_sweep_run *run = run_of(q, place);
    char state[64], validation[32] = "";
    if (!prints_apart(q)) return; // it has said so itself
    fwa_sweep_state_text(run, state);
    if (!isnan(run->val_loss)) snprintf(validation, sizeof validation, ", validation %.4f", run->val_loss);
    fwa_log_info("point %d, %s: %s, loss %.4f%s", q->place[place].point + 1, run->point->name, state, run->loss,
                 validation);
}

// Whether a child that ended with `code` was cut short by a signal; one that came to it alone stops the sweep, too.
static bool was_stopped(queue *q, int code) {
    const bool asked = q->stopped || fwa_child_stop_requested();
    if (code != fwa_status_exit_code(FWA_PREEMPTED) && !(code && asked)) return false;
    if (!asked) fwa_child_stop_all();
    q->stopped = true;
    return true;
}

static fwa_status training_ended(queue *q, int place, int code) {
    fwa_sweep_run *run = run_of(q, place);
    const bool stopped = was_stopped(q, code), refused = code == fwa_status_exit_code(FWA_CONFIG);
    FWA_TRY(fwa_sweep_run_update(run));
    if (stopped) {
        fwa_log_info("point %d stopped at step %lld after a signal", q->place[place].point + 1, (long long)run->step);
        return FWA_OK;
    }
    if (refused && run->state == FWA_SWEEP_RUNNING) {
        fwa_log_info("point %d: another process has taken it", q->place[place].point + 1);
        return FWA_OK;
    }
    if (refused && run->state == FWA_SWEEP_FINISHED) code = 0; // the other process has left already
    FWA_TRY(fwa_sweep_run_note(run, code));
    FWA_TRY(fwa_sweep_run_update(run));
    q->place[place].code = code;
    if (code)
        log_failure(q, place, "failed", code);
    else
        log_trained(q, place);
    return evaluate(q, place, code ? q->jobs->evals->count : 0);
}

static fwa_status eval_ended(queue *q, int place, int code) {
    job *j = &q->place[place];
    if (was_stopped(q, code)) {
        fwa_log_info("point %d: stopped after a signal while it was evaluated", j->point + 1);
        end_job(q, place);
        return FWA_OK;
    }
    if (code) log_failure(q, place, "fwa eval failed", code);
    if (!j->code) j->code = code;
    FWA_TRY(fwa_sweep_run_update(run_of(q, place)));
    return evaluate(q, place, j->eval + 1);
}

static fwa_status wait_for_one(queue *q) {
    int place, code;
    FWA_TRY(fwa_child_wait(&place, &code));
    q->place[place].busy = false;
    q->under_way--;
    return q->place[place].eval == TRAINING ? training_ended(q, place, code) : eval_ended(q, place, code);
}

static fwa_status work(queue *q) {
    FWA_TRY(fill(q));
    while (q->under_way) {
        FWA_TRY(wait_for_one(q));
        FWA_TRY(fill(q));
    }
    return FWA_OK;
}

// After a failure of the sweep itself nothing that was started stays.
static fwa_status leave(queue *q, fwa_status failure) {
    char message[1024];
    snprintf(message, sizeof message, "%s", fwa_error_message());
    if (q->under_way)
        fwa_log_error("%s; %d point%s under way must save", message, q->under_way, fwa_plural(q->under_way));
    q->stopped = true;
    fwa_child_stop_all();
    while (q->under_way) {
        int place, code;
        if (fwa_child_wait(&place, &code) != FWA_OK) break;
        q->under_way--;
        end_job(q, place);
    }
    return fwa_error_raise(failure, __FILE__, __LINE__, __func__, "%s", message);
}

bool fwa_sweep_jobs_due(const fwa_sweep_runs *runs, const fwa_sweep_evals *evals, int index) {
    const fwa_sweep_run *run = &runs->run[index];
    bool due = run->state != FWA_SWEEP_FINISHED && run->state != FWA_SWEEP_RUNNING;
    for (int i = 0; i < evals->count && run->state == FWA_SWEEP_FINISHED; i++) due |= fwa_sweep_eval_due(evals, i, run);
    return due;
}

fwa_status fwa_sweep_jobs_run(const fwa_sweep_jobs *jobs, int first, int count, fwa_sweep_failures *failures) {
    queue q = {.jobs = jobs, .failures = failures, .next = first, .end = first + count};
    *failures = (fwa_sweep_failures){0};
    fwa_status status = work(&q);
    if (status != FWA_OK) return leave(&q, status);
    FWA_CHECK(!q.stopped, FWA_PREEMPTED, "stopped after a signal; the same command continues");
    return FWA_OK;
}
