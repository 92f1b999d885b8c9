// Cutting a text into words.
#include "train/sweep/word_list.h"

#include <stdlib.h>
#include <string.h>

fwa_status fwa_word_list_read(fwa_word_list *list, const char *option, const char *text) {
    memset(list, 0, sizeof *list);
    list->text = strdup(text);
    FWA_CHECK(list->text, FWA_MEMORY, "no memory for %s", option);
    for (char *at = list->text; *(at += strspn(at, " \t"));) {
        FWA_CHECK(list->count < FWA_WORD_LIST_MAX, FWA_USAGE, "%s: more than %d words", option, FWA_WORD_LIST_MAX);
        list->at[list->count++] = at;
        at += strcspn(at, " \t");
        if (*at) *at++ = '\0';
    }
    return FWA_OK;
}

void fwa_word_list_free(fwa_word_list *list) {
    free(list->text);
    memset(list, 0, sizeof *list);
}
