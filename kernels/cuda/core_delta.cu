// The delta and the window core, S_t = gamma_t S_{t-1} + w_t sum_{j in I_t} x_j (v_j - f S_{t-1}^T x_j)^T: falcon1
// (3.4) and the delta rules with I_t = {t}, falcon3 (4.14) with the last B pairs; recurrent, any shape. The chunk form
// in bf16: chunk_delta.cu, chunk_window.cu.
#include "kernels/cuda/steps.cuh"

namespace fwa {
const core core_delta = steps_core<true, false>;
const core core_window = steps_core<true, false>;
} // namespace fwa
