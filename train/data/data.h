// fwa data: raw text to token shards, what is in shards, and examples of the addition task.
#ifndef FWA_TRAIN_DATA_DATA_H
#define FWA_TRAIN_DATA_DATA_H

#include <stdbool.h>

#include "io/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fwa_tokenize_request {
    const char *const *inputs; // paths, globs, "-"
    int input_count;
    const char *out;   // folder to make
    bool jsonl, lines; // a line is a JSON object; a line is a document
    const char *field; // of the object, with the text
    double val;        // share of documents for validation
    int64_t seed, shard_tokens, threads;
} fwa_tokenize_request;

typedef struct fwa_tokenize_result {
    int64_t documents[2], tokens[2], files[2]; // train, val
    int64_t empty, bytes;                      // documents without text, which are left out; bytes of text
    double seconds;
} fwa_tokenize_result;

// Writes OUT/train_*.bin and OUT/val_*.bin, every document behind the tokenizer's document mark. They are made in
// OUT.tmp, which is renamed when all is written: OUT is complete or not there. The result does not depend on the number
// of threads; a document's split on its text and the seed alone. FWA_CONFIG where OUT has files already or a split gets
// no document, FWA_FORMAT with file and line where a line is not JSON. Not collective.
FWA_MUST_CHECK fwa_status fwa_data_tokenize(const fwa_tokenizer *tokenizer, const fwa_tokenize_request *request,
                                            fwa_tokenize_result *result);

// Commands behind `fwa data`; argv[0] is the name for messages.
FWA_MUST_CHECK fwa_status fwa_data_run_tokenize(int argc, char **argv);
FWA_MUST_CHECK fwa_status fwa_data_run_inspect(int argc, char **argv);
FWA_MUST_CHECK fwa_status fwa_data_run_addition(int argc, char **argv);

#ifdef __cplusplus
}
#endif
#endif
