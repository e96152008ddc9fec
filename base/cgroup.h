/* cgroup.h - the control groups of this process, whose limits are files in their directories; a parent's limit holds as well.
 *
 * Everything is read below a root directory ("" is the machine itself), so that a test can lay out groups as files. Nothing here keeps state.
 */
#ifndef QR_BASE_CGROUP_H
#define QR_BASE_CGROUP_H

#include <stdint.h>

#define QR_CGROUP_PATH_MAX 512

/* Calls each(user, dir) for the group of this process and then for its parents, up to the root's. controller "" is version 2, whose directories are
 * ROOT/sys/fs/cgroup/..; one of version 1, such as "cpu", has ROOT/sys/fs/cgroup/cpu/... Where the system does not say which group it is: the root's. */
void qr_cgroup_each(const char *root, const char *controller, void (*each)(void *user, const char *dir), void *user);

/* Bytes that the groups of this process may still take, either version's; INT64_MAX: no limit. Pages of files count as free: they go when memory is needed. */
int64_t qr_cgroup_memory_left(const char *root);

#endif
