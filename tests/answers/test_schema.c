/* test_schema.c - what each keyword of JSON Schema takes and refuses, alone and beside others. */
#include "schemas.h"

Test(schema, types_are_told_apart_and_1_0_is_an_integer)
{
    EXPECT_SCHEMAS(
        {"true", {"null", "true", "1", "-0.5e-7", "''", "[]", "{}", "[1,{'a':[null]}]"}, {"", "nul", "01", "1.", ".5", "'", "[1,]", "{'a'}", " 1", "1 "}},
        {"{}", {"null", "{'x':1}"}, {"x"}},
        {"{'type':'null'}", {"null"}, {"0", "false", "'null'"}},
        {"{'type':'boolean'}", {"true", "false"}, {"1", "null"}},
        {"{'type':'integer'}", {"0", "-1", "12", "1.0", "-3.000", "1e3", "1.5e+300", "12345678901234567890"},
         {"1.5", "1e-1", "15e-1", "01", "--1", "123456789012345678901", "'1'"}},
        {"{'$schema':'http://json-schema.org/draft-04/schema#','type':'integer','minimum':1}", {"1", "20"}, {"1.0", "1e1", "0"}},
        {"{'type':'number'}", {"0", "1.5", "-2.5e-07", "1e+16", "1.7976931348623157e+308", "12.345E5"}, {"1.", "1e", "1e400", "'1'", "1.8e308"}},
        {"{'type':'string'}", {"''", "'a\\n\\u00e9\xc3\xa9\\ud83d\\ude00'", "'/'"}, {"'a", "'\n'", "'\\x'", "'\\ud83d'", "'\xff'", "1"}},
        {"{'type':['string','null']}", {"null", "'x'"}, {"1", "true"}},
        {"{'type':'object'}", {"{}", "{'a':1,'b':[2]}", "{\n  'a': 1\n}"}, {"[]", "{'a':1,}", "{,}", "{'a' :1}"}},
        {"{'type':'array'}", {"[]", "[1]", "[1, 2]", "[\n    1,\n    []\n]"}, {"{}", "[,]", "[1 ,2]", "[ ]"}});
}

Test(schema, plain_integers_are_digits_alone)
{
    static const struct schema_row rows[] = {
        {"{'type':'integer'}", {"0", "-7", "120"}, {"-0", "1.0", "1e3", "-0.0", "01"}},
        {"{'type':'integer','minimum':5,'maximum':12}", {"5", "12"}, {"5.0", "13", "1e1"}},
        {"{'type':'integer','multipleOf':5}", {"0", "-15"}, {"15.0", "7"}},
        {"{'enum':[3,2.5]}", {"3", "2.5"}, {"3.0", "2"}},
        {"{'type':'number'}", {"1.0", "2", "1e3"}, {"1."}},
    };
    expect_schemas_with(&(struct qr_schema_options){.plain_integers = true}, rows, QR_COUNT(rows));
}

Test(schema, blanks_are_those_of_json_dumps_and_bounded)
{
    char deep[128] = "{\n";
    EXPECT_SCHEMAS({"{'properties':{'a':{'type':'array'}}}", {"{'a':[1,2]}", "{'a': [1, 2]}", "{\n\t'a': [\n\t\t1\n\t]\n}"},
                    {"{ 'a':[1]}", "{'a':  1}", "{'a':[1\n\n]}", "{'a':[1]} ", "\n{}"}});
    static const struct schema_row compact[] = {{"{'type':['array','object']}", {"[1,2]", "{'a':1}"}, {"[1, 2]", "{'a': 1}", "[\n1]"}}};
    expect_schemas_with(&(struct qr_schema_options){.compact = true}, compact, 1);
    struct words w;
    struct qr_grammar *g = NULL;
    struct qr_err err = {0};
    words_make(&w, NULL);
    cr_assert_eq(compile_schema(&g, &w, "true", &(struct qr_schema_options){0}, &err), 0);
    for (int n = 80; n <= 81; n++) {
        memset(deep + 2, ' ', (size_t)n);
        strcpy(deep + 2 + n, "\"a\": 1}");
        cr_expect_eq(words_match(g, deep, strlen(deep)), n == 80, "%d blanks", n);
    }
    qr_grammar_unref(g);
    words_free(&w);
}

