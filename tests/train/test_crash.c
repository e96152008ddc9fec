/* Saving while the disk fills up, breaks, or the process is killed. The system's calls are replaced by ones that fail or kill at the n-th of those that
 * change something on the disk; and 200 runs are killed at random moments. */
#undef _FORTIFY_SOURCE /* its inline forms of the calls replaced below */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "tests/train/run.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define N_KILLS 30
#else
#define N_KILLS 200
#endif
#define SEED 60811

/* ---- the system, with faults ---- */

enum fault { NONE, FAILS, KILLS };

static struct {
    bool armed;
    enum fault fault;
    int at, n;             /* the call that the fault is to meet, counted from 1; calls so far */
    int number;            /* errno of a call that fails; a disk that is full stays so for writes */
    bool full, plain;      /* plain: renameat2 has no flags, as on some file systems */
    char path[1024][128];  /* of descriptors */
    char log[200][300];
    int n_log;
} sys;

static bool hit(const char *call, const char *path)
{
    if (!sys.armed)
        return false;
    if (sys.n_log < QR_COUNT(sys.log))
        snprintf(sys.log[sys.n_log++], sizeof sys.log[0], "%s %s", call, strrchr(path, '/') ? strrchr(path, '/') + 1 : path);
    if (++sys.n != sys.at)
        return false;
    if (sys.fault == KILLS)
        kill(getpid(), SIGKILL);
    errno = sys.number;
    return sys.fault == FAILS;
}

int open(const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    const int mode = flags & O_CREAT ? va_arg(list, int) : 0;
    va_end(list);
    if ((flags & O_CREAT) && hit("open", path))
        return -1;
    const int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    if (fd >= 0 && fd < 1024)
        snprintf(sys.path[fd], sizeof sys.path[fd], "%s", path);
    return fd;
}

/* A write that fails has written half, as disks do; so has one that is killed. */
ssize_t write(int fd, const void *bytes, size_t n)
{
    if (sys.armed && sys.full) {
        errno = ENOSPC;
        return -1;
    }
    if (sys.armed && sys.n + 1 == sys.at && sys.fault != NONE && n > 1) {
        const ssize_t half = syscall(SYS_write, fd, bytes, n / 2);
        sys.full = hit("write", sys.path[fd]);
        return half;
    }
    return hit("write", sys.path[fd]) ? -1 : syscall(SYS_write, fd, bytes, n);
}

int fsync(int fd)
{
    return hit("fsync", sys.path[fd]) ? -1 : (int)syscall(SYS_fsync, fd);
}

int close(int fd)
{
    const bool written = sys.armed && fd >= 0 && fd < 1024 && strstr(sys.path[fd], "/.saving-") && strchr(strstr(sys.path[fd], "/.saving-") + 1, '/');
    const bool fails = written && hit("close", sys.path[fd]);
    const int number = errno, rc = (int)syscall(SYS_close, fd);
    errno = fails ? number : errno;
    return fails ? -1 : rc;
}

int mkdir(const char *path, mode_t mode)
{
    return hit("mkdir", path) ? -1 : (int)syscall(SYS_mkdir, path, mode);
}

int rename(const char *from, const char *to)
{
    return hit("rename", to) ? -1 : (int)syscall(SYS_rename, from, to);
}

int renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
    if (sys.plain) {
        errno = EINVAL;
        return -1;
    }
    return hit("rename", to) ? -1 : (int)syscall(SYS_renameat2, a, from, b, to, flags);
}

int symlink(const char *target, const char *path)
{
    return hit("symlink", path) ? -1 : (int)syscall(SYS_symlink, target, path);
}

int unlink(const char *path)
{
    return hit("unlink", path) ? -1 : (int)syscall(SYS_unlink, path);
}

int rmdir(const char *path)
{
    return hit("rmdir", path) ? -1 : (int)syscall(SYS_rmdir, path);
}

static void arm(enum fault fault, int at, int number)
{
    sys.fault = fault;
    sys.at = at;
    sys.number = number;
    sys.n = sys.n_log = 0;
    sys.full = false;
    sys.armed = true;
}

/* ---- a run to be interrupted ---- */

#define STEPS_MAX 600

static uint64_t reference[STEPS_MAX + 1]; /* the digest after each step of a run that nobody disturbs */

static struct qr_model_config crash_config(void)
{
    struct qr_model_config c = qr_model_config_small(QR_ARCH_LLAMA);
    c.n_layers = 1;
    c.n_embd = c.n_ffn = 32;
    c.n_heads = c.n_kv_heads = 2;
    c.n_vocab = 64;
    c.tied_head = true;
    return c;
}

