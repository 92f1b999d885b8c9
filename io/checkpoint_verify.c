// A whole checkpoint, read as far as it can be: files first, then every tensor.
#include <math.h>
#include <stdlib.h>

#include "io/checkpoint_layout.h"

static fwa_status check_finite(const fwa_named_tensor *whole, const char *part, const char *path) {
    const int64_t count = fwa_tensor_count(whole->tensor);
    for (int64_t i = 0; i < count; i++) {
        const double value = fwa_tensor_real(whole->tensor, i);
        FWA_CHECK(isfinite(value), FWA_FORMAT, "%s/%s of %s: value %lld is %g, expected a finite one", part,
                  whole->name, path, (long long)i, value);
    }
    return FWA_OK;
}

static fwa_status check_tensor(fwa_checkpoint *checkpoint, fwa_checkpoint_part part, int index) {
    if (!fwa_checkpoint_has(checkpoint, part, index)) return FWA_OK;
    fwa_named_tensor whole;
    FWA_TRY(fwa_checkpoint_read_whole(checkpoint, part, index, &whole));
    const fwa_status status = check_finite(&whole, fwa_part_names[part], fwa_checkpoint_path(checkpoint));
    free(whole.tensor.data);
    return status;
}

fwa_status fwa_checkpoint_verify(const char *path, fwa_checkpoint_told told, void *user) {
    int ranks;
    fwa_checkpoint *checkpoint;
    FWA_TRY(fwa_manifest_check_all(path, told, user, &ranks));
    FWA_TRY(fwa_checkpoint_open_quick(&checkpoint, path));
    fwa_status status = FWA_OK;
    for (int part = 0; part < FWA_PART_COUNT; part++)
        for (int i = 0; i < fwa_checkpoint_count(checkpoint) && status == FWA_OK; i++)
            status = check_tensor(checkpoint, (fwa_checkpoint_part)part, i);
    fwa_checkpoint_close(checkpoint);
    return status;
}
