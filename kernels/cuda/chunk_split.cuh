// Into how many segments chunk kernels cut a sequence, so that few heads keep a GPU busy: a pass over each segment from
// an empty state finds what it adds, a short loop over segments the state before each, and then the pass itself runs on
// all segments at once.
#ifndef FWA_KERNELS_CUDA_CHUNK_SPLIT_CUH
#define FWA_KERNELS_CUDA_CHUNK_SPLIT_CUH

#include <cstdlib>

#include "core/shape.h"
#include "kernels/cuda/device.h"

namespace fwa {

struct chunk_split {
    int segments, length; // length: chunks of a segment, the last one may have fewer
};

// Time of a pass of `blocks` blocks over `chunks` chunks each, in chunks of a block that has its multiprocessor for
// itself; `most` blocks fit one. Two or three take 1.6 and 2.1 times as long as one.
inline double chunk_pass_time(int64_t blocks, int64_t chunks, int multiprocessors, int most) {
    const int64_t slots = static_cast<int64_t>(multiprocessors) * most, waves = fwa_ceil_div(blocks, slots);
    const int64_t beside = fwa_min(fwa_ceil_div(blocks, multiprocessors), most);
    return static_cast<double>(waves * chunks) * (0.45 + 0.55 * static_cast<double>(beside));
}

// Of a core: `most` blocks fit a multiprocessor; the pass before has `wide` times the blocks, whose chunks cost so much
// of the pass's; the loop between them takes so many chunks and so many more a segment.
struct chunk_costs {
    int most;
    double wide, before, join, segment;
};

// FWA_SEGMENT_CHUNKS=N in the environment: chunks of a segment, the same for pieces of a sequence as for the whole,
// which then have the same bits.
inline fwa_status chunk_check_asked_length() {
    const char *asked = getenv("FWA_SEGMENT_CHUNKS");
    char *end = nullptr;
    const long n = asked ? strtol(asked, &end, 10) : 1;
    FWA_CHECK(n > 0 && n <= INT32_MAX && !(end && *end), FWA_USAGE,
              "FWA_SEGMENT_CHUNKS: got '%s', expected a whole number above 0", asked);
    return FWA_OK;
}
inline chunk_split chunk_asked_split(const char *asked, int chunks) {
    const auto length = static_cast<int>(fwa_min(strtol(asked, nullptr, 10), static_cast<long>(chunks)));
    return {static_cast<int>(fwa_ceil_div(chunks, length)), length};
}

// The fastest split of a pass, where it gains a fifth; a segment has four chunks at least, and all blocks run at once.
// The asked length has been checked.
inline chunk_split chunk_split_of(int64_t blocks, int chunks, int multiprocessors, const chunk_costs &costs) {
    if (const char *asked = getenv("FWA_SEGMENT_CHUNKS")) return chunk_asked_split(asked, chunks);
    const int most = costs.most;
    chunk_split best = {1, chunks};
    double least = 0.8 * chunk_pass_time(blocks, chunks, multiprocessors, most);
    const int64_t pieces = fwa_min(chunks / 4, static_cast<int64_t>(multiprocessors) * most / blocks);
    for (int64_t n = 2; n <= pieces; n++) {
        const auto length = static_cast<int>(fwa_ceil_div(chunks, n));
        const auto segments = static_cast<int>(fwa_ceil_div(chunks, length));
        const double pass = chunk_pass_time(blocks * segments, length, multiprocessors, most);
        const auto wide = static_cast<int64_t>(costs.wide * static_cast<double>(blocks * segments));
        const double before = costs.before * chunk_pass_time(wide, length, multiprocessors, most);
        const double time = before + pass + costs.join + costs.segment * segments;
        if (time < least) least = time, best = {segments, length};
    }
    return best;
}

// Of the GPU that the calling thread uses.
inline fwa_status chunk_multiprocessors(int *count) {
    int device;
    FWA_CUDA_TRY(cudaGetDevice(&device));
    FWA_CUDA_TRY(cudaDeviceGetAttribute(count, cudaDevAttrMultiProcessorCount, device));
    return FWA_OK;
}

} // namespace fwa
#endif
