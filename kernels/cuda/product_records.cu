// Choices of algorithms as records of text, and back.
//
// A record names device, library version, the kind of product and the algorithm by its attributes, not by the library's
// own bytes, whose meaning is not promised: an algorithm is set up from them and checked again for this device.
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/cuda/product.cuh"

namespace fwa {
namespace {

enum class value_kind { number, dtype, flag };

struct kind_field {
    const char *name;
    size_t offset;
    value_kind values;
};

#define FIELD(name, field, values)                                                                                     \
    { name, offsetof(product_kind, field), value_kind::values }
constexpr kind_field kind_fields[] = {
    FIELD("M", M, number),
    FIELD("N", N, number),
    FIELD("k", k, number),
    FIELD("transpose_a", ta, flag),
    FIELD("transpose_b", tb, flag),
    FIELD("inputs", act, dtype),
    FIELD("output", out, dtype),
    FIELD("c_is_d", in_place, flag),
    FIELD("stride_a", lda, number),
    FIELD("stride_b", ldb, number),
    FIELD("stride_c", ldc, number),
    FIELD("stride_d", ldd, number),
    FIELD("align_a", align_a, number),
    FIELD("align_b", align_b, number),
    FIELD("align_c", align_c, number),
    FIELD("align_d", align_d, number),
};
#undef FIELD

struct algorithm_field {
    const char *name;
    cublasLtMatmulAlgoConfigAttributes_t attribute;
    size_t size; // bytes: 4 or 2
};

constexpr algorithm_field algorithm_fields[] = {
    {"tile", CUBLASLT_ALGO_CONFIG_TILE_ID, 4},          {"stages", CUBLASLT_ALGO_CONFIG_STAGES_ID, 4},
    {"split_k", CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4},    {"reduction", CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4},
    {"swizzle", CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4}, {"custom", CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4},
    {"inner", CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2},  {"cluster", CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2},
};

const int64_t *field_of(const product_kind *kind, const kind_field &field) {
    return reinterpret_cast<const int64_t *>(reinterpret_cast<const char *>(kind) + field.offset);
}

fwa_status device_name(const fwa_backend *backend, char text[256]) {
    cudaDeviceProp properties;
    FWA_CUDA_TRY(cudaGetDeviceProperties(&properties, backend->device));
    snprintf(text, 256, "%s", properties.name);
    return FWA_OK;
}

fwa_status print_algorithm(FILE *out, const product *p) {
    int32_t id = 0;
    size_t written = 0;
    FWA_BLAS_TRY(
        cublasLtMatmulAlgoConfigGetAttribute(&p->algorithm, CUBLASLT_ALGO_CONFIG_ID, &id, sizeof id, &written));
    fprintf(out, "\talgorithm=%d", static_cast<int>(id));
    for (const algorithm_field &field : algorithm_fields) {
        uint32_t value = 0; // the lower bytes of a small one
        FWA_BLAS_TRY(
            cublasLtMatmulAlgoConfigGetAttribute(&p->algorithm, field.attribute, &value, field.size, &written));
        fprintf(out, "\t%s=%u", field.name, value);
    }
    return FWA_OK;
}

fwa_status print_record(FILE *out, const product *p, const char *device) {
    fprintf(out, "operator=gemm\tdevice=%s\tcublaslt=%zu", device, cublasLtGetVersion());
    for (const kind_field &field : kind_fields) {
        const int64_t value = *field_of(&p->kind, field);
        if (field.values == value_kind::dtype)
            fprintf(out, "\t%s=%s", field.name, fwa_dtype_name(static_cast<fwa_dtype>(value)));
        else
            fprintf(out, "\t%s=%lld", field.name, static_cast<long long>(value));
    }
    FWA_TRY(print_algorithm(out, p));
    fputc('\n', out);
    return FWA_OK;
}

// Oldest first, so that the order is that of the products of a step.
fwa_status print_all(FILE *out, const product *p, const char *device) {
    if (!p) return FWA_OK;
    FWA_TRY(print_all(out, p->next, device));
    return print_record(out, p, device);
}

// Copies the value of `name` in the record that ends at the first line end; false if it is not there or too long.
bool find_value(const char *record, const char *name, char value[256]) {
    const size_t length = strlen(name);
    for (const char *at = record;; at++) {
        if (strncmp(at, name, length) == 0 && at[length] == '=') {
            const size_t size = strcspn(at + length + 1, "\t\n");
            if (size >= 256) return false;
            memcpy(value, at + length + 1, size);
            value[size] = '\0';
            return true;
        }
        at += strcspn(at, "\t\n");
        if (*at != '\t') return false;
    }
}

bool find_number(const char *record, const char *name, int64_t *number) {
    char text[256], *end = text;
    if (!find_value(record, name, text) || !text[0]) return false;
    *number = strtoll(text, &end, 10);
    return *end == '\0';
}

bool find_dtype(const char *record, const char *name, int64_t *dtype) {
    char text[256];
    if (!find_value(record, name, text)) return false;
    for (const fwa_dtype one : {FWA_BF16, FWA_F32}) {
        if (strcmp(text, fwa_dtype_name(one)) != 0) continue;
        *dtype = one;
        return true;
    }
    return false;
}

bool read_kind(const char *record, product_kind *kind) {
    for (const kind_field &field : kind_fields) {
        auto *value = const_cast<int64_t *>(field_of(kind, field));
        const bool found = field.values == value_kind::dtype ? find_dtype(record, field.name, value)
                                                             : find_number(record, field.name, value);
        const int64_t least = field.values == value_kind::number ? 1 : 0;
        const int64_t most = field.values == value_kind::flag ? 1 : INT64_MAX;
        if (!found || *value < least || *value > most) return false;
    }
    return true;
}

// Whether the record is of this device and this version of the library.
bool of_here(const char *record, const char *device) {
    char text[256];
    int64_t version = -1;
    return find_value(record, "operator", text) && strcmp(text, "gemm") == 0 && find_value(record, "device", text) &&
           strcmp(text, device) == 0 && find_number(record, "cublaslt", &version) &&
           version == static_cast<int64_t>(cublasLtGetVersion());
}

// Sets up the algorithm; false where the library does not take it for this product on this device.
// Split sums are added in fp32 through the workspace, as product_choice.cu asks for: no record may do otherwise.
bool adds_in_place(const char *record) {
    int64_t split = 0, reduction = 0;
    return find_number(record, "split_k", &split) && find_number(record, "reduction", &reduction) && split > 1 &&
           reduction != CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
}

bool read_algorithm(const fwa_cuda_products *products, const char *record, product *p) {
    const cudaDataType_t in = product_type(p->kind.act), out = product_type(p->kind.out);
    int64_t number = 0;
    cublasLtMatmulHeuristicResult_t checked = {};
    if (adds_in_place(record)) return false;
    if (!find_number(record, "algorithm", &number) || number < 0 || number > INT32_MAX ||
        cublasLtMatmulAlgoInit(products->handle, product_compute(p->kind), CUDA_R_32F, in, in, out, out,
                               static_cast<int>(number), &p->algorithm) != CUBLAS_STATUS_SUCCESS)
        return false;
    for (const algorithm_field &field : algorithm_fields) {
        if (!find_number(record, field.name, &number) || number < 0 || number > (field.size < 4 ? 0xFFFF : INT32_MAX))
            return false;
        const auto value = static_cast<uint32_t>(number);
        if (cublasLtMatmulAlgoConfigSetAttribute(&p->algorithm, field.attribute, &value, field.size) !=
            CUBLAS_STATUS_SUCCESS)
            return false;
    }
    if (cublasLtMatmulAlgoCheck(products->handle, p->operation, p->b, p->a, p->c, p->d, &p->algorithm, &checked) !=
        CUBLAS_STATUS_SUCCESS)
        return false;
    p->workspace = checked.workspaceSize;
    return p->workspace <= FWA_CUDA_WORKSPACE_BYTES;
}

fwa_status read_record(fwa_cuda_products *products, const char *record, const char *device, bool *taken) {
    product_kind kind = {};
    product *p = nullptr;
    *taken = false;
    if (!of_here(record, device) || !read_kind(record, &kind)) return FWA_OK;
    FWA_TRY(product_create(&p, kind));
    *taken = read_algorithm(products, record, p);
    if (*taken)
        products_keep(products, p);
    else
        product_destroy(p);
    return FWA_OK;
}

} // namespace
} // namespace fwa

