/* reference_complete.c - completions of bash, zsh and fish from the tables of commands: names of commands, flags, choices; files where a value is one. Pure. */
#include <string.h>

#include "base/assert.h"
#include "cli/cli.h"
#include "cli/reference.h"

/* What a value is completed with. */
enum value { VALUE_NONE, VALUE_ANY, VALUE_FILE, VALUE_DIR, VALUE_CHOICE };

static enum value value_of(const struct qr_option *o)
{
    static const char *const files[] = {"FILE", "PATH", "IN", "OUT", "ADAPTER", "NAME=PATH"};
    const char *arg = qr_option_arg(o);
    if (!arg)
        return VALUE_NONE;
    if (o->type == QR_OPT_ENUM)
        return VALUE_CHOICE;
    if (strcmp(arg, "DIR") == 0)
        return strcmp(o->name, "model") == 0 ? VALUE_FILE : VALUE_DIR;
    for (int i = 0; i < QR_COUNT(files); i++)
        if (strcmp(arg, files[i]) == 0)
            return VALUE_FILE;
    return VALUE_ANY;
}

/* The first sentence, with nothing in it that a shell's quotes or zsh's brackets would end at. */
static void put_short(struct qr_buf *out, const char *help)
{
    for (const char *p = help ? help : ""; *p && !(strchr(".;", *p) && (p[1] == ' ' || p[1] == 0)); p++)
        qr_buf_put_byte(out, strchr("'\"`$\\[]:\n", *p) ? ' ' : *p);
}

static void put_choices(struct qr_buf *out, const char *choices, char between)
{
    for (const char *p = choices; *p; p++)
        qr_buf_put_byte(out, *p == '|' ? between : *p);
}

static void put_name(void *user, const struct qr_command *c)
{
    struct qr_buf *out = user;
    const size_t n = strcspn(c->name, " ");
    qr_buf_put_str(out, " ");
    qr_buf_put(out, c->name, n);
}

/* ---- bash ---- */

static void put_bash_flags(struct qr_buf *out, const struct qr_command *c)
{
    for (int32_t i = 0; i < c->n_options; i++)
        qr_buf_printf(out, " --%s", c->table[i].name);
    for (const struct qr_reference_flag *f = qr_reference_common; f->name; f++)
        qr_buf_printf(out, " --%s", f->name);
}

/* Values of one flag; those that are any text complete nothing. */
static void put_bash_values(void *user, const struct qr_command *c)
{
    struct qr_buf *out = user;
    for (int32_t i = 0; i < c->n_options; i++) {
        const struct qr_option *o = &c->table[i];
        const enum value v = value_of(o);
        if (v == VALUE_NONE || v == VALUE_FILE)
            continue;
        qr_buf_printf(out, "        '%s --%s') ", c->name, o->name);
        if (v == VALUE_CHOICE) {
            qr_buf_put_str(out, "COMPREPLY=($(compgen -W '");
            put_choices(out, o->choices, ' ');
            qr_buf_put_str(out, "' -- \"$word\"));;\n");
        } else {
            qr_buf_put_str(out, v == VALUE_DIR ? "COMPREPLY=($(compgen -d -- \"$word\"));;\n" : "COMPREPLY=();;\n");
        }
    }
}

static void put_bash_command(void *user, const struct qr_command *c)
{
    struct qr_buf *out = user;
    qr_buf_printf(out, "        '%s') flags='", c->name);
    put_bash_flags(out, c);
    qr_buf_put_str(out, "';;\n");
}

static void put_bash_groups(struct qr_buf *out)
{
    for (int32_t i = 0; i < qr_cli_n_commands; i++) {
        const struct qr_command *c = qr_cli_commands[i];
        if (!c->sub)
            continue;
        qr_buf_printf(out, "        %s) subs='", c->name);
        for (int32_t k = 0; k < c->n_sub; k++)
            qr_buf_printf(out, "%s%s", k ? " " : "", strrchr(c->sub[k]->name, ' ') + 1);
        qr_buf_put_str(out, "';;\n");
    }
}

