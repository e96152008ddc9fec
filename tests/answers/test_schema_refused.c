/* test_schema_refused.c - schemas that are refused: with the path of the keyword, why, and soon. */
#include "schemas.h"

#include <time.h>


Test(schema_refused, a_keyword_that_cannot_be_enforced_is_named_by_its_path)
{
    EXPECT_REFUSED(
        {"{'properties':{'a':{'type':'array','items':{'type':'string'},'uniqueItems':true}}}", "$.properties.a.uniqueItems",
         "uniqueItems", QR_E_UNSUPPORTED},
        {"{'type':'array','not':{'uniqueItems':true}}", "$.not.uniqueItems", "opposite of uniqueItems", QR_E_UNSUPPORTED},
        {"{'type':'object','not':{'propertyNames':{'maxLength':3}}}", "$.not.propertyNames", "opposite of propertyNames", QR_E_UNSUPPORTED},
        {"{'not':{'const':{'a':1}}}", "$.not.const", "opposite of a given object", QR_E_UNSUPPORTED},
        {"{'type':'integer','multipleOf':997}", "$.multipleOf", "multipleOf", QR_E_UNSUPPORTED},
        {"{'type':'array','contains':{'const':1},'maxContains':2,'allOf':[{'contains':{'const':2}}]}", "$.contains", "several contains", QR_E_UNSUPPORTED},
        {"{'properties':{'a b':{'type':'string','pattern':'(a)\\\\1'}}}", "$.properties['a b'].pattern", "", QR_E_UNSUPPORTED},
        {"{'anyOf':[{'$ref':'https://example.com/s.json'}]}", "$.anyOf[0].$ref", "leads outside", QR_E_UNSUPPORTED},
        {"{'$ref':'#tree','$defs':{'a':{'$dynamicAnchor':'n'},'b':{'$dynamicAnchor':'n'},'c':{'$anchor':'tree','items':{'$dynamicRef':'#n'}}}}",
         "$.$defs.c.items.$dynamicRef", "several targets", QR_E_UNSUPPORTED});
}

Test(schema_refused, a_schema_that_is_wrong_or_empty_says_where)
{
    EXPECT_REFUSED(
        {"3", "$", "must be an object, true or false, found number", QR_E_INVALID},
        {"{'type':'text'}", "$.type", "type must be one of", QR_E_INVALID},
        {"{'properties':{'a':3}}", "$.properties.a", "found number", QR_E_INVALID},
        {"{'required':'a'}", "$.required", "must be of type array", QR_E_INVALID},
        {"{'minLength':-1}", "$.minLength", "not negative", QR_E_INVALID},
        {"{'multipleOf':0}", "$.multipleOf", "greater than 0", QR_E_INVALID},
        {"{'$ref':'#'}", "$", "without end", QR_E_INVALID},
        {"{'$ref':'#/$defs/a','$defs':{'a':{'allOf':[{'$ref':'#/$defs/a'}]}}}", "$.$defs.a", "without end", QR_E_INVALID},
        {"{'$ref':'#/$defs/none'}", "$.$ref", "leads to no schema", QR_E_INVALID},
        {"false", "$", "no value is valid", QR_E_INVALID},
        {"{'type':'string','minLength':3,'maxLength':2}", "$", "no value is valid", QR_E_INVALID},
        {"{'type':'integer','exclusiveMinimum':1,'exclusiveMaximum':2}", "$", "no value is valid", QR_E_INVALID},
        {"{'type':'string','enum':[1]}", "$", "no value is valid", QR_E_INVALID},
        {"{'type':'object','properties':{'a':false},'required':['a']}", "$", "no value is valid", QR_E_INVALID},
        {"{'type':'object','properties':{'a':{'$ref':'#'}},'required':['a']}", "", "no text", QR_E_INVALID});
}

Test(schema_refused, strict_asks_for_closed_objects_with_all_members_required)
{
    static const struct schema_refusal rows[] = {
        {"{'type':'array'}", "$.type", "must be object", QR_E_INVALID},
        {"{'anyOf':[{'type':'object'}]}", "$.anyOf", "no anyOf", QR_E_INVALID},
        {"{'type':'object','properties':{}}", "$", "additionalProperties", QR_E_INVALID},
        {"{'type':'object','properties':{'a':{},'b':{}},'required':['a'],'additionalProperties':false}", "$.properties.b", "required", QR_E_INVALID},
        {"{'type':'object','properties':{'a':{'type':['object','null'],'additionalProperties':true}},'required':['a'],'additionalProperties':false}",
         "$.properties.a.additionalProperties", "additionalProperties", QR_E_INVALID},
    };
    const struct qr_schema_options strict = {.strict = true};
    expect_refusals(&strict, rows, QR_COUNT(rows));
    static const struct schema_row good[] = {
        {"{'type':'object','properties':{'a':{'type':['string','null']},'l':{'type':'array','items':{'$ref':'#'}}},'required':['a','l'],"
         "'additionalProperties':false}",
         {"{'a':null,'l':[{'a':'','l':[]}]}"}, {"{'a':null}"}}};
    expect_schemas_with(&strict, good, 1);
}

/* Nested strict objects, levels deep. */
static void nest(struct qr_buf *out, int levels)
{
    for (int i = 0; i < levels; i++)
        qr_buf_put_str(out, "{\"type\":\"object\",\"additionalProperties\":false,\"required\":[\"a\"],\"properties\":{\"a\":");
    qr_buf_put_str(out, "{\"type\":\"null\"}");
    for (int i = 0; i < levels; i++)
        qr_buf_put_str(out, "}}");
}

