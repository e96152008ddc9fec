/* main.c - the table of subcommands. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/assert.h"
#include "base/cut_file.h"
#include "base/option.h"
#ifdef QUIRE_SERVER
#include "bench/load.h"
#include "client/chat.h"
#endif
#include "cli/cli.h"
#include "kernels/backend.h"

static const struct qr_cli_command commands[] = {
#ifdef QUIRE_SERVER
    {"serve", qr_cmd_serve, "serve a model over HTTP (OpenAI-style)"},
    {"chat", qr_chat_main, "talk to a server in the terminal, or as a filter"},
#endif
    {"generate", qr_cmd_generate, "generate offline, one prompt or many"},
    {"score", qr_cmd_score, "log-probabilities of given tokens"},
    {"tokenize", qr_cmd_tokenize, "text to token ids"},
    {"detokenize", qr_cmd_detokenize, "token ids to text"},
    {"template", qr_cmd_template, "render a chat template"},
    {"check", qr_cmd_check, "explain a model file or directory"},
    {"plan", qr_cmd_plan, "memory plan of a model, without loading it"},
    {"data", qr_cmd_data, "data to train on: prepare, show, train-tokenizer"},
    {"train", qr_cmd_train, "train a model, from random weights or from a model directory"},
    {"lora", qr_cmd_lora, "adapters of a training run: merge them into their model"},
    {"quantize", qr_cmd_quantize, "write a model with its matrices rounded to 8 or 4 bits"},
    {"bench", qr_cmd_bench, "measure: load, kern, throughput, ..; make models to measure"},
};

static void print_help(FILE *out)
{
    fprintf(out, "quire %s - serves and trains Llama-family language models\n%s\n\n", QUIRE_VERSION, qr_cpu_describe());
    for (int i = 0; i < QR_COUNT(commands); i++)
        fprintf(out, "  quire %-11s %s\n", commands[i].name, commands[i].help);
    fprintf(out, "\nquire COMMAND --help says more. Settings come from flags, QUIRE_* variables,\na --config file and built-ins, in this order.\n");
}

static int unknown(const char *name)
{
    const char *names[QR_COUNT(commands)];
    for (int i = 0; i < QR_COUNT(commands); i++)
        names[i] = commands[i].name;
    const char *near = qr_nearest(name, names, QR_COUNT(commands));
    fprintf(stderr, "quire: unknown command '%s'", name);
    fprintf(stderr, near ? "; did you mean '%s'?\n" : "\n", near);
    fprintf(stderr, "See: quire --help\n");
    return 2;
}

/* Whoever starts a process may have closed its standard files. The next file or socket would get their numbers, and what is said on stderr would go there.
 * They are opened for what they are not for, so that who reads or writes them hears that they are not there. */
static void keep_standard_files(void)
{
    static const int mode[] = {O_WRONLY, O_RDONLY, O_RDONLY};
    for (int fd = 0; fd < QR_COUNT(mode); fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", mode[fd]) < 0)
            return; /* no /dev here: as it was */
}

#define STACK_BYTES ((rlim_t)8 << 20)         /* as systems have it */
#define STACK_BYTES_FEW ((rlim_t)512 << 10)
#define STACK_BYTES_LEAST ((rlim_t)128 << 10) /* names of files are on it, 4 KiB each, and what libraries need */

/* Stacks that ulimit -s makes too small would be overrun. A soft limit is made larger, for this thread and, which have taken it over, those to come. */
static bool enlarge_stacks(void)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_STACK, &l) != 0 || l.rlim_cur >= STACK_BYTES_FEW)
        return true;
    l.rlim_cur = l.rlim_max < STACK_BYTES ? l.rlim_max : STACK_BYTES;
    if (l.rlim_cur < STACK_BYTES_LEAST || setrlimit(RLIMIT_STACK, &l) != 0)
        return false;
#ifdef __GLIBC__ /* others give threads a size of their own */
    pthread_attr_t a;
    pthread_attr_init(&a);
    pthread_attr_setstacksize(&a, (size_t)l.rlim_cur);
    pthread_setattr_default_np(&a);
    pthread_attr_destroy(&a);
#endif
    return true;
}

/* A full disk shows when the last of the output is written. */
static int finish(const char *command, int status)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    fprintf(stderr, "quire %s: not all of the output could be written to stdout%s%s\n", command, errno ? ": " : "", errno ? strerror(errno) : "");
    return status != 0 ? status : qr_err_exit_status(QR_E_IO);
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN); /* a client that goes away must not end the process; libuv does not see to it */
    signal(SIGXFSZ, SIG_IGN); /* nor must a log or an output that grows beyond ulimit -f: writing it fails, as on a full disk */
    keep_standard_files();
    qr_cut_file_explain();
    if (!enlarge_stacks()) {
        fprintf(stderr, "quire: stacks are too small (ulimit -s): expected %d KiB or more\n", (int)(STACK_BYTES_LEAST >> 10));
        return qr_err_exit_status(QR_E_NO_ROOM);
    }
    qr_cpu_init();
    if (argc < 2) {
        print_help(stderr);
        return 2;
    }
    if (strcmp(argv[1], "help") == 0 && argc > 2) { /* help COMMAND is COMMAND --help */
        static char flag[] = "--help";
        memmove(argv + 1, argv + 2, (size_t)(argc - 2) * sizeof *argv);
        argv[argc - 1] = flag;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        return finish("help", 0);
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "version") == 0) {
        printf("quire %s\n", QUIRE_VERSION);
        return finish("version", 0);
    }
    for (int i = 0; i < QR_COUNT(commands); i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return finish(argv[1], commands[i].run(argc - 1, argv + 1));
    return unknown(argv[1]);
}
