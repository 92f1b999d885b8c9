// state.h5: the numbers as attributes of the root, the texts as datasets. One table serves writing and reading.
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "io/checkpoint_layout.h"
#include "io/hdf5_file.h"

typedef enum value_kind { VALUE_INT, VALUE_UINT, VALUE_REAL } value_kind;

typedef struct state_value {
    const char *name;
    size_t offset;
    value_kind kind;
} state_value;

#define AT(field) #field, offsetof(fwa_checkpoint_state, field)

static const state_value values[] = {
    {AT(step), VALUE_INT},
    {AT(tokens), VALUE_INT},
    {AT(accepted), VALUE_INT},
    {AT(skipped), VALUE_INT},
    {AT(skipped_in_a_row), VALUE_INT},
    {AT(norm_mean), VALUE_REAL},
    {AT(seed), VALUE_INT},
    {AT(epoch), VALUE_INT},
    {AT(data_fingerprint), VALUE_UINT},
    {AT(config_hash), VALUE_UINT},
    {AT(best_val_loss), VALUE_REAL},
};

static const struct {
    const char *name;
    size_t offset;
    bool optional; // "" where it is missing
} texts[] = {{AT(config), false}, {AT(version), false}, {AT(command), false}, {AT(choices), true}};

#define COUNT(table) (sizeof(table) / sizeof *(table))

static hid_t value_type(value_kind kind) {
    return kind == VALUE_INT ? H5T_NATIVE_INT64 : kind == VALUE_UINT ? H5T_NATIVE_UINT64 : H5T_NATIVE_DOUBLE;
}

static const char **text_field(fwa_checkpoint_state *state, size_t i) {
    return (const char **)(void *)((char *)state + texts[i].offset);
}

static fwa_status write_values(hid_t file, const fwa_checkpoint_state *state) {
    fwa_checkpoint_state copy = *state;
    const int64_t version = FWA_CHECKPOINT_VERSION;
    FWA_TRY(fwa_hdf5_put_text_attribute(file, "format", FWA_CHECKPOINT_FORMAT));
    FWA_TRY(fwa_hdf5_put_attribute(file, "format_version", H5T_NATIVE_INT64, 0, &version));
    for (size_t i = 0; i < COUNT(values); i++) {
        FWA_TRY(fwa_hdf5_put_attribute(file, values[i].name, value_type(values[i].kind), 0,
                                       (const char *)state + values[i].offset));
    }
    for (size_t i = 0; i < COUNT(texts); i++) {
        const char *text = *text_field(&copy, i);
        FWA_TRY(fwa_hdf5_put_text(file, texts[i].name, text ? text : ""));
    }
    return FWA_OK;
}

static fwa_status read_text(hid_t file, size_t i, fwa_checkpoint_state *state) {
    char *text;
    if (texts[i].optional && H5Lexists(file, texts[i].name, H5P_DEFAULT) <= 0) {
        text = calloc(1, 1);
        FWA_CHECK(text, FWA_MEMORY, "no memory for text \"%s\"", texts[i].name);
    } else {
        FWA_TRY(fwa_hdf5_get_text(file, texts[i].name, &text));
    }
    *text_field(state, i) = text;
    return FWA_OK;
}

static fwa_status read_values(hid_t file, fwa_checkpoint_state *state) {
    for (size_t i = 0; i < COUNT(values); i++) {
        FWA_TRY(fwa_hdf5_get_attribute(file, values[i].name, value_type(values[i].kind), 0,
                                       (char *)state + values[i].offset));
    }
    for (size_t i = 0; i < COUNT(texts); i++) FWA_TRY(read_text(file, i, state));
    return FWA_OK;
}

fwa_status fwa_state_write(const char *folder, const fwa_checkpoint_state *state) {
    char path[FWA_PATH_MAX];
    FWA_TRY(fwa_path_format(path, "%s/state.h5", folder));
    hid_t file;
    FWA_TRY(fwa_hdf5_create(&file, path));
    fwa_status status;
    FWA_TRY_GOTO(write_values(file, state), failed);
    FWA_TRY(fwa_hdf5_finish(file, path));
    return FWA_OK;
failed:
    fwa_hdf5_abandon(file);
    return status;
}

fwa_status fwa_state_read(const char *folder, fwa_checkpoint_state *state) {
    memset(state, 0, sizeof *state);
    char path[FWA_PATH_MAX];
    FWA_TRY(fwa_path_format(path, "%s/state.h5", folder));
    hid_t file;
    FWA_TRY(fwa_hdf5_open(&file, path));
    fwa_status status = read_values(file, state);
    H5Fclose(file);
    if (status != FWA_OK) fwa_state_free(state);
    FWA_TRY(status);
    return FWA_OK;
}

void fwa_state_free(fwa_checkpoint_state *state) {
    for (size_t i = 0; i < COUNT(texts); i++) {
        free((void *)(uintptr_t)*text_field(state, i));
        *text_field(state, i) = NULL;
    }
}
