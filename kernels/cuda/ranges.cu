// NVTX ranges: "block 3", in it "rule forward". The header-only library of the toolkit finds a tool by itself; where it
// finds none, or the toolkit has no such header, the process has no listener and pays nothing.
#include "kernels/cuda/ranges.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <cstdio>

#include <nvtx3/nvToolsExt.h>

namespace {

nvtxDomainHandle_t domain;

void begin(fwa_ranges *, const char *name, int number) {
    char text[64];
    nvtxEventAttributes_t attributes = {};
    if (number >= 0) snprintf(text, sizeof text, "%s %d", name, number);
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = number >= 0 ? text : name;
    (void)nvtxDomainRangePushEx(domain, &attributes);
}

void end(fwa_ranges *) {
    (void)nvtxDomainRangePop(domain);
}

fwa_ranges listener = {begin, end};

} // namespace

extern "C" fwa_ranges *fwa_cuda_ranges(void) {
    if (!domain) domain = nvtxDomainCreateA("fwa");
    return domain ? &listener : nullptr;
}
#else
extern "C" fwa_ranges *fwa_cuda_ranges(void) {
    return nullptr;
}
#endif
