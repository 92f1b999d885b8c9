// Softmax attention of one token a sequence against a cache of keys and values: how text is made. Taken by
// mixer_softmax.cu in the recurrent form.
#ifndef FWA_KERNELS_CUDA_ATTENTION_DECODE_CUH
#define FWA_KERNELS_CUDA_ATTENTION_DECODE_CUH

#include "kernels/cuda/device.h"
#include "kernels/rule.h"

namespace fwa {

// Whether the call is of that kind: recurrent, T = 1, sequences of one document, nothing saved, a cache of fp32 and
// none written, K and V at most 256. Reads no memory, so also before it is bound.
bool attention_decode_takes(const fwa_mixer_call *call);
// Bytes of scratch, for any number of rows in the cache.
size_t attention_decode_scratch(const fwa_mixer_call *call);
// A checked call. No allocation, no waiting, the same bits every time.
fwa_status attention_decode(fwa_stream *stream, fwa_dtype compute, const fwa_mixer_call *call, float scale);

} // namespace fwa
#endif
