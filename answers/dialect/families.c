/* families.c - dialects by name: what is known of model families beside their templates. All of it is data; a form is
 * written once, as a macro, and stands in every row whose models write it. The first form of a row is what is written;
 * the others are read as well. Immutable; any thread. */
#include <ctype.h>
#include <string.h>

#include "answers/dialect/form.h"
#include "base/assert.h"

/* ---- forms ---- */

#define JSON_IN(start, end, ...)                                                                                                  \
    {.layout = QR_CALL_JSON, .args = QR_ARGS_JSON, .name_key = "name", .args_key = "arguments", .call_start = start,              \
     .call_end = end, __VA_ARGS__}
#define JSON_ARRAY_IN(start, end, ...)                                                                                            \
    {.layout = QR_CALL_JSON, .args = QR_ARGS_JSON, .name_key = "name", .args_key = "arguments", .array = true, .separator = ", ", \
     .section_start = start "[", .section_end = "]" end, __VA_ARGS__}
#define NAME_AND_JSON(start, name_ends, end, ...)                                                                                 \
    {.layout = QR_CALL_NAMED, .args = QR_ARGS_JSON, .call_start = start, .name_end = name_ends, .call_end = end, __VA_ARGS__}
#define FUNCTION_PARAMETER(start, end, line)                                                                                      \
    {.layout = QR_CALL_NAMED, .args = QR_ARGS_TAGGED, .call_start = start "<function=", .name_end = ">\n",                        \
     .param_start = "<parameter=", .key_end = ">", .value_end = "</parameter>", .param_separator = "\n", .args_end = "\n</function>", \
     .call_end = end, .separator = "\n", .value_lines = line}
#define INVOKE(tag, ...)                                                                                                          \
    {.layout = QR_CALL_NAMED, .args = QR_ARGS_TAGGED, .call_start = "<" tag "invoke name=\"", .name_end = "\">\n",                \
     .param_start = "<" tag "parameter name=\"", .value_end = "</" tag "parameter>", .param_separator = "\n",                     \
     .args_end = "\n</" tag "invoke>", .separator = "\n", __VA_ARGS__}
#define PYTHON_CALLS(start, end, between)                                                                                         \
    {.layout = QR_CALL_NAMED, .args = QR_ARGS_LOOSE, .section_start = start, .section_end = end, .separator = between,            \
     .args_start = "(", .args_end = ")", .assign = '='}
#define GEMMA_CALL(start, end, mark)                                                                                              \
    {.layout = QR_CALL_NAMED, .args = QR_ARGS_LOOSE, .call_start = start "call:", .call_end = end, .args_start = "{",             \
     .args_end = "}", .assign = ':', .quote = mark}

#define HERMES JSON_IN("<tool_call>\n", "\n</tool_call>", .separator = "\n")
#define QWEN_CODER FUNCTION_PARAMETER("<tool_call>\n", "\n</tool_call>", true)
#define CALLING_TOOL NAME_AND_JSON("[Calling tool: ", "(", ")]", .separator = "\n")
#define FUNCTION_TAG NAME_AND_JSON("<function=", ">", "</function>")
#define BARE_JSON {.layout = QR_CALL_JSON, .args = QR_ARGS_JSON, .name_key = "name", .args_key = "arguments", .separator = "\n"}
#define BARE_PARAMETERS {.layout = QR_CALL_JSON, .args = QR_ARGS_JSON, .name_key = "name", .args_key = "parameters", .separator = "; "}
#define PYTHON_TAG_JSON JSON_IN("<|python_tag|>", "", .separator = "; ")
#define PYTHON_TAG_CALL                                                                                                           \
    {.layout = QR_CALL_NAMED, .args = QR_ARGS_LOOSE, .call_start = "<|python_tag|>", .args_start = ".call(", .args_end = ")", .assign = '='}