void qr_reference_bash(struct qr_buf *out)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(qr_cli_n_commands > 0);
    qr_buf_put_str(out, "# Completion of quire for bash; made by `quire reference`.\n"
                        "_quire() {\n"
                        "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]} subs= flags=\n"
                        "    compopt -o default 2>/dev/null\n"
                        "    if [ \"$COMP_CWORD\" = 1 ]; then\n"
                        "        COMPREPLY=($(compgen -W '");
    for (int32_t i = 0; i < qr_cli_n_commands; i++)
        put_name(out, qr_cli_commands[i]);
    qr_buf_put_str(out, " help' -- \"$word\"))\n        return\n    fi\n    case $command in\n");
    put_bash_groups(out);
    qr_buf_put_str(out, "    esac\n"
                        "    if [ -n \"$subs\" ] && [ \"$COMP_CWORD\" = 2 ]; then\n"
                        "        COMPREPLY=($(compgen -W \"$subs\" -- \"$word\"))\n        return\n    fi\n"
                        "    [ -z \"$subs\" ] || command=\"$command ${COMP_WORDS[2]}\"\n"
                        "    case \"$command $before\" in\n");
    qr_reference_each(put_bash_values, out);
    qr_buf_put_str(out, "        *) case $word in -*)\n            case $command in\n");
    qr_reference_each(put_bash_command, out);
    qr_buf_put_str(out, "            esac\n            COMPREPLY=($(compgen -W \"$flags\" -- \"$word\"));;\n        esac;;\n"
                        "    esac\n}\ncomplete -F _quire quire\n");
}

/* ---- zsh ---- */

static void put_zsh_option(struct qr_buf *out, const struct qr_option *o)
{
    qr_buf_printf(out, " \\\n            '%s--%s[", o->type == QR_OPT_LIST ? "*" : "", o->name);
    put_short(out, o->help);
    qr_buf_put_byte(out, ']');
    switch (value_of(o)) {
    case VALUE_NONE: break;
    case VALUE_ANY: qr_buf_printf(out, ":%s: ", qr_option_arg(o)); break;
    case VALUE_FILE: qr_buf_put_str(out, ":file:_files"); break;
    case VALUE_DIR: qr_buf_put_str(out, ":directory:_files -/"); break;
    case VALUE_CHOICE:
        qr_buf_put_str(out, ":choice:(");
        put_choices(out, o->choices, ' ');
        qr_buf_put_byte(out, ')');
    }
    qr_buf_put_byte(out, '\'');
}

static void put_zsh_command(void *user, const struct qr_command *c)
{
    struct qr_buf *out = user;
    qr_buf_printf(out, "        '%s') _arguments", c->name);
    for (int32_t i = 0; i < c->n_options; i++)
        put_zsh_option(out, &c->table[i]);
    for (const struct qr_reference_flag *f = qr_reference_common; f->name; f++) {
        qr_buf_printf(out, " \\\n            '--%s[", f->name);
        put_short(out, f->help);
        qr_buf_put_str(out, f->arg ? "]:file:_files'" : "]'");
    }
    qr_buf_put_str(out, " \\\n            '*:file:_files';;\n");
}

static void put_zsh_list(struct qr_buf *out, const char *name, const struct qr_command *const *list, int32_t n)
{
    qr_buf_printf(out, "    %s=(", name);
    for (int32_t i = 0; i < n; i++) {
        const char *blank = strrchr(list[i]->name, ' ');
        qr_buf_printf(out, " '%s:", blank ? blank + 1 : list[i]->name);
        put_short(out, list[i]->purpose);
        qr_buf_put_byte(out, '\'');
    }
    qr_buf_put_str(out, ")\n");
}

