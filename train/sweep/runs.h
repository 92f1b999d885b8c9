// The points of a sweep as runs: their configurations, their folders, what they have reached. Not collective.
#ifndef FWA_TRAIN_SWEEP_RUNS_H
#define FWA_TRAIN_SWEEP_RUNS_H

#include "dist/world.h"
#include "io/config.h"
#include "io/sweep.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum fwa_sweep_state {
    FWA_SWEEP_NEW,      // no steps yet
    FWA_SWEEP_STOPPED,  // has steps, and more to do
    FWA_SWEEP_RUNNING,  // another process holds the folder
    FWA_SWEEP_FAILED,   // its last start ended with `code`
    FWA_SWEEP_FINISHED, //
    FWA_SWEEP_OTHER     // the folder holds a run of another configuration
} fwa_sweep_state;

typedef struct fwa_sweep_run {
    const fwa_sweep_point *point; // borrowed
    char path[1024];              // FOLDER/NAME, the run folder; FOLDER/NAME.failed holds the code of a failure
    int64_t steps;                // train.steps
    fwa_backend_choice backend;   // run.backend
    int64_t trained;              // task.width_max of the addition task; 0: another task
    char *differences;            // of FWA_SWEEP_OTHER, a line each; owned
    fwa_sweep_state state;
    int code;     // of FWA_SWEEP_FAILED
    int64_t step; // reached
    int64_t skipped;
    double loss, val_loss, tokens_per_s; // of its last rows; NaN: none
    double upto, exact; // exact match of the addition task, mean over the widths that fwa eval measured beyond the
                        // trained ones, or where there are none over all of them; NaN: none
} fwa_sweep_run;

typedef struct fwa_sweep_runs {
    const fwa_sweep *sweep; // borrowed
    const char *base;       // borrowed
    const char *const *words;
    int word_count;   // of the command line: for every point, before its own settings; borrowed
    char folder[512]; // run.dir/NAME OF THE SWEEP
    fwa_sweep_run *run;
    int count;
} fwa_sweep_runs;

// Loads and checks the configuration of every point: `base` under sweep->common, `words` and the point's own settings.
// FWA_CONFIG with the mistakes of all points, each once, with file:line.
FWA_MUST_CHECK fwa_status fwa_sweep_runs_create(fwa_sweep_runs **out, const fwa_sweep *sweep, const char *base,
                                                const fwa_world *world, const char *const *words, int word_count);
void fwa_sweep_runs_destroy(fwa_sweep_runs *runs);
// The configuration of a point, sound; its run folder is still that of the base. The caller destroys it, after a
// failure, too.
FWA_MUST_CHECK fwa_status fwa_sweep_config(const fwa_sweep_runs *runs, const fwa_sweep_point *point,
                                           const fwa_world *world, fwa_config **config);
// Reads again what the point has reached.
FWA_MUST_CHECK fwa_status fwa_sweep_run_update(fwa_sweep_run *run);
// Notes that the last start of the point failed with `code`, or did not (0).
FWA_MUST_CHECK fwa_status fwa_sweep_run_note(fwa_sweep_run *run, int code);
// The words that train point number `index` (from 0), "train" first, NULL behind the last; the caller frees the array
// with fwa_sweep_words_free.
FWA_MUST_CHECK fwa_status fwa_sweep_words(const fwa_sweep_runs *runs, int index, char ***words);
void fwa_sweep_words_free(char **words);
const char *fwa_sweep_state_name(fwa_sweep_state state); // "finished", "stopped"
// With what belongs to it: "stopped at 120", "failed (3)"
void fwa_sweep_state_text(const fwa_sweep_run *run, char text[64]);

#ifdef __cplusplus
}
#endif
#endif
