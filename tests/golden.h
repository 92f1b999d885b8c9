// Reads golden cases (HDF5): attributes into options, /in into a mixer_case, /out and /grad for comparison.
#ifndef FWA_TESTS_GOLDEN_H
#define FWA_TESTS_GOLDEN_H

#include <dirent.h>
#include <hdf5.h>

#include "mixer_case.h"

#ifndef FWA_SOURCE_DIR
#define FWA_SOURCE_DIR "."
#endif

// The attribute as a number, `absent` where the file has none.
static inline double golden_number(hid_t file, const char *name, double absent) {
    double value = absent;
    if (H5Aexists(file, name) <= 0) return absent;
    hid_t attribute = H5Aopen(file, name, H5P_DEFAULT);
    assert_true(attribute >= 0 && H5Aread(attribute, H5T_NATIVE_DOUBLE, &value) >= 0);
    H5Aclose(attribute);
    return value;
}

// The attribute `rule`.
static inline void golden_rule(hid_t file, char text[64]) {
    hid_t attribute = H5Aopen(file, "rule", H5P_DEFAULT), type = H5Aget_type(attribute);
    memset(text, 0, 64);
    if (H5Tis_variable_str(type) > 0) {
        char *read = NULL;
        assert_true(H5Aread(attribute, type, &read) >= 0);
        snprintf(text, 64, "%s", read);
        H5free_memory(read);
    } else {
        assert_true(H5Tget_size(type) < 64 && H5Aread(attribute, type, text) >= 0);
    }
    H5Tclose(type);
    H5Aclose(attribute);
}

// Opens /group/name and reads its shape; false where there is none.
static inline bool golden_shape(hid_t file, const char *group, const char *name, int64_t shape[4]) {
    char path[64];
    hsize_t dims[4] = {0};
    snprintf(path, sizeof path, "/%s/%s", group, name);
    if (H5Lexists(file, path, H5P_DEFAULT) <= 0) return false;
    hid_t set = H5Dopen2(file, path, H5P_DEFAULT), space = H5Dget_space(set);
    assert_true(H5Sget_simple_extent_ndims(space) <= 4 && H5Sget_simple_extent_dims(space, dims, NULL) >= 0);
    for (int i = 0; i < 4; i++) shape[i] = (int64_t)dims[i];
    H5Sclose(space);
    H5Dclose(set);
    return true;
}

// Reads /group/name into a new f64 tensor (check_release frees it); absent where the file has none.
static inline fwa_tensor golden_read(hid_t file, const char *group, const char *name) {
    int64_t shape[4] = {0};
    char path[64];
    if (!golden_shape(file, group, name, shape)) return fwa_tensor_absent();
    fwa_tensor t = check_new(FWA_F64, shape[0], shape[1], shape[2], shape[3]);
    snprintf(path, sizeof path, "/%s/%s", group, name);
    hid_t set = H5Dopen2(file, path, H5P_DEFAULT);
    assert_true(set >= 0 && H5Dread(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, t.data) >= 0);
    H5Dclose(set);
    return t;
}

// Options, shape and presence of state of a golden file; form, dtype and chunk are the test's. An option without
// attribute stands at the rule's default, as in `fwa op`.
static inline case_spec golden_spec(hid_t file, const fwa_rule *rule) {
    case_spec spec = {.rule = rule, .options = fwa_mixer_options_default(rule), .arriving = true};
    int64_t q[4] = {0}, v[4] = {0}, n[4] = {0};
    char name[64];
    assert_true(golden_shape(file, "in", "q", q) && golden_shape(file, "in", "v", v));
    spec.shape = (fwa_mixer_shape){.B = q[0], .T = q[1], .Hq = q[2], .H = v[2], .K = q[3], .V = v[3]};
    spec.tail = golden_shape(file, "in", "tail_x", n) ? n[1] : 0;
    spec.S0 = golden_shape(file, "in", "S0", n);
    spec.k_prev = golden_shape(file, "in", "k_prev", n);
    spec.state_out = golden_shape(file, "out", "S", n);
    fwa_mixer_options *o = &spec.options;
    if (rule->switches & FWA_SWITCH_SHIFT)
        o->shift = golden_number(file, "shift", o->shift == FWA_SHIFT_NEXT_LATENT) > 0 ? FWA_SHIFT_NEXT_LATENT
                                                                                       : FWA_SHIFT_SAME_STEP;
    if (rule->switches & FWA_SWITCH_READ)
        o->read = golden_number(file, "raw", o->read == FWA_READ_AFTER_WRITE) > 0 ? FWA_READ_AFTER_WRITE
                                                                                  : FWA_READ_BEFORE_WRITE;
    if (rule->switches & FWA_SWITCH_STEP)
        o->step =
            golden_number(file, "direct_step", o->step == FWA_STEP_DIRECT) > 0 ? FWA_STEP_DIRECT : FWA_STEP_NORMALIZED;
    if (rule->switches & FWA_SWITCH_RIDGE)
        o->ridge = golden_number(file, "scale_coupled", o->ridge == FWA_RIDGE_COUPLED) > 0 ? FWA_RIDGE_COUPLED
                                                                                           : FWA_RIDGE_UNCOUPLED;
    o->detach_scale = golden_number(file, "detach_scale", o->detach_scale) > 0;
    golden_rule(file, name);
    o->normalized_read = golden_number(file, "normalized_read", strstr(name, "_normalized") != NULL) > 0;
    if (rule->switches & FWA_SWITCH_WINDOW) o->window = (int64_t)golden_number(file, "window", (double)o->window);
    o->eps = golden_number(file, "eps", o->eps);
    o->eps_gamma = golden_number(file, "eps_gamma", o->eps_gamma);
    o->eta_max = golden_number(file, "eta_max", o->eta_max);
    o->eps_attn = golden_number(file, "eps_attn", o->eps_attn);
    return spec;
}

