// Versions of the program and its libraries.
#include "train/libraries.h"

#include <stdio.h>

#include "core/version.h"
#include "dist/world.h"
#include "io/checkpoint.h"
#include "kernels/registry.h"

const char *fwa_libraries_text(void) {
    static char text[512];
    char compute[192], talk[192], hdf5[32];
    if (text[0]) return text;
    fwa_backend_libraries(compute, sizeof compute);
    fwa_world_libraries(talk, sizeof talk);
    fwa_hdf5_version(hdf5, sizeof hdf5);
    snprintf(text, sizeof text, "%s, %s, HDF5 %s", compute, talk, hdf5);
    return text;
}

const char *fwa_program_text(void) {
    static char text[640];
    if (!text[0]) snprintf(text, sizeof text, "%s; %s", fwa_version_text(), fwa_libraries_text());
    return text;
}
