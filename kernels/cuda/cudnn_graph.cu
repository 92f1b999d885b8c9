// Graphs for cuDNN and their plans (cudnn_graph.cuh).
#include "kernels/cuda/cudnn_graph.cuh"

#include <cstdio>
#include <utility>

namespace fwa {

namespace {

using size = cudnn_graph::size;
using tensor = cudnn_graph::tensor;

// What cuDNN calls the type of an attribute's value.
constexpr cudnnBackendAttributeType_t type_of(int64_t) {
    return CUDNN_TYPE_INT64;
}
constexpr cudnnBackendAttributeType_t type_of(bool) {
    return CUDNN_TYPE_BOOLEAN;
}
constexpr cudnnBackendAttributeType_t type_of(cudnnDataType_t) {
    return CUDNN_TYPE_DATA_TYPE;
}
constexpr cudnnBackendAttributeType_t type_of(cudnnHandle_t) {
    return CUDNN_TYPE_HANDLE;
}
constexpr cudnnBackendAttributeType_t type_of(cudnnPointwiseMode_t) {
    return CUDNN_TYPE_POINTWISE_MODE;
}
constexpr cudnnBackendAttributeType_t type_of(cudnnReduceTensorOp_t) {
    return CUDNN_TYPE_REDUCTION_OPERATOR_TYPE;
}
constexpr cudnnBackendAttributeType_t type_of(cudnnBackendHeurMode_t) {
    return CUDNN_TYPE_HEUR_MODE;
}
constexpr cudnnBackendAttributeType_t type_of(cudnnBackendDescriptor_t) {
    return CUDNN_TYPE_BACKEND_DESCRIPTOR;
}

size dense(const size &n) {
    return {{n.n[1] * n.n[2] * n.n[3], n.n[2] * n.n[3], n.n[3], 1}};
}

void explain(cudnnStatus_t got, char (&text)[512]) {
    char detail[400] = "";
    cudnnGetLastErrorString(detail, sizeof detail);
    snprintf(text, sizeof text, "%s%s%s", cudnnGetErrorString(got), detail[0] ? ": " : "", detail);
}

// Makes a plan of a configuration; the workspace's bytes.
cudnnStatus_t build(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t configuration,
                    int64_t *workspace) {
    int64_t count = 0;
    cudnnStatus_t got = cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    if (got == CUDNN_STATUS_SUCCESS)
        got = cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                       &configuration);
    if (got == CUDNN_STATUS_SUCCESS) got = cudnnBackendFinalize(plan);
    if (got == CUDNN_STATUS_SUCCESS)
        got = cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count,
                                       workspace);
    return got;
}

} // namespace

fwa_status cudnn_status(cudnnStatus_t got, const char *what) {
    char text[512];
    if (got == CUDNN_STATUS_SUCCESS) return FWA_OK;
    explain(got, text);
    FWA_FAIL(FWA_BACKEND, "%s: %s", what, text);
}

cudnn_graph::~cudnn_graph() {
    while (descriptor_count > 0) (void)cudnnBackendDestroyDescriptor(descriptors[--descriptor_count]);
}

void cudnn_graph::note(cudnnStatus_t got, const char *what) {
    if (status == FWA_OK) status = cudnn_status(got, what);
}

cudnnBackendDescriptor_t cudnn_graph::create(cudnnBackendDescriptorType_t type) {
    if (status == FWA_OK && descriptor_count == most_descriptors)
        status = fwa_error_raise(FWA_ERROR, __FILE__, __LINE__, __func__, "graph with more than %d descriptors",
                                 most_descriptors);
    if (status != FWA_OK) return nullptr;
    cudnnBackendDescriptor_t d = nullptr;
    note(cudnnBackendCreateDescriptor(type, &d), "cudnnBackendCreateDescriptor");
    if (status == FWA_OK) descriptors[descriptor_count++] = d;
    return d;
}

void cudnn_graph::set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                      int64_t count, const void *values) {
    if (status != FWA_OK) return;
    char what[64];
    snprintf(what, sizeof what, "cudnnBackendSetAttribute, attribute %d", static_cast<int>(name));
    note(cudnnBackendSetAttribute(d, name, type, count, values), what);
}

