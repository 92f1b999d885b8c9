// The index of a checkpoint: gathered from the shards' attributes, then checked to cover every row once.
#include "io/checkpoint_index.h"

#include <stdlib.h>
#include <string.h>

#include "core/shape.h"
#include "io/hdf5_rows.h"

fwa_index_entry *fwa_index_find(fwa_index *index, const char *name) {
    for (int tried = 0; tried < index->count; tried++) { // shards list their names in one order: mostly the first try
        if (index->next >= index->count) index->next = 0;
        fwa_index_entry *entry = &index->entries[index->next++];
        if (strcmp(entry->about.name, name) == 0) return entry;
    }
    return NULL;
}

static fwa_status add_entry(fwa_index *index, const fwa_named_tensor *about, fwa_index_entry **out) {
    if (index->count == index->capacity) {
        int capacity = index->capacity ? 2 * index->capacity : 64;
        fwa_index_entry *more = realloc(index->entries, (size_t)capacity * sizeof *more);
        FWA_CHECK(more, FWA_MEMORY, "no memory for the index of %d parameters", capacity);
        index->entries = more;
        index->capacity = capacity;
    }
    *out = &index->entries[index->count++];
    **out = (fwa_index_entry){.about = *about};
    (*out)->about.row_start = 0;
    (*out)->about.tensor = fwa_tensor_nd(NULL, about->tensor.dtype, about->tensor.ndim, about->shape);
    return FWA_OK;
}

// The new slice belongs to the same tensor as the entry.
static fwa_status check_same(const fwa_index_entry *entry, const fwa_named_tensor *slice) {
    char known[96], found[96];
    fwa_tensor whole = fwa_tensor_nd(NULL, slice->tensor.dtype, slice->tensor.ndim, slice->shape);
    fwa_tensor_text(entry->about.tensor, known);
    fwa_tensor_text(whole, found);
    const bool same = fwa_named_tensor_alike(&entry->about, slice) && entry->about.tensor.dtype == whole.dtype;
    FWA_CHECK(same, FWA_FORMAT, "%s is %s here and %s in another shard or part", slice->name, found, known);
    return FWA_OK;
}

static fwa_status add_piece(fwa_index_entry *entry, int part, int shard, const fwa_named_tensor *slice) {
    entry->present[part] = true;
    if (slice->tensor.shape[0] == 0) return FWA_OK;
    int count = entry->count[part];
    if ((count & (count - 1)) == 0) { // 0 or a power of two: full
        size_t capacity = count ? 2 * (size_t)count : 1;
        fwa_index_piece *more = realloc(entry->pieces[part], capacity * sizeof *more);
        FWA_CHECK(more, FWA_MEMORY, "no memory for the index of %s", slice->name);
        entry->pieces[part] = more;
    }
    entry->pieces[part][entry->count[part]++] = (fwa_index_piece){shard, slice->row_start, slice->tensor.shape[0]};
    return FWA_OK;
}

static fwa_status add_dataset(fwa_index *index, hid_t group, const char *name, int shard, int part) {
    hid_t dataset = H5Dopen2(group, name, H5P_DEFAULT);
    FWA_CHECK(dataset >= 0, FWA_FORMAT, "cannot open dataset %s: %s", name, fwa_hdf5_message());
    fwa_named_tensor slice;
    fwa_status status = fwa_rows_about(dataset, name, &slice);
    H5Dclose(dataset);
    FWA_TRY(status);
    fwa_index_entry *entry = fwa_index_find(index, name);
    if (!entry) FWA_TRY(add_entry(index, &slice, &entry));
    FWA_TRY(check_same(entry, &slice));
    FWA_TRY(add_piece(entry, part, shard, &slice));
    return FWA_OK;
}