Test(schema, const_and_enum_take_their_values_in_every_form)
{
    EXPECT_SCHEMAS(
        {"{'const':'a b'}", {"'a b'"}, {"'a'", "'a bc'", "null"}},
        {"{'const':'\\u00e9\\n'}", {"'\xc3\xa9\\n'", "'\\u00e9\\n'", "'\\u00E9\\n'"}, {"'e\\n'"}},
        {"{'const':1}", {"1", "1.0", "1e0"}, {"2", "1.1", "true"}},
        {"{'const':-0.25}", {"-0.25", "-0.250", "-2.5e-1"}, {"0.25", "-0.251"}},
        {"{'const':0}", {"0", "-0", "0.0"}, {"1", "false"}},
        {"{'const':1e-07}", {"1e-07", "1e-7", "0.0000001"}, {"1e-08"}},
        {"{'const':{'b':[1,{}],'a':null}}", {"{'b':[1,{}],'a':null}", "{\n  'b': [\n    1.0,\n    {}\n  ],\n  'a': null\n}"}, {"{'b':[1,{}]}", "{}"}},
        {"{'enum':['red','green',3,null,true,[1]]}", {"'red'", "'green'", "3.0", "null", "true", "[1]"}, {"'re'", "'reds'", "false", "[2]", "[]"}},
        {"{'enum':['a','bb','ccc',1,2,3],'type':'string','minLength':2}", {"'bb'", "'ccc'"}, {"'a'", "1"}},
        {"{'enum':[1,5,10],'minimum':5}", {"5", "10"}, {"1"}},
        {"{'enum':[{'a':1},{'a':'x'},{}],'properties':{'a':{'type':'string'}}}", {"{'a':'x'}", "{}"}, {"{'a':1}"}},
        {"{'enum':['a','b'],'allOf':[{'enum':['b','c']}]}", {"'b'"}, {"'a'", "'c'"}});
}

Test(schema, numbers_stay_in_their_ranges_in_every_form)
{
    EXPECT_SCHEMAS(
        {"{'type':'integer','minimum':3,'maximum':120}", {"3", "9", "10", "99", "100", "119", "120", "7.0", "1.2e2", "1e1"},
         {"2", "121", "200", "1000", "-5", "3.5", "1e3"}},
        {"{'type':'integer','minimum':-12,'maximum':5}", {"-12", "-9", "-1", "0", "-0", "5"}, {"-13", "6", "-100", "-20"}},
        {"{'type':'integer','exclusiveMinimum':0}", {"1", "99999999999999999999"}, {"0", "-1", "0.0"}},
        {"{'minimum':1.5,'exclusiveMaximum':2}", {"1.5", "1.50", "1.75", "1.99999", "1.5e0", "'x'"}, {"1.4999", "2", "2.0", "1", "15"}},
        {"{'type':'number','minimum':0,'maximum':1}", {"0", "1", "0.5", "1e-07", "5e-324", "1.0", "0.0", "-0.0"}, {"1.0000001", "-0.1", "1e1", "1e-999"}},
        {"{'type':'number','exclusiveMinimum':0}", {"1e-320", "0.00001", "1.7e308"}, {"0", "0.0", "-1", "0e5"}},
        {"{'type':'number','maximum':-1.25}", {"-1.25", "-2", "-1e20"}, {"-1.2", "0", "1.25", "-1e-3"}},
        {"{'minimum':5,'exclusiveMinimum':true}", {"6", "5.1"}, {"5", "4"}},
        {"{'maximum':5,'exclusiveMaximum':false}", {"5"}, {"5.5"}},
        {"{'type':'integer','multipleOf':7}", {"0", "7", "-14", "21.0", "70000000000000000007"}, {"1", "8", "-13", "7.5"}},
        {"{'multipleOf':0.01}", {"0.01", "1.25", "12", "-3.5", "0.10", "19.99"}, {"0.001", "1.255"}},
        {"{'multipleOf':0.25,'minimum':1,'maximum':2}", {"1", "1.25", "1.5", "2.00"}, {"1.3", "0.75", "2.25"}},
        {"{'type':'integer','multipleOf':1000}", {"0", "1000", "25000"}, {"100", "1500", "10001"}},
        {"{'type':'number','not':{'multipleOf':3}}", {"1", "2.5", "10"}, {"3", "0", "-9"}},
        {"{'type':'integer','not':{'enum':[3,5]}}", {"4", "33", "2.0"}, {"3", "5", "3.0", "5.00"}},
        {"{'type':'number','not':{'type':'integer'}}", {"1.5", "-0.25", "1e-3"}, {"1", "1.0", "2.00", "1e3"}});
}