Test(schema_refused, strict_takes_ten_levels_and_a_thousand_values)
{
    struct words w;
    words_make(&w, NULL);
    for (int more = 0; more < 2; more++) {
        struct qr_grammar *g = NULL;
        struct qr_err err = {0};
        struct qr_buf text = {0};
        nest(&text, 10 + more);
        cr_expect_eq(compile_schema(&g, &w, text.data, &(struct qr_schema_options){.strict = true}, &err), more ? QR_E_INVALID : 0, "%s", err.msg);
        qr_grammar_unref(g);
        g = NULL;
        qr_buf_clear(&text);
        qr_buf_put_str(&text, "{\"type\":\"object\",\"additionalProperties\":false,\"required\":[\"a\"],\"properties\":{\"a\":{\"enum\":[0");
        for (int i = 1; i < 1000 + more; i++)
            qr_buf_printf(&text, ",%d", i);
        qr_buf_put_str(&text, "]}}}");
        cr_expect_eq(compile_schema(&g, &w, text.data, &(struct qr_schema_options){.strict = true}, &err), more ? QR_E_INVALID : 0, "%s", err.msg);
        qr_grammar_unref(g);
        qr_buf_release(&text);
    }
    words_free(&w);
}

/* ---- bombs ---- */

/* Of this thread: a loaded machine does not count. */
static int64_t cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* head, then `each` n times with commas between, then tail; in each, @ is the number, + the next one. */
static void put_many(struct qr_buf *out, const char *head, const char *each, int n, const char *tail)
{
    qr_buf_put_str(out, head);
    for (int i = 0; i < n; i++) {
        for (const char *c = each; *c; c++) {
            if (*c == '@' || *c == '+')
                qr_buf_printf(out, "%d", i + (*c == '+'));
            else
                qr_buf_put_byte(out, *c == '\'' ? '"' : *c);
        }
        qr_buf_put_str(out, i + 1 < n ? "," : "");
    }
    qr_buf_put_str(out, tail);
}

Test(schema_refused, bombs_compile_or_are_refused_within_two_seconds)
{
    static const struct { const char *head, *each; int n; const char *tail; enum qr_code code; } bomb[] = {
        {"{\"enum\":[", "'value @ of many'", 5000, "]}", QR_OK},
        {"{\"enum\":[", "{'a':@}", 2000, "]}", QR_OK},
        {"{\"type\":\"object\",\"properties\":{", "'p@':{'type':'string'}", 40, "}}", QR_OK},
        {"{\"type\":\"object\",\"properties\":{", "'p@':{'type':'string'}", 1000, "}}", QR_OK},
        {"{\"type\":\"object\",\"properties\":{", "'p@':{'type':'string'}", 5000, "}}", QR_E_TOO_LARGE},
        {"{\"type\":\"string\",\"minLength\":1,\"maxLength\":100000,\"allOf\":[", "{'minLength':@}", 100, "]}", QR_OK},
        {"{\"allOf\":[", "{'anyOf':[{'required':['a@']},{'required':['b@']}]}", 30, "]}", QR_E_TOO_LARGE},
        {"{\"$ref\":\"#/$defs/d0\",\"$defs\":{\"d200\":{},", "'d@':{'$ref':'#/$defs/d+'}", 200, "}}", QR_OK},
        {"{\"$ref\":\"#/$defs/d0\",\"$defs\":{\"d500\":{},", "'d@':{'properties':{'a':{'$ref':'#/$defs/d+'}}}", 500, "}}", QR_E_TOO_LARGE},
        {"{\"$ref\":\"#/$defs/d0\",\"$defs\":{\"d30\":{\"type\":\"null\"},",
         "'d@':{'anyOf':[{'$ref':'#/$defs/d+'},{'$ref':'#/$defs/d+'}]}", 30, "}}", QR_E_TOO_LARGE},
        {"{\"oneOf\":[", "{'required':['k@']}", 60, "]}", QR_OK},
        {"{\"patternProperties\":{", "'a@':{'minLength':@}", 20, "}}", QR_E_TOO_LARGE},
        {"{\"dependentRequired\":{", "'a@':['b@']", 8, "}}", QR_OK},
        {"{\"type\":\"array\",\"prefixItems\":[", "{'type':'integer'}", 3000, "]}", QR_OK},
    };
    struct words w;
    words_make(&w, NULL);
    for (int i = 0; i < QR_COUNT(bomb); i++) {
        struct qr_grammar *g = NULL;
        struct qr_err err = {0};
        struct qr_buf text = {0};
        put_many(&text, bomb[i].head, bomb[i].each, bomb[i].n, bomb[i].tail);
        const int64_t start = cpu_us();
        const int rc = compile_schema(&g, &w, text.data, &(struct qr_schema_options){0}, &err);
        const int64_t took_us = cpu_us() - start;
        cr_expect_eq(rc, bomb[i].code, "%s %d: %d %s: %s", bomb[i].each, bomb[i].n, rc, err.param, err.msg);
        /* Tens of milliseconds in release, with sanitizers some ten times that; a bomb that goes off takes minutes. */
        cr_expect_lt(took_us, 20000000, "%s %d: %lld us", bomb[i].each, bomb[i].n, (long long)took_us);
        qr_grammar_unref(g);
        qr_buf_release(&text);
    }
    words_free(&w);
}