static fwa_status add_group(fwa_index *index, hid_t file, int shard, int part) {
    if (H5Lexists(file, fwa_part_names[part], H5P_DEFAULT) <= 0) return FWA_OK;
    hid_t group = H5Gopen2(file, fwa_part_names[part], H5P_DEFAULT);
    FWA_CHECK(group >= 0, FWA_FORMAT, "cannot open group %s: %s", fwa_part_names[part], fwa_hdf5_message());
    fwa_status status = FWA_OK;
    H5G_info_t info = {0};
    FWA_CHECK_GOTO(H5Gget_info(group, &info) >= 0, FWA_FORMAT, done, "cannot list group %s: %s", fwa_part_names[part],
                   fwa_hdf5_message());
    index->next = 0;
    for (hsize_t i = 0; i < info.nlinks; i++) {
        char name[FWA_NAME_MAX];
        ssize_t length = H5Lget_name_by_idx(group, ".", H5_INDEX_NAME, H5_ITER_INC, i, name, sizeof name, H5P_DEFAULT);
        FWA_CHECK_GOTO(length > 0 && length < (ssize_t)sizeof name, FWA_FORMAT, done,
                       "name %lld of group %s has %lld bytes: expected 1 to %d", (long long)i, fwa_part_names[part],
                       (long long)length, FWA_NAME_MAX - 1);
        FWA_TRY_GOTO(add_dataset(index, group, name, shard, part), done);
    }
done:
    H5Gclose(group);
    return status;
}

static fwa_status add_shard(fwa_index *index, const char *folder, int shard) {
    char name[FWA_SHARD_NAME_MAX], path[FWA_PATH_MAX];
    fwa_shard_name(name, shard);
    FWA_TRY(fwa_path_format(path, "%s/%s", folder, name));
    hid_t file;
    FWA_TRY(fwa_hdf5_open(&file, path));
    fwa_status status = FWA_OK;
    for (int part = 0; part < FWA_PART_COUNT && status == FWA_OK; part++) status = add_group(index, file, shard, part);
    H5Fclose(file);
    FWA_TRY(status);
    return FWA_OK;
}

static int by_row(const void *a, const void *b) {
    const fwa_index_piece *x = a, *y = b;
    return (x->row_start > y->row_start) - (x->row_start < y->row_start);
}

static fwa_status check_cover(fwa_index_entry *entry, int part, const char *folder) {
    fwa_index_piece *pieces = entry->pieces[part];
    int count = entry->count[part];
    if (count) qsort(pieces, (size_t)count, sizeof *pieces, by_row);
    int64_t end = 0;
    for (int i = 0; i <= count; i++) {
        int64_t start = i < count ? pieces[i].row_start : entry->about.shape[0];
        FWA_CHECK(start == end, FWA_FORMAT, "%s: rows [%lld, %lld) of %s/%s %s", folder, (long long)fwa_min(start, end),
                  (long long)fwa_max(start, end), fwa_part_names[part], entry->about.name,
                  start > end ? "are in no shard" : "are in two shards");
        if (i < count) end += pieces[i].rows;
    }
    return FWA_OK;
}

static fwa_status fill_index(fwa_index *index, const char *folder, int ranks) {
    for (int shard = 0; shard < ranks; shard++) FWA_TRY(add_shard(index, folder, shard));
    for (int i = 0; i < index->count; i++) {
        for (int part = 0; part < FWA_PART_COUNT; part++) {
            if (index->entries[i].present[part]) FWA_TRY(check_cover(&index->entries[i], part, folder));
        }
    }
    index->next = 0;
    return FWA_OK;
}

fwa_status fwa_index_build(fwa_index *index, const char *folder, int ranks) {
    *index = (fwa_index){0};
    fwa_status status = fill_index(index, folder, ranks);
    if (status != FWA_OK) fwa_index_free(index);
    FWA_TRY(status);
    return FWA_OK;
}

void fwa_index_free(fwa_index *index) {
    for (int i = 0; i < index->count; i++) {
        for (int part = 0; part < FWA_PART_COUNT; part++) free(index->entries[i].pieces[part]);
    }
    free(index->entries);
    *index = (fwa_index){0};
}