static void fill_reference(const struct qr_model_config *c, int n_steps)
{
    struct run r = run_new(c, QR_BF16, 1);
    for (int i = 0; i <= n_steps; i++) {
        reference[i] = run_digest(&r);
        if (i < n_steps)
            run_step(&r);
    }
    run_drop(&r);
}

/* Loads what is there, which has to be a point of the undisturbed run, and goes on for n steps. Says where it was. */
static int64_t resume(struct run *r, const char *dir, int n_steps)
{
    char path[QR_PATH_MAX];
    struct qr_err err = {0};
    cr_assert_eq(qr_checkpoint_latest(dir, path, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_checkpoint_load(path, r->p, &r->o, NULL, &err), 0, "%s", err.msg);
    const int64_t at = r->o.step;
    cr_assert_eq(run_digest(r), reference[at], "%s is not what the run had reached", path);
    for (int i = 0; i < n_steps && r->o.step < STEPS_MAX; i++) {
        run_step(r);
        cr_assert_eq(run_digest(r), reference[r->o.step], "resumed from %s, step %ld differs", path, (long)r->o.step);
    }
    return at;
}

/* Names in dir that begin with a dot: what a save that is over must not leave. */
static int n_leftovers(const char *dir)
{
    struct qr_err err = {0};
    int32_t n = 0;
    cr_assert_eq(qr_checkpoint_clean(dir, &n, &err), 0, "%s", err.msg);
    return n;
}

/* Two runs that stand at steps 1 and 2, and one to load into. */
struct scene {
    struct temp_dir d;
    struct run one, two, fresh;
};

static struct scene scene_new(void)
{
    const struct qr_model_config c = crash_config();
    struct scene s = {.one = run_new(&c, QR_BF16, 1), .two = run_new(&c, QR_BF16, 1), .fresh = run_new(&c, QR_BF16, 2)};
    fill_reference(&c, 8);
    run_step(&s.one), run_step(&s.two), run_step(&s.two);
    return s;
}

static void scene_drop(struct scene *s)
{
    run_drop(&s->one), run_drop(&s->two), run_drop(&s->fresh);
}

/* A run's directory with step 1 saved; `again`: and step 2, so that saving step 2 replaces it. */
static void scene_set(struct scene *s, bool again)
{
    s->d = temp_dir_new();
    run_save(&s->one, s->d.path, 0);
    if (again)
        run_save(&s->two, s->d.path, 0);
}

/* Saves step 2, of which alone is to be kept, under a fault. */
static int save_under(struct scene *s, enum fault fault, int at, int number, struct qr_err *err)
{
    char path[QR_PATH_MAX];
    arm(fault, at, number);
    const int rc = run_try_save(&s->two, s->d.path, 1, path, err);
    sys.armed = false;
    return rc;
}

static int n_calls_of_a_save(struct scene *s, bool again)
{
    struct qr_err err = {0};
    scene_set(s, again);
    cr_assert_eq(save_under(s, NONE, 0, 0, &err), 0, "%s", err.msg);
    temp_dir_remove(&s->d);
    return sys.n;
}

/* ---- one call after the other ---- */

static int logged(const char *what, int from)
{
    for (int i = from; i < sys.n_log; i++)
        if (strcmp(sys.log[i], what) == 0)
            return i;
    cr_assert_fail("no '%s' behind call %d", what, from);
    return -1;
}

Test(crash, everything_is_on_the_disk_before_it_is_visible)
{
    static const char *const files[] = {"config.json", "model.safetensors", "optimizer.safetensors", "train.yaml", "trainer.json"};
    struct scene s = scene_new();
    struct qr_err err = {0};
    char text[300], spare[128];
    scene_set(&s, false);
    cr_assert_eq(save_under(&s, NONE, 0, 0, &err), 0, "%s", err.msg);
    snprintf(spare, sizeof spare, ".saving-step-00000002.%d", getpid());
    int last = 0;
    for (int i = 0; i < QR_COUNT(files); i++) {
        snprintf(text, sizeof text, "write %s", files[i]);
        int at = logged(text, 0);
        for (int k = at; k < sys.n_log; k++) /* the last write */
            at = strcmp(sys.log[k], text) == 0 ? k : at;
        snprintf(text, sizeof text, "fsync %s", files[i]);
        at = logged(text, at);
        last = at > last ? at : last;
    }
    snprintf(text, sizeof text, "fsync %s", spare);
    const char *run = strrchr(s.d.path, '/') + 1;
    last = logged(text, last);
    last = logged("rename step-00000002", last);
    snprintf(text, sizeof text, "fsync %s", run);
    last = logged(text, last);
    last = logged("rename latest", last);
    last = logged(text, last);
    snprintf(text, sizeof text, "rename .removing-step-00000001.%d", getpid());
    logged(text, last);
    temp_dir_remove(&s.d);
    scene_drop(&s);
}

/* What has to hold after a save that said no: the one before is there, or the new one, and it says so; nothing else. */
static void check_failed(struct scene *s, bool again, int at, const char *call, const struct qr_err *err, const char *symbol)
{
    const bool complete = strstr(err->msg, "step-00000002 is complete, but: ") != NULL;
    const bool removing = strncmp(call, "unlink", 6) == 0 || strncmp(call, "rmdir", 5) == 0;
    cr_assert_eq(err->code, QR_E_IO);
    cr_assert(strstr(err->msg, s->d.path) && strstr(err->msg, symbol), "call %d, %s: '%s'", at, call, err->msg);
    cr_assert_eq(resume(&s->fresh, s->d.path, 2), complete || again ? 2 : 1, "call %d, %s: '%s'", at, call, err->msg);
    const int n = n_leftovers(s->d.path);
    cr_assert(n == 0 || (removing && n == 1), "call %d, %s: %d leftovers", at, call, n);
    struct qr_err none = {0};
    cr_assert_eq(save_under(s, NONE, 0, 0, &none), 0, "%s", none.msg); /* the fault is over */
    cr_assert_eq(resume(&s->fresh, s->d.path, 0), 2);
    cr_assert_eq(n_leftovers(s->d.path), 0);
}

static void check_faults(bool again, bool plain)
{
    struct scene s = scene_new();
    sys.plain = plain;
    const int n = n_calls_of_a_save(&s, again);
    cr_assert_gt(n, 25);
    for (int at = 1; at <= n; at++) {
        struct qr_err err = {0};
        scene_set(&s, again);
        const int rc = save_under(&s, FAILS, at, EIO, &err);
        char call[300];
        snprintf(call, sizeof call, "%s", sys.log[at - 1]);
        const bool tidies_up = strncmp(call, "unlink", 6) == 0 || strncmp(call, "rmdir", 5) == 0 || strncmp(call, "rename .saving", 14) == 0;
        if (rc == 0) /* what was replaced could not be removed: the next start does it */
            cr_assert(again && tidies_up, "call %d, %s, fails and nobody says so", at, call);
        else
            check_failed(&s, again, at, call, &err, strncmp(call, "write", 5) == 0 ? "No space left on device (ENOSPC)" : "Input/output error (EIO)");
        temp_dir_remove(&s.d);
    }
    sys.plain = false;
    scene_drop(&s);
}

Test(crash, a_call_that_fails_fails_the_save_and_keeps_the_checkpoint_before)
{
    check_faults(false, false);
    check_faults(true, false);
    check_faults(false, true);
    check_faults(true, true);
}

/* Forks, runs `body` in the child, which is expected to be killed; true when it was. */
static bool killed(void (*body)(struct scene *, int), struct scene *s, int arg, int64_t after_us)
{
    int status;
    const pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        body(s, arg);
        _exit(0);
    }
    if (after_us >= 0) {
        usleep((useconds_t)after_us);
        kill(child, SIGKILL);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 0, "the child ended with status %x", status);
    return WIFSIGNALED(status);
}