void qr_reference_zsh(struct qr_buf *out)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(qr_cli_n_commands > 0);
    qr_buf_put_str(out, "#compdef quire\n# Completion of quire for zsh; made by `quire reference`.\n_quire() {\n    local -a commands subs\n"
                        "    local command=$words[2]\n");
    put_zsh_list(out, "commands", qr_cli_commands, qr_cli_n_commands);
    qr_buf_put_str(out, "    if (( CURRENT == 2 )); then\n        _describe command commands\n        return\n    fi\n    case $command in\n");
    for (int32_t i = 0; i < qr_cli_n_commands; i++)
        if (qr_cli_commands[i]->sub) {
            qr_buf_printf(out, "    %s)\n", qr_cli_commands[i]->name);
            put_zsh_list(out, "subs", qr_cli_commands[i]->sub, qr_cli_commands[i]->n_sub);
            qr_buf_put_str(out, "    ;;\n");
        }
    qr_buf_put_str(out, "    esac\n    if (( $#subs )); then\n        if (( CURRENT == 3 )); then\n            _describe command subs\n            return\n"
                        "        fi\n"
                        "        command=\"$command $words[3]\"\n        shift words\n        (( CURRENT-- ))\n    fi\n"
                        "    shift words\n    (( CURRENT-- ))\n    case $command in\n");
    qr_reference_each(put_zsh_command, out);
    qr_buf_put_str(out, "        *) _files;;\n    esac\n}\n_quire \"$@\"\n");
}

/* ---- fish ---- */

/* When the words before are those of the command. */
static void put_fish_condition(struct qr_buf *out, const char *command)
{
    const char *blank = strchr(command, ' ');
    if (blank)
        qr_buf_printf(out, "complete -c quire -n '__fish_seen_subcommand_from %.*s; and __fish_seen_subcommand_from %s'", (int)(blank - command), command,
                      blank + 1);
    else
        qr_buf_printf(out, "complete -c quire -n '__fish_seen_subcommand_from %s'", command);
}

static void put_fish_option(struct qr_buf *out, const char *command, const struct qr_option *o)
{
    put_fish_condition(out, command);
    qr_buf_printf(out, " -l %s", o->name);
    if (o->letter)
        qr_buf_printf(out, " -s %c", o->letter);
    switch (value_of(o)) {
    case VALUE_NONE: break;
    case VALUE_ANY: qr_buf_put_str(out, " -x"); break;
    case VALUE_FILE: qr_buf_put_str(out, " -r -F"); break;
    case VALUE_DIR: qr_buf_put_str(out, " -x -a '(__fish_complete_directories)'"); break;
    case VALUE_CHOICE:
        qr_buf_put_str(out, " -x -a '");
        put_choices(out, o->choices, ' ');
        qr_buf_put_byte(out, '\'');
    }
    qr_buf_put_str(out, " -d '");
    put_short(out, o->help);
    qr_buf_put_str(out, "'\n");
}

static void put_fish_command(void *user, const struct qr_command *c)
{
    struct qr_buf *out = user;
    for (int32_t i = 0; i < c->n_options; i++)
        put_fish_option(out, c->name, &c->table[i]);
    for (const struct qr_reference_flag *f = qr_reference_common; f->name; f++) {
        put_fish_condition(out, c->name);
        qr_buf_printf(out, " -l %s%s -d '", f->name, f->arg ? " -r -F" : "");
        put_short(out, f->help);
        qr_buf_put_str(out, "'\n");
    }
}

void qr_reference_fish(struct qr_buf *out)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(qr_cli_n_commands > 0);
    qr_buf_put_str(out, "# Completion of quire for fish; made by `quire reference`.\n");
    for (int32_t i = 0; i < qr_cli_n_commands; i++) {
        const struct qr_command *c = qr_cli_commands[i];
        qr_buf_printf(out, "complete -c quire -f -n __fish_use_subcommand -a %s -d '", c->name);
        put_short(out, c->purpose);
        qr_buf_put_str(out, "'\n");
        for (int32_t k = 0; k < c->n_sub; k++) {
            qr_buf_printf(out, "complete -c quire -f -n '__fish_seen_subcommand_from %s' -a %s -d '", c->name, strrchr(c->sub[k]->name, ' ') + 1);
            put_short(out, c->sub[k]->purpose);
            qr_buf_put_str(out, "'\n");
        }
    }
    qr_reference_each(put_fish_command, out);
}
