// A small tokenizer in GPT-2's files: the 256 bytes, tokens by merges, and the document mark.
#ifndef FWA_TESTS_TINY_VOCABULARY_H
#define FWA_TESTS_TINY_VOCABULARY_H

#include "tests/temp_folder.h"

// The character that spells a byte in these files, as UTF-8.
static inline const char *tiny_spelled(int byte, char text[4]) {
    int point = byte;
    bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
    if (!printable) {
        point = 256;
        for (int b = 0; b < byte; b++) point += !((b >= '!' && b <= '~') || (b >= 0xA1 && b != 0xAD));
    }
    snprintf(text, 4, point < 128 ? "%c" : "%c%c", point < 128 ? point : 0xC0 | point >> 6, 0x80 | (point & 63));
    return text;
}

// Writes folder/encoder.json and folder/vocab.bpe. `merges` has "LEFT RIGHT" lines, spelled; byte b has id b, merge i
// the id 256 + i, <|endoftext|> the id behind. Returns the document mark's id.
static inline int tiny_write(const char *folder, const char *merges) {
    char text[4], path[600];
    int id = 256;
    check_ok(fwa_make_folders(folder));
    snprintf(path, sizeof path, "%s/vocab.bpe", folder);
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fprintf(out, "#version: 0.2\n%s", merges);
    assert_int_equal(fclose(out), 0);
    snprintf(path, sizeof path, "%s/encoder.json", folder);
    out = fopen(path, "w");
    assert_non_null(out);
    fprintf(out, "{");
    for (int byte = 0; byte < 256; byte++)
        fprintf(out, "\"%s%s\": %d, ", byte == '"' || byte == '\\' ? "\\" : "", tiny_spelled(byte, text), byte);
    for (const char *line = merges; *line; line += strcspn(line, "\n") + 1) {
        int left = (int)strcspn(line, " "), right = (int)strcspn(line + left + 1, "\n");
        fprintf(out, "\"%.*s%.*s\": %d, ", left, line, right, line + left + 1, id++);
    }
    fprintf(out, "\"<|endoftext|>\": %d}\n", id);
    assert_int_equal(fclose(out), 0);
    return id;
}

#endif
