// A communicator over NCCL and device memory: one rank a GPU.
#include "dist/nccl_group.h"

#include <stdlib.h>

#include "core/shape.h"
#include "dist/comms.h"
#include "dist/nccl_meeting.h"

static fwa_nccl_group *group_of(fwa_comm *comm) {
    return comm->impl;
}

// Element type of NCCL, by fwa_dtype.
static const ncclDataType_t nccl_types[FWA_DTYPE_COUNT] = {
    [FWA_F64] = ncclFloat64, [FWA_F32] = ncclFloat32, [FWA_BF16] = ncclBfloat16,
    [FWA_I32] = ncclInt32,   [FWA_I64] = ncclInt64,   [FWA_U8] = ncclUint8,
};
static const ncclRedOp_t nccl_reductions[] = {
    [FWA_REDUCE_SUM] = ncclSum, [FWA_REDUCE_MAX] = ncclMax, [FWA_REDUCE_MIN] = ncclMin};

// One operation, for its messages and its streams.
typedef struct operation {
    const char *name;
    int64_t bytes;
    cudaStream_t caller;
} operation;

static fwa_status check_call(int64_t count, fwa_dtype dtype) {
    FWA_CHECK(count >= 0, FWA_ERROR, "got %lld elements, expected 0 or more", (long long)count);
    FWA_CHECK((unsigned)dtype < FWA_DTYPE_COUNT, FWA_ERROR, "got element type %d, expected one below %d", (int)dtype,
              FWA_DTYPE_COUNT);
    return FWA_OK;
}

static fwa_status check_rank(const fwa_nccl_group *group, int rank) {
    FWA_CHECK(rank >= 0 && rank < group->comm.size, FWA_ERROR, "got rank %d, expected 0 to %d", rank,
              group->comm.size - 1);
    return FWA_OK;
}

// What the caller's stream holds now comes before what the group's stream gets next.
static fwa_status enter(fwa_nccl_group *group, operation *op, fwa_stream *stream) {
    fwa_backend *backend = group->backend;
    FWA_TRY(fwa_nccl_ready(group));
    FWA_NCCL_CUDA_TRY(cudaSetDevice(backend->device));
    op->caller = backend->native_stream(stream ? stream : backend->stream);
    FWA_NCCL_CUDA_TRY(cudaEventRecord(group->before, op->caller));
    FWA_NCCL_CUDA_TRY(cudaStreamWaitEvent(group->stream, group->before, 0));
    return FWA_OK;
}

// `result`: of NCCL's call. What the caller's stream gets next comes after the operation.
static fwa_status leave(fwa_nccl_group *group, const operation *op, ncclResult_t result) {
    FWA_TRY(fwa_nccl_finish(group, result, op->name, op->bytes));
    FWA_NCCL_CUDA_TRY(cudaEventRecord(group->after, group->stream));
    FWA_NCCL_CUDA_TRY(cudaStreamWaitEvent(op->caller, group->after, 0));
    return FWA_OK;
}

static ncclResult_t issue_reduce(fwa_nccl_group *group, void *buffer, int64_t count, fwa_dtype dtype, fwa_reduce op) {
    return ncclAllReduce(buffer, buffer, (size_t)count, nccl_types[dtype], nccl_reductions[op], group->nccl,
                         group->stream);
}

static fwa_status check_reduce(int64_t count, fwa_dtype dtype, fwa_reduce op) {
    FWA_TRY(check_call(count, dtype));
    FWA_CHECK((unsigned)op <= FWA_REDUCE_MIN, FWA_ERROR, "got reduction %d, expected sum, max or min", (int)op);
    return FWA_OK;
}

static fwa_status nccl_all_reduce(fwa_comm *comm, fwa_stream *stream, void *buffer, int64_t count, fwa_dtype dtype,
                                  fwa_reduce reduction) {
    fwa_nccl_group *group = group_of(comm);
    FWA_TRY(check_reduce(count, dtype, reduction));
    operation op = {"all_reduce", count * (int64_t)fwa_dtype_size(dtype), NULL};
    comm->sent.all_reduce += op.bytes;
    FWA_TRY(enter(group, &op, stream));
    return leave(group, &op, issue_reduce(group, buffer, count, dtype, reduction));
}

static fwa_status free_request(fwa_nccl_group *group, fwa_nccl_request **out) {
    fwa_nccl_request *request = NULL;
    for (int i = 0; i < FWA_NCCL_REQUESTS && !request; i++)
        if (!group->requests[i].used) request = &group->requests[i];
    FWA_CHECK(request, FWA_ERROR, "got one more reduction with %d under way, expected a wait before it",
              FWA_NCCL_REQUESTS);
    if (!request->done) FWA_NCCL_CUDA_TRY(cudaEventCreateWithFlags(&request->done, cudaEventDisableTiming));
    *out = request;
    return FWA_OK;
}

