// What is UTF-8 and what is not.
#ifndef FWA_IO_UTF8_H
#define FWA_IO_UTF8_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

// Bytes of the UTF-8 character at text[0..bytes), 0 if there is none: surrogates, values beyond U+10FFFF and longer
// spellings than needed are not.
static inline size_t fwa_utf8_bytes(const unsigned char *text, size_t bytes) {
    const unsigned char c = text[0];
    if (c < 0x80) return 1;
    const size_t length = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : 2;
    if (c < 0xC2 || c > 0xF4 || length > bytes) return 0;
    for (size_t i = 1; i < length; i++)
        if ((text[i] & 0xC0) != 0x80) return 0;
    const unsigned char second = text[1];
    if ((c == 0xE0 && second < 0xA0) || (c == 0xED && second > 0x9F)) return 0;
    if ((c == 0xF0 && second < 0x90) || (c == 0xF4 && second > 0x8F)) return 0;
    return length;
}

// Bytes of text[0..bytes) in front of the first that is no UTF-8; all of them where there is none.
static inline size_t fwa_utf8_sound(const char *text, size_t bytes) {
    size_t at = 0, length;
    while (at < bytes && (length = fwa_utf8_bytes((const unsigned char *)text + at, bytes - at)) > 0) at += length;
    return at;
}

// Bytes to skip at the start of line `number` (from 1 on) of JSONL: those of a byte order mark, which a file may begin
// with.
static inline size_t fwa_utf8_mark(int64_t number, const char *line, size_t bytes) {
    return number == 1 && bytes >= 3 && memcmp(line, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
}

#ifdef __cplusplus
}
#endif
#endif
