// Softmax attention on tensor cores: what mixer_softmax.cu asks of a kernel for it. Kernels stand in one list there,
// the preferred one first; forward and backward are chosen each for itself, so all keep the same things between the
// passes: o, where the forward pass wrote it, and lse.
//
//   s_tj = scale q_t . k_j, j <= t     p_tj = e^{s_tj - lse_t}     o_t = sum_j p_tj v_j     lse_t = ln sum_j e^{s_tj}
//
// j runs over the n earlier keys, which precede every query, and then over the sequence's own up to t; where documents
// start, from the last start up to t on.
#ifndef FWA_KERNELS_CUDA_ATTENTION_CUH
#define FWA_KERNELS_CUDA_ATTENTION_CUH

#include <cuda_bf16.h>

#include "kernels/cuda/device.h"
#include "kernels/rule.h"

#define FWA_ATTENTION_ALIGN 256 // bytes, of scratch

namespace fwa {

// One pass. Tensors are bf16 with dense rows of K or V elements and any other strides; every row starts at a multiple
// of 16 bytes. Before memory is bound data pointers are null and strides those that memory will have; of gradients
// they are then a guess (dense), and may change.
struct attention_task {
    fwa_mixer_shape shape;
    float scale;      // K^{-1/2}
    fwa_tensor q, k;  // [B,T,Hq,K]
    fwa_tensor v, o;  // [B,T,H,V]
    fwa_tensor reset; // [B,T] u8, 1 at a document's first token; without dimensions: none
    // Keys and values in front of the sequence, [B,n,Hq,K] and [B,n,H,V], and the document starts among them, [B,n];
    // without dimensions: none.
    fwa_tensor earlier_k, earlier_v, earlier_reset;
    float *lse;                          // [B,H,T]; forward, null: not wanted
    fwa_tensor d_o, dq, dk, dv;          // backward only, all present; all but d_o are overwritten
    fwa_tensor d_earlier_k, d_earlier_v; // the same, where there are earlier keys
    void *scratch;                       // 256-byte aligned, of the size that refusal() gave
};

struct attention_kernel {
    const char *name; // for the log
    // Null: the kernel takes this pass, with *scratch bytes of memory. Otherwise why it does not, in words that follow
    // its name ("head size 20 is no multiple of 8"). Also called before memory is bound.
    const char *(*refusal)(fwa_stream *stream, const attention_task &task, bool backward, size_t *scratch);
    // No allocation, no waiting, the same bits every time.
    fwa_status (*forward)(fwa_stream *stream, const attention_task &task);
    fwa_status (*backward)(fwa_stream *stream, const attention_task &task);
};

// Attention of the same queries over other keys: o' [B,T,H,V] dense and its lse'.
struct attention_other {
    const __nv_bfloat16 *o;
    const float *lse; // [B,H,T]
};
// o, whose log-sum-exp is own_lse [B,H,T], becomes the attention over both sets of keys, and a.lse theirs, unless null.
fwa_status attention_merge(fwa_stream *stream, const attention_task &a, const float *own_lse,
                           const attention_other &other); // attention_merge.cu

extern const attention_kernel attention_cudnn; // attention_cudnn.cu; cudnn_absent.cu in builds without
extern const attention_kernel attention_flash; // attention_flash.cu

} // namespace fwa
#endif
