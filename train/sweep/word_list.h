// A text of words, such as that of --launch 'mpirun -np 4'.
#ifndef FWA_TRAIN_SWEEP_WORD_LIST_H
#define FWA_TRAIN_SWEEP_WORD_LIST_H

#include "core/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { FWA_WORD_LIST_MAX = 64 };

typedef struct fwa_word_list {
    char *text; // own copy, cut into words
    const char *at[FWA_WORD_LIST_MAX];
    int count;
} fwa_word_list;

// Words are divided by blanks. FWA_USAGE, naming `option`, where there are too many. Not collective.
FWA_MUST_CHECK fwa_status fwa_word_list_read(fwa_word_list *list, const char *option, const char *text);
void fwa_word_list_free(fwa_word_list *list);

#ifdef __cplusplus
}
#endif
#endif