static void save_until_killed(struct scene *s, int at)
{
    struct qr_err err = {0};
    save_under(s, KILLS, at, 0, &err);
}

Test(crash, killed_before_any_call_of_a_save_a_run_resumes_from_a_complete_checkpoint)
{
    struct scene s = scene_new();
    for (int again = 0; again < 2; again++) {
        const int n = n_calls_of_a_save(&s, again);
        for (int at = 1; at <= n; at++) {
            scene_set(&s, again);
            cr_assert(killed(save_until_killed, &s, at, -1), "call %d of %d", at, n);
            const int64_t found = resume(&s.fresh, s.d.path, 1);
            cr_assert(again ? found == 2 : found == 1 || found == 2);
            cr_assert_leq(n_leftovers(s.d.path), 2);
            struct qr_err err = {0};
            cr_assert_eq(save_under(&s, NONE, 0, 0, &err), 0, "%s", err.msg);
            cr_assert_eq(resume(&s.fresh, s.d.path, 0), 2);
            temp_dir_remove(&s.d);
        }
    }
    scene_drop(&s);
}

/* ---- any moment ---- */

/* Goes on from what is there, saving after every step, for as long as it is left alive. */
static void train_on(struct scene *s, int arg)
{
    (void)arg;
    struct run *r = &s->fresh;
    struct qr_err err = {0};
    char path[QR_PATH_MAX];
    if (qr_checkpoint_clean(s->d.path, NULL, &err) != 0 || qr_checkpoint_latest(s->d.path, path, &err) != 0 ||
        qr_checkpoint_load(path, r->p, &r->o, NULL, &err) != 0 || run_digest(r) != reference[r->o.step])
        _exit(3);
    while (r->o.step < STEPS_MAX) {
        run_step(r);
        if (run_digest(r) != reference[r->o.step])
            _exit(4);
        if (run_try_save(r, s->d.path, 2, path, &err) != 0)
            _exit(5);
    }
}