Test(schema, strings_have_lengths_patterns_and_formats)
{
    EXPECT_SCHEMAS(
        {"{'type':'string','minLength':2,'maxLength':3}", {"'ab'", "'abc'", "'\\n\xc3\xa9'", "'\\ud83d\\ude00x'"}, {"'a'", "'abcd'", "''",
         "'\\ud83d\\ude00'"}},
        {"{'pattern':'b+'}", {"'abbc'", "'b'", "1", "null"}, {"'ac'", "''"}},
        {"{'type':'string','pattern':'^a.c$','minLength':3}", {"'abc'", "'a\\tc'"}, {"'ac'", "'abcd'"}},
        {"{'type':'string','pattern':'^[a-z]+$','maxLength':3,'allOf':[{'pattern':'x'}]}", {"'axb'", "'x'"}, {"'abc'", "'axbc'"}},
        {"{'type':'string','not':{'pattern':'^a'}}", {"'b'", "''"}, {"'a'", "'ab'"}},
        {"{'type':'string','not':{'enum':['','no']}}", {"'n'", "'yes'", "'nope'"}, {"''", "'no'"}},
        {"{'type':'string','format':'date'}", {"'2024-02-29'", "'1999-12-31'"}, {"'2023-02-29'", "'1900-02-29'", "'2024-13-01'", "'0000-01-01'",
         "'2024-1-1'"}},
        {"{'type':'string','format':'time'}", {"'23:59:59Z'", "'00:00:00.25+01:30'", "'23:59:60Z'"}, {"'24:00:00Z'", "'12:00'", "'12:00:60Z'"}},
        {"{'type':'string','format':'date-time'}", {"'2024-02-29T01:02:03Z'", "'2024-05-01t01:02:03.5-08:00'"}, {"'2024-02-30T01:02:03Z'", "'2024-05-01'"}},
        {"{'type':'string','format':'duration'}", {"'P3W'", "'P1Y2M3DT4H5M6S'", "'PT1M'"}, {"'P'", "'PT'", "'P1Y2W'", "'1D'"}},
        {"{'type':'string','format':'email'}", {"'joe.b+x@example.co'"}, {"'joe'", "'@x'", "'.a@b'", "'a..b@c'", "'a@-b'"}},
        {"{'type':'string','format':'hostname'}", {"'a.example-1.com'", "'localhost'"}, {"'-a'", "'a_b'", "'a..b'", "'xn--x'", "''"}},
        {"{'type':'string','format':'ipv4'}", {"'127.0.0.1'", "'255.255.255.255'"}, {"'256.1.1.1'", "'1.2.3'", "'01.2.3.4'"}},
        {"{'type':'string','format':'ipv6'}", {"'::'", "'::1'", "'1:2:3:4:5:6:7:8'", "'::ffff:1.2.3.4'", "'1::8'"}, {"'1:2'", "':::'", "'12345::'",
         "'1::2::3'"}});
    EXPECT_SCHEMAS(
        {"{'type':'string','format':'uuid'}", {"'2eb8aa08-AA98-11ea-b4aa-73b441d16380'"}, {"'2eb8aa08-aa98-11ea-b4aa-73b441d1638'", "'x'"}},
        {"{'type':'string','format':'uri'}", {"'https://u@h:80/p?q=%20#f'", "'urn:a:b'", "'http://[::1]/'"}, {"'/p'", "'http://a b'", "':x'", "'%x'"}},
        {"{'type':'string','format':'uri-reference'}", {"'/a?b'", "'a/b'", "'#f'", "''", "'//h/p'"}, {"'a b'", "'\\\\x'"}},
        {"{'type':'string','format':'json-pointer'}", {"''", "'/a~1b/0'"}, {"'a'", "'/~2'"}},
        {"{'type':'string','format':'relative-json-pointer'}", {"'0#'", "'1/a'"}, {"'-1'", "'01'"}},
        {"{'type':'string','format':'uri-template'}", {"'/a/{b}/{?c,d*}'"}, {"'{a'", "'}'"}},
        {"{'type':'string','format':'regex'}", {"'^a(b|c)*\\\\d$'", "'[a-z]+?'"}, {"'('", "'a**'", "'['"}},
        {"{'type':'string','format':'color-of-others'}", {"'anything'"}, {"1"}},
        {"{'format':'date'}", {"1", "'2024-01-01'"}, {"'x'"}});
}

