/* What the chat says at a terminal: wrapped between words at the window's width, and which models it takes. */
#include "desk.h"

TestSuite(words, .timeout = 280);

/* The number of `text`'s occurrences on what was written since the last wait. */
static int count_new(const struct desk *d, const char *text)
{
    int n = 0;
    for (const char *at = d->screen.data + d->seen; (at = strstr(at, text)) != NULL; at += strlen(text))
        n++;
    return n;
}

Test(words, answers_and_messages_wrap_between_words_at_the_window_s_width)
{
    struct fake_script script = fake_tokens(16);
    script.text = "nine bytes ";
    struct desk *d = sit_down(script, "--color never");
    struct winsize size = {.ws_row = 24, .ws_col = 32};
    wait_for(d, "/help lists the commands, Ctrl-D leaves.");
    wait_prompt(d);
    type(d, "wide\r");
    wait_for(d, "wide\r\n");
    size_t seen = d->seen;
    wait_prompt(d);
    d->seen = seen; /* seven and "nine" make 81 columns, seven make 76 */
    cr_expect_eq(count_new(d, "nine\r\nbytes"), 0, "%s", d->screen.data + seen);
    cr_expect_eq(count_new(d, "nine bytes\r\nnine bytes"), 2, "%s", d->screen.data + seen);
    wait_prompt(d);
    ioctl(d->fd, TIOCSWINSZ, &size);
    type(d, "narrow\r");
    wait_for(d, "narrow\r\n");
    seen = d->seen;
    wait_prompt(d);
    d->seen = seen;
    cr_expect_eq(count_new(d, "nine bytes nine bytes nine bytes\r\n"), 5, "%s", d->screen.data + seen);
    wait_prompt(d);
    type(d, "/unknown\r");
    wait_for(d, "There is no command '/unknown'.\r\n/help lists them; to send a\r\nmessage");
    wait_prompt(d);
    type(d, "/show\r");
    wait_for(d, "  top_k              default\r\n      sample among this many\r\n      tokens; -1 or 0: all\r\n");
    wait_prompt(d);
    say_goodbye(d);
}

Test(words, a_server_without_a_list_of_models_is_asked_for_any)
{
    static const struct {
        int32_t status;
        const char *body;
    } lists[] = {{404, "{\"error\":{\"message\":\"no model list here\"}}"}, {405, "no"}, {200, FAKE_NO_MODELS}, {200, "{}"}};
    struct desk *d = sit_down(fake_tokens(1), "--model first");
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        char line[40], want[40];
        d->server->script.models_status = lists[i].status;
        d->server->script.models = lists[i].body;
        snprintf(line, sizeof line, "/model m%zu\r", i);
        wait_prompt(d);
        type(d, line);
        wait_for(d, "The server does not list its models, so 'm");
        wait_prompt(d);
        type(d, "question\r");
        wait_for(d, "tok ");
        snprintf(want, sizeof want, "\"model\":\"m%zu\"", i);
        cr_expect(sent(d, want), "%s", d->server->body);
    }
    d->server->script.models_status = 500;
    d->server->script.models = "boom";
    wait_prompt(d);
    type(d, "/model other\r");
    wait_for(d, "quire chat: the server answered HTTP 500: boom");
    wait_prompt(d);
    type(d, "again\r");
    wait_for(d, "tok ");
    cr_expect(sent(d, "\"model\":\"m3\""), "what could not be asked changes nothing: %s", d->server->body);
    say_goodbye(d);
}
