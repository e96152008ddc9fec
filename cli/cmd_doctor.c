/* cmd_doctor.c - `quire doctor`: looks at what a server meets on this machine, and says of each fault its cause and its remedy. Nothing is changed, and
 * nothing of a model is read but what `quire check` and a start's plan read. Main thread. */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/cgroup.h"
#include "base/cpus.h"
#include "base/mem.h"
#include "base/size.h"
#include "cli/cli.h"
#ifdef QUIRE_SERVER
#include "server/port_owner.h"
#endif

#define FILES_WANTED 4352 /* --max-connections and what is beside them */
#define MEMORY_LEAST ((int64_t)1 << 30)

enum mark { MARK_OK, MARK_NOTE, MARK_BAD };

struct finding {
    const char *name; /* static */
    enum mark mark;
    char text[400], remedy[400];
};

struct doctor_options {
    struct qr_cli_model m;
    struct qr_cli_engine e;
    const char *host;
    int64_t port;
    bool json;
};

struct doctor {
    const struct doctor_options *o;
    struct finding found[32];
    int32_t n;
};

__attribute__((format(printf, 4, 5))) static struct finding *add(struct doctor *d, const char *name, enum mark mark, const char *fmt, ...)
{
    va_list ap;
    QR_ASSERT(d->n < QR_COUNT(d->found));
    struct finding *f = &d->found[d->n++];
    *f = (struct finding){.name = name, .mark = mark};
    va_start(ap, fmt);
    vsnprintf(f->text, sizeof f->text, fmt, ap);
    va_end(ap);
    return f;
}

static void remedy(struct finding *f, const char *text)
{
    snprintf(f->remedy, sizeof f->remedy, "%s", text);
}

/* The first line of a file of the system's; false: there is none. */
static bool first_line(char *out, int size, const char *path)
{
    FILE *f = fopen(path, "r");
    const bool there = f && fgets(out, size, f);
    if (f)
        fclose(f);
    if (there)
        out[strcspn(out, "\n")] = 0;
    return there;
}

/* ---- the machine ---- */

static void look_at_processor(struct doctor *d)
{
    const char *level[8];
    const int32_t n = qr_cpu_levels(level);
    struct qr_cpus cpus;
    qr_cpus_allowed(&cpus);
    qr_cpus_examine(&cpus, "", true);
    const int32_t quota = qr_cpus_quota("");
    if (n == 1)
        remedy(add(d, "processor", MARK_BAD, "%s: no AVX2, so plain C computes, a hundred times slower", qr_cpu_describe()),
               "Use a processor of 2013 or later; in a virtual machine pass the host's processor through (qemu: -cpu host).");
    else
        add(d, "processor", MARK_OK, "%s", qr_cpu_describe());
    struct finding *f = add(d, "threads", quota > 0 && quota < cpus.n_cores ? MARK_NOTE : MARK_OK, "%d of %d cores by default",
                            qr_cpus_default_threads(&cpus, quota), cpus.n_cores);
    if (f->mark == MARK_NOTE)
        remedy(f, "A quota of the control group (a container's CPU limit) allows fewer cores than there are: raise it for more speed.");
}

static void look_at_memory(struct doctor *d)
{
    char size[QR_SIZE_TEXT], line[256];
    const int64_t free_bytes = qr_memory_available(), group = qr_cgroup_memory_left("");
    struct finding *f = add(d, "memory", free_bytes < MEMORY_LEAST ? MARK_NOTE : MARK_OK, "%s free%s", qr_size_text(size, free_bytes),
                            group < INT64_MAX ? ", as the control group allows" : "");
    if (f->mark == MARK_NOTE)
        remedy(f, "Models of a billion weights take 1 GB (4 bits) to 2.5 GB (bf16), and their cache more: end other programs, or raise the limit.");
    if (!first_line(line, sizeof line, "/sys/kernel/mm/transparent_hugepage/enabled"))
        return;
    if (strstr(line, "[never]"))
        remedy(add(d, "huge pages", MARK_NOTE, "switched off: decoding is slower by some percent"),
               "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled");
    else
        add(d, "huge pages", MARK_OK, "%s", strstr(line, "[always]") ? "always" : "where a program asks for them");
}