Test(schema, members_come_in_order_once_and_others_behind_them)
{
    EXPECT_SCHEMAS(
        {"{'type':'object','properties':{'a':{'type':'integer'},'b':{'type':'string'},'c':{}},'required':['b']}",
         {"{'b':''}", "{'a':1,'b':'','c':null}", "{'b':'','c':1,'x':2,'y':3}", "{'b':'','x':1}"},
         {"{}", "{'a':1}", "{'b':'','a':1}", "{'a':'x','b':''}", "{'b':'','b':''}", "{'b':'','x':1,'c':2}", "{'b':'','x':1,'b':''}"}},
        {"{'properties':{'a':{'type':'integer'}},'additionalProperties':false}", {"{}", "{'a':1}", "[]"}, {"{'x':1}", "{'a':1,'x':1}", "{'a':1,'a':1}"}},
        {"{'additionalProperties':{'type':'integer'},'properties':{'a':{'type':'string'}}}", {"{'a':'','b':1}", "{'ab':1}"}, {"{'a':1}", "{'b':''}"}},
        {"{'type':'object','required':['x','y']}", {"{'x':1,'y':2}", "{'y':1,'x':2}", "{'z':0,'y':1,'q':0,'x':2}"}, {"{'x':1}", "{}", "{'x':1,'x':2}"}},
        {"{'properties':{'a':false,'b':{}}}", {"{'b':1}", "{}"}, {"{'a':1}"}},
        {"{'type':'object','properties':{'\\u00e9':{}},'required':['\\u00e9'],'additionalProperties':false}", {"{'\xc3\xa9':1}", "{'\\u00e9':1}"},
         {"{'e':1}"}},
        {"{'type':'object','properties':{'a\\'b':{'const':1}},'additionalProperties':false}", {"{}"}, {"{'a':1}"}});
}

