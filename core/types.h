// Element types, and the choices that both a configuration and a kernel must name.
#ifndef FWA_CORE_TYPES_H
#define FWA_CORE_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum fwa_dtype { FWA_F64, FWA_F32, FWA_BF16, FWA_I32, FWA_I64, FWA_U8, FWA_DTYPE_COUNT } fwa_dtype;

size_t fwa_dtype_size(fwa_dtype dtype);      // bytes
const char *fwa_dtype_name(fwa_dtype dtype); // "f64", "f32", "bf16", "i32", "i64", "u8"

// Choices of a mixing rule (docs/math/README.md §1, §6); the order is that of the names in the configuration schema.
typedef enum fwa_shift { FWA_SHIFT_NEXT_LATENT, FWA_SHIFT_SAME_STEP } fwa_shift; // x_t = phi(k_{t-1}) | phi(k_t)
typedef enum fwa_read { FWA_READ_AFTER_WRITE, FWA_READ_BEFORE_WRITE } fwa_read;  // o_t from S_t | S_{t-1}
typedef enum fwa_norm { FWA_NORM_RMS, FWA_NORM_L2, FWA_NORM_NONE } fwa_norm;     // of q and k (or v) per head
typedef enum fwa_phi { FWA_PHI_IDENTITY, FWA_PHI_ELU1, FWA_PHI_RELU, FWA_PHI_SILU } fwa_phi; // feature map
typedef enum fwa_step_kind { FWA_STEP_NORMALIZED, FWA_STEP_DIRECT } fwa_step_kind; // eta = beta/(E+lambda+eps) | beta
// lambda = lbar E | lbar | 0
typedef enum fwa_ridge { FWA_RIDGE_COUPLED, FWA_RIDGE_UNCOUPLED, FWA_RIDGE_NONE } fwa_ridge;
// Where beta and lambda come from: a projection of the input, a value that is learned, one that stays as it starts.
typedef enum fwa_gate_source { FWA_GATE_CONTEXTUAL, FWA_GATE_CONSTANT, FWA_GATE_FIXED } fwa_gate_source;
// Decays that are constants of head and layer (docs/math/retnet.md).
typedef enum fwa_decay { FWA_DECAY_RETNET, FWA_DECAY_LIGHTNING } fwa_decay;

#ifdef __cplusplus
}
#endif
#endif