static void look_at_frequency(struct doctor *d)
{
    char line[64];
    if (first_line(line, sizeof line, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") && strcmp(line, "powersave") == 0)
        remedy(add(d, "frequency", MARK_NOTE, "the governor is powersave: the first tokens may come late"), "sudo cpupower frequency-set -g performance");
}

static void look_at_limits(struct doctor *d)
{
    struct rlimit l;
    char size[QR_SIZE_TEXT];
    if (getrlimit(RLIMIT_NOFILE, &l) == 0)
        remedy(add(d, "open files", l.rlim_max < FILES_WANTED ? MARK_NOTE : MARK_OK, "up to %llu", (unsigned long long)l.rlim_max),
               l.rlim_max < FILES_WANTED ? "There will be fewer connections than --max-connections: ulimit -n 8192, or LimitNOFILE= of the unit." : "");
    if (getrlimit(RLIMIT_AS, &l) == 0 && l.rlim_cur != RLIM_INFINITY)
        remedy(add(d, "address space", MARK_NOTE, "limited to %s (ulimit -v)", qr_size_text(size, (int64_t)l.rlim_cur)),
               "Weights and cache have to fit into it: ulimit -v unlimited.");
}

/* What is opened when it is needed. */
static void look_at_libraries(struct doctor *d)
{
    static const struct {
        const char *name, *file, *other, *use, *remedy; /* other: serves as well, or NULL */
    } library[] = {{"TLS", "libssl.so.3", NULL, "--tls-cert", "sudo apt-get install libssl3"},
                   {"sandbox", "libseccomp.so.2", NULL, "--sandbox", "sudo apt-get install libseccomp2"},
                   {"events", "libzmq.so.5", NULL, "--kv-events", "sudo apt-get install libzmq5"},
                   {"downloads", "libcurl.so.4", "libcurl-gnutls.so.4", "quire pull", "sudo apt-get install libcurl4"}};
    for (int i = 0; i < QR_COUNT(library); i++) {
        const char *file = library[i].file;
        void *opened = dlopen(file, RTLD_LAZY | RTLD_LOCAL);
        if (!opened && library[i].other)
            opened = dlopen(file = library[i].other, RTLD_LAZY | RTLD_LOCAL);
        if (opened)
            add(d, library[i].name, MARK_OK, "%s", file);
        else
            remedy(add(d, library[i].name, MARK_NOTE, "%s is not installed: %s cannot be used", library[i].file, library[i].use), library[i].remedy);
        if (opened)
            dlclose(opened);
    }
}

/* ---- what a start needs ---- */

static void look_at_port(struct doctor *d)
{
    char service[16], owner[128] = "";
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
    const int on = 1, port = (int)d->o->port;
    snprintf(service, sizeof service, "%d", port);
    const int rc = getaddrinfo(d->o->host, service, &hints, &found);
    if (rc != 0) {
        remedy(add(d, "address", MARK_BAD, "'%s' is no address of a machine: %s", d->o->host, gai_strerror(rc)),
               "Give a numeric one, such as --host 127.0.0.1.");
        return;
    }
    const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    const bool free_port = fd >= 0 && bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, 1) == 0;
    const int why = errno;
    freeaddrinfo(found);
    if (fd >= 0)
        close(fd);
#ifdef QUIRE_SERVER
    if (!free_port && why == EADDRINUSE)
        qr_port_owner(owner, sizeof owner, port);
#endif
    if (free_port)
        add(d, "address", MARK_OK, "%s:%d is free", d->o->host, port);
    else
        remedy(add(d, "address", MARK_BAD, "%s:%d cannot be listened on: %s%s%s", d->o->host, port, strerror(why), owner[0] ? ", by " : "", owner),
               "Stop what listens there, or start with another --port; --port 0 takes any free one.");
}

static void look_at_cache(struct doctor *d)
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char dir[512];
    snprintf(dir, sizeof dir, "%s%s", xdg && *xdg ? xdg : home ? home : "", xdg && *xdg ? "" : "/.cache");
    if (access(dir, W_OK) == 0 || (errno == ENOENT && home && access(home, W_OK) == 0))
        add(d, "cache", MARK_OK, "%.300s", dir);
    else
        remedy(add(d, "cache", MARK_NOTE, "%.300s cannot be written: models that are fetched and measurements are not kept", dir),
               "Set XDG_CACHE_HOME to a directory that this user may write.");
}

