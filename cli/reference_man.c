/* reference_man.c - manual pages in roff from the tables of commands. Pure. */
#include <string.h>

#include "base/assert.h"
#include "cli/cli.h"
#include "cli/reference.h"

/* Text as roff takes it: no byte of it is a request or an escape. */
static void put_text(struct qr_buf *out, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const bool begins = i == 0 || text[i - 1] == '\n';
        if (begins && (text[i] == '.' || text[i] == '\''))
            qr_buf_put_str(out, "\\&");
        if (text[i] == '\\')
            qr_buf_put_str(out, "\\e");
        else if (text[i] == '-')
            qr_buf_put_str(out, "\\-");
        else
            qr_buf_put_byte(out, text[i]);
    }
}

static void put_str(struct qr_buf *out, const char *text)
{
    put_text(out, text, strlen(text));
}

/* Lines as they are. */
static void put_lines(struct qr_buf *out, const char *section, const char *lines)
{
    qr_buf_printf(out, ".SH %s\n.nf\n", section);
    put_str(out, lines);
    qr_buf_put_str(out, "\n.fi\n");
}

static void put_flag(struct qr_buf *out, char letter, const char *name, const char *arg, bool negates)
{
    qr_buf_put_str(out, ".TP\n");
    if (letter)
        qr_buf_printf(out, "\\fB\\-%c\\fR, ", letter);
    qr_buf_put_str(out, negates ? "\\fB\\-\\-[no\\-]" : "\\fB\\-\\-");
    put_str(out, name);
    qr_buf_put_str(out, "\\fR");
    if (arg) {
        qr_buf_put_str(out, " \\fI");
        put_str(out, arg);
        qr_buf_put_str(out, "\\fR");
    }
    qr_buf_put_byte(out, '\n');
}

static void put_option(struct qr_buf *out, const struct qr_option *o, const char *command)
{
    char variable[QR_OPTION_VARIABLE_MAX];
    struct qr_buf facts = {0};
    qr_options_variable(variable, command, o->name);
    qr_option_facts(&facts, o, variable);
    put_flag(out, o->letter, o->name, qr_option_arg(o), o->type == QR_OPT_FLAG);
    put_str(out, o->help ? o->help : "");
    qr_buf_put_str(out, "\n[");
    put_str(out, facts.data);
    qr_buf_put_str(out, "]\n");
    qr_buf_release(&facts);
}

/* Group by group, in the order in which they come first. */
static void put_options(struct qr_buf *out, const struct qr_command *c)
{
    qr_buf_put_str(out, ".SH OPTIONS\n");
    for (int32_t g = 0; g < c->n_options; g++) {
        int32_t first = 0;
        while (strcmp(qr_option_group(&c->table[first]), qr_option_group(&c->table[g])) != 0)
            first++;
        if (first < g)
            continue;
        qr_buf_put_str(out, ".SS ");
        put_str(out, qr_option_group(&c->table[g]));
        qr_buf_put_byte(out, '\n');
        for (int32_t i = g; i < c->n_options; i++)
            if (strcmp(qr_option_group(&c->table[i]), qr_option_group(&c->table[g])) == 0)
                put_option(out, &c->table[i], c->name);
    }
    qr_buf_put_str(out, ".SS Configuration\n");
    for (const struct qr_reference_flag *f = qr_reference_common; f->name; f++) {
        put_flag(out, 0, f->name, f->arg, false);
        put_str(out, f->help);
        qr_buf_put_byte(out, '\n');
    }
}

static void put_statuses(struct qr_buf *out)
{
    static const struct {
        const char *status, *meaning;
    } row[] = {{"0", "done"},
               {"1", "something else failed"},
               {"2", "a flag, a variable or the configuration file is wrong"},
               {"3", "an address cannot be listened on or connected to"},
               {"4", "a file is missing, damaged or unsupported, or cannot be read or written"},
               {"5", "it does not fit into memory"},
               {"70", "an internal check failed"},
               {"130", "interrupted"}};
    qr_buf_put_str(out, ".SH EXIT STATUS\n");
    for (int i = 0; i < QR_COUNT(row); i++)
        qr_buf_printf(out, ".TP\n%s\n%s\n", row[i].status, row[i].meaning);
}

static void put_name(struct qr_buf *out, const char *command)
{
    qr_buf_put_str(out, "quire");
    for (const char *p = command; *p; p++)
        qr_buf_put_str(out, p == command ? "\\-" : ""), put_text(out, *p == ' ' ? "-" : p, 1);
}

static void put_see(void *user, const struct qr_command *c)
{
    struct qr_buf *out = user;
    qr_buf_put_str(out, ".TP\n\\fB");
    put_name(out, c->name);
    qr_buf_put_str(out, "\\fR(1)\n");
    put_str(out, c->purpose);
    qr_buf_put_byte(out, '\n');
}

static void put_program(struct qr_buf *out)
{
    qr_buf_put_str(out, ".TH QUIRE 1 \"\" \"quire " QUIRE_VERSION "\"\n.ad l\n.SH NAME\nquire \\- serves and trains Llama\\-family language models\n"
                        ".SH SYNOPSIS\n\\fBquire\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n.SH DESCRIPTION\n"
                        "One program that serves language models over HTTP, as OpenAI's, Anthropic's and ollama's clients expect it, talks to them in a "
                        "terminal, and trains them. Settings come from flags, variables, a YAML file (\\-\\-config) and built\\-ins, in this order. "
                        "\\fBquire\\fR \\fICOMMAND\\fR \\fB\\-\\-help\\fR lists all options of a command.\n.SH COMMANDS\n");
    qr_reference_each(put_see, out);
    put_statuses(out);
}

void qr_reference_man(struct qr_buf *out, const struct qr_command *c)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(!c || c->n_options > 0);
    if (!c) {
        put_program(out);
        return;
    }
    qr_buf_put_str(out, ".TH \"");
    put_name(out, c->name);
    qr_buf_put_str(out, "\" 1 \"\" \"quire " QUIRE_VERSION "\"\n.ad l\n.SH NAME\n");
    put_name(out, c->name);
    qr_buf_put_str(out, " \\- ");
    put_str(out, c->purpose);
    qr_buf_put_byte(out, '\n');
    put_lines(out, "SYNOPSIS", c->usage);
    if (c->text) {
        qr_buf_put_str(out, ".SH DESCRIPTION\n");
        put_str(out, c->text);
        qr_buf_put_byte(out, '\n');
    }
    put_options(out, c);
    if (c->examples)
        put_lines(out, "EXAMPLES", c->examples);
    put_statuses(out);
    qr_buf_put_str(out, ".SH SEE ALSO\n\\fBquire\\fR(1)\n");
}
