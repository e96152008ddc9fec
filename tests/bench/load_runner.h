/* load_runner.h - runs `quire bench load` in a child process, as a user starts it, and reads what it wrote. For tests/bench. */
#ifndef QR_TESTS_LOAD_RUNNER_H
#define QR_TESTS_LOAD_RUNNER_H

#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json.h"
#include "bench/load/load.h"
#include "tests/client/fake_server.h"
#include "tests/run_main.h"

struct outcome {
    int status;
    struct qr_buf out, err;
    struct qr_json *json;
};

/* With a server, it is interrupted when that has been asked n_posts times. */
static inline struct outcome run_load_until(int32_t port, const char *flags, const struct fake_server *server, int32_t n_posts)
{
    struct outcome o = {0};
    char name[] = "load", json_flag[] = "--json", url[80], copy[1000], json_path[] = "/tmp/quire-load-XXXXXX", *argv[64] = {name};
    int argc = 1, out = memfd_create("out", 0), err = memfd_create("err", 0), json = mkstemp(json_path);
    snprintf(url, sizeof url, "--url=http://127.0.0.1:%d", port);
    snprintf(copy, sizeof copy, "%s", flags);
    argv[argc++] = url;
    argv[argc++] = json_flag;
    argv[argc++] = json_path;
    for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " "))
        argv[argc++] = word;
    pid_t pid = fork();
    if (pid == 0) {
        dup2(out, 1);
        dup2(err, 2);
        fake_child_exit(qr_command_main(&qr_bench_load_command, argc, argv));
    }
    if (server != NULL) {
        for (int i = 0; i < 12000 && server->n_posts < n_posts; i++)
            usleep(5000);
        kill(pid, SIGINT);
    }
    waitpid(pid, &o.status, 0);
    o.status = WIFEXITED(o.status) ? WEXITSTATUS(o.status) : 1000 + WTERMSIG(o.status);
    slurp(out, &o.out);
    slurp(err, &o.err);
    struct qr_buf text = {0};
    struct qr_err why;
    slurp(json, &text);
    if (text.len > 0)
        cr_assert_eq(qr_json_parse(&o.json, text.data, text.len, &qr_json_limits_file, &why), 0, "%s", why.msg);
    unlink(json_path);
    qr_buf_release(&text);
    return o;
}

static inline struct outcome run_load(int32_t port, const char *flags)
{
    return run_load_until(port, flags, NULL, 0);
}

/* Runs it inside this process instead, where a sanitizer sees what it leaves behind; its output is thrown away. */
static inline int load_here(int32_t port, const char *flags)
{
    char words[300];
    snprintf(words, sizeof words, "load --url=http://127.0.0.1:%d %s", port, flags);
    return run_main(&qr_bench_load_command, words, NULL);
}

static inline void drop(struct outcome *o)
{
    qr_buf_release(&o->out);
    qr_buf_release(&o->err);
    qr_json_free(o->json);
}

static inline double figure(const struct outcome *o, const char *key)
{
    const struct qr_json *v = o->json != NULL ? qr_json_find(o->json, key) : NULL;
    cr_assert(v != NULL && qr_json_type(v) == QR_JSON_T_NUMBER, "no figure '%s'\n%s%s", key, o->out.data, o->err.data);
    return qr_json_f64(v);
}

#endif
