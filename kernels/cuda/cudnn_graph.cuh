// A graph of operations for cuDNN, through its backend interface in C: tensors and operations are added one after the
// other, then a plan is made that runs them all. The first error is kept: nothing more is done after it, and plan()
// returns it. Tensors have four dimensions, operations on numbers compute in fp32.
#ifndef FWA_KERNELS_CUDA_CUDNN_GRAPH_CUH
#define FWA_KERNELS_CUDA_CUDNN_GRAPH_CUH

#include <cudnn.h>

#include "kernels/cuda/device.h"

namespace fwa {

// An engine prepared for a graph. Owned by the caller: cudnnBackendDestroyDescriptor(descriptor).
struct cudnn_plan {
    cudnnBackendDescriptor_t descriptor;
    int64_t workspace; // bytes
};

// What a plan runs on: by number of the tensor its memory, or of a scalar its value on the host.
struct cudnn_bindings {
    static constexpr int most = 16;
    int64_t numbers[most];
    void *memory[most];
    int count;

    void add(int64_t number, const void *at) {
        numbers[count] = number;
        memory[count++] = const_cast<void *>(at);
    }
};

class cudnn_graph {
  public:
    struct size {
        int64_t n[4];
    };
    struct tensor {
        cudnnBackendDescriptor_t descriptor;
        size n, stride;
    };

    explicit cudnn_graph(cudnnHandle_t of) : handle(of) {}
    ~cudnn_graph();
    cudnn_graph(const cudnn_graph &) = delete;
    cudnn_graph &operator=(const cudnn_graph &) = delete;

    // In memory, rows at multiples of 16 bytes; `number`, from 1 on, is its name in cudnn_bindings.
    tensor memory(int64_t number, cudnnDataType_t type, const size &n, const size &stride);
    // One value, read on the host when the plan runs.
    tensor scalar(int64_t number, cudnnDataType_t type);

    // The result stays between operations, in `type`, except where `into` is given.
    tensor matmul(tensor a, tensor b, cudnnDataType_t type = CUDNN_DATA_FLOAT); // over the last two dimensions
    void matmul_into(tensor c, tensor a, tensor b);
    // mode(x), mode(x, b), or of x, b, t. x gives the size; that of b and t may be 1 in any dimension.
    tensor pointwise(cudnnPointwiseMode_t mode, tensor x, const tensor *b = nullptr, const tensor *t = nullptr,
                     cudnnDataType_t type = CUDNN_DATA_FLOAT);
    void pointwise_into(tensor y, cudnnPointwiseMode_t mode, tensor x, const tensor *b = nullptr);
    tensor compare(cudnnPointwiseMode_t mode, tensor x, tensor b); // booleans
    tensor index(tensor like, int64_t axis);                       // int32: the position along this dimension
    tensor reduce(cudnnReduceTensorOp_t op, tensor x);             // over the last dimension
    tensor transpose(tensor x, cudnnDataType_t type);              // of the last two dimensions

    // The first engine that accepts the graph, of those that cuDNN proposes. FWA_UNSUPPORTED where none does.
    fwa_status plan(cudnn_plan *out);

  private:
    static constexpr int most_descriptors = 192, most_operations = 32, most_engines = 16;

    cudnnHandle_t handle;
    cudnnBackendDescriptor_t descriptors[most_descriptors] = {}, operations[most_operations] = {};
    int descriptor_count = 0, operation_count = 0;
    fwa_status status = FWA_OK;

    void note(cudnnStatus_t got, const char *what);
    cudnnBackendDescriptor_t create(cudnnBackendDescriptorType_t type);
    void set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
             int64_t count, const void *values);
    template <typename T> void set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, const T &value);
    void finish(cudnnBackendDescriptor_t d);
    void add_operation(cudnnBackendDescriptor_t d);
    tensor new_tensor(int64_t number, cudnnDataType_t type, const size &n, const size &stride, bool in_memory,
                      bool by_value);
    int64_t virtual_number() const {
        return 1000 + descriptor_count; // beyond those of memory
    }
    tensor between(cudnnDataType_t type, const size &n);
    cudnnBackendDescriptor_t new_pointwise(cudnnPointwiseMode_t mode, cudnnDataType_t computed, tensor y, tensor x,
                                           const tensor *b, const tensor *t, int64_t axis);
    int engines(cudnnBackendDescriptor_t (&configurations)[most_engines]);
};

// FWA_BACKEND with cuDNN's message unless `got` is success.
fwa_status cudnn_status(cudnnStatus_t got, const char *what);
fwa_status cudnn_run(cudnnHandle_t handle, const cudnn_plan &plan, const cudnn_bindings &on, void *workspace);

} // namespace fwa
#endif