// Inputs and arriving gradients of the file into the case; arriving gradients that the file lacks are 0.
static inline void golden_fill(hid_t file, mixer_case *c) {
    for (int i = 0; i < CASE_INPUTS; i++) {
        const fwa_tensor t = *case_at(c, case_inputs[i].value);
        if (fwa_tensor_present(t)) check_copy(t, golden_read(file, "in", case_inputs[i].name));
    }
    for (int i = 0; i < CASE_OUTPUTS; i++) {
        char name[32];
        snprintf(name, sizeof name, "d%s", case_outputs[i].name);
        const fwa_tensor d = *case_at(c, case_outputs[i].gradient), from = golden_read(file, "in", name);
        if (!fwa_tensor_present(d)) continue;
        if (fwa_tensor_present(from))
            check_copy(d, from);
        else
            check_fill_value(d, 0);
    }
}

// RMS(a-b)
static inline double golden_difference(fwa_tensor a, fwa_tensor b) {
    const int64_t n = fwa_tensor_count(b);
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += pow(check_get(a, i) - check_get(b, i), 2);
    return sqrt(sum / (double)n);
}

// Largest error of an output or gradient that the file holds; *name is its name, *compared their number. A single
// token over an empty memory is judged by the absolute error: what is not 0 there may be what a cancellation leaves.
static inline double golden_error(hid_t file, mixer_case *c, const char **name, int *compared) {
    const bool absolute = c->spec.shape.T == 1 && !c->spec.S0;
    double worst = 0;
    *name = "";
    *compared = 0;
    for (int i = 0; i < CASE_INPUTS + CASE_OUTPUTS; i++) {
        const bool input = i < CASE_INPUTS;
        const case_tensor *entry = input ? &case_inputs[i] : &case_outputs[i - CASE_INPUTS];
        char path[32];
        snprintf(path, sizeof path, "%s%s", input ? "d" : "", entry->name);
        const fwa_tensor expected = golden_read(file, input ? "grad" : "out", path);
        const fwa_tensor got = *case_at(c, input ? entry->gradient : entry->value);
        if (!fwa_tensor_present(expected)) continue;
        if (!fwa_tensor_present(got)) fail_msg("%s: no tensor for %s", c->spec.rule->name, path);
        const double error = absolute ? golden_difference(got, expected) : check_error(got, expected);
        (*compared)++;
        if (!isnan(worst) && !(error <= worst)) {
            worst = error;
            *name = entry->name;
        }
    }
    return worst;
}

// The cases of the repository, or the full set where FWA_GOLDEN_DIR names it.
static inline const char *golden_folder(void) {
    const char *folder = getenv("FWA_GOLDEN_DIR");
    return folder && folder[0] ? folder : FWA_SOURCE_DIR "/tests/golden";
}

static inline hid_t golden_open(const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", golden_folder(), name);
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    if (file < 0) fail_msg("cannot open %s", path);
    return file;
}

// The rule attribute of a file is this rule's name; a name with _normalized is that of the rule's normalised read.
static inline bool golden_is_of(hid_t file, const char *rule) {
    char text[64];
    golden_rule(file, text);
    char *suffix = strstr(text, "_normalized");
    if (suffix) *suffix = '\0';
    return strcmp(text, rule) == 0;
}

// Shows `visit` every case of a rule; returns how many. A rule without a case is a failure.
static inline int golden_each(const fwa_rule *rule, void (*visit)(hid_t, const char *, const fwa_rule *, void *),
                              void *user) {
    int files = 0;
    DIR *folder = opendir(golden_folder());
    if (!folder) fail_msg("cannot read %s", golden_folder());
    for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
        if (strlen(entry->d_name) < 4 || strcmp(entry->d_name + strlen(entry->d_name) - 3, ".h5") != 0) continue;
        hid_t file = golden_open(entry->d_name);
        if (golden_is_of(file, rule->name)) visit(file, entry->d_name, rule, user), files++;
        H5Fclose(file);
    }
    closedir(folder);
    if (!files)
        fail_msg("no golden case of %s in %s: tests/golden/make_case.py makes one from the step of the rule",
                 rule->name, golden_folder());
    return files;
}

#endif
