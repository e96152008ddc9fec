/* chat_options.c - the flags of `quire chat`. Sampling parameters are texts here: unset must stay unset, and /set reads the same. */
#include <stddef.h>

#include "base/assert.h"
#include "client/chat.h"
#include "client/chat_state.h"

#define AT(field) offsetof(struct qr_chat_options, field)
#define PARAM(field, kind, key, flag, usual, offline, min, max, chat, config, letter, arg, read, help) \
    PARAM_##chat(field, flag, letter, arg, help "; the server's default when not given.")
#define PARAM_CHAT(field, flag, short_flag, arg_name, text)                                                                   \
    {.name = flag, .letter = short_flag, .brief = (short_flag) != 0, .type = QR_OPT_STR, .offset = AT(param[QR_P_##field]),   \
     .arg = arg_name, .group = "Sampling", .help = text},
#define PARAM_PLAIN(field, flag, letter, arg, help)

static const struct qr_option table[] = {
    {.name = "url", .brief = true, .type = QR_OPT_STR, .offset = AT(url), .builtin = "http://127.0.0.1:8000", .arg = "URL", .group = "Server",
     .help = "Base URL of the server; /v1 is added when it has no path. OPENAI_BASE_URL is used when this is not given."},
    {.name = "model", .brief = true, .letter = 'm', .type = QR_OPT_STR, .offset = AT(model), .arg = "NAME", .group = "Server",
     .help = "Model to ask. Default: the first one that the server lists."},
    {.name = "api-key", .brief = true, .type = QR_OPT_STR, .offset = AT(api_key), .arg = "KEY", .group = "Server",
     .help = "Sent as bearer token. OPENAI_API_KEY is used when this is not given (and is not seen in a process list)."},
    {.name = "retries", .type = QR_OPT_INT, .offset = AT(retries), .builtin = "4", .min = 0, .max = 100, .arg = "N",
     .group = "Server", .help = "How often to try again when the server is full (429) or not ready (502, 503, 504)."},
    {.name = "wait", .type = QR_OPT_TIME, .offset = AT(wait_us), .builtin = "10m", .min = 0, .max = 86400e6, .arg = "TIME",
     .group = "Server", .help = "How long to wait for a server that is loading its model."},
    {.name = "timeout", .type = QR_OPT_TIME, .offset = AT(timeout_us), .builtin = "10m", .min = 0, .max = 86400e6, .arg = "TIME",
     .group = "Server", .help = "Give up when the server sends nothing for so long; 0: never."},
    {.name = "system", .brief = true, .letter = 's', .type = QR_OPT_STR, .offset = AT(system), .arg = "TEXT", .group = "Conversation",
     .help = "System message."},
    {.name = "schema", .brief = true, .type = QR_OPT_STR, .offset = AT(schema), .arg = "FILE", .group = "Conversation",
     .help = "Answers are JSON that fits the JSON schema in FILE; in a conversation /schema changes that."},
    {.name = "tools", .brief = true, .type = QR_OPT_STR, .offset = AT(tools), .arg = "FILE", .group = "Tools",
     .help = "Tools that the model may call. FILE is a JSON array of {\"function\": {\"name\": .., \"description\": .., \"parameters\": ..}, \"command\": "
             "[\"program\", \"argument\", ..]}. A command gets the arguments as JSON on stdin, no shell runs it, and its stdout goes back to the "
             "model. A conversation asks before each run."},
    {.name = "yes-run-tools", .type = QR_OPT_FLAG, .offset = AT(yes_run_tools), .builtin = "false", .group = "Tools",
     .help = "Run what the model calls without asking. A filter runs nothing without this: it prints the calls."},
    {.name = "tool-timeout", .type = QR_OPT_TIME, .offset = AT(tool_timeout_us), .builtin = "60s", .min = 1, .max = 86400e6, .arg = "TIME",
     .group = "Tools", .help = "End a tool's command that takes longer."},
    QR_SAMPLING_ROWS(PARAM)
    {.name = "stop", .type = QR_OPT_LIST, .offset = AT(stop), .arg = "TEXT", .group = "Sampling",
     .help = "A text that ends the answer; may be repeated."},
    {.name = "stream", .type = QR_OPT_FLAG, .offset = AT(stream), .builtin = "true", .group = "Output",
     .help = "Show the answer as it comes."},
    {.name = "json", .brief = true, .type = QR_OPT_FLAG, .offset = AT(json), .builtin = "false", .group = "Output",
     .help = "Print the server's whole response object instead of the text (not streamed)."},
    {.name = "stats", .brief = true, .type = QR_OPT_FLAG, .offset = AT(stats), .builtin = "false", .group = "Output",
     .help = "After each answer, a line on stderr: prompt and output tokens, time to first token, tokens per second, cached tokens."},
    {.name = "fail-on-length", .type = QR_OPT_FLAG, .offset = AT(fail_on_length), .builtin = "false", .group = "Output",
     .help = "Exit with status 5 when the answer was stopped by its length limit."},
    {.name = "markdown", .type = QR_OPT_FLAG, .offset = AT(markdown), .builtin = "true", .group = "Output",
     .help = "On a terminal with colours, show headings, emphasis, code, lists and links of an answer as such; --no-markdown shows them as they are "
             "written. A pipe always gets the text as it is."},
    {.name = "color", .type = QR_OPT_ENUM, .offset = AT(colour), .builtin = "auto", .choices = "auto|always|never",
     .group = "Output", .help = "auto: on a terminal, unless NO_COLOR is set or TERM is dumb."},
    {.name = "history", .type = QR_OPT_FLAG, .offset = AT(history), .builtin = "true", .group = "Conversation",
     .help = "Keep typed lines and conversations in $XDG_STATE_HOME/quire (~/.local/state/quire; mode 0600) for the next time."},
    {.name = "continue", .brief = true, .letter = 'c', .type = QR_OPT_FLAG, .offset = AT(resume), .builtin = "false", .group = "Conversation",
     .help = "Go on with the last conversation; /list in a conversation shows those that are kept."},
};

const struct qr_command qr_chat_command = {
    .name = "chat", .purpose = "talk to a server in the terminal, or as a filter",
    .usage = "quire chat [flags]\nquire chat [flags] PROMPT...",
    .examples = "quire chat\n"
                "quire chat --url http://10.0.0.5:8000 'What is 12 + 30?'\n"
                "git diff | quire chat 'write a commit message' > msg",
    .text = "Talks to an OpenAI-compatible server. With a terminal on both sides and no PROMPT: a conversation (/help lists its commands).\n"
            "Otherwise a filter: asks once and prints the answer alone on stdout. Piped input is appended to PROMPT after a blank line;\n"
            "trailing newlines are dropped. PROMPT '-' reads stdin and nothing else.\n\n"
            "Exit status: 0 answered; 1 the server reported an error; 2 wrong usage; 3 no connection; 4 no such model; 5 the answer was\n"
            "stopped by its length (with --fail-on-length); 130 interrupted; 128+n killed by signal n.",
    .table = table, .n_options = QR_COUNT(table), .options_bytes = sizeof(struct qr_chat_options), .run = qr_chat_run,
};
