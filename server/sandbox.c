#include "server/sandbox.h"

#include <errno.h>
#include <sched.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

#include "base/assert.h"
#include "base/library.h"

#define LIBRARY "libseccomp.so.2"

/* Programs, other processes, mounts and namespaces, the kernel's own matters, identities. A name that this kernel's library does not know is left out. */
static const char *const refused[] = {
    "execve", "execveat", "fork", "vfork", "ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd", "mount", "umount2", "pivot_root",
    "chroot", "unshare", "setns", "open_by_handle_at", "fsopen", "move_mount", "open_tree", "mknod", "mknodat", "init_module", "finit_module",
    "delete_module", "kexec_load", "kexec_file_load", "bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "add_key", "request_key", "keyctl", "reboot",
    "swapon", "swapoff", "acct", "syslog", "quotactl", "settimeofday", "clock_settime", "adjtimex", "clock_adjtime", "sethostname", "setdomainname", "iopl",
    "ioperm", "personality", "setuid", "setgid", "setreuid", "setregid", "setresuid", "setresgid", "setgroups", "setfsuid", "setfsgid", "capset",
};
static const int families[] = {AF_UNIX, AF_INET, AF_INET6, AF_NETLINK};

struct library {
    scmp_filter_ctx (*init)(uint32_t otherwise);
    void (*release)(scmp_filter_ctx x);
    int (*set)(scmp_filter_ctx x, enum scmp_filter_attr what, uint32_t value);
    int (*resolve)(const char *name);
    int (*add)(scmp_filter_ctx x, uint32_t action, int call, unsigned n, const struct scmp_arg_cmp *arg);
    int (*load)(const scmp_filter_ctx x);
};

static const struct qr_library_symbol symbols[] = {
    {offsetof(struct library, init), "seccomp_init"},
    {offsetof(struct library, release), "seccomp_release"},
    {offsetof(struct library, set), "seccomp_attr_set"},
    {offsetof(struct library, resolve), "seccomp_syscall_resolve_name"},
    {offsetof(struct library, add), "seccomp_rule_add_array"},
    {offsetof(struct library, load), "seccomp_load"},
};

static bool is_allowed(int family)
{
    bool allowed = false;
    for (int i = 0; i < QR_COUNT(families); i++)
        allowed |= family == families[i];
    return allowed;
}

/* The first rule that cannot be made, as a negative errno; 0: all were. */
static int add_rules(const struct library *lib, scmp_filter_ctx x)
{
    const uint32_t no = SCMP_ACT_ERRNO(EPERM);
    const int clone_call = lib->resolve("clone"), socket_call = lib->resolve("socket");
    int rc = lib->add(x, SCMP_ACT_ERRNO(ENOSYS), lib->resolve("clone3"), 0, NULL); /* its flags are out of sight: the C library takes clone then */
    for (int i = 0; i < QR_COUNT(refused) && rc == 0; i++) {
        const int call = lib->resolve(refused[i]);
        rc = call == __NR_SCMP_ERROR ? 0 : lib->add(x, no, call, 0, NULL);
    }
    rc = rc ? rc : lib->add(x, no, clone_call, 1, &SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0)); /* threads, and no processes */
    for (int family = 0; family <= AF_NETLINK && rc == 0; family++)
        rc = is_allowed(family) ? 0 : lib->add(x, no, socket_call, 1, &SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)family, 0));
    return rc ? rc : lib->add(x, no, socket_call, 1, &SCMP_A0(SCMP_CMP_GT, AF_NETLINK, 0));
}

int qr_sandbox_enter(struct qr_err *err)
{
    struct library lib;
    QR_ASSERT(err != NULL);
    const char *missing = qr_library_load(&lib, LIBRARY, symbols, QR_COUNT(symbols));
    if (missing)
        return qr_err_set(err, QR_E_UNSUPPORTED, "--sandbox needs " LIBRARY ", version 2.3 or newer, which cannot be used (%.200s); install it "
                          "(apt-get install libseccomp2)", missing);
    scmp_filter_ctx x = lib.init(SCMP_ACT_ALLOW);
    QR_ASSERT(x != NULL);
    int rc = lib.set(x, SCMP_FLTATR_CTL_TSYNC, 1); /* for all threads */
    rc = rc ? rc : add_rules(&lib, x);
    rc = rc ? rc : lib.load(x);
    lib.release(x);
    return rc ? qr_err_set(err, QR_E_UNSUPPORTED, "--sandbox: the kernel takes no filter of system calls: %s", strerror(-rc)) : 0;
}