Test(schema, names_are_matched_with_patterns_and_counted)
{
    EXPECT_SCHEMAS(
        {"{'type':'object','patternProperties':{'^n':{'type':'integer'},'^s':{'type':'string'}},'additionalProperties':false}",
         {"{}", "{'n1':1,'s':'','n':2}"}, {"{'n':''}", "{'s':1}", "{'x':1}"}},
        {"{'type':'object','properties':{'na':{'maximum':5}},'patternProperties':{'^n':{'type':'integer'}}}", {"{'na':5}", "{'nb':9,'x':''}"},
         {"{'na':''}", "{'na':6}"}},
        {"{'type':'object','patternProperties':{'a':{'type':'integer'},'b':{'minimum':3}}}", {"{'a':1,'b':3,'ab':4,'b2':''}"}, {"{'ab':1}",
         "{'ba':'x'}", "{'b':2}"}},
        {"{'type':'object','patternProperties':{'^.*$':{'type':'integer'}}}", {"{'a':1,'b':2}"}, {"{'a':''}", "{'a\\n':''}", "{'a\\rb':''}"}},
        {"{'type':'object','propertyNames':{'pattern':'^[a-c]+$'},'properties':{'x':{}}}", {"{'ab':1}", "{}"}, {"{'x':1}", "{'d':1}"}},
        {"{'type':'object','propertyNames':{'enum':['a','b']}}", {"{'a':1}", "{'b':1,'a':2}"}, {"{'c':1}"}},
        {"{'type':'object','minProperties':1,'maxProperties':2}", {"{'a':1}", "{'a':1,'b':2}"}, {"{}", "{'a':1,'b':2,'c':3}"}},
        {"{'type':'object','properties':{'a':{},'b':{},'c':{}},'additionalProperties':false,'minProperties':2}", {"{'a':1,'c':1}", "{'a':1,'b':1,'c':1}"},
         {"{'b':1}", "{}"}},
        {"{'type':'object','properties':{'a':{},'b':{},'c':{}},'maxProperties':2}", {"{'a':1,'c':1}", "{'b':1,'x':1}", "{}"},
         {"{'a':1,'b':1,'c':1}", "{'a':1,'x':1,'y':1}"}},
        {"{'type':'object','maxProperties':0}", {"{}"}, {"{'a':1}"}});
}

Test(schema, members_depend_on_members)
{
    EXPECT_SCHEMAS(
        {"{'type':'object','properties':{'a':{},'b':{}},'dependentRequired':{'a':['b']}}", {"{}", "{'b':1}", "{'a':1,'b':1}", "{'x':1}"},
         {"{'a':1}", "{'a':1,'x':1}"}},
        {"{'type':'object','properties':{'a':{},'b':{}},'dependencies':{'a':{'required':['c']},'b':['c']}}", {"{}", "{'a':1,'c':1}", "{'c':2}"},
         {"{'a':1}", "{'b':1}"}},
        {"{'dependentSchemas':{'a':{'maxProperties':1}}}", {"{'a':1}", "{'b':1,'c':2}", "3"}, {"{'a':1,'b':2}"}},
        {"{'type':'object','properties':{'t':{'enum':['x','y']}},'required':['t'],'if':{'properties':{'t':{'const':'x'}}},'then':{'required':['p']},"
         "'else':{'required':['q']}}",
         {"{'t':'x','p':1}", "{'t':'y','q':1}", "{'t':'y','q':1,'p':2}"}, {"{'t':'x'}", "{'t':'x','q':1}", "{'t':'y','p':1}"}},
        {"{'if':{'type':'integer'},'then':{'minimum':3}}", {"3", "'x'", "2.5"}, {"2"}});
}

Test(schema, arrays_have_items_counts_and_contents)
{
    EXPECT_SCHEMAS(
        {"{'type':'array','items':{'type':'integer'}}", {"[]", "[1,2]"}, {"['x']", "[1,'x']"}},
        {"{'type':'array','prefixItems':[{'type':'integer'},{'type':'string'}],'items':false}", {"[]", "[1]", "[1,'']"}, {"['']", "[1,2]", "[1,'',3]"}},
        {"{'type':'array','items':[{'type':'integer'}],'additionalItems':{'type':'string'}}", {"[]", "[1]", "[1,'','']"}, {"['']", "[1,2]"}},
        {"{'type':'array','items':{},'minItems':2,'maxItems':3}", {"[1,2]", "[1,2,3]"}, {"[]", "[1]", "[1,2,3,4]"}},
        {"{'type':'array','prefixItems':[{'type':'null'}],'minItems':2}", {"[null,1]", "[null,1,2]"}, {"[null]", "[1,1]"}},
        {"{'type':'array','maxItems':0}", {"[]"}, {"[1]"}},
        {"{'type':'array','contains':{'type':'integer'}}", {"[1]", "['',1,'']", "[1,2]"}, {"[]", "['']"}},
        {"{'type':'array','contains':{'const':1},'minContains':2,'maxContains':3,'maxItems':4}", {"[1,1]", "[0,1,1,1]", "[1,2,1]"}, {"[1]",
         "[1,1,1,1]", "[1,1,2,2,2]"}},
        {"{'type':'array','contains':{'type':'string'},'maxContains':1}", {"['']", "[1,'',2,3]"}, {"[1]", "['','']"}},
        {"{'type':'array','items':{'enum':['a','b']},'uniqueItems':true}", {"[]", "['b']", "['b','a']"}, {"['a','a']", "['a','b','a']"}},
        {"{'type':'array','items':{'type':['boolean','null']},'uniqueItems':true,'minItems':1}", {"[true]", "[null,false,true]"}, {"[]", "[true,true]"}},
        {"{'type':'array','items':{'type':'string'},'uniqueItems':true,'maxItems':1}", {"[]", "['x']"}, {"['x','y']"}},
        {"{'type':'array','not':{'items':{'type':'string'}}}", {"[1]", "['',1]"}, {"[]", "['']"}},
        {"{'type':'array','not':{'contains':{'type':'string'}}}", {"[]", "[1]"}, {"['']", "[1,'']"}});
}