template <typename T>
void cudnn_graph::set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, const T &value) {
    set(d, name, type_of(value), 1, &value);
}

void cudnn_graph::finish(cudnnBackendDescriptor_t d) {
    if (status == FWA_OK) note(cudnnBackendFinalize(d), "cudnnBackendFinalize");
}

void cudnn_graph::add_operation(cudnnBackendDescriptor_t d) {
    finish(d);
    if (status == FWA_OK && operation_count == most_operations)
        status = fwa_error_raise(FWA_ERROR, __FILE__, __LINE__, __func__, "graph with more than %d operations",
                                 most_operations);
    if (status == FWA_OK) operations[operation_count++] = d;
}

tensor cudnn_graph::new_tensor(int64_t number, cudnnDataType_t type, const size &n, const size &stride, bool in_memory,
                               bool by_value) {
    const int64_t alignment = 16;
    const tensor t = {create(CUDNN_BACKEND_TENSOR_DESCRIPTOR), n, stride};
    set(t.descriptor, CUDNN_ATTR_TENSOR_UNIQUE_ID, number);
    set(t.descriptor, CUDNN_ATTR_TENSOR_DATA_TYPE, type);
    set(t.descriptor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, alignment);
    set(t.descriptor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, n.n);
    set(t.descriptor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride.n);
    set(t.descriptor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, !in_memory);
    set(t.descriptor, CUDNN_ATTR_TENSOR_IS_BY_VALUE, by_value);
    finish(t.descriptor);
    return t;
}

tensor cudnn_graph::memory(int64_t number, cudnnDataType_t type, const size &n, const size &stride) {
    return new_tensor(number, type, n, stride, true, false);
}

tensor cudnn_graph::scalar(int64_t number, cudnnDataType_t type) {
    const size one = {{1, 1, 1, 1}};
    return new_tensor(number, type, one, one, true, true);
}

tensor cudnn_graph::between(cudnnDataType_t type, const size &n) {
    return new_tensor(virtual_number(), type, n, dense(n), false, false);
}

