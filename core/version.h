// What was built: the version and the commit it was configured from.
#ifndef FWA_CORE_VERSION_H
#define FWA_CORE_VERSION_H

#ifdef __cplusplus
extern "C" {
#endif

const char *fwa_version_number(void); // "0.1.0"
const char *fwa_version_commit(void); // twelve hexadecimal digits, or "unknown" outside a git checkout
const char *fwa_version_text(void);   // "fwa 0.1.0 (commit 0123456789ab)"

#ifdef __cplusplus
}
#endif
#endif