Test(crash, killed_at_any_moment_a_run_resumes_from_a_complete_checkpoint_and_goes_on_bit_for_bit)
{
    const struct qr_model_config c = crash_config();
    struct scene s = scene_new();
    struct qr_rng rng = {.seed = SEED};
    int n_saving = 0, n_kills = 0, since = 0; /* since: kills since one met a save */
    int64_t at = 1, within_us = 6000;
    fill_reference(&c, STEPS_MAX);
    scene_set(&s, false);
    for (int k = 0; k < N_KILLS || (k < N_KILLS * 10 && n_saving <= N_KILLS / 20); k++, n_kills++) {
        killed(train_on, &s, 0, (int64_t)(qr_rng_next_unit(&rng) * (double)within_us));
        const int64_t found = resume(&s.fresh, s.d.path, k % 10 == 0 ? 2 : 0);
        cr_assert_geq(found, at);
        since = n_leftovers(s.d.path) > 0 ? 0 : since + 1;
        n_saving += since == 0;
        if (since >= 6 && within_us < 500000) { /* here it takes longer until something is saved */
            within_us *= 2;
            since = 1;
        }
        at = found;
        if (at > STEPS_MAX - 50) { /* the run is almost over: another one */
            temp_dir_remove(&s.d);
            scene_set(&s, false);
            at = 1;
        }
    }
    printf("seed %d: %d kills, %d of them while saving, within %ld us, step %ld reached\n", SEED, n_kills, n_saving, (long)within_us, (long)at);
    cr_assert_gt(n_saving, N_KILLS / 20);
    temp_dir_remove(&s.d);
    scene_drop(&s);
}

/* ---- a disk that is full, for once a real one ---- */

enum { FITS = 0, DIFFERENT = 1, NO_MOUNT = 77 };

/* In a child with mounts of its own: saves until a file system of 1 MiB is full. */
static void fill_disk(struct scene *s)
{
    struct qr_err err = {0};
    char path[QR_PATH_MAX];
    int rc = 0;
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 || mount("none", s->d.path, "tmpfs", 0, "size=1m") != 0)
        _exit(NO_MOUNT);
    for (int i = 0; rc == 0 && i < 40; i++) {
        s->one.o.step = i + 1;
        rc = run_try_save(&s->one, s->d.path, 0, path, &err);
    }
    printf("a disk of 1 MiB takes %ld checkpoints; the next: %s\n", (long)s->one.o.step - 1, err.msg);
    fflush(stdout);
    if (rc == 0 || !strstr(err.msg, "No space left on device (ENOSPC); make room on the disk") || s->one.o.step < 2)
        _exit(DIFFERENT);
    const int64_t last = s->one.o.step - 1;
    if (qr_checkpoint_latest(s->d.path, path, &err) != 0 || qr_checkpoint_load(path, s->fresh.p, &s->fresh.o, NULL, &err) != 0 ||
        s->fresh.o.step != last || n_leftovers(s->d.path) != 0)
        _exit(DIFFERENT);
    s->one.o.step = last;
    _exit(run_digest(&s->fresh) == run_digest(&s->one) ? FITS : DIFFERENT);
}

Test(crash, a_full_disk_is_named_and_the_checkpoint_before_stays)
{
    struct scene s = scene_new();
    int status;
    s.d = temp_dir_new();
    const pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0)
        fill_disk(&s);
    cr_assert_eq(waitpid(child, &status, 0), child);
    temp_dir_remove(&s.d);
    scene_drop(&s);
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_MOUNT)
        cr_skip_test("no file system can be mounted here (root only); a_call_that_fails covers writes that fail");
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == FITS, "status %x", status);
}
