/* The template language, feature by feature. The expected texts are what Jinja2 3.1.6 gives on Python 3.11 with the settings in
 * template.h; nothing of ours made them. */
#include <criterion/criterion.h>
#include <string.h>

#include "base/assert.h"
#include "base/json.h"
#include "tokenizer/template.h"

#define NOW_S 1721997296 /* 2024-07-26T12:34:56 */

static const char context[] =
    "{\"s\": \" Ab c \", \"n\": 3, \"f\": 1.5, \"t\": true, \"u\": null, \"l\": [3, 1, 2], "
    "\"w\": [\"b\", \"a\", \"C\"], "
    "\"d\": {\"b\": 1, \"a\": {\"x\": [1, {\"y\": \"q\"}]}, \"items\": 7}, \"m\": [{\"r\": \"u\", \"c\": \"hi\"}, {\"r\": "
    "\"a\", \"c\": \"yo\"}, {\"r\": \"u\", \"c\": null}], "
    "\"h\": \"<a href=\\\"x\\\">&'é😀</a>\", \"nl\": \"a\\nb\\n\\nc\\n\"}";

static const struct {
    const char *text, *want;
} rows[] = {
    /* strings */
    {"{{ 'it''s' }}{{ \"a\\x41\\u00e9\\n\\t\\\\\" }}{{ 'a' \"b\" 'c' }}",
     "itsaAé\n\t\\abc"},
    {"{{ h[3:-4] }}|{{ h[-1] }}|{{ h[::-3] }}|{{ h | length }}",
     "href=\"x\">&'é😀|>|><'\"=ra|20"},
    {"{{ s.strip() }}|{{ s.lstrip(' A') }}|{{ 'xxabxx'.rstrip('x') }}|{{ 'abc'.strip('') }}",
     "Ab c|b c |xxab|abc"},
    {"{{ ' a  b c '.split() }}{{ 'a--b--c'.split('--', 1) }}{{ 'a b c'.rsplit(' ', 1) }}{{ ' ab c '.rsplit(none, 1) }}",
     "['a', 'b', 'c']['a', 'b--c']['a b', 'c'][' ab', 'c']"},
    {"{{ nl.splitlines() }}{{ nl.splitlines(true) }}{{ 'k=v=w'.partition('=') }}{{ 'k=v=w'.rpartition('=') }}",
     "['a', 'b', '', 'c']['a\\n', 'b\\n', '\\n', 'c\\n']('k', '=', 'v=w')('k=v', '=', 'w')"},
    {"{{ 'aXbX'.replace('X', '-', 1) }}{{ 'ab'.replace('', '.') }}{{ 'banana'.count('an') }}{{ 'banana'.rfind('an') }}{{ 'banana'.find('an', 2) }}",
     "a-bX.a.b.233"},
    {"{{ 'hello wORLD'.title() }}|{{ \"they're\".title() }}|{{ \"they're\" | title }}|{{ 'hELLO'.capitalize() }}|{{ 'aBc'.swapcase() }}",
     "Hello World|They'Re|They're|Hello|AbC"},
    {"{{ 'ΑΣ ΟΔΟΣ.'.lower() }}|{{ 'straße'.upper() }}|{{ 'ǆ'.title() }}|{{ 'İ'.lower() | length }}",
     "ας οδος.|STRASSE|ǅ|2"},
    {"{{ '²'.isdigit() }}{{ '²'.isdecimal() }}{{ 'Ⅷ'.isnumeric() }}{{ 'é1'.isalnum() }}{{ 'A B'.isupper() }}{{ 'Ab Cd'.istitle() "
     "}}{{ ' \\t'.isspace() }}",
     "TrueFalseTrueTrueTrueTrueTrue"},
    {"{{ 'ab'.center(7, '*') }}{{ 'abc'.center(6) }}|{{ '7'.zfill(3) }}{{ '-7'.zfill(4) }}{{ 'a'.ljust(3, '.') }}{{ 'a'.rjust(3) }}",
     "***ab** abc  |007-007a..  a"},
    {"{{ '-'.join(['a', 'b']) }}{{ 'a-b'.removeprefix('a-') }}{{ 'abc'.endswith(('x', 'c')) }}{{ 'abc'.startswith('b', 1) }}",
     "a-bbTrueTrue"},
    /* formatting */
    {"{{ '%s|%5d|%-5s|%05.1f|%x|%%|%r|%(a)s' % {'a': 1} if false else '%s|%5d|%-5s|%05.1f|%x|%%|%r' % ('a', 42, 'b', 3.14159, 255, \"it's\") }}",
     "a|   42|b    |003.1|ff|%|\"it's\""},
    {"{{ '%(a)s %(b)d' % {'a': 'x', 'b': 2} }}{{ '%+d % d' % (3, 4) }}{{ '%.3s|%10.2e|%g' % ('abcdef', 12345.678, 0.0001) }}",
     "x 2+3  4abc|  1.23e+04|0.0001"},
    {"{{ '{} {}'.format('a', 1) }}|{{ '{1}{0}'.format('a', 'b') }}|{{ '{x:>5}|{x:<5}|{x:^5}|{y:.2f}|{z:,}'.format(x='ab', y=2.0, z=1234567) }}",
     "a 1|ba|   ab|ab   | ab  |2.00|1,234,567"},
    {"{{ '{0[a]} {0[b][1]} {{}}'.format({'a': 1, 'b': [2, 3]}) }}|{{ '{!r}'.format(\"q\") }}|{{ '{:*^9}'.format('mid') "
     "}}|{{ '{:05d} {:x} {:#x} {:b}'.format(42, 255, 255, 5) }}",
     "1 3 {}|'q'|***mid***|00042 ff 0xff 101"},
    {"{{ '%s' | format('a') }}{{ '%s and %s' | format('a', 'b') }}{{ '%(x)s' | format(x=1) }}",
     "aa and b1"},
    /* numbers */
    {"{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % -3 }} {{ -7 % 3 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 7 / 2 }} {{ 6 / 2 }}",
     "3 -4 -2 2 3.0 0.5 1024 0.5 3.5 3.0"},
    {"{{ 1e15 }} {{ 1e16 }} {{ 0.0001 }} {{ 0.00001 }} {{ 123456789.123 }} {{ 1/3 }} {{ -0.0 }} {{ 1.0 * 3 }} {{ 0.1 "
     "+ 0.2 }} {{ 5e-324 }} {{ 1.7976931348623157e308 }}",
     "1000000000000000.0 1e+16 0.0001 1e-05 123456789.123 0.3333333333333333 -0.0 3.0 0.30000000000000004 5e-324 1.7976931348623157e+308"},
    {"{{ 0x1F }} {{ 0b101 }} {{ 0o17 }} {{ 1_000 }} {{ 1_0.5 }} {{ 12345678901234567890 }} {{ true + 1 }} {{ 1 == true }} {{ 1.0 == 1 }}",
     "31 5 15 1000 10.5 12345678901234567890 2 True True"},
    {"{{ 2.5 | round }} {{ 3.5 | round }} {{ 2.675 | round(2) }} {{ 1234 | round(-2) }} {{ 3.2 | round(0, 'ceil') }}"
     " {{ 3.27 | round(1, 'floor') }} {{ 3 | round }}",
     "2.0 4.0 2.67 1200 4.0 3.2 3"},
    {"{{ 1234567890123456789 | round(-1) }} {{ -1234567890123456789 | round(-18) }} {{ 25 | round(-1) }} {{ -35 | round(-1) }} {{ (5 * 10 ** 18) "
     "| round(-19) }} {{ 9 | round(-30) }}",
     "1234567890123456790 -1000000000000000000 20 -40 0 0"},
    {"{{ '42' | int }} {{ ' 7 ' | int }} {{ '3.9' | int }} {{ 'x' | int(5) }} {{ '0x1f' | int(0, 16) }} {{ '1_0' | int "
     "}} {{ none | int }} {{ 3.9 | int }} {{ '1e3' | float }} {{ 'inf' | float }} {{ 'z' | float(1.5) }}",
     "42 7 3 5 31 10 0 3 1000.0 inf 1.5"},
    {"{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 3 > 2 >= 2 != 1 }} {{ not 1 > 2 and 'x' in 'xy' }} {{ 1 in [1.0] }} {{ [1, "
     "2] < [1, 3] }} {{ (1, 2) == [1, 2] }}",
     "True False True True True True False"},
    /* sequences and dicts */
    {"{{ l[::-1] }} {{ l[1:] }} {{ l[-2:] }} {{ (1, 2, 3)[::2] }} {{ range(10)[2:8:3] | list }} {{ range(5, 0, -2) | list }} {{ [1] * 3 + [2] }}",
     "[2, 1, 3] [1, 2] [1, 2] (1, 3) [2, 5] [5, 3, 1] [1, 1, 1, 2]"},
    {"{{ l | sort }} {{ w | sort }} {{ w | sort(case_sensitive=true) }} {{ m | sort(attribute='r,c') if false }} {{ "
     "l | sort(reverse=true) | join('-') }}",
     "[1, 2, 3] ['a', 'b', 'C'] ['C', 'a', 'b']  3-2-1"},
    {"{{ m | map(attribute='r') | unique | join(',') }} {{ m | selectattr('c', 'none') | list }} {{ m | rejectattr('c', "
     "'none') | map(attribute='c') | list }}",
     "u,a [{'r': 'u', 'c': None}] ['hi', 'yo']"},
    {"{{ m | groupby('r') }} {{ (m | groupby('r'))[1].list | length }} {{ [1, 2, 3, 4, 5] | batch(2, 'x') | list }} "
     "{{ [1, 2, 3, 4, 5] | slice(3) | list }}",
     "[('a', [{'r': 'a', 'c': 'yo'}]), ('u', [{'r': 'u', 'c': 'hi'}, {'r': 'u', 'c': None}])] 2 [[1, 2], [3, 4], [5, 'x']] [[1, 2], [3, 4], [5]]"},
    {"{{ [3, 1] | min }} {{ ['b', 'A'] | max }} {{ m | min(attribute='r') }} {{ [1, 2.5] | sum }} {{ m | sum(attribute='r') "
     "if false }} {{ [[1], [2]] | sum(start=[]) }}",
     "1 b {'r': 'a', 'c': 'yo'} 3.5  [1, 2]"},
    {"{{ ['a', '', 0, 'b'] | select | list }} {{ [1, 2, 3] | select('odd') | list }} {{ [1, 2, 3] | reject('gt', 1) "
     "| list }} {{ ['a', 'b'] | map('upper') | join }} {{ ['x'] | map('replace', 'x', 'y') | first }}",
     "['a', 'b'] [1, 3] [1] AB y"},
    {"{{ d.get('b') }} {{ d.get('zz') }} {{ d.get('zz', 'q') }} {{ d['items'] }} {{ d.a.x[1].y }} {{ d.keys() | list "
     "}} {{ d.values() | list | length }} {{ 'b' in d }} {{ d | length }}",
     "1 None q 7 q ['b', 'a', 'items'] 3 True 3"},
    {"{{ {'b': 2, 'a': 1} | dictsort }} {{ {'b': 1, 'a': 2} | dictsort(by='value', reverse=true) }} {{ dict(a=1, **{'b': "
     "2}) }} {{ {1: 'x', 'k': none, true: 2} }} {{ {'a': 1} == {'a': 1.0} }}",
     "[('a', 1), ('b', 2)] [('a', 2), ('b', 1)] {'a': 1, 'b': 2} {1: 2, 'k': None} True"},
    {"{{ l | first }} {{ l | last }} {{ 'abc' | first }} {{ [] | first | default('none') }} {{ 'abc' | reverse }} {{ "
     "l | reverse | list }} {{ l | length }} {{ m | map(attribute='z', default=0) | list }}",
     "3 2 a none cba [2, 1, 3] 3 [0, 0, 0]"},
    {"{{ [1, 'a', none, true, 1.5, [2], {'k': \"it's\"}, 'é\\n', ('t',)] }}",
     "[1, 'a', None, True, 1.5, [2], {'k': \"it's\"}, 'é\\n', ('t',)]"},
    {"{{ d.items() }} {{ d.keys() }} {{ range(3) }} {{ d | items | list | length }} {{ [1, 2].index(2) }} {{ [1, 1].count(1) }}",
     "dict_items([('b', 1), ('a', {'x': [1, {'y': 'q'}]}), ('items', 7)]) dict_keys(['b', 'a', 'items']) range(0, 3) 3 1 2"},
    /* json */
    {"{{ {'a': [1, 2.0, none, true], 'é': 'x\"\\\\\\n</t>'} | tojson }} {{ 'é😀' | tojson(ensure_ascii=true) }} {{ {'b': "
     "1, 'a': []} | tojson(sort_keys=true, indent=2) }}",
     "{\"a\": [1, 2.0, null, true], \"é\": \"x\\\"\\\\\\n</t>\"} \"\\u00e9\\ud83d\\ude00\" {\n  \"a\": [],\n  \"b\": 1\n}"},
    {"{{ {'a': {'b': {}}} | tojson(indent=4) }} {{ [1, [2]] | tojson(separators=(',', ':')) }} {{ {1: 2, none: 3, true: "
     "4, 1.5: 5} | tojson }} {{ (1, 2) | tojson }} {{ [] | tojson(indent=2) }}",
     "{\n    \"a\": {\n        \"b\": {}\n    }\n} [1,[2]] {\"1\": 4, \"null\": 3, \"1.5\": 5} [1, 2] []"},
    /* undefined and defaults */
    {"[{{ nope }}] {{ nope is defined }} {{ nope | default('d') }} {{ d.nope | default('e') }} {{ u | default('x') }"
     "} {{ u | default('x', true) }} {{ nope | length }} {{ nope | list }} {{ nope ~ 'z' }} {{ nope == nope2 }} {{ 'q' "
     "if nope }}",
     "[] False d e None x 0 [] z True "},
    {"{% for x in nope %}x{% else %}none{% endfor %}{% if not nope %}!{% endif %}{{ nope | join(',') }}{{ nope | trim }}{{ [nope] }}",
     "none![Undefined]"},
    /* loops and scopes */
    {"{% for x in l %}{{ loop.index }}/{{ loop.length }}{{ loop.first }}{{ loop.last }}{{ loop.revindex }}{{ loop.previtem "
     "}}{{ loop.nextitem }};{% endfor %}",
     "1/3TrueFalse31;2/3FalseFalse232;3/3FalseTrue11;"},
    {"{% set x = 0 %}{% for i in l %}{% set x = x + i %}{{ x }},{% endfor %}{{ x }}{% set ns = namespace(t=0) %}{% for "
     "i in l %}{% set ns.t = ns.t + i %}{% endfor %}{{ ns.t }}",
     "3,1,2,06"},
    {"{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}{{ v }}{% endfor %}{% for a, (b, c) in [[1, [2, 3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
     "a1b2123"},
    {"{% for i in range(6) if i is odd %}{{ loop.index }}:{{ i }}{% if i == 3 %}{% break %}{% endif %} {% endfor %}|{% "
     "for i in l %}{% if loop.first %}{% continue %}{% endif %}{{ i }}{% endfor %}",
     "1:1 2:3|12"},
    {"{% for x in [1, [2, [3]]] recursive %}{% if x is number %}{{ x }}@{{ loop.depth }} {% else %}({{ loop(x) }}){% endif %}{% endfor %}",
     "1@1 (2@2 (3@3 ))"},
    {"{% for x in 'ab' %}{% for y in 'cd' %}{{ loop.index }}{{ x }}{{ y }} {% endfor %}{{ loop.index }} {% endfor %}"
     "{% for i in [1, 1, 2] %}{{ loop.changed(i) }}{{ loop.cycle('x', 'y') }}{% endfor %}",
     "1ac 2ad 1 1bc 2bd 2 TruexFalseyTruex"},
    {"{% if true %}{% set q = 5 %}{% endif %}{{ q }}{% with a = 1, b = q %}{% set q = 6 %}{{ a }}{{ b }}{{ q }}{% endwith "
     "%}{{ q }}{% set a, b = 'xy' %}{{ b }}{{ a }}",
     "51565yx"},
    /* macros and blocks */
    {"{% macro f(a, b=a ~ '!', c='z') %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ f(1) }}{{ f(1, c=2) }}{{ f(*[1, 2], "
     "**{'c': 3}) }}{{ f() }}{{ f.name }}{{ f.arguments }}",
     "[11!z][11!2][123][!z]f('a', 'b', 'c')"},
    {"{% macro g() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ g(1, 2, k=3) }}{% macro h2(x) %}{{ caller(x) if caller "
     "}}{% endmacro %}{% call(v) h2(4) %}<{{ v }}>{% endcall %}{{ h2(1) }}",
     "(1, 2){'k': 3}<4>"},
    {"{% macro fact(k) %}{{ k if k < 2 else k * fact(k - 1) | int }}{% endmacro %}{{ fact(5) }}{% macro outer() %}{{ "
     "later }}{% endmacro %}{% set later = 'L' %}{{ outer() }}",
     "120L"},
    {"{% set b %}  text {{ n }}{% endset %}[{{ b }}]{% set c | trim | upper %} x {% endset %}[{{ c }}]{% filter replace('a', "
     "'b') | upper %}banana{% endfilter %}{% generation %}g{% endgeneration %}",
     "[  text 3][X]BBNBNBg"},
    {"{% set j = joiner('; ') %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}{% set c = cycler('a', 'b') %}{{ c.next() "
     "}}{{ c.next() }}{{ c.next() }}{{ c.current }}",
     "3; 1; 2abab"},
    /* markup and text filters */
    {"{{ '<b>' | e }} {{ ('<b>' | safe) + '<i>' }} {{ '<b>' | safe ~ '<i>' }} {{ '<' | e | e }} {{ '<' | e | forceescape "
     "}} {{ ('<' | safe) is escaped }} {{ ['<' | safe] }}",
     "&lt;b&gt; <b>&lt;i&gt; <b><i> &lt; &amp;lt; True [Markup('<')]"},
    {"{{ 'a\\nb\\n\\nc' | indent }}|{{ 'a\\nb\\n' | indent(2, true) }}|{{ 'a\\n\\nb' | indent('> ', blank=true) }}|{{ "
     "'' | indent(2) }}|{{ 'x\\n' | indent(2) }}",
     "a\n    b\n\n    c|  a\n  b\n|a\n> \n> b||x\n"},
    {"{{ 'foo bar baz qux' | truncate(9) }}|{{ 'foo bar baz qux' | truncate(9, true) }}|{{ 'foo bar' | truncate(5, false, "
     "'..', 0) }}|{{ 'short' | truncate(3) }}|{{ 'a b-c d' | wordcount }}|{{ 'ab' | center(6) }}|",
     "foo...|foo ba...|foo..|short|4|  ab  |"},
    /* white space */
    {"a  \n  {%- if true %}  \n  b\n  {% endif -%}  \n  c",
     "a  \n  b\nc"},
    {"  {% if true %}\n    x\n  {% endif %}\n    {# comment #}\n  y {% if t %}z{% endif %} w\n{{ n }}\n {%+ if t %}+{% endif +%}\n e",
     "    x\n  y z w\n3\n +\n e"},
    {"{%- raw %} {{ x }} {% if %} {% endraw -%}  q{#- c -#}  r\n\n",
     " {{ x }} {% if %} qr\n"},
    /* tests */
    {"{{ 1 is number }}{{ true is number }}{{ 1.0 is float }}{{ true is integer }}{{ 's' is sequence }}{{ d is sequence "
     "}}{{ u is none }}{{ 4 is divisibleby 2 }}{{ 'a' is lower }}{{ f is callable }}{{ range is callable }}{{ 'upper' "
     "is filter }}{{ 'odd' is test }}{{ 1 is sameas 1 }}{{ 2 is in [1, 2] }}{{ 1 is not odd }}",
     "TrueTrueTrueFalseTrueTrueTrueTrueTrueFalseTrueTrueTrueTrueTrueFalse"},
    {"{{ strftime_now('%d %B %Y, %A %a %b %H:%M:%S %I%p %j %y %U %W %V %G %u %w %-d/%-m %% %e %D %F %T') }}\n",
     "26 July 2024, Friday Fri Jul 12:34:56 12PM 208 24 29 30 30 2024 5 5 26/7 % 26 07/26/24 2024-07-26 12:34:56"},
};

Test(template_language, gives_what_the_reference_gives)
{
    struct qr_json *doc;
    struct qr_err err;
    int rc = qr_json_parse(&doc, context, sizeof context - 1, &qr_json_limits_file, &err);
    cr_assert(rc == 0, "%s", err.msg);
    for (int i = 0; i < QR_COUNT(rows); i++) {
        struct qr_template *t;
        struct qr_rendered r = {0};
        enum qr_template_kind kind;
        rc = qr_template_compile(&t, rows[i].text, strlen(rows[i].text), &err);
        cr_assert(rc == 0, "%s\n%s", rows[i].text, err.msg);
        rc = qr_template_render(t, &r, doc, NULL, NOW_S, &qr_template_limits_default, &kind, &err);
        cr_expect(rc == 0, "%s\n%s", rows[i].text, err.msg);
        cr_expect(rc || strcmp(r.text.data, rows[i].want) == 0, "%s\n gave     %s\n expected %s", rows[i].text, r.text.data, rows[i].want);
        qr_rendered_release(&r);
        qr_template_free(t);
    }
    qr_json_free(doc);
}
