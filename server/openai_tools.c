/* openai_tools.c - tools, which of them may be called, and how a model thinks: what the fields of a chat request say of it. Tools of unknown types are
 * left out. What may be called is copied, as it is read until the answer ends. Pure; on libuv's pool, charged to the request's account. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "server/openai.h"

/* ---- what tools are ---- */

static bool is_function(const struct qr_json *tool)
{
    return qr_json_says(qr_json_find(tool, "type"), "function");
}

static const char *name_of(const struct qr_json *tool)
{
    return qr_json_str(qr_json_find(qr_json_find(tool, "function"), "name"), NULL);
}

static bool name_ok(const char *name, size_t len)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    return len >= 1 && len <= QR_TOOL_NAME_MAX && strspn(name, letters) == len;
}

static int check_member(const struct qr_json *function, const char *name, enum qr_json_type type, const char *expected, const char *at, struct qr_err *err)
{
    char path[96];
    const struct qr_json *v = qr_json_find(function, name);
    if (qr_json_is_null(v) || qr_json_type(v) == type)
        return 0;
    snprintf(path, sizeof path, "%.60s.function.%s", at, name);
    return qr_wrong_type(err, path, expected, v);
}

static int check_function(const struct qr_json *function, const char *at, struct qr_err *err)
{
    char path[96], excerpt[72];
    size_t len;
    if (qr_json_is_null(function) || qr_json_type(function) != QR_JSON_T_OBJECT) {
        snprintf(path, sizeof path, "%.60s.function", at);
        return qr_err_at(err, QR_E_INVALID, path, "%s is required: an object with a name", path);
    }
    const struct qr_json *name = qr_json_find(function, "name");
    const char *text = qr_json_text(name, &len);
    snprintf(path, sizeof path, "%.60s.function.name", at);
    if (!text || !name_ok(text, len))
        return qr_err_at(err, QR_E_INVALID, path, "%s must be 1 to %d of a-z A-Z 0-9 _ -, found %s", path, QR_TOOL_NAME_MAX,
                         name ? qr_json_excerpt(excerpt, name) : "none");
    int rc = check_member(function, "parameters", QR_JSON_T_OBJECT, "a JSON Schema that is an object", at, err);
    rc = rc ? rc : check_member(function, "description", QR_JSON_T_STRING, "a string", at, err);
    return rc ? rc : check_member(function, "strict", QR_JSON_T_BOOL, "true or false", at, err);
}

int qr_read_tools(struct qr_params *p, const struct qr_json *v, const struct qr_params_context *context, struct qr_err *err)
{
    int32_t i = 0;
    int rc = 0;
    if (qr_json_count(v) > QR_TOOLS_MAX)
        return qr_err_at(err, QR_E_INVALID, "tools", "tools must have at most %d elements, found %d", QR_TOOLS_MAX, qr_json_count(v));
    for (const struct qr_json *e = qr_json_first(v); e && rc == 0; e = qr_json_after(e), i++) {
        char at[64];
        snprintf(at, sizeof at, "tools[%d]", i);
        if (qr_json_type(e) != QR_JSON_T_OBJECT)
            return qr_wrong_type(err, at, "an object", e);
        const struct qr_json *type = qr_json_find(e, "type");
        if (!type || qr_json_type(type) != QR_JSON_T_STRING)
            return qr_err_at(err, QR_E_INVALID, at, "%s.type must be a string such as \"function\"", at);
        rc = is_function(e) ? check_function(qr_json_find(e, "function"), at, err) : 0;
    }
    p->tools.given = i > 0 ? v : NULL;
    return rc;
}

/* ---- which may be called ---- */

struct choice {
    const struct qr_json *names;   /* array of tools ({"function": {"name"}}), NULL: all */
    const char *one;               /* one alone; NULL: it is not said */
    enum qr_call_choice calls;
};

#define EXPECTED "\"auto\", \"none\", \"required\", {\"type\": \"function\", \"function\": {\"name\": ...}} or {\"type\": \"allowed_tools\", ...}"

static int read_mode(enum qr_call_choice *out, const struct qr_json *v, bool may_be_none, const char *path, struct qr_err *err)
{
    static const char *const mode[] = {"auto", "required", "none"};
    static const enum qr_call_choice calls[] = {QR_CALL_AUTO, QR_CALL_REQUIRED, QR_CALL_NONE};
    char excerpt[72];
    for (int i = 0; i < QR_COUNT(mode) - !may_be_none; i++)
        if (qr_json_says(v, mode[i])) {
            *out = calls[i];
            return 0;
        }
    return qr_err_at(err, QR_E_INVALID, path, "%s must be %s, found %s", path, may_be_none ? EXPECTED : "\"auto\" or \"required\"",
                     v ? qr_json_excerpt(excerpt, v) : "none");
}