static void look_at_model(struct doctor *d)
{
    struct qr_err err;
    const struct qr_cli_lora none = {0};
    const struct qr_cli_outside nowhere = {0};
    struct qr_cli_model m = d->o->m;
    char path[QR_PATH_MAX];
    int status;
    if (!m.model) {
        add(d, "model", MARK_OK, "none was named: quire doctor MODEL looks whether it would run");
        return;
    }
    m.hub.offline = true; /* of a name what the cache has: nothing is fetched to look at it */
    int rc = qr_hub_find(path, m.model, &m.hub, "doctor", &status, &err);
    const bool fetched = rc == 0;
    m.model = path;
    rc = rc ? rc : qr_cli_need_model(&m, &err);
    rc = rc ? rc : qr_cli_foresee(&m, &d->o->e, &none, &nowhere, &err);
    if (rc == 0)
        add(d, "model", MARK_OK, "%.300s would be opened, and fits", d->o->m.model);
    else
        remedy(add(d, "model", MARK_BAD, "%.*s", (int)strcspn(err.msg, "\n"), err.msg),
               fetched ? "quire check MODEL explains its files, quire plan MODEL its memory."
                       : "quire pull MODEL fetches it, and says what to do without a network.");
}

/* ---- the report ---- */

static void print_text(const struct doctor *d, int32_t n_bad, int32_t n_notes)
{
    static const char *const mark[] = {"ok  ", "note", "BAD "};
    for (int32_t i = 0; i < d->n; i++) {
        const struct finding *f = &d->found[i];
        printf("%s  %-13s ", mark[f->mark], f->name);
        qr_command_print(f->text, strlen(f->text));
        putchar('\n');
        if (f->remedy[0] && f->mark != MARK_OK)
            printf("%20s %s\n", "->", f->remedy);
    }
    if (n_bad + n_notes == 0)
        printf("\nnothing is in the way\n");
    else
        printf("\n%d in the way, %d worth knowing\n", n_bad, n_notes);
}

static void print_json(const struct doctor *d)
{
    static const char *const mark[] = {"ok", "note", "bad"};
    struct qr_buf b = {0};
    qr_buf_put_str(&b, "{\"findings\":[");
    for (int32_t i = 0; i < d->n; i++) {
        const struct finding *f = &d->found[i];
        qr_buf_put_comma(&b);
        qr_buf_printf(&b, "{\"name\":\"%s\",\"state\":\"%s\"", f->name, mark[f->mark]);
        qr_json_put_member_text(&b, "text", f->text);
        qr_json_put_member_text(&b, "remedy", f->remedy);
        qr_buf_put_byte(&b, '}');
    }
    qr_buf_put_str(&b, "]}\n");
    fwrite(b.data, 1, b.len, stdout);
    qr_buf_release(&b);
}

static int run(struct qr_command_run *r, struct qr_err *err)
{
    static void (*const look[])(struct doctor *d) = {look_at_processor, look_at_memory, look_at_frequency, look_at_limits,
                                                     look_at_libraries, look_at_cache,  look_at_port,      look_at_model};
    struct doctor d = {.o = r->options};
    int32_t n[3] = {0};
    for (int i = 0; i < QR_COUNT(look); i++)
        look[i](&d);
    for (int32_t i = 0; i < d.n; i++)
        n[d.found[i].mark]++;
    if (d.o->json)
        print_json(&d);
    else
        print_text(&d, n[MARK_BAD], n[MARK_NOTE]);
    r->status = n[MARK_BAD] > 0 ? 1 : 0;
    return 0;
}

static const struct qr_option table[] = {
    QR_CLI_MODEL_ROWS(struct doctor_options, m), QR_CLI_ENGINE_ROWS(struct doctor_options, e),
    QR_OPTION(struct doctor_options, host, STR, "host", .builtin = "127.0.0.1", .arg = "HOST", .group = "Server",
              .help = "Address that a server would listen on."),
    QR_OPTION(struct doctor_options, port, INT, "port", .brief = true, .letter = 'p', .builtin = "8000", .min = 0, .max = 65535, .arg = "N", .group = "Server",
              .help = "Its port."),
    QR_OPTION(struct doctor_options, json, FLAG, "json", .brief = true, .builtin = "false", .group = "Output", .help = "One JSON object.")};

const struct qr_command qr_cmd_doctor = {
    .name = "doctor", .purpose = "what is in the way of a server on this machine",
    .usage = "quire doctor [MODEL] [flags]",
    .examples = "quire doctor\n"
                "quire doctor models/quire-tiny --port 8080",
    .text = "Looks at processor, memory, limits, libraries that are opened when they are needed, the port and the model, and says what is wrong, why,\n"
            "and what to do. Changes nothing. Exit status 1 where a server could not start, or would be far too slow.",
    .args = "model", .table = table, .n_options = QR_COUNT(table), .options_bytes = sizeof(struct doctor_options), .run = run,
};