Test(schema, combinations_are_exact)
{
    EXPECT_SCHEMAS(
        {"{'allOf':[{'type':'string'},{'minLength':2}]}", {"'ab'"}, {"'a'", "1"}},
        {"{'type':'object','allOf':[{'properties':{'a':{'type':'integer'}},'required':['a']},{'properties':{'b':{'type':'string'}}}]}",
         {"{'a':1}", "{'a':1,'b':''}", "{'b':'','a':1}", "{'b':'','a':1,'c':0}"}, {"{'b':''}", "{'a':1,'b':2}", "{'c':0,'a':1}"}},
        {"{'anyOf':[{'type':'integer'},{'type':'string','maxLength':1}]}", {"5", "'x'"}, {"'xy'", "null"}},
        {"{'type':'object','properties':{'a':{},'b':{}},'anyOf':[{'required':['a']},{'required':['b']}]}", {"{'a':1}", "{'b':1}", "{'a':1,'b':2}"},
         {"{}", "{'c':1}"}},
        {"{'type':'object','properties':{'a':{},'b':{}},'oneOf':[{'required':['a']},{'required':['b']}]}", {"{'a':1}", "{'b':1}"}, {"{}", "{'a':1,'b':2}"}},
        {"{'oneOf':[{'type':'integer'},{'type':'number','minimum':2}]}", {"1", "2.5"}, {"2", "1.5"}},
        {"{'oneOf':[{'properties':{'k':{'const':'a'},'v':{'type':'integer'}},'required':['k']},"
         "{'properties':{'k':{'const':'b'},'v':{'type':'string'}},'required':['k']}],"
         "'type':'object'}",
         {"{'k':'a','v':1}", "{'k':'b','v':''}"}, {"{'k':'a','v':''}", "{'k':'c'}", "{'v':1}"}},
        {"{'type':'object','oneOf':[{'additionalProperties':false,'properties':{'a':{}}},{'additionalProperties':false,'properties':{'b':{}}}]}",
         {"{'a':1}", "{'b':1}"}, {"{}", "{'a':1,'b':1}", "{'c':1}"}},
        {"{'not':{'type':['object','array']}}", {"1", "'x'", "null"}, {"{}", "[]"}},
        {"{'type':'object','not':{'required':['a','b']}}", {"{}", "{'a':1}", "{'b':1,'c':1}"}, {"{'a':1,'b':1}", "{'b':1,'x':0,'a':1}"}},
        {"{'type':'object','properties':{'a':{'not':{'type':'string'}}}}", {"{'a':1}", "{}"}, {"{'a':'x'}"}},
        {"{'not':{'properties':{'a':{'type':'string'}},'required':['a'],'type':'object'}}", {"{'a':1}", "{}", "3"}, {"{'a':'x'}"}});
    EXPECT_SCHEMAS(
        {"{'type':'object','not':{'additionalProperties':{'type':'string'},'properties':{'a':{}}}}", {"{'b':1}", "{'a':'','c':'','d':2}"}, {"{}",
         "{'a':1}", "{'b':''}"}},
        {"{'type':'object','not':{'patternProperties':{'^x':{'type':'string'}}}}", {"{'x':1}", "{'a':1,'x2':3,'b':1}"}, {"{}", "{'x':''}", "{'a':1}"}},
        {"{'type':'object','allOf':[{'properties':{'a':{}}}],'unevaluatedProperties':false}", {"{'a':1}", "{}"}, {"{'b':1}"}},
        {"{'type':'object','properties':{'k':{}},'anyOf':[{'properties':{'a':{'const':1}},'required':['a']},{'properties':{'b':{}},'required':['b']}],"
         "'unevaluatedProperties':false}",
         {"{'k':0,'a':1}", "{'a':1,'b':2}", "{'b':2}"}, {"{'k':0}", "{'a':2,'b':2}", "{'a':1,'c':1}"}},
        {"{'type':'array','prefixItems':[{'type':'integer'}],'unevaluatedItems':{'type':'string'}}", {"[1,'x']", "[]"}, {"['x']", "[1,2]"}});
}

