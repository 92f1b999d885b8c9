// What was built: the version and the commit it was configured from.
#ifndef FWA_CORE_VERSION_H
#define FWA_CORE_VERSION_H

#ifdef __cplusplus
extern "C" {
#endif

const char *fwa_version_text(void); // "fwa 0.1.0 (commit 0123456789ab)"; "unknown" outside a git checkout

#ifdef __cplusplus
}
#endif
#endif
