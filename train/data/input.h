// Raw text for `fwa data tokenize`: input files cut into batches of parts that can be encoded independently.
//
// A part is a line, or of files that are one document a stretch of about a megabyte that ends in front of white space,
// where encoding can be interrupted (io/tokenizer.h). Where a file is cut depends on the file alone. Memory: a batch is
// as long as its longest line or stretch without white space, at least a megabyte. Not collective; one thread.
#ifndef FWA_TRAIN_DATA_INPUT_H
#define FWA_TRAIN_DATA_INPUT_H

#include <stdbool.h>

#include "io/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fwa_part {
    size_t start, bytes; // in the batch's text, without line end
    const char *path;    // its file
    int64_t line;        // from 1 on
    bool document;       // whether a document starts here; otherwise one goes on
} fwa_part;

typedef struct fwa_batch {
    fwa_text text;
    fwa_part *parts;
    size_t count, capacity;
} fwa_batch;

typedef struct fwa_data_input fwa_data_input;

// `patterns` are paths or globs, "-" is standard input; their files are read in the order of patterns and names.
// `lines`: a part is a line, otherwise a file is one document. FWA_CONFIG names a file that cannot be opened.
FWA_MUST_CHECK fwa_status fwa_data_input_open(fwa_data_input **out, const char *const *patterns, int count, bool lines);
// The next parts; none at the end.
FWA_MUST_CHECK fwa_status fwa_data_input_read(fwa_data_input *input, fwa_batch *batch);
// Bytes of all files where it is known, otherwise 0; and those read.
void fwa_data_input_progress(const fwa_data_input *input, int64_t *bytes, int64_t *read);
void fwa_data_input_close(fwa_data_input *input); // NULL is fine
void fwa_batch_free(fwa_batch *batch);

#ifdef __cplusplus
}
#endif
#endif
