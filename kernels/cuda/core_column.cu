// The column core, a step and a decay for every value column: falcon2 (4.4), additive in falcon2a (4.7).
#include "kernels/cuda/steps.cuh"

namespace fwa {
const core core_column_additive = steps_core<false, true>;
const core core_column_delta = steps_core<true, true>;
} // namespace fwa