Test(schema, references_are_followed_also_around_in_circles)
{
    EXPECT_SCHEMAS(
        {"{'$ref':'#/$defs/a','$defs':{'a':{'type':'integer'}}}", {"1"}, {"'x'"}},
        {"{'type':'object','properties':{'v':{'type':'integer'},'next':{'$ref':'#'}},'required':['v'],'additionalProperties':false}",
         {"{'v':1}", "{'v':1,'next':{'v':2,'next':{'v':3}}}"}, {"{}", "{'v':1,'next':{}}", "{'v':1,'next':1}"}},
        {"{'$ref':'#/definitions/t','definitions':{'t':{'anyOf':[{'type':'null'},{'type':'array','items':{'$ref':'#/definitions/t'}}]}}}", {"null",
         "[[],[null]]"}, {"[1]"}},
        {"{'$ref':'#/$defs/a~1b%25','$defs':{'a/b%':{'type':'null'}}}", {"null"}, {"1"}},
        {"{'$id':'http://x.y/root.json','properties':{'a':{'$ref':'item.json'},'b':{'$ref':'#here'}},'$defs':{'i':{'$id':'item.json','type':'integer'},"
         "'h':{'$anchor':'here','type':'string'}}}",
         {"{'a':1,'b':''}"}, {"{'a':''}", "{'b':1}"}},
        {"{'$ref':'#/$defs/a','minimum':3,'$defs':{'a':{'type':'integer'}}}", {"3"}, {"2", "'x'"}},
        {"{'$schema':'http://json-schema.org/draft-07/schema#','properties':{'a':{'$ref':'#/definitions/i','minimum':3}},"
         "'definitions':{'i':{'type':'integer'}}}",
         {"{'a':2}"}, {"{'a':''}"}},
        {"{'properties':{'$ref':{'type':'string'}}}", {"{'$ref':'x'}"}, {"{'$ref':1}"}},
        {"{'$dynamicRef':'#n','$defs':{'n':{'$dynamicAnchor':'n','type':'null'}}}", {"null"}, {"1"}});
}

Test(schema, annotations_and_keywords_of_others_refuse_nothing)
{
    EXPECT_SCHEMAS({"{'title':'t','description':'d','default':5,'examples':[1],'deprecated':true,'readOnly':true,'$comment':'c',"
                    "'$schema':'https://json-schema.org/"
                    "draft/2020-12/schema','contentEncoding':'base64','x-own':{'not':1},'nullable':true}",
                    {"1", "null", "{'a':1}"}, {"x"}});
    static const struct schema_row objects[] = {{"true", {"{}", "{'a':[1]}"}, {"[]", "1"}}};
    expect_schemas_with(&(struct qr_schema_options){.object_only = true}, objects, 1);
}
