// `fwa info`: what this program is and can do, read from the registry: build, backends with their devices, mixing
// rules, operators.
#include "train/commands.h"

#include <stdio.h>
#include <string.h>

#include "core/version.h"
#include "kernels/registry.h"
#include "train/libraries.h"

#ifdef __clang__
#define COMPILER __VERSION__
#else
#define COMPILER "gcc " __VERSION__
#endif
#if defined(__SANITIZE_ADDRESS__)
#define SANITIZER "address"
#elif defined(__SANITIZE_THREAD__)
#define SANITIZER "thread"
#else
#define SANITIZER "off"
#endif
#ifdef __OPTIMIZE__
#define OPTIMIZED "on"
#else
#define OPTIMIZED "off"
#endif
#ifdef FWA_POISON
#define POISON "on"
#else
#define POISON "off"
#endif

enum { LINE_WIDTH = 110, INDENT = 14, RULE_WIDTH = 17 };

static const fwa_backend_kind kinds[] = {FWA_BACKEND_CPU, FWA_BACKEND_CUDA};
enum { KIND_COUNT = sizeof kinds / sizeof kinds[0] };

typedef struct bit_name {
    unsigned bit;
    const char *name;
} bit_name;

static const bit_name input_names[] = {
    {FWA_INPUT_BETA, "beta"},
    {FWA_INPUT_BETA_CHANNEL, "beta/channel"},
    {FWA_INPUT_LAMBDA, "lambda"},
    {FWA_INPUT_LOG_DECAY, "log_decay"},
    {0, NULL},
};
static const bit_name form_names[] = {
    {FWA_FORM_RECURRENT, "recurrent"},
    {FWA_FORM_PARALLEL, "parallel"},
    {FWA_FORM_CHUNK, "chunk"},
    {0, NULL},
};
static const char *const core_names[] = {
    [FWA_CORE_ADDITIVE] = "additive", [FWA_CORE_DELTA] = "delta",         [FWA_CORE_COLUMN] = "column",
    [FWA_CORE_WINDOW] = "window",     [FWA_CORE_ATTENTION] = "attention",
};
_Static_assert(sizeof core_names / sizeof core_names[0] == FWA_CORE_COUNT, "the last core has no name");

// Names of the bits that are set, "-" for none.
static const char *bits_text(unsigned bits, const bit_name *names, char text[96]) {
    size_t length = 0;
    snprintf(text, 96, "-");
    for (; names->name; names++) {
        if (!(bits & names->bit) || length >= 96) continue;
        length += (size_t)snprintf(text + length, 96 - length, "%s%s", length ? " " : "", names->name);
    }
    return text;
}

static void print_build(void) {
    printf("%s\n\n", fwa_version_text());
    printf("Build\n");
    printf("  %-*s%s, optimised: %s\n", INDENT - 2, "compiler", COMPILER, OPTIMIZED);
    printf("  %-*s%s\n", INDENT - 2, "libraries", fwa_libraries_text());
    const char *cudnn = fwa_backend_cudnn();
    printf("  %-*sCUDA: %s, cuDNN: %s, poisoned arenas: %s, sanitizer: %s\n\n", INDENT - 2, "options",
           fwa_backend_built(FWA_BACKEND_CUDA) ? "on" : "off", cudnn ? cudnn : "off", POISON, SANITIZER);
}

static void print_backend(fwa_backend_kind kind, const char *precisions) {
    printf("  %-*s%s\n", INDENT - 2, fwa_backend_kind_name(kind), precisions);
    int devices = fwa_backend_device_count(kind);
    char text[256];
    // Asking for device 0 where there is none gives the reason.
    for (int device = 0; device == 0 || device < devices; device++) {
        if (fwa_backend_describe(kind, device, text, sizeof text) == FWA_OK)
            printf("  %-*sdevice %d: %s\n", INDENT - 2, "", device, text);
        else
            printf("  %-*snot usable: %s\n", INDENT - 2, "", fwa_error_message());
    }
    fwa_error_clear();
}

static void print_rules(void) {
    printf("%-*s core       inputs                  forms                     backends\n", RULE_WIDTH + 2, "Rules");
    for (int i = 0; i < fwa_rule_count(); i++) {
        const fwa_rule *rule = fwa_rule_at(i);
        char inputs[96], forms[96];
        printf("  %-*s %-10s %-23s %-25s %s%s\n", RULE_WIDTH, rule->name, core_names[rule->core],
               bits_text(rule->inputs, input_names, inputs), bits_text(rule->forms, form_names, forms), "cpu",
               fwa_rule_on_backend(rule->name, FWA_BACKEND_CUDA) ? " cuda" : "");
        printf("  %-*s%s\n", INDENT - 2, "", rule->title);
        printf("  %-*sequations: %s\n", INDENT - 2, "", rule->equations);
    }
    printf("  (numbers of equations: arXiv:2608.27763; a page a rule: docs/math)\n");
    printf("\n");
}

static void print_operators(fwa_backend_kind kind) {
    int count = 0;
    for (int i = 0; i < fwa_op_count(); i++) count += fwa_op_on_backend(i, kind);
    int column = printf("  %-*s%d of %d:", INDENT - 2, fwa_backend_kind_name(kind), count, fwa_op_count());
    for (int i = 0; i < fwa_op_count(); i++) {
        if (!fwa_op_on_backend(i, kind)) continue;
        const char *name = fwa_op_name(i);
        if (column + 1 + (int)strlen(name) > LINE_WIDTH) column = printf("\n%*s", INDENT - 1, "") - 1;
        column += printf(" %s", name);
    }
    printf("\n");
}

fwa_status fwa_cmd_info(fwa_world *world, int argc, char **argv) {
    FWA_CHECK(argc <= 1, FWA_USAGE, "fwa info takes no arguments, got '%s'", argv[1]);
    if (world->rank != 0) return FWA_OK;
    print_build();
    printf("Backends\n");
    print_backend(FWA_BACKEND_CPU, "computes in f32, f64");
    print_backend(FWA_BACKEND_CUDA, "computes in bf16, f32");
    printf("\n");
    print_rules();
    printf("Operators\n");
    for (int i = 0; i < KIND_COUNT; i++) print_operators(kinds[i]);
    return FWA_OK;
}
