// Which libraries ranks talk through.
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "dist/comms.h"
#include "dist/world.h"

// "Open MPI v4.1.4, package: ..." or, of others, a first line: up to the first comma or line end.
void fwa_world_libraries(char *text, size_t size) {
    char mpi[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    const int nccl = fwa_nccl_version();
    if (MPI_Get_library_version(mpi, &length) != MPI_SUCCESS) snprintf(mpi, sizeof mpi, "MPI");
    length = snprintf(text, size, "%.*s", (int)strcspn(mpi, ",\r\n"), mpi);
    if (nccl > 0 && length >= 0 && (size_t)length < size)
        snprintf(text + length, size - (size_t)length, ", NCCL %d.%d.%d", nccl / 10000, nccl / 100 % 100, nccl % 100);
}
