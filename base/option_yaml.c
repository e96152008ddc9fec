/* The configuration file: a YAML mapping, read event by event; mappings inside it only where names of settings have dots. What YAML offers beyond
 * that (anchors, aliases, tags, several documents) is refused with the place named; the file is short and the parser is someone else's.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "base/assert.h"
#include "base/exhausted.h"
#include "base/mem.h"
#include "base/option_set.h"

#define FILE_MAX_BYTES ((size_t)1 << 20)

struct reader {
    struct qr_option_set *s;
    const char *path, *text; /* borrowed */
    size_t n_text;
    yaml_parser_t parser;
    yaml_event_t event; /* the current one; deleted before the next is read */
    bool has_event;
    bool *seen; /* owned [n rows] */
    char prefix[QR_OPTION_NAME_MAX + 2]; /* of names in the mapping that is being read: "optimizer." */
    struct qr_err *err;
};

static int read_file(const char *path, struct qr_buf *out, struct qr_err *err)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return qr_err_set(err, QR_E_USAGE, "cannot open the configuration file '%.200s': %s", path, strerror(errno));
    qr_buf_reserve(out, FILE_MAX_BYTES + 1);
    out->len = fread(out->data, 1, FILE_MAX_BYTES + 1, f);
    int rc = 0;
    if (ferror(f))
        rc = qr_err_set(err, QR_E_USAGE, "cannot read the configuration file '%.200s': %s", path, strerror(errno));
    else if (out->len > FILE_MAX_BYTES)
        rc = qr_err_set(err, QR_E_USAGE, "the configuration file '%.200s' is larger than 1 MiB", path);
    fclose(f);
    return rc;
}

static int fail_at(struct reader *r, yaml_mark_t mark, const char *what)
{
    return qr_err_set(r->err, QR_E_USAGE, "%.200s:%zu:%zu: %s", r->path, mark.line + 1, mark.column + 1, what);
}

static int fail_here(struct reader *r, const char *what)
{
    return fail_at(r, r->event.start_mark, what);
}

/* libyaml leaves the mark unset for errors in the bytes themselves; those have an offset instead. */
static yaml_mark_t mark_of_offset(const struct reader *r, size_t offset)
{
    yaml_mark_t mark = {0};
    for (size_t i = 0; i < offset && i < r->n_text; i++) {
        mark.column += ((unsigned char)r->text[i] & 0xC0) != 0x80;
        if (r->text[i] == '\n')
            mark = (yaml_mark_t){.line = mark.line + 1};
    }
    return mark;
}

static int fail_parser(struct reader *r)
{
    const yaml_parser_t *p = &r->parser;
    yaml_mark_t mark = p->error == YAML_READER_ERROR ? mark_of_offset(r, p->problem_offset) : p->problem_mark;
    return fail_at(r, mark, p->problem ? p->problem : "not valid YAML");
}

static void drop_event(struct reader *r)
{
    if (r->has_event)
        yaml_event_delete(&r->event);
    r->has_event = false;
}

static int next(struct reader *r)
{
    drop_event(r);
    if (!yaml_parser_parse(&r->parser, &r->event))
        return fail_parser(r);
    r->has_event = true;
    const yaml_event_t *e = &r->event;
    if (e->type == YAML_ALIAS_EVENT)
        return fail_here(r, "aliases (*name) are not allowed here");
    bool anchor = (e->type == YAML_SCALAR_EVENT && e->data.scalar.anchor) ||
                  (e->type == YAML_SEQUENCE_START_EVENT && e->data.sequence_start.anchor) ||
                  (e->type == YAML_MAPPING_START_EVENT && e->data.mapping_start.anchor);
    if (anchor)
        return fail_here(r, "anchors (&name) are not allowed here");
    bool tag = (e->type == YAML_SCALAR_EVENT && e->data.scalar.tag) ||
               (e->type == YAML_SEQUENCE_START_EVENT && e->data.sequence_start.tag) ||
               (e->type == YAML_MAPPING_START_EVENT && e->data.mapping_start.tag);
    return tag ? fail_here(r, "tags (!name) are not allowed here") : 0;
}