static int read_allowed(struct choice *c, const struct qr_json *v, struct qr_err *err)
{
    const struct qr_json *of = qr_json_find(v, "allowed_tools");
    if (qr_json_is_null(of) || qr_json_type(of) != QR_JSON_T_OBJECT)
        return qr_err_at(err, QR_E_INVALID, "tool_choice.allowed_tools", "tool_choice.allowed_tools is required: an object with mode and tools");
    c->names = qr_json_find(of, "tools");
    if (qr_json_is_null(c->names) || qr_json_type(c->names) != QR_JSON_T_ARRAY || qr_json_count(c->names) < 1 || qr_json_count(c->names) > QR_TOOLS_MAX)
        return qr_err_at(err, QR_E_INVALID, "tool_choice.allowed_tools.tools", "tool_choice.allowed_tools.tools must be an array of 1 to %d tools",
                         QR_TOOLS_MAX);
    return read_mode(&c->calls, qr_json_find(of, "mode"), false, "tool_choice.allowed_tools.mode", err);
}

static int read_choice(struct choice *c, const struct qr_json *v, struct qr_err *err)
{
    if (qr_json_type(v) == QR_JSON_T_STRING)
        return read_mode(&c->calls, v, true, "tool_choice", err);
    if (qr_json_type(v) == QR_JSON_T_OBJECT && qr_json_says(qr_json_find(v, "type"), "allowed_tools"))
        return read_allowed(c, v, err);
    if (qr_json_type(v) != QR_JSON_T_OBJECT || !qr_json_says(qr_json_find(v, "type"), "function"))
        return qr_wrong_type(err, "tool_choice", EXPECTED, v);
    const struct qr_json *function = qr_json_find(v, "function");
    c->one = qr_json_text(function ? qr_json_find(function, "name") : NULL, NULL);
    c->calls = QR_CALL_REQUIRED;
    return c->one ? 0 : qr_err_at(err, QR_E_INVALID, "tool_choice.function.name", "tool_choice.function.name is required: a string");
}

static bool has_tool(const struct qr_json *tools, const char *name)
{
    for (const struct qr_json *t = tools ? qr_json_first(tools) : NULL; t; t = qr_json_after(t))
        if (is_function(t) && strcmp(name_of(t), name) == 0)
            return true;
    return false;
}

/* Every tool that the choice names is among those given. */
static int check_names(const struct choice *c, const struct qr_json *tools, struct qr_err *err)
{
    int32_t i = 0;
    char at[80];
    if (c->one && !has_tool(tools, c->one))
        return qr_err_at(err, QR_E_INVALID, "tool_choice", "tool_choice names the tool '%.64s', which is not among tools", c->one);
    for (const struct qr_json *t = c->names ? qr_json_first(c->names) : NULL; t; t = qr_json_after(t), i++) {
        const struct qr_json *function = qr_json_find(t, "function");
        const char *name = qr_json_text(function ? qr_json_find(function, "name") : NULL, NULL);
        snprintf(at, sizeof at, "tool_choice.allowed_tools.tools[%d]", i);
        if (!name || !has_tool(tools, name))
            return qr_err_at(err, QR_E_INVALID, at, "%s names the tool '%.64s', which is not among tools", at, name ? name : "");
    }
    return 0;
}

static bool may_call(const struct choice *c, const struct qr_json *tool)
{
    const char *name = name_of(tool);
    if (c->one)
        return strcmp(name, c->one) == 0;
    for (const struct qr_json *t = c->names ? qr_json_first(c->names) : NULL; t; t = qr_json_after(t))
        if (strcmp(qr_json_str(qr_json_find(qr_json_find(t, "function"), "name"), NULL), name) == 0)
            return true;
    return !c->names;
}

/* A copy of the functions that the choice takes (NULL: of all), with their places. */
static int copy_tools(struct qr_json **out, int32_t place[QR_TOOLS_MAX], const struct qr_json *tools, const struct choice *c, struct qr_err *err)
{
    struct qr_buf text = {0};
    int32_t i = 0, n = 0;
    qr_buf_put_byte(&text, '[');
    for (const struct qr_json *t = qr_json_first(tools); t; t = qr_json_after(t), i++) {
        if (!is_function(t) || (c && !may_call(c, t)))
            continue;
        qr_buf_put_comma(&text);
        qr_json_print(&text, t);
        if (place)
            place[n] = i;
        n++;
    }
    qr_buf_put_byte(&text, ']');
    *out = NULL;
    const int rc = n > 0 ? qr_json_parse(out, text.data, text.len, &qr_json_limits_request, err) : 0;
    qr_buf_release(&text);
    return rc;
}

