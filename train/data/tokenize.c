// Token shards of raw text: made in a folder beside the one wanted, which a rename puts in place.
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"
#include "io/files.h"
#include "io/run_files.h"
#include "io/shard_writer.h"
#include "train/data/encode.h"
#include "train/progress.h"

#define REPORT_SECONDS 30.0 // between two lines of the log

static const char *const split_name[2] = {"train", "val"};

typedef struct job {
    const fwa_tokenize_request *request;
    fwa_tokenize_result *result;
    fwa_data_input *input;
    fwa_shard_writer *writer[2];
    char out[FWA_PATH_MAX], folder[FWA_PATH_MAX], lock_path[FWA_PATH_MAX]; // folder: where shards are made
    int lock;
    int split; // of the document that goes on
    double started, reported;
} job;

static bool is_dots(const char *name) {
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static bool is_empty_folder(const char *path) {
    DIR *folder = opendir(path);
    bool empty = folder != NULL;
    for (struct dirent *entry; empty && (entry = readdir(folder));) empty = is_dots(entry->d_name);
    if (folder) closedir(folder);
    return empty;
}

// Shards that a run left behind which did not come to its end.
static fwa_status remove_shards(const char *path) {
    char shard[FWA_PATH_MAX];
    DIR *folder = opendir(path);
    FWA_CHECK(folder, FWA_IO, "cannot read %s: %s", path, strerror(errno));
    fwa_status status = FWA_OK;
    for (struct dirent *entry; status == FWA_OK && (entry = readdir(folder));) {
        if (!fwa_path_ends(entry->d_name, ".bin")) continue;
        status = fwa_path_format(shard, "%s/%s", path, entry->d_name);
        if (status == FWA_OK && unlink(shard) != 0)
            status =
                fwa_error_raise(FWA_IO, __FILE__, __LINE__, __func__, "cannot remove %s: %s", shard, strerror(errno));
    }
    closedir(folder);
    return status;
}

static fwa_status prepare_folder(job *j) {
    FWA_TRY(fwa_path_format(j->out, "%s", j->request->out));
    fwa_path_trim(j->out);
    FWA_CHECK(!fwa_path_exists(j->out) || is_empty_folder(j->out), FWA_CONFIG,
              "%s has files, or is one: expected a folder that is new or empty; shards of two runs would mix", j->out);
    FWA_TRY(fwa_path_format(j->folder, "%s.tmp", j->out));
    FWA_TRY(fwa_path_format(j->lock_path, "%s/lock", j->folder));
    FWA_TRY(fwa_run_folder_check(j->folder, j->out));
    FWA_TRY(fwa_make_folders(j->folder));
    FWA_TRY(fwa_lock_file(j->lock_path, j->folder, &j->lock));
    return remove_shards(j->folder);
}

static fwa_status publish(job *j) {
    char parent[FWA_PATH_MAX];
    FWA_CHECK(unlink(j->lock_path) == 0, FWA_IO, "cannot remove %s: %s", j->lock_path, strerror(errno));
    FWA_TRY(fwa_sync_path(j->folder));
    FWA_CHECK(rename(j->folder, j->out) == 0, FWA_IO, "cannot rename %s to %s: %s", j->folder, j->out, strerror(errno));
    FWA_TRY(fwa_path_format(parent, "%s/..", j->out));
    return fwa_sync_path(parent);
}

static void show_progress(job *j) {
    char text[160], read_text[32], all_text[32], left[32];
    int64_t all, read;
    const double now = fwa_clock_seconds(), seconds = now - j->started;
    const fwa_tokenize_result *r = j->result;
    fwa_data_input_progress(j->input, &all, &read);
    fwa_text_bytes(read, read_text);
    const double rate = (double)read / seconds;
    int used = snprintf(text, sizeof text, "%s", read_text);
    if (all > 0) used += snprintf(text + used, sizeof text - (size_t)used, " of %s", fwa_text_bytes(all, all_text));
    used += snprintf(text + used, sizeof text - (size_t)used, "  %.1f M tokens  %.1f MB/s",
                     1e-6 * (double)(r->tokens[0] + r->tokens[1]), 1e-6 * rate);
    if (all > 0)
        snprintf(text + used, sizeof text - (size_t)used, "  eta %s",
                 fwa_text_seconds((double)(all - read) / rate, left));
    fwa_progress_live_text(text);
    if (now - j->reported < REPORT_SECONDS) return;
    j->reported = now;
    fwa_progress_clear();
    fwa_log_info("%s", text);
}

static fwa_status take(void *context, const fwa_encoded *e) {
    job *j = context;
    fwa_tokenize_result *r = j->result;
    for (size_t i = 0; i < e->count; i++) {
        const size_t start = e->stretches[i].start,
                     end = i + 1 < e->count ? e->stretches[i + 1].start : e->tokens.count;
        if (e->stretches[i].split >= 0) {
            j->split = e->stretches[i].split;
            r->documents[j->split]++;
        }
        FWA_TRY(fwa_shard_writer_add(j->writer[j->split], e->tokens.at + start, end - start));
        r->tokens[j->split] += (int64_t)(end - start);
    }
    r->bytes += e->bytes;
    r->empty += e->empty;
    show_progress(j);
    return FWA_OK;
}

static fwa_status check_splits(const job *j) {
    const fwa_tokenize_result *r = j->result;
    const int64_t documents = r->documents[0] + r->documents[1];
    FWA_CHECK(documents > 0, FWA_CONFIG, "no text in the input: expected at least one document that is not empty");
    for (int s = 0; s < 2; s++)
        FWA_CHECK(
            r->documents[s] > 0 || (s == 1 && j->request->val == 0.0), FWA_CONFIG,
            "none of %lld document%s fell to %s, with --val %g: expected some in both; give more documents (a text "
            "file is one, with --documents line a line is), another --val or --seed, or --val 0",
            (long long)documents, fwa_plural(documents), split_name[s], j->request->val);
    return FWA_OK;
}

static fwa_status write_shards(job *j, const fwa_tokenizer *tokenizer) {
    fwa_status status = FWA_OK;
    for (int s = 0; s < 2; s++)
        FWA_TRY_GOTO(fwa_shard_writer_open(&j->writer[s], j->folder, split_name[s], j->request->shard_tokens), done);
    FWA_TRY_GOTO(fwa_data_encode(tokenizer, j->request, j->input, take, j), done);
    FWA_TRY_GOTO(check_splits(j), done);
    for (int s = 0; s < 2; s++) {
        FWA_TRY_GOTO(fwa_shard_writer_finish(j->writer[s]), done);
        j->result->files[s] = fwa_shard_writer_files(j->writer[s]);
    }
done:
    fwa_progress_clear();
    for (int s = 0; s < 2; s++) fwa_shard_writer_close(j->writer[s]);
    return status;
}

fwa_status fwa_data_tokenize(const fwa_tokenizer *tokenizer, const fwa_tokenize_request *request,
                             fwa_tokenize_result *result) {
    job j = {.request = request, .result = result, .lock = -1};
    fwa_status status;
    memset(result, 0, sizeof *result);
    j.started = j.reported = fwa_clock_seconds();
    FWA_TRY_GOTO(fwa_data_input_open(&j.input, request->inputs, request->input_count, request->jsonl || request->lines),
                 done);
    FWA_TRY_GOTO(prepare_folder(&j), done);
    status = write_shards(&j, tokenizer);
    if (status == FWA_OK) status = publish(&j);
    if (status != FWA_OK && j.lock >= 0) fwa_drop_folder(j.folder);
    result->seconds = fwa_clock_seconds() - j.started;
done:
    if (j.lock >= 0) close(j.lock);
    fwa_data_input_close(j.input);
    return status;
}
