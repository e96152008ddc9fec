/* reference_pages.c - the options' reference in Markdown, and JSON Schemas of files of settings. Pure. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/reference.h"

/* ---- Markdown ---- */

/* Text in a table's cell. */
static void put_cell(struct qr_buf *out, const char *text)
{
    for (const char *p = text ? text : ""; *p; p++) {
        if (*p == '|' || *p == '<' || *p == '*')
            qr_buf_put_byte(out, '\\');
        qr_buf_put_byte(out, *p == '\n' ? ' ' : *p);
    }
}

static void put_row(struct qr_buf *out, const struct qr_option *o, const char *command)
{
    const char *arg = qr_option_arg(o);
    char variable[QR_OPTION_VARIABLE_MAX];
    struct qr_buf facts = {0};
    qr_options_variable(variable, command, o->name);
    qr_option_facts(&facts, o, NULL);
    qr_buf_printf(out, "| `--%s%s%s`", o->name, arg ? " " : "", arg ? arg : "");
    if (o->letter)
        qr_buf_printf(out, ", `-%c`", o->letter);
    qr_buf_printf(out, " | `%s` | ", variable);
    put_cell(out, facts.data);
    qr_buf_put_str(out, " | ");
    put_cell(out, o->help);
    qr_buf_put_str(out, " |\n");
    qr_buf_release(&facts);
}

static void put_command(void *user, const struct qr_command *c)
{
    struct qr_buf *out = user;
    qr_buf_printf(out, "\n## quire %s\n\n%c%s.\n\n```\n%s\n```\n\n| flag | variable | | |\n|---|---|---|---|\n", c->name,
                  c->purpose[0] >= 'a' && c->purpose[0] <= 'z' ? c->purpose[0] - 32 : c->purpose[0], c->purpose + 1, c->usage);
    for (int32_t i = 0; i < c->n_options; i++)
        put_row(out, &c->table[i], c->name);
}

void qr_reference_options(struct qr_buf *out)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(qr_cli_n_commands > 0);
    qr_buf_put_str(out, "# Options\n\nMade by `quire reference` from the tables that read them. Every command also takes `--config FILE`, `--print-config`, "
                        "`--check-config`, `-h` and `--help`.\n");
    qr_reference_each(put_command, out);
}

/* ---- JSON Schema ---- */

/* A number in the file, or a text with a unit. */
#define WITH_UNIT "\"type\":[\"%s\",\"string\"],\"pattern\":\"%s\""

static void put_bounds(struct qr_buf *out, const struct qr_option *o)
{
    if (o->min != 0 || o->max != 0)
        qr_buf_printf(out, ",\"minimum\":%.17g,\"maximum\":%.17g", o->min, o->max);
}

static void put_type(struct qr_buf *out, const struct qr_option *o)
{
    switch (o->type) {
    case QR_OPT_FLAG: qr_buf_put_str(out, "\"type\":\"boolean\""); break;
    case QR_OPT_INT:
        qr_buf_printf(out, WITH_UNIT, "integer", "^-?[0-9]+([kmg]i?)?$");
        put_bounds(out, o);
        break;
    case QR_OPT_BYTES: qr_buf_printf(out, WITH_UNIT, "integer", "^[0-9]+ ?([kKmMgGtT]i?)?B?$"); break;
    case QR_OPT_TIME: qr_buf_printf(out, WITH_UNIT, "number", "^[0-9.]+ ?(us|ms|s|m|h|d)?$"); break;
    case QR_OPT_FLOAT:
        qr_buf_put_str(out, "\"type\":\"number\"");
        put_bounds(out, o);
        break;
    case QR_OPT_STR: qr_buf_put_str(out, "\"type\":[\"string\",\"number\",\"null\"]"); break;
    case QR_OPT_LIST:
        qr_buf_put_str(out, "\"anyOf\":[{\"type\":\"array\",\"items\":{\"type\":[\"string\",\"number\"]}},{\"type\":[\"string\",\"null\"]}]");
        break;
    case QR_OPT_ENUM:
        qr_buf_put_str(out, "\"enum\":[");
        for (const char *p = o->choices, *end; *p; p = *end ? end + 1 : end) {
            end = p + strcspn(p, "|");
            qr_buf_put_comma(out);
            qr_json_put_str(out, p, (size_t)(end - p));
        }
        qr_buf_put_byte(out, ']');
    }
}

static void put_property(struct qr_buf *out, const struct qr_option *o, const char *name)
{
    struct qr_buf text = {0}, facts = {0};
    qr_option_facts(&facts, o, NULL);
    qr_buf_put_str(&text, o->help ? o->help : "");
    if (facts.len > 0)
        qr_buf_printf(&text, " [%s]", facts.data);
    qr_buf_put_comma(out);
    qr_json_put_str(out, name, strlen(name));
    qr_buf_put_str(out, ":{");
    put_type(out, o);
    qr_buf_put_str(out, ",\"description\":");
    qr_json_put_str(out, text.data ? text.data : "", text.len);
    qr_buf_put_str(out, "}");
    qr_buf_release(&text);
    qr_buf_release(&facts);
}

/* Rows whose names begin with prefix ("optimizer."), as the properties of one object. Those with further dots are objects of their own, once each. */
static void put_object(struct qr_buf *out, const struct qr_option *table, int32_t n, const char *prefix)
{
    const size_t len = strlen(prefix);
    qr_buf_put_str(out, "\"type\":\"object\",\"additionalProperties\":false,\"properties\":{");
    for (int32_t i = 0; i < n; i++) {
        const char *name = table[i].name, *rest = name + len, *dot;
        if (strncmp(name, prefix, len) != 0)
            continue;
        dot = strchr(rest, '.');
        if (!dot) {
            put_property(out, &table[i], rest);
            continue;
        }
        char inner[128];
        snprintf(inner, sizeof inner, "%.*s", (int)(dot - name) + 1, name);
        bool told = false;
        for (int32_t k = 0; k < i; k++)
            told |= strncmp(table[k].name, inner, strlen(inner)) == 0;
        if (told)
            continue;
        qr_buf_put_comma(out);
        qr_json_put_str(out, rest, (size_t)(dot - rest));
        qr_buf_put_str(out, ":{");
        put_object(out, table, n, inner);
        qr_buf_put_str(out, "}");
    }
    qr_buf_put_str(out, "}");
}

void qr_reference_schema(struct qr_buf *out, const char *title, const struct qr_option *table, int32_t n)
{
    QR_ASSERT(out != NULL && title != NULL);
    QR_ASSERT(table != NULL && n > 0);
    qr_buf_put_str(out, "{\"$schema\":\"https://json-schema.org/draft/2020-12/schema\",\"title\":");
    qr_json_put_str(out, title, strlen(title));
    qr_buf_put_byte(out, ',');
    put_object(out, table, n, "");
    qr_buf_put_str(out, "}\n");
}