extern "C" {

fwa_status fwa_cuda_products_records(const fwa_cuda_products *products, char **records) {
    char device[256];
    size_t size = 0;
    FWA_TRY(fwa::device_name(products->backend, device));
    *records = nullptr;
    FILE *out = open_memstream(records, &size);
    FWA_CHECK(out, FWA_MEMORY, "cannot allocate the records of products");
    const bool measured = !products->backend->deterministic;
    fwa_status status = measured ? fwa::print_all(out, products->first, device) : FWA_OK;
    const bool written = fclose(out) == 0;
    if (status == FWA_OK && written) return FWA_OK;
    free(*records);
    *records = nullptr;
    FWA_TRY(status);
    FWA_FAIL(FWA_MEMORY, "cannot allocate the records of products");
}

fwa_status fwa_cuda_products_take(fwa_cuda_products *products, const char *records, int *taken, int *passed_over) {
    char device[256];
    *taken = *passed_over = 0;
    if (products->backend->deterministic) return FWA_OK;
    FWA_TRY(fwa::device_name(products->backend, device));
    for (const char *record = records; *record;) {
        bool fits = false;
        FWA_TRY(fwa::read_record(products, record, device, &fits));
        *(fits ? taken : passed_over) += 1;
        record += strcspn(record, "\n");
        record += *record == '\n';
    }
    return FWA_OK;
}

} // extern "C"
