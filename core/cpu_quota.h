// Processor time that control groups grant, as containers are given a number of CPUs. Not collective.
#ifndef FWA_CORE_CPU_QUOTA_H
#define FWA_CORE_CPU_QUOTA_H

#ifdef __cplusplus
extern "C" {
#endif

// How many cores may be busy all the time, rounded up: the least of the quotas of a process's groups and of those that
// hold them; INT_MAX: no limit, or none that can be read. `groups` is where the groups are mounted, `membership` the
// file with the process's; NULL: those of this process.
int fwa_cpu_quota(const char *groups, const char *membership);

#ifdef __cplusplus
}
#endif
#endif