void cudnn_graph::matmul_into(tensor c, tensor a, tensor b) {
    const cudnnBackendDescriptor_t how = create(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set(how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
    finish(how);
    const cudnnBackendDescriptor_t d = create(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set(d, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    set(d, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a.descriptor);
    set(d, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b.descriptor);
    set(d, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c.descriptor);
    add_operation(d);
}

tensor cudnn_graph::matmul(tensor a, tensor b, cudnnDataType_t type) {
    const tensor c = between(type, {{a.n.n[0], a.n.n[1], a.n.n[2], b.n.n[3]}});
    matmul_into(c, a, b);
    return c;
}

cudnnBackendDescriptor_t cudnn_graph::new_pointwise(cudnnPointwiseMode_t mode, cudnnDataType_t computed, tensor y,
                                                    tensor x, const tensor *b, const tensor *t, int64_t axis) {
    const cudnnBackendDescriptor_t how = create(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(how, CUDNN_ATTR_POINTWISE_MODE, mode);
    set(how, CUDNN_ATTR_POINTWISE_MATH_PREC, computed);
    if (mode == CUDNN_POINTWISE_GEN_INDEX) set(how, CUDNN_ATTR_POINTWISE_AXIS, axis);
    finish(how);
    const cudnnBackendDescriptor_t d = create(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    set(d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x.descriptor);
    if (b) set(d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b->descriptor);
    if (t) set(d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t->descriptor);
    set(d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y.descriptor);
    return d;
}

tensor cudnn_graph::pointwise(cudnnPointwiseMode_t mode, tensor x, const tensor *b, const tensor *t,
                              cudnnDataType_t type) {
    const tensor y = between(type, x.n);
    add_operation(new_pointwise(mode, CUDNN_DATA_FLOAT, y, x, b, t, 0));
    return y;
}

void cudnn_graph::pointwise_into(tensor y, cudnnPointwiseMode_t mode, tensor x, const tensor *b) {
    add_operation(new_pointwise(mode, CUDNN_DATA_FLOAT, y, x, b, nullptr, 0));
}

tensor cudnn_graph::compare(cudnnPointwiseMode_t mode, tensor x, tensor b) {
    const tensor y = between(CUDNN_DATA_BOOLEAN, x.n);
    add_operation(new_pointwise(mode, CUDNN_DATA_BOOLEAN, y, x, &b, nullptr, 0));
    return y;
}

tensor cudnn_graph::index(tensor like, int64_t axis) {
    const tensor y = between(CUDNN_DATA_INT32, like.n);
    add_operation(new_pointwise(CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, y, like, nullptr, nullptr, axis));
    return y;
}

tensor cudnn_graph::reduce(cudnnReduceTensorOp_t op, tensor x) {
    const cudnnBackendDescriptor_t how = create(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set(how, CUDNN_ATTR_REDUCTION_OPERATOR, op);
    set(how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    finish(how);
    const tensor y = between(CUDNN_DATA_FLOAT, {{x.n.n[0], x.n.n[1], x.n.n[2], 1}});
    const cudnnBackendDescriptor_t d = create(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set(d, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    set(d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x.descriptor);
    set(d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y.descriptor);
    add_operation(d);
    return y;
}

tensor cudnn_graph::transpose(tensor x, cudnnDataType_t type) {
    std::swap(x.n.n[2], x.n.n[3]);
    std::swap(x.stride.n[2], x.stride.n[3]);
    const tensor y = new_tensor(virtual_number(), type, x.n, x.stride, false, false);
    const cudnnBackendDescriptor_t d = create(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set(d, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x.descriptor);
    set(d, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y.descriptor);
    add_operation(d);
    return y;
}

// Configurations of engines that may run the graph, the one expected to be fastest first.
int cudnn_graph::engines(cudnnBackendDescriptor_t (&configurations)[most_engines]) {
    const cudnnBackendDescriptor_t graph = create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle);
    set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, operation_count, operations);
    finish(graph);
    const cudnnBackendDescriptor_t choice = create(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set(choice, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set(choice, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_HEUR_MODE_A);
    finish(choice);
    for (cudnnBackendDescriptor_t &c : configurations) c = create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    int64_t count = 0;
    if (status != FWA_OK) return 0;
    note(cudnnBackendGetAttribute(choice, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, most_engines,
                                  &count, configurations),
         "cudnnBackendGetAttribute, engines");
    return status == FWA_OK ? static_cast<int>(count) : 0;
}

fwa_status cudnn_graph::plan(cudnn_plan *out) {
    cudnnBackendDescriptor_t configurations[most_engines];
    char reason[512] = "no engine is proposed";
    out->descriptor = nullptr;
    const int count = engines(configurations);
    for (int i = 0; i < count; i++) {
        cudnnBackendDescriptor_t d = nullptr;
        FWA_TRY(cudnn_status(cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &d),
                             "cudnnBackendCreateDescriptor"));
        const cudnnStatus_t got = build(handle, d, configurations[i], &out->workspace);
        if (got == CUDNN_STATUS_SUCCESS) {
            out->descriptor = d;
            return FWA_OK;
        }
        explain(got, reason);
        (void)cudnnBackendDestroyDescriptor(d);
    }
    FWA_TRY(status);
    FWA_FAIL(FWA_UNSUPPORTED, "cuDNN %zu does not run this graph: %s", cudnnGetVersion(), reason);
}

// Runs on the stream of the handle. What is created here lives in host memory only.
fwa_status cudnn_run(cudnnHandle_t handle, const cudnn_plan &plan, const cudnn_bindings &on, void *workspace) {
    cudnnBackendDescriptor_t pack = nullptr;
    cudnnStatus_t got = cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    const auto set = [&](cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                         const void *values) {
        if (got == CUDNN_STATUS_SUCCESS) got = cudnnBackendSetAttribute(pack, name, type, count, values);
    };
    set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, on.count, on.numbers);
    set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, on.count, on.memory);
    set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    if (got == CUDNN_STATUS_SUCCESS) got = cudnnBackendFinalize(pack);
    if (got == CUDNN_STATUS_SUCCESS) got = cudnnBackendExecute(handle, plan.descriptor, pack);
    const fwa_status status = cudnn_status(got, "cudnnBackendExecute");
    if (pack) (void)cudnnBackendDestroyDescriptor(pack);
    if (status != FWA_OK) return fwa_error_pass(status, __FILE__, __LINE__, __func__);
    return FWA_OK;
}

} // namespace fwa