static struct qr_option_origin origin_here(struct reader *r)
{
    char label[300];
    int n = snprintf(label, sizeof label, "%.200s:%zu:%zu", r->path, r->event.start_mark.line + 1,
                     r->event.start_mark.column + 1);
    return (struct qr_option_origin){QR_FROM_FILE, qr_option_keep(r->s, label, (size_t)n)};
}

/* The current scalar's text, kept by the set; NULL and an error when it contains U+0000. */
static const char *scalar_text(struct reader *r)
{
    const char *text = (const char *)r->event.data.scalar.value;
    size_t len = r->event.data.scalar.length;
    if (memchr(text, 0, len)) {
        fail_here(r, "the character U+0000 is not allowed here");
        return NULL;
    }
    return qr_option_keep(r->s, text, len);
}

static bool is_null(const yaml_event_t *e)
{
    if (e->type != YAML_SCALAR_EVENT || e->data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
        return false;
    const char *t = (const char *)e->data.scalar.value;
    return *t == 0 || strcmp(t, "~") == 0 || strcmp(t, "null") == 0;
}

/* The items of the sequence that just began, as one list. */
static int read_sequence(struct reader *r, int32_t row)
{
    struct qr_option_origin origin = origin_here(r);
    struct qr_buf items = {0}; /* of const char * */
    int rc;
    while ((rc = next(r)) == 0 && r->event.type == YAML_SCALAR_EVENT) {
        const char *text = scalar_text(r);
        if (!text) {
            rc = r->err->code;
            break;
        }
        qr_buf_put(&items, &text, sizeof text);
    }
    if (!rc && r->event.type != YAML_SEQUENCE_END_EVENT)
        rc = fail_here(r, "expected a plain value as list item; lists and mappings cannot be nested here");
    if (!rc)
        qr_option_assign_list(r->s, row, (const char *const *)(void *)items.data, (int32_t)(items.len / sizeof(char *)), origin);
    qr_buf_release(&items);
    return rc;
}

static int read_value(struct reader *r, int32_t row)
{
    const struct qr_option *o = &r->s->table[row];
    bool may_be_unset = o->type == QR_OPT_STR || o->type == QR_OPT_LIST;
    if (r->event.type == YAML_SEQUENCE_START_EVENT && o->type == QR_OPT_LIST)
        return read_sequence(r, row);
    if (r->event.type == YAML_SEQUENCE_START_EVENT)
        return fail_here(r, "a list is not allowed here: this setting has one value");
    if (r->event.type != YAML_SCALAR_EVENT)
        return fail_here(r, "a mapping is not allowed here: settings are flat");
    struct qr_option_origin origin = origin_here(r);
    if (is_null(&r->event) && may_be_unset) {
        qr_option_clear(r->s, row, origin);
        return 0;
    }
    const char *text = scalar_text(r);
    if (!text)
        return r->err->code;
    if (o->type != QR_OPT_LIST)
        return qr_option_assign(r->s, row, text, origin, r->err);
    qr_option_assign_list(r->s, row, &text, 1, origin);
    return 0;
}

/* The row whose name is `name` with '.' or more behind it, or -1: then `name` stands for a mapping. */
static int32_t group_row(const struct reader *r, const char *name)
{
    const size_t len = strlen(name);
    for (int32_t i = 0; i < r->s->n; i++)
        if (strncmp(r->s->table[i].name, name, len) == 0 && r->s->table[i].name[len] == '.')
            return i;
    return -1;
}

static int read_pair(struct reader *r);

/* The pairs of a mapping that has begun, up to its end. */
static int read_pairs(struct reader *r)
{
    int rc;
    while ((rc = next(r)) == 0 && r->event.type != YAML_MAPPING_END_EVENT)
        if ((rc = read_pair(r)) != 0)
            return rc;
    return rc;
}

/* What stands behind the name of a group. No deeper than names have dots. */
static int read_group(struct reader *r, const char *name)
{
    char outer[sizeof r->prefix], what[300];
    int rc = next(r);
    if (rc || is_null(&r->event))
        return rc;
    if (r->event.type != YAML_MAPPING_START_EVENT) {
        snprintf(what, sizeof what, "expected settings of '%.80s', such as '%.80s', in a mapping", name, r->s->table[group_row(r, name)].name);
        return fail_here(r, what);
    }
    memcpy(outer, r->prefix, sizeof outer);
    snprintf(r->prefix, sizeof r->prefix, "%.*s.", QR_OPTION_NAME_MAX, name); /* the beginning of a name */
    rc = read_pairs(r);
    memcpy(r->prefix, outer, sizeof outer);
    return rc;
}

static int read_pair(struct reader *r)
{
    if (r->event.type != YAML_SCALAR_EVENT)
        return fail_here(r, "expected the name of a setting");
    char name[sizeof r->prefix + 128];
    snprintf(name, sizeof name, "%s%.120s", r->prefix, (const char *)r->event.data.scalar.value);
    const bool whole = strlen(name) == strlen(r->prefix) + r->event.data.scalar.length;
    int32_t row = whole ? qr_option_row(r->s, name, strlen(name)) : -1;
    if (row < 0 && whole && group_row(r, name) >= 0)
        return read_group(r, name);
    if (row < 0) {
        char what[400];
        const char *near = qr_option_nearest(r->s, name);
        if (near && strcmp(near, name) == 0) /* --config and its like */
            snprintf(what, sizeof what, "'%.80s' cannot be set in a file: give it on the command line", name);
        else
            snprintf(what, sizeof what, near ? "unknown setting '%.80s'; did you mean '%s'?" : "unknown setting '%.80s'", name, near);
        return fail_here(r, what);
    }
    if (r->seen[row])
        return fail_here(r, "this setting was given before in the same file");
    r->seen[row] = true;
    int rc = next(r);
    return rc ? rc : read_value(r, row);
}

static int read_document(struct reader *r)
{
    int rc = next(r); /* stream start */
    if (!rc)
        rc = next(r);
    if (rc || r->event.type == YAML_STREAM_END_EVENT)
        return rc;
    QR_ASSERT(r->event.type == YAML_DOCUMENT_START_EVENT);
    rc = next(r);
    if (rc)
        return rc;
    bool empty = is_null(&r->event);
    if (!empty && r->event.type != YAML_MAPPING_START_EVENT)
        return fail_here(r, "expected settings, one 'name: value' per line");
    if (!empty && (rc = read_pairs(r)) != 0)
        return rc;
    if (!rc)
        rc = next(r); /* document end */
    if (!rc)
        rc = next(r);
    if (!rc && r->event.type != YAML_STREAM_END_EVENT)
        return fail_here(r, "expected the end of the file: only one document is allowed");
    return rc;
}

int qr_option_read_yaml(struct qr_option_set *s, const char *path, struct qr_err *err)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(path != NULL && err != NULL);
    struct qr_buf text = {0};
    int rc = read_file(path, &text, err);
    if (rc)
        goto out;
    struct reader r = {.s = s, .path = path, .text = text.data, .n_text = text.len, .err = err};
    if (!yaml_parser_initialize(&r.parser))
        qr_exhausted("out of memory: YAML parser");
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text.data, text.len);
    r.seen = qr_alloc((size_t)s->n, sizeof *r.seen);
    rc = read_document(&r);
    drop_event(&r);
    yaml_parser_delete(&r.parser);
    qr_free(r.seen);
out:
    qr_buf_release(&text);
    return rc;
}