static fwa_status nccl_all_reduce_start(fwa_comm *comm, fwa_stream *stream, void *buffer, int64_t count,
                                        fwa_dtype dtype, fwa_reduce reduction, fwa_comm_request **out) {
    fwa_nccl_group *group = group_of(comm);
    fwa_nccl_request *request = NULL;
    *out = NULL;
    FWA_TRY(check_reduce(count, dtype, reduction));
    operation op = {"all_reduce", count * (int64_t)fwa_dtype_size(dtype), NULL};
    comm->sent.all_reduce += op.bytes;
    FWA_TRY(enter(group, &op, stream));
    FWA_TRY(free_request(group, &request));
    FWA_TRY(fwa_nccl_finish(group, issue_reduce(group, buffer, count, dtype, reduction), op.name, op.bytes));
    FWA_NCCL_CUDA_TRY(cudaEventRecord(request->done, group->stream));
    request->used = true;
    *out = (fwa_comm_request *)request;
    return FWA_OK;
}

static fwa_status nccl_wait(fwa_comm *comm, fwa_stream *stream, fwa_comm_request *handle) {
    fwa_nccl_group *group = group_of(comm);
    fwa_nccl_request *request = (fwa_nccl_request *)handle;
    FWA_TRY(fwa_nccl_ready(group));
    FWA_CHECK(request && request->used, FWA_ERROR,
              "got a request that is not under way, expected one not yet waited for");
    cudaStream_t caller = group->backend->native_stream(stream ? stream : group->backend->stream);
    FWA_NCCL_CUDA_TRY(cudaStreamWaitEvent(caller, request->done, 0));
    request->used = false;
    return FWA_OK;
}

static fwa_status nccl_broadcast(fwa_comm *comm, fwa_stream *stream, void *buffer, int64_t count, fwa_dtype dtype,
                                 int root) {
    fwa_nccl_group *group = group_of(comm);
    FWA_TRY(check_call(count, dtype));
    FWA_TRY(check_rank(group, root));
    operation op = {"broadcast", count * (int64_t)fwa_dtype_size(dtype), NULL};
    if (root == comm->rank) comm->sent.broadcast += op.bytes;
    FWA_TRY(enter(group, &op, stream));
    return leave(group, &op,
                 ncclBroadcast(buffer, buffer, (size_t)count, nccl_types[dtype], root, group->nccl, group->stream));
}

static fwa_status nccl_all_gather(fwa_comm *comm, fwa_stream *stream, const void *from, void *to, int64_t count,
                                  fwa_dtype dtype) {
    fwa_nccl_group *group = group_of(comm);
    FWA_TRY(check_call(count, dtype));
    operation op = {"all_gather", count * (int64_t)fwa_dtype_size(dtype) * comm->size, NULL};
    comm->sent.all_gather += op.bytes / comm->size;
    FWA_TRY(enter(group, &op, stream));
    return leave(group, &op, ncclAllGather(from, to, (size_t)count, nccl_types[dtype], group->nccl, group->stream));
}

static fwa_status nccl_reduce_scatter(fwa_comm *comm, fwa_stream *stream, const void *from, void *to, int64_t count,
                                      fwa_dtype dtype) {
    fwa_nccl_group *group = group_of(comm);
    FWA_TRY(check_call(count, dtype));
    operation op = {"reduce_scatter", count * (int64_t)fwa_dtype_size(dtype) * comm->size, NULL};
    comm->sent.reduce_scatter += op.bytes;
    FWA_TRY(enter(group, &op, stream));
    return leave(group, &op,
                 ncclReduceScatter(from, to, (size_t)count, nccl_types[dtype], ncclSum, group->nccl, group->stream));
}

// The first failure of the three; a group that was opened is always closed.
static ncclResult_t issue_exchange(fwa_nccl_group *group, const void *send, size_t send_bytes, int to, void *recv,
                                   size_t recv_bytes, int from) {
    ncclResult_t first = ncclGroupStart();
    if (first != ncclSuccess) return first;
    if (send_bytes > 0) first = ncclSend(send, send_bytes, ncclUint8, to, group->nccl, group->stream);
    if (recv_bytes > 0 && (first == ncclSuccess || first == ncclInProgress))
        first = ncclRecv(recv, recv_bytes, ncclUint8, from, group->nccl, group->stream);
    ncclResult_t end = ncclGroupEnd();
    return first == ncclSuccess || first == ncclInProgress ? end : first;
}

static fwa_status nccl_exchange(fwa_comm *comm, fwa_stream *stream, const void *send, int64_t send_bytes, int to,
                                void *recv, int64_t recv_bytes, int from) {
    fwa_nccl_group *group = group_of(comm);
    FWA_TRY(check_call(fwa_min(send_bytes, recv_bytes), FWA_U8));
    int64_t out = send ? send_bytes : 0, in = recv ? recv_bytes : 0;
    if (out > 0) FWA_TRY(check_rank(group, to));
    if (in > 0) FWA_TRY(check_rank(group, from));
    operation op = {"exchange", out + in, NULL};
    if (op.bytes == 0) return FWA_OK;
    comm->sent.exchange += out;
    FWA_TRY(enter(group, &op, stream));
    return leave(group, &op, issue_exchange(group, send, (size_t)out, to, recv, (size_t)in, from));
}

