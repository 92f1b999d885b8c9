// The column core, a step and a decay for every value column: falcon2 (4.4), additive in falcon2a (4.7); recurrent, any
// shape. The chunk form in bf16: chunk_column.cu.
#include "kernels/cuda/steps.cuh"

namespace fwa {
const core core_column_additive = steps_core<false, true>;
const core core_column_delta = steps_core<true, true>;
} // namespace fwa
