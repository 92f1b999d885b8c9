// The runs of a report: what their folders hold, and which of them are seeds of one configuration. Not collective.
#ifndef FWA_TRAIN_REPORT_RUNS_H
#define FWA_TRAIN_REPORT_RUNS_H

#include "dist/world.h"
#include "io/config.h"
#include "io/metrics.h"
#include "train/eval/addition_grid.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FWA_REPORT_LABEL   64 // bytes of a label, which has at most FWA_REPORT_LETTERS characters
#define FWA_REPORT_LETTERS 15

// A number and its standard error, of a share p of n examples sqrt(p (1 - p) / (n - 1)). NaN: not measured; not known.
typedef struct fwa_report_estimate {
    double value, error;
} fwa_report_estimate;

// Exact match of the addition task at one width, as `fwa eval --json` writes it.
typedef struct fwa_report_score {
    int64_t width;
    fwa_report_estimate upto, exact;
} fwa_report_score;

// A number of the other tasks of `fwa eval`: "piqa", "piqa by characters", "wikitext: perplexity".
typedef struct fwa_report_result {
    char name[96];
    double value, error; // error NaN: none
    int64_t step;
} fwa_report_result;

typedef struct fwa_report_run {
    char *path;             // of the run folder
    fwa_metrics_row *rows;  // [count]
    int64_t count;          //
    double last_val_loss;   // NaN: none
    fwa_config *config;     // NULL: no config.yaml that this program can read
    fwa_config_entry *keys; // [key_count] of it
    int key_count;
    int64_t parameters;       // 0: not known
    int64_t finished;         // steps that FINISHED says; -1: there is none
    fwa_report_score *scores; // [score_count] by width, of the newest step that was measured
    int score_count;
    int64_t score_step;
    fwa_addition_grid *grid; // of the newest step; NULL: not measured
    int64_t grid_step;
    fwa_report_result *results; // [result_count], each name once: of the newest step that was measured
    int result_count;
} fwa_report_run;

// Runs whose configurations differ in run.seed, and in names of folders and train.micro_batch, alone. They stand behind
// each other.
typedef struct fwa_report_group {
    int first, count;             // of its runs
    char *name;                   // of the folder, without the seed where it is a point of a sweep
    char label[FWA_REPORT_LABEL]; // short, beside curves
    int colour;                   // 0 .. FWA_REPORT_LINES - 1; -1: among the many that stay grey
} fwa_report_group;

typedef struct fwa_report {
    fwa_report_run *run;
    fwa_report_group *group;
    int runs, groups;
    bool by_updates; // the x of curves; otherwise tokens, which compare runs of other batch sizes
} fwa_report;

#define FWA_REPORT_COLOURS 6
#define FWA_REPORT_LINES   15 // that can be told apart: colours, each solid, dashed and dotted

// Loads run folders, and of other folders the run folders in them (a sweep's). A run without steps is left out with a
// warning. FWA_CONFIG where a path is neither, or where nothing has steps.
FWA_MUST_CHECK fwa_status fwa_report_load(fwa_report **out, const fwa_world *world, const char *const *paths,
                                          int count);
void fwa_report_destroy(fwa_report *report);
const fwa_metrics_row *fwa_report_last(const fwa_report_run *run); // its last row
// Its row of the lowest validation loss, the first of equals; NULL: none.
const fwa_metrics_row *fwa_report_lowest(const fwa_report_run *run);
// Whether the validation loss of some language model was lower than its last one.
bool fwa_report_rose(const fwa_report *report);
// Value of a key; NULL where the configuration is not known or has no such key.
const char *fwa_report_value(const fwa_report_run *run, const char *key);

#ifdef __cplusplus
}
#endif
#endif