// A sum that every rank must bring something to, and the host's wait for it.
static fwa_status nccl_barrier(fwa_comm *comm) {
    fwa_nccl_group *group = group_of(comm);
    operation op = {"barrier", 0, NULL};
    FWA_TRY(enter(group, &op, NULL));
    FWA_TRY(leave(group, &op, issue_reduce(group, group->token, 1, FWA_F32, FWA_REDUCE_SUM)));
    return fwa_nccl_wait_event(group, group->after, op.name, op.bytes);
}

static void nccl_set_timeout(fwa_comm *comm, double seconds) {
    int64_t ns = seconds > 0 && seconds < 1e9 ? (int64_t)(seconds * 1e9) : 0;
    __atomic_store_n(&group_of(comm)->timeout_ns, ns, __ATOMIC_RELAXED);
}

static void nccl_destroy(fwa_comm *comm) {
    fwa_nccl_group *group = group_of(comm);
    fwa_nccl_end(group);
    if (cudaSetDevice(group->backend->device) == cudaSuccess) {
        for (int i = 0; i < FWA_NCCL_REQUESTS; i++)
            if (group->requests[i].done) (void)cudaEventDestroy(group->requests[i].done);
        if (group->before) (void)cudaEventDestroy(group->before);
        if (group->after) (void)cudaEventDestroy(group->after);
        if (group->stream) (void)cudaStreamDestroy(group->stream);
        if (group->token) (void)cudaFree(group->token);
    }
    free(group);
}

static const fwa_comm nccl_operations = {
    .name = "nccl",
    .all_reduce = nccl_all_reduce,
    .all_reduce_start = nccl_all_reduce_start,
    .wait = nccl_wait,
    .broadcast = nccl_broadcast,
    .all_gather = nccl_all_gather,
    .reduce_scatter = nccl_reduce_scatter,
    .exchange = nccl_exchange,
    .barrier = nccl_barrier,
    .set_timeout = nccl_set_timeout,
    .destroy = nccl_destroy,
};

// What the group needs on the device. Its stream goes first where it competes: sums travel while layers compute.
static fwa_status open_device(fwa_nccl_group *group) {
    int least = 0, most = 0;
    FWA_NCCL_CUDA_TRY(cudaSetDevice(group->backend->device));
    FWA_NCCL_CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &most));
    FWA_NCCL_CUDA_TRY(cudaStreamCreateWithPriority(&group->stream, cudaStreamNonBlocking, most));
    FWA_NCCL_CUDA_TRY(cudaEventCreateWithFlags(&group->before, cudaEventDisableTiming));
    FWA_NCCL_CUDA_TRY(cudaEventCreateWithFlags(&group->after, cudaEventDisableTiming));
    FWA_NCCL_CUDA_TRY(cudaMalloc((void **)&group->token, sizeof *group->token));
    FWA_NCCL_CUDA_TRY(cudaMemsetAsync(group->token, 0, sizeof *group->token, group->stream));
    return FWA_OK;
}

static fwa_status connect(fwa_nccl_group *group, const ncclUniqueId *id, const fwa_nccl_options *options) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (options->max_ctas > 0) config.maxCTAs = options->max_ctas;
    ncclResult_t result = ncclCommInitRankConfig(&group->nccl, group->comm.size, *id, group->comm.rank, &config);
    return fwa_nccl_finish(group, result, "set-up", 0);
}

fwa_status fwa_comm_nccl_create(fwa_comm **out, fwa_comm *host, fwa_backend *backend, const fwa_nccl_options *options) {
    *out = NULL;
    FWA_CHECK(backend->kind == FWA_BACKEND_CUDA, FWA_UNSUPPORTED,
              "NCCL moves the memory of GPUs: got the %s backend, expected cuda", backend->name);
    fwa_nccl_group *group = calloc(1, sizeof *group);
    FWA_CHECK(group, FWA_MEMORY, "no memory for a communicator (%zu bytes)", sizeof *group);
    fwa_status status = FWA_OK;
    ncclUniqueId id;
    group->comm = nccl_operations;
    group->comm.impl = group;
    group->comm.rank = host->rank;
    group->comm.size = host->size;
    group->backend = backend;
    nccl_set_timeout(&group->comm, options->timeout_s);
    // NCCL reads its environment when it starts.
    if (options->deterministic && (setenv("NCCL_ALGO", "Ring", 1) || setenv("NCCL_PROTO", "Simple", 1)))
        FWA_CHECK_GOTO(false, FWA_MEMORY, fail, "cannot set NCCL_ALGO and NCCL_PROTO in the environment");
    FWA_TRY_GOTO(fwa_nccl_meet(host, open_device(group), backend->device, &id), fail);
    FWA_TRY_GOTO(connect(group, &id, options), fail);
    *out = &group->comm;
    return FWA_OK;
fail:
    nccl_destroy(&group->comm);
    return status;
}

int fwa_nccl_version(void) {
    int version = 0;
    return ncclGetVersion(&version) == ncclSuccess ? version : 0;
}
