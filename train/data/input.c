// Input files, read a block at a time and cut into parts.
#include "train/data/input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/files.h"
#include "io/paths.h"

#define BLOCK ((size_t)1 << 20) // bytes read at once, and of a batch unless a part is longer

struct fwa_data_input {
    fwa_paths paths;
    int next; // file to open
    bool lines;
    int file;      // open file, -1 between files
    int64_t line;  // of the next part
    bool started;  // the open file's document has started
    fwa_text rest; // what was read behind the last cut
    char *block;   // [BLOCK]
    int64_t bytes, read;
};

static fwa_status check_path(fwa_data_input *in, const char *path) {
    struct stat info;
    if (strcmp(path, "-") == 0) return FWA_OK;
    FWA_CHECK(stat(path, &info) == 0, FWA_CONFIG, "cannot read %s: %s", path, strerror(errno));
    FWA_CHECK(!S_ISDIR(info.st_mode), FWA_CONFIG, "%s is a folder: expected a file, or a pattern like \"%s/*.txt\"",
              path, path);
    if (S_ISREG(info.st_mode)) in->bytes += info.st_size;
    return FWA_OK;
}

static fwa_status add_pattern(fwa_data_input *in, const char *pattern) {
    const int before = in->paths.count;
    FWA_TRY(strcmp(pattern, "-") == 0 ? fwa_paths_add(&in->paths, pattern)
                                      : fwa_paths_find(&in->paths, pattern, "text or JSONL files"));
    for (int i = before; i < in->paths.count; i++) FWA_TRY(check_path(in, in->paths.at[i]));
    return FWA_OK;
}

fwa_status fwa_data_input_open(fwa_data_input **out, const char *const *patterns, int count, bool lines) {
    fwa_status status = FWA_OK;
    *out = NULL;
    fwa_data_input *in = calloc(1, sizeof *in);
    FWA_CHECK(in, FWA_MEMORY, "no memory to read files");
    in->file = -1;
    in->lines = lines;
    in->block = malloc(BLOCK);
    FWA_CHECK_GOTO(in->block, FWA_MEMORY, failed, "no memory to read files");
    for (int i = 0; i < count; i++) FWA_TRY_GOTO(add_pattern(in, patterns[i]), failed);
    *out = in;
    return FWA_OK;
failed:
    fwa_data_input_close(in);
    return status;
}

static fwa_status open_next(fwa_data_input *in) {
    const char *path = in->paths.at[in->next];
    const bool standard = strcmp(path, "-") == 0;
    if (!standard) FWA_TRY(fwa_input_check(path, FWA_INPUT_STREAM));
    in->file = standard ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);
    FWA_CHECK(in->file >= 0, FWA_CONFIG, "cannot open %s: %s", path, strerror(errno));
    in->line = 1;
    in->started = false;
    in->rest.count = 0;
    return FWA_OK;
}

static fwa_status read_block(fwa_data_input *in, fwa_text *to, bool *end) {
    ssize_t got;
    do got = read(in->file, in->block, BLOCK);
    while (got < 0 && errno == EINTR);
    FWA_CHECK(got >= 0, FWA_CONFIG, "cannot read %s: %s", in->paths.at[in->next], strerror(errno));
    *end = got == 0;
    in->read += got;
    return fwa_text_append(to, in->block, (size_t)got);
}

// Whether a piece of text surely ends between these two bytes: the first is not the last byte of white space, in no
// spelling of Unicode's (U+0085, 00A0, 1680, 2000..200A, 2028, 2029, 202F, 205F, 3000), the second is white space.
static bool is_break(unsigned char before, unsigned char c) {
    if (c != ' ' && c != '\n' && c != '\t' && c != '\r') return false;
    if (before < 0x80) return before > ' ' && before < 0x7F;
    return before > 0x8A && before != 0x9F && before != 0xA0 && before != 0xA8 && before != 0xA9 && before != 0xAF;
}

// Where text[0..count) can be cut, as late as possible but behind `from`; 0 if nowhere.
static size_t find_cut(const fwa_data_input *in, const fwa_text *text, size_t from) {
    const unsigned char *at = (const unsigned char *)text->at;
    for (size_t i = text->count; i > from; i--) {
        if (in->lines && at[i - 1] == '\n') return i;
        if (!in->lines && i < text->count && i > 0 && is_break(at[i - 1], at[i])) return i;
    }
    return 0;
}

static fwa_status add_part(fwa_data_input *in, fwa_batch *batch, size_t start, size_t bytes) {
    if (batch->count == batch->capacity) {
        const size_t capacity = 2 * batch->capacity + 64;
        fwa_part *parts = realloc(batch->parts, capacity * sizeof *parts);
        FWA_CHECK(parts, FWA_MEMORY, "no memory for %zu parts of %s", capacity, in->paths.at[in->next]);
        batch->parts = parts;
        batch->capacity = capacity;
    }
    batch->parts[batch->count++] =
        (fwa_part){start, bytes, in->paths.at[in->next], in->line, in->lines || !in->started};
    in->started = true;
    return FWA_OK;
}

static fwa_status add_lines(fwa_data_input *in, fwa_batch *batch, size_t from, size_t to) {
    const char *text = batch->text.at;
    for (size_t end; from < to; from = end + 1, in->line++) {
        const char *newline = memchr(text + from, '\n', to - from);
        end = newline ? (size_t)(newline - text) : to;
        const size_t bytes = end - from - (end > from && text[end - 1] == '\r');
        if (bytes > 0) FWA_TRY(add_part(in, batch, from, bytes));
    }
    return FWA_OK;
}

// Appends what is left and at least a block of the open file, up to a cut or the file's end.
static fwa_status read_parts(fwa_data_input *in, fwa_batch *batch, bool *end) {
    const size_t from = batch->text.count;
    size_t cut = 0;
    *end = false;
    FWA_TRY(fwa_text_append(&batch->text, in->rest.at, in->rest.count));
    while (cut == 0 && !*end) { // what was looked at before has no cut
        const size_t looked = batch->text.count > from ? batch->text.count - 1 : from;
        FWA_TRY(read_block(in, &batch->text, end));
        cut = *end ? batch->text.count : find_cut(in, &batch->text, looked);
    }
    in->rest.count = 0;
    FWA_TRY(fwa_text_append(&in->rest, batch->text.at + cut, batch->text.count - cut));
    batch->text.count = cut;
    if (in->lines) return add_lines(in, batch, from, cut);
    return cut > from ? add_part(in, batch, from, cut - from) : FWA_OK;
}

fwa_status fwa_data_input_read(fwa_data_input *in, fwa_batch *batch) {
    batch->text.count = batch->count = 0;
    while ((batch->text.count < BLOCK || batch->count == 0) && in->next < in->paths.count) {
        bool end;
        if (in->file < 0) FWA_TRY(open_next(in));
        FWA_TRY(read_parts(in, batch, &end));
        if (!end) continue;
        close(in->file);
        in->file = -1;
        in->next++;
    }
    return FWA_OK;
}

void fwa_data_input_progress(const fwa_data_input *in, int64_t *bytes, int64_t *read) {
    *bytes = in->bytes;
    *read = in->read;
}

void fwa_data_input_close(fwa_data_input *in) {
    if (!in) return;
    fwa_paths_free(&in->paths);
    if (in->file >= 0) close(in->file);
    free(in->rest.at);
    free(in->block);
    free(in);
}

void fwa_batch_free(fwa_batch *batch) {
    free(batch->text.at);
    free(batch->parts);
    memset(batch, 0, sizeof *batch);
}
