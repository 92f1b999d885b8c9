// The additive core, S_t = gamma_t S_{t-1} + w_t sum_{j in I_t} x_j v_j^T (falcon1a (4.6), falcon3a (4.18), and
// the additive baselines: docs/math/README.md), recurrent, any shape. The chunk form in bf16: chunk_additive.cu.
#include "kernels/cuda/steps.cuh"

namespace fwa {
const core core_additive = steps_core<false, false>;
}