int qr_tools_settle(struct qr_params *p, struct qr_err *err)
{
    struct qr_tool_params *t = &p->tools;
    struct choice c = {.calls = QR_CALL_AUTO};
    int32_t n = 0, n_functions = 0;
    int rc = t->choice ? read_choice(&c, t->choice, err) : 0;
    for (const struct qr_json *e = t->given ? qr_json_first(t->given) : NULL; e; e = qr_json_after(e), n++)
        n_functions += is_function(e);
    rc = rc ? rc : check_names(&c, t->given, err);
    if (rc == 0 && c.calls == QR_CALL_REQUIRED && n_functions == 0)
        rc = qr_err_at(err, QR_E_INVALID, "tool_choice", "tool_choice \"required\" needs tools, and there is none");
    t->calls = n_functions > 0 ? c.calls : QR_CALL_NONE;
    if (rc != 0 || t->calls == QR_CALL_NONE)
        return rc; /* "none" keeps tools from the template */
    if (n_functions < n)
        rc = copy_tools(&t->functions, NULL, t->given, NULL, err);
    t->shown = t->functions ? t->functions : t->given;
    return rc ? rc : copy_tools(&t->callable, t->place, t->given, &c, err);
}

/* ---- thinking ---- */

int qr_read_reasoning_format(struct qr_params *p, const struct qr_json *v, const struct qr_params_context *context, struct qr_err *err)
{
    static const struct {
        const char *name;
        bool separate, include;
    } known[] = {{"auto", true, true}, {"deepseek", true, true}, {"parsed", true, true}, {"none", false, true}, {"raw", false, true}, {"hidden", true, false}};
    char excerpt[72];
    for (int i = 0; i < QR_COUNT(known); i++)
        if (qr_json_says(v, known[i].name)) {
            p->thinking.separate = known[i].separate;
            p->thinking.include = known[i].include;
            return 0;
        }
    return qr_err_at(err, QR_E_INVALID, "reasoning_format",
                     "reasoning_format must be \"auto\", \"deepseek\", \"parsed\", \"none\", \"raw\" or \"hidden\", found %s",
                     qr_json_excerpt(excerpt, v));
}

/* A variable for the template, unless chat_template_kwargs has it. */
static void put_variable(struct qr_buf *out, const struct qr_json *kwargs, const char *name, const struct qr_json *value, const char *text)
{
    if ((!value && !text) || (kwargs && qr_json_find(kwargs, name)))
        return;
    qr_buf_put_comma(out);
    qr_json_put_str(out, name, strlen(name));
    qr_buf_put_byte(out, ':');
    if (value)
        qr_json_print(out, value);
    else
        qr_buf_put_str(out, text);
}

static bool is_false(const struct qr_json *v)
{
    return v && qr_json_type(v) == QR_JSON_T_BOOL && !qr_json_bool(v);
}

int qr_thinking_settle(struct qr_params *p, struct qr_err *err)
{
    struct qr_thinking_params *t = &p->thinking;
    const struct qr_json *given = p->template_kwargs, *own = given ? qr_json_find(given, "enable_thinking") : NULL;
    const char *off = !t->enable && qr_json_says(t->effort, "none") ? "false" : NULL;
    t->off = own ? is_false(own) : off || is_false(t->enable) || is_false(given ? qr_json_find(given, "thinking") : NULL);
    if (!t->enable && !t->effort)
        return 0;
    struct qr_buf text = {0};
    qr_buf_put_byte(&text, '{');
    for (const struct qr_json *v = given ? qr_json_first(given) : NULL; v; v = qr_json_after(v))
        put_variable(&text, NULL, qr_json_key(v), v, NULL);
    put_variable(&text, given, "enable_thinking", t->enable, off);
    put_variable(&text, given, "thinking", t->enable, off); /* DeepSeek's and Granite's name for it */
    put_variable(&text, given, "reasoning_effort", t->effort, NULL);
    qr_buf_put_byte(&text, '}');
    const int rc = qr_json_parse(&p->kwargs, text.data, text.len, &qr_json_limits_request, err);
    qr_buf_release(&text);
    p->template_kwargs = rc == 0 ? p->kwargs : NULL;
    return rc;
}
