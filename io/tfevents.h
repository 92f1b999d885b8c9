// Event files, which TensorBoard reads: records of a length, a checksum, a protocol-buffer message and its checksum.
// Not collective.
#ifndef FWA_IO_TFEVENTS_H
#define FWA_IO_TFEVENTS_H

#include <stddef.h>

#include "io/metrics.h"

#ifdef __cplusplus
extern "C" {
#endif

// Writes `path` as a whole: one event a row with its step and time, the scalars of the row that are numbers under
// "train/loss", "train/grad_norm", "train/lr", "train/skipped", "val/loss", "speed/tokens_per_s", "speed/ms",
// "speed/mfu", "gates/gamma_mean", "gates/eta_mean", "gates/ridge_mean", "gates/clamp_share". TensorBoard looks for
// files whose name holds "tfevents".
FWA_MUST_CHECK fwa_status fwa_tfevents_write(const char *path, const fwa_metrics_row *rows, int64_t count);
// CRC-32C (Castagnoli) of bytes.
uint32_t fwa_crc32c(const void *bytes, size_t size);

#ifdef __cplusplus
}
#endif
#endif