#define PYTHON_TAG_CODE {.layout = QR_CALL_NAMED, .args = QR_ARGS_CODE, .call_start = "<|python_tag|>", .call_end = "<|eom_id|>"}
#define PYTHONIC PYTHON_CALLS("[", "]", ", ")
#define PYTHON_START PYTHON_CALLS("<|python_start|>[", "]<|python_end|>", ", ")
#define LFM_CALLS PYTHON_CALLS("<|tool_call_start|>[", "]<|tool_call_end|>", ", ")
#define LFM_JSON JSON_ARRAY_IN("<|tool_call_start|>", "<|tool_call_end|>")
#define MISTRAL_ARRAY JSON_ARRAY_IN("[TOOL_CALLS]", "", .id_key = "id")
#define MISTRAL_ID NAME_AND_JSON("[TOOL_CALLS]", "[ARGS]", "", .id_start = "[CALL_ID]")
#define MISTRAL_ARGS NAME_AND_JSON("[TOOL_CALLS]", "[ARGS]", "")
#define DEEPSEEK_FENCED                                                                                                           \
    NAME_AND_JSON("<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "\n```json\n", "<｜tool▁call▁end｜>",                            \
                  .section_start = "<｜tool▁calls▁begin｜>", .section_end = "<｜tool▁calls▁end｜>", .args_end = "\n```", .separator = "\n")
#define DEEPSEEK_PLAIN                                                                                                            \
    NAME_AND_JSON("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", .section_start = "<｜tool▁calls▁begin｜>",    \
                  .section_end = "<｜tool▁calls▁end｜>")
#define DSML                                                                                                                      \
    INVOKE("｜DSML｜", .section_start = "<｜DSML｜function_calls>\n", .section_end = "\n</｜DSML｜function_calls>",              \
           .key_end = "\" string=\"false\">", .key_end_text = "\" string=\"true\">")
#define MINIMAX INVOKE("", .section_start = "<minimax:tool_call>\n", .section_end = "\n</minimax:tool_call>", .key_end = "\">")
#define STEP                                                                                                                      \
    {.layout = QR_CALL_NAMED, .args = QR_ARGS_TAGGED, .section_start = "<｜tool_calls_begin｜>", .section_end = "<｜tool_calls_end｜>", \
     .call_start = "<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"", .name_end = "\">",                        \
     .param_start = "<steptml:parameter name=\"", .key_end = "\">", .value_end = "</steptml:parameter>",                          \
     .args_end = "</steptml:invoke>", .call_end = "<｜tool_call_end｜>"}
#define KIMI                                                                                                                      \
    NAME_AND_JSON("<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>",                                     \
                  .section_start = "<|tool_calls_section_begin|>", .section_end = "<|tool_calls_section_end|>", .id_prefix = "functions.")
#define GLM                                                                                                                       \
    {.layout = QR_CALL_NAMED, .args = QR_ARGS_TAGGED, .call_start = "<tool_call>", .name_end = "\n", .param_start = "<arg_key>",  \
     .key_end = "</arg_key>\n<arg_value>", .value_end = "</arg_value>", .param_separator = "\n", .call_end = "\n</tool_call>", .separator = "\n"}
#define COHERE                                                                                                                    \
    {.layout = QR_CALL_JSON, .args = QR_ARGS_JSON, .section_start = "<|START_ACTION|>[\n    ", .section_end = "\n]<|END_ACTION|>", \
     .separator = ",\n    ", .array = true, .name_key = "tool_name", .args_key = "parameters", .id_key = "tool_call_id", .id_first = true}
#define COHERE_PLUS                                                                                                               \
    {.layout = QR_CALL_JSON, .args = QR_ARGS_JSON, .section_start = "Action:\n```json\n[\n    ", .section_end = "\n]```",         \
     .separator = ",\n    ", .array = true, .name_key = "tool_name", .args_key = "parameters"}
#define APERTUS                                                                                                                   \
    {.layout = QR_CALL_JSON, .args = QR_ARGS_JSON, .section_start = "<|tools_prefix|>[", .section_end = "]<|tools_suffix|>",      \
     .separator = ", ", .array = true, .name_key = ""}

/* ---- families ---- */

#define THINK .think_start = "<think>", .think_end = "</think>", .think_open = "<think>\n"
#define FORMS(n, ...) .n_forms = n, .form = {__VA_ARGS__}, .shows_tools = true, .is_row = true
#define NAMES_MAX 14

struct family {
    const char *names[NAMES_MAX]; /* the first is the dialect's */
    struct qr_dialect d;
};

static const struct family families[] = {
    {{"json", "none", "generic"}, {THINK, .n_forms = 1, .form = {BARE_JSON}, .is_row = true}},
    {{"hermes", "hermes2", "hermes3", "hermes4", "qwen2.5", "qwen2", "qwen", "mimo", "reka", "granite4", "exaone4", "intern"},
     {THINK, FORMS(3, HERMES, QWEN_CODER, CALLING_TOOL)}},
    {{"qwen3", "qwen3-vl", "qwen3-thinking", "qwq", "hunyuan-think"}, {THINK, .think_opened = true, FORMS(3, HERMES, QWEN_CODER, CALLING_TOOL)}},
    {{"qwen3-coder", "qwen3-coder-xml", "qwen-xml"}, {THINK, FORMS(2, QWEN_CODER, HERMES)}},
    {{"qwen3.5", "qwen3.5-xml", "nemotron3", "nemotron3-xml", "nemotron-3-nano", "step-3.5", "step3.5-xml"},
     {THINK, .think_opened = true, FORMS(2, QWEN_CODER, HERMES)}},
    {{"llama-3.x", "llama3", "llama-3.1", "llama-3.2", "llama-3.3", "llama"},
     {FORMS(6, BARE_PARAMETERS, PYTHON_TAG_JSON, PYTHON_TAG_CALL, FUNCTION_TAG, PYTHONIC, PYTHON_TAG_CODE)}},
    {{"pythonic", "llama4", "llama-3.2-pythonic"}, {FORMS(3, PYTHONIC, PYTHON_START, BARE_PARAMETERS)}},
    {{"olmo3", "olmo"}, {THINK, .think_opened = true, FORMS(1, PYTHON_CALLS("<function_calls>", "</function_calls>", "\n"))}},
    {{"lfm2", "lfm2.5", "lfm"}, {THINK, FORMS(2, LFM_CALLS, LFM_JSON)}},
    {{"mistral-v3", "mistral", "mistral-nemo", "mistral-v7", "nemo", "mixtral"},
     {.think_start = "[THINK]", .think_end = "[/THINK]", .think_open = "[THINK]", .short_ids = true, .think_anywhere = true,
      FORMS(3, MISTRAL_ARRAY, MISTRAL_ID, MISTRAL_ARGS)}},
    {{"mistral-v11", "mistral-v11-callid", "mistral-small-3.2", "mistral-small"},
     {.think_start = "[THINK]", .think_end = "[/THINK]", .think_open = "[THINK]", .short_ids = true, .think_anywhere = true, .calls_end_thinking = true,
      FORMS(3, MISTRAL_ID, MISTRAL_ARGS, MISTRAL_ARRAY)}},
    {{"mistral-v13", "mistral-v13-args", "magistral", "devstral", "ministral", "ministral-3", "mistral-large-3"},
     {.think_start = "[THINK]", .think_end = "[/THINK]", .think_open = "[THINK]", .short_ids = true, .think_opened = true, .think_anywhere = true,
      .calls_end_thinking = true, FORMS(3, MISTRAL_ARGS, MISTRAL_ID, MISTRAL_ARRAY)}},
    {{"granite3", "granite-3.0", "granite-3.1", "granite-3.2", "granite"},
     {.think_start = "Here is my thought process:", .think_end = "Here is my response:",
      FORMS(3, JSON_ARRAY_IN("<|tool_call|>", ""), JSON_ARRAY_IN("<tool_call>", ""), JSON_IN("<function_call>", "</function_call>", .separator = ""))}},
    {{"granite3.3"},
     {THINK, .content_start = "<response>", .content_end = "</response>",
      FORMS(3, JSON_ARRAY_IN("<|tool_call|>", ""), JSON_ARRAY_IN("<tool_call>", ""), JSON_IN("<function_call>", "</function_call>", .separator = ""))}},
    {{"phi-4-mini", "phi4", "phi"}, {FORMS(2, JSON_ARRAY_IN("<|tool_call|>", "<|/tool_call|>"), JSON_ARRAY_IN("functools", ""))}},
    {{"firefunction", "firefunction-v2"}, {FORMS(1, JSON_ARRAY_IN(" functools", ""))}},
    {{"deepseek-v3", "deepseek"}, {THINK, .calls_end_thinking = true, .dropped = {"<｜end▁of▁sentence｜>"}, FORMS(2, DEEPSEEK_FENCED, DEEPSEEK_PLAIN)}},
    {{"deepseek-r1", "cogito"},
     {THINK, .think_opened = true, .calls_end_thinking = true, .dropped = {"<｜end▁of▁sentence｜>"}, FORMS(2, DEEPSEEK_FENCED, DEEPSEEK_PLAIN)}},
    {{"deepseek-v3.1"},
     {THINK, .think_opened = true, .calls_end_thinking = true,
      .dropped = {"<｜end▁of▁sentence｜>", "<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>", "<｜tool▁outputs▁begin｜>", "<｜tool▁outputs▁end｜>"},
      FORMS(2, DEEPSEEK_PLAIN, DEEPSEEK_FENCED)}},
    {{"deepseek-v3.2", "dsml"}, {THINK, .think_opened = true, .calls_end_thinking = true, .dropped = {"<｜end▁of▁sentence｜>"}, FORMS(1, DSML)}},
    {{"kimi-k2", "kimi"}, {THINK, .calls_end_thinking = true, FORMS(1, KIMI)}},
    {{"kimi-vl", "kimi-thinking", "kimi-k1.5"},
     {.think_start = "◁think▷", .think_end = "◁/think▷", .think_open = "◁think▷", FORMS(2, KIMI, BARE_JSON)}},
    {{"glm-4.6", "glm-4.5", "glm"}, {THINK, FORMS(2, GLM, HERMES)}},
    {{"glm-4.7", "glm-5", "laguna"}, {THINK, .think_opened = true, FORMS(2, GLM, HERMES)}},
    {{"minimax-m2", "minimax"}, {THINK, .think_opened = true, FORMS(1, MINIMAX)}},
    {{"gemma4"},
     {.think_start = "<|channel>", .think_label = "thought\n", .think_end = "<channel|>", .think_open = "<|channel>thought\n", .think_anywhere = true,
      .dropped = {"<|tool_response>", "<turn|>"}, FORMS(1, GEMMA_CALL("<|tool_call>", "<tool_call|>", "<|\"|>"))}},
    {{"functiongemma"}, {FORMS(1, GEMMA_CALL("<start_function_call>", "<end_function_call>", "<escape>"))}},
    {{"gemma3"}, {FORMS(3, PYTHON_CALLS("```tool_code\n", "\n```", "\n"), JSON_IN("```json\n", "\n```", .separator = "\n"), PYTHONIC)}},
    {{"gemma2", "plain"}, {.is_row = true}},
    {{"smollm3"}, {THINK, FORMS(2, HERMES, PYTHON_CALLS("<code>", "</code>", "\n"))}},
    {{"gpt-oss", "harmony", "openai-gpt-oss"},
     {.think_start = "<|channel|>analysis<|message|>", .think_end = "<|end|>", .is_row = true, .shows_tools = true,
      .heads = {.start = "<|channel|>", .end = "<|message|>", .recipient = "to=", .function = "functions.", .thinking = "analysis", .content = "final",
                .body_end = {"<|end|>", "<|call|>", "<|return|>", "<|start|>", "<|channel|>"}, .turn = "<|start|>assistant",
                .call_head = "<|channel|>commentary to=functions.", .call_middle = " <|constrain|>json<|message|>", .call_end = ""}}},
    {{"command-r7b", "command-a", "command-r"},
     {.think_start = "<|START_THINKING|>", .think_end = "<|END_THINKING|>", .think_open = "<|START_THINKING|>", .calls_end_thinking = true,
      .content_start = "<|START_RESPONSE|>", .content_end = "<|END_RESPONSE|>", .dropped = {"<|START_TEXT|>", "<|END_TEXT|>", "<|END_OF_TURN_TOKEN|>"},
      FORMS(1, COHERE)}},
    {{"command-r-plus"}, {FORMS(1, COHERE_PLUS)}},
    {{"functionary-3.1"}, {FORMS(3, FUNCTION_TAG, PYTHON_TAG_CALL, PYTHON_TAG_CODE)}},
    {{"functionary-3.2", "functionary"},
     {.is_row = true, .shows_tools = true,
      .heads = {.start = ">>>", .end = "\n", .recipient = "", .function = "", .thinking = "", .content = "all", .body_end = {">>>"}, .turn = "",
                .call_head = "", .call_middle = "\n", .call_end = ""}}},
    {{"seed-oss"},
     {.think_start = "<seed:think>", .think_end = "</seed:think>", .think_open = "<seed:think>",
      FORMS(1, FUNCTION_PARAMETER("<seed:tool_call>\n", "\n</seed:tool_call>", false))}},
    {{"apertus"},
     {.think_start = "<|inner_prefix|>", .think_end = "<|inner_suffix|>", .think_open = "<|inner_prefix|>", .calls_end_thinking = true, FORMS(1, APERTUS)}},
    {{"apriel", "apriel-1.6"},
     {.think_start = "Here are my reasoning steps:", .think_end = "[BEGIN FINAL RESPONSE]", .think_open = "Here are my reasoning steps:\n",
      .think_opened = true, .dropped = {"[END FINAL RESPONSE]", "<|end|>"}, FORMS(1, JSON_ARRAY_IN("<tool_calls>", "</tool_calls>"))}},
    {{"nemotron-nano-v2", "nemotron-v2", "nemotron"}, {THINK, FORMS(1, JSON_ARRAY_IN("<TOOLCALL>", "</TOOLCALL>"))}},
    {{"gigachat"}, {FORMS(1, JSON_IN("<|function_call|>", "", .separator = ""))}},
    {{"xlam"}, {THINK, FORMS(4, JSON_ARRAY_IN("", ""), HERMES, MISTRAL_ARRAY, JSON_ARRAY_IN("```json\n", "\n```"))}},
    {{"jamba", "hunyuan"}, {THINK, FORMS(1, JSON_ARRAY_IN("<tool_calls>", "</tool_calls>"))}},
    {{"internlm", "internlm2"}, {THINK, FORMS(1, {.layout = QR_CALL_JSON, .args = QR_ARGS_JSON, .name_key = "name", .args_key = "parameters",
                                                 .call_start = "<|action_start|><|plugin|>\n", .call_end = "\n<|action_end|>"})}},
    {{"step3"}, {THINK, .think_opened = true, FORMS(1, STEP)}},
};

const char *const qr_think_pairs[][2] = {
    {"<think>", "</think>"}, {"[THINK]", "[/THINK]"}, {"<seed:think>", "</seed:think>"}, {"<|START_THINKING|>", "<|END_THINKING|>"},
    {"<|channel>thought", "<channel|>"}, {"<|inner_prefix|>", "<|inner_suffix|>"}, {"◁think▷", "◁/think▷"}, {"<thinking>", "</thinking>"},
    {"<thought>", "</thought>"}, {"<reasoning>", "</reasoning>"}, {"<reason>", "</reason>"}, {"<reflection>", "</reflection>"},
    {"Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"}, {"Here is my thought process:", "Here is my response:"},
};
const int32_t qr_think_n_pairs = QR_COUNT(qr_think_pairs);

/* ---- finding ---- */

#define KEY_MAX 64

/* Names are the same without case and without what is neither letter nor digit. */
static void key_of(char out[KEY_MAX], const char *name)
{
    size_t n = 0;
    for (; *name && n < KEY_MAX - 1; name++)
        if (isalnum((unsigned char)*name) || *name == '+')
            out[n++] = (char)tolower((unsigned char)*name);
    out[n] = 0;
}

/* The row that has the name, or else the one with the longest name that it begins with: "Qwen3-Coder-30B". */
const struct qr_dialect *qr_family_find(const char *name)
{
    QR_ASSERT(name != NULL);
    char wanted[KEY_MAX], key[KEY_MAX];
    const struct qr_dialect *best = NULL;
    size_t best_len = 2;
    key_of(wanted, name);
    for (int i = 0; i < QR_COUNT(families); i++)
        for (int k = 0; k < NAMES_MAX && families[i].names[k]; k++) {
            key_of(key, families[i].names[k]);
            const size_t len = strlen(key);
            if (len > best_len && strncmp(wanted, key, len) == 0) {
                best = &families[i].d;
                best_len = len;
            }
        }
    return best;
}

const char *qr_dialect_name_at(int32_t i)
{
    QR_ASSERT(i >= 0);
    return i < QR_COUNT(families) ? families[i].names[0] : NULL;
}

/* Bytes of the marker that a text begins with: <...> or [...], or a word. */
static size_t marker_len(const char *s)
{
    const size_t n = strcspn(s, *s == '[' ? "]" : *s == '<' ? ">" : " \n[{");
    return s[n] == '>' || s[n] == ']' ? n + 1 : n;
}

static bool same_marker(const char *a, const char *b)
{
    const size_t n = marker_len(a), m = marker_len(b);
    return n > 3 && n == m && memcmp(a, b, n) == 0;
}

static const char *first_text(const struct qr_call_form *f)
{
    return f->section_start && *f->section_start ? f->section_start : f->call_start ? f->call_start : "";
}

static bool has_form(const struct qr_dialect *d, const struct qr_call_form *f)
{
    for (int32_t i = 0; i < d->n_forms; i++)
        if (d->form[i].layout == f->layout && d->form[i].args == f->args &&
            (f->layout != QR_CALL_NAMED || f->args != QR_ARGS_JSON || (f->id_start != NULL) == (d->form[i].id_start && *d->form[i].id_start)))
            return true;
    return false;
}

void qr_dialect_add_readings(struct qr_dialect *d)
{
    QR_ASSERT(d != NULL && !d->is_row);
    const struct qr_dialect *bare = qr_family_find("llama-3.x");
    const char *mine = d->n_forms ? first_text(&d->form[0]) : "";
    for (int32_t k = 0; !*mine && k < bare->n_forms && d->n_forms < QR_CALL_FORMS_MAX; k++)
        if (k > 0 || d->form[0].layout != QR_CALL_JSON)
            d->form[d->n_forms++] = bare->form[k];
    for (int i = 0; i < QR_COUNT(families); i++)
        for (int32_t k = 0; k < families[i].d.n_forms && d->n_forms < QR_CALL_FORMS_MAX; k++) {
            const struct qr_call_form *f = &families[i].d.form[k];
            if (same_marker(mine, first_text(f)) && !has_form(d, f))
                d->form[d->n_forms++] = *f;
        }
}
