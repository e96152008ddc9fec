/* Chat templates: the first byte chooses what the rest is. Even: template text, rendered with a fixed rich context. Odd: a JSON context
 * for a fixed template that looks at everything. Whatever compiles renders within small limits; segments cover the text. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/json.h"
#include "tokenizer/template.h"

static const char rich_context[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\"Be <b>brief</b>.\"},{\"role\":\"user\",\"content\":\" H\\u00e9llo \\ud83d\\ude00\\n\"},"
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"abcdefghi\",\"type\":\"function\",\"function\":{\"name\":\"f\","
    "\"arguments\":{\"x\":[1,2.5,true,null,\"s\"]}}}]},{\"role\":\"tool\",\"content\":[{\"type\":\"text\",\"text\":\"<|im_start|>\"}]}],"
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\",\"parameters\":{\"type\":\"object\",\"properties\":"
    "{\"x\":{\"type\":\"array\"}},\"required\":[\"x\"]}}}],\"add_generation_prompt\":true,\"bos_token\":\"<s>\",\"eos_token\":\"</s>\","
    "\"s\":\" Ab c \",\"e\":\"\",\"n\":3,\"z\":0,\"f\":1.5,\"t\":true,\"u\":null,\"l\":[3,1,2],\"d\":{\"b\":1,\"a\":{\"x\":[1,{\"y\":\"q\"}]}},"
    "\"big\":12345678901234567890,\"tiny\":1e-07}";

static const char looks_at_everything[] =
    "{{ bos_token }}{%- for m in messages or [] recursive %}{{ loop.index }}{{ m }}{{ m.role }}{{ m['content'] | string | trim | upper }}"
    "{{ m | tojson(indent=2) if m is not undefined }}{% for k, v in (m if m is mapping else {}).items() %}{{ k ~ v }}{% endfor %}"
    "{% if m.content is string %}{{ m.content.split('<')[-1][::-1] }}{{ m.content | replace('a', 'bb') | title | length }}"
    "{% elif m.content is iterable %}{% for p in m.content %}{{ p }}{{ loop.previtem }}{% endfor %}{% endif %}{% endfor %}"
    "{{ tools | default([]) | list | tojson }}{{ x | int }}{{ (y or 'abc')[1:] }}{{ [x, y, z] | unique | list }}"
    "{{ '%s|%r' % (x, y) }}{{ '{0:>10}|{1!r}'.format(x, y) }}{{ d | dictsort if d is mapping }}{{ x == y }}{{ l | sort if l is sequence }}";

static const struct qr_template_limits small = {
    .steps_max = 50000, .output_max = 1 << 18, .depth_max = 64, .memory_max = 8 << 20, .range_max = 2000};

static void run(const char *text, size_t n, const char *context, size_t m)
{
    static const char *const trusted[] = {"bos_token", "eos_token", NULL};
    struct qr_json *doc;
    struct qr_template *t;
    struct qr_err err;
    enum qr_template_kind kind;
    struct qr_rendered out = {0};
    if (qr_json_parse(&doc, context, m, &qr_json_limits_request, &err) != 0)
        return;
    if (qr_json_type(doc) == QR_JSON_T_OBJECT && qr_template_compile(&t, text, n, &err) == 0) {
        if (qr_template_render(t, &out, doc, trusted, 1721997296, &small, &kind, &err) == 0) {
            size_t at = 0;
            for (int32_t i = 0; i < out.n_segments; at += out.segment[i++].len)
                QR_ASSERT(out.segment[i].start == at && out.segment[i].len > 0);
            QR_ASSERT(at == out.text.len);
        } else {
            QR_ASSERT(kind == QR_TEMPLATE_RAISED || err.msg[0] != 0); /* raise_exception may say nothing */
        }
        qr_rendered_release(&out);
        qr_template_free(t);
    }
    qr_json_free(doc);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    const char *text = (const char *)data + 1;
    if (data[0] % 2 == 0)
        run(text, size - 1, rich_context, sizeof rich_context - 1);
    else
        run(looks_at_everything, sizeof looks_at_everything - 1, text, size - 1);
    return 0;
}
