/* main.c - the table of subcommands. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/assert.h"
#include "base/files/cut_file.h"
#include "base/mem.h"
#include "base/option.h"
#ifdef QUIRE_SERVER
#include "bench/load/load.h"
#include "client/chat.h"
#include "client/profile.h"
#endif
#include "cli/cli.h"
#include "kernels/backend.h"

const struct qr_command *const qr_cli_commands[] = {
#ifdef QUIRE_SERVER
    &qr_cmd_serve, &qr_chat_command, &qr_profile_command,
#endif
    &qr_cmd_generate, &qr_cmd_score, &qr_cmd_tokenize, &qr_cmd_detokenize, &qr_cmd_template, &qr_cmd_grammar, &qr_cmd_parse, &qr_cmd_check, &qr_cmd_plan,
    &qr_cmd_pull, &qr_cmd_list, &qr_cmd_rm, &qr_cmd_data, &qr_cmd_train, &qr_cmd_lora, &qr_cmd_quantize, &qr_cmd_bench, &qr_cmd_doctor, &qr_cmd_reference,
};
const int32_t qr_cli_n_commands = QR_COUNT(qr_cli_commands);

/* Commands of other programs, and what does the same here. */
static const struct {
    const char *name, *instead;
} elsewhere[] = {
    {"run", "start a server with 'quire serve DIR' and talk to it with 'quire chat', or ask once with 'quire generate DIR PROMPT'"},
    {"models", "'quire list' has those that were fetched, 'quire check PATH' explains one, GET /v1/models lists what a server has"},
};

static void print_help(FILE *out)
{
    fprintf(out, "quire %s - serves and trains language models (%s)\n\n", QUIRE_VERSION, qr_cpu_describe());
    for (int i = 0; i < QR_COUNT(qr_cli_commands); i++)
        fprintf(out, "  quire %-11s %s\n", qr_cli_commands[i]->name, qr_cli_commands[i]->purpose);
    fputs("quire COMMAND --help lists all options of a command, -h the most used ones.\n", out); /* 25 lines in all, as a terminal has */
}

static int unknown(const char *name)
{
    const char *names[QR_COUNT(qr_cli_commands)];
    fprintf(stderr, "quire: unknown command '%s'", name);
    for (int i = 0; i < QR_COUNT(elsewhere); i++)
        if (strcmp(name, elsewhere[i].name) == 0) {
            fprintf(stderr, "; %s\n", elsewhere[i].instead);
            return 2;
        }
    for (int i = 0; i < QR_COUNT(qr_cli_commands); i++)
        names[i] = qr_cli_commands[i]->name;
    const char *near = qr_nearest(name, names, QR_COUNT(qr_cli_commands));
    fprintf(stderr, near ? "; did you mean '%s'?\n" : "\n", near);
    fprintf(stderr, "See: quire --help\n");
    return 2;
}

/* A parent may have closed the standard files of the process. The next file or socket would get their numbers, and what
 * is said on stderr would go there. They are opened the wrong way round, so that reading or writing them fails as if
 * they were not there. */
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

/* Keys on the command line can be read by every user (ps): settings get copies of the arguments, in one block, and the keys' own places are blanked out. */
static char **take_arguments(int argc, char **argv)
{
    size_t n_bytes = 0;
    for (int i = 0; i < argc; i++)
        n_bytes += sizeof *argv + strlen(argv[i]) + 1;
    char **own = qr_alloc(n_bytes + sizeof *argv, 1), *text = (char *)(own + argc + 1);
    for (int i = 0; i < argc; i++) {
        own[i] = strcpy(text, argv[i]);
        text += strlen(text) + 1;
    }
    for (int i = 1; i < argc; i++) {
        const size_t n = strcspn(own[i], "=");
        if (strncmp(own[i], "--", 2) != 0 || !qr_option_is_secret(own[i] + 2, n - 2))
            continue;
        char *key = own[i][n] ? argv[i] + n + 1 : i + 1 < argc ? argv[++i] : NULL;
        if (key)
            memset(key, '*', strlen(key));
    }
    return own;
}

static int run(int argc, char **argv)
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
        printf("quire %s (%s, %s)\n", QUIRE_VERSION, qr_cli_commit(), qr_cpu_level());
        return finish("version", 0);
    }
    const struct qr_command *c = qr_command_find(qr_cli_commands, QR_COUNT(qr_cli_commands), argv[1]);
    if (!c)
        return unknown(argv[1]);
    qr_cli_warn_variables(c);
    return finish(c->name, c->sub ? qr_cli_group(c, argc - 1, argv + 1) : qr_command_main(c, argc - 1, argv + 1));
}

int main(int argc, char **argv)
{
    char **own = take_arguments(argc, argv);
    const int status = run(argc, own);
    qr_free(own);
    return status;
}
