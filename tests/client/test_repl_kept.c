/* What a conversation at a terminal keeps and shows: -c and /list, nothing with --no-history, how full the context is, Markdown. */
#include "desk.h"

#include <dirent.h>

TestSuite(repl_kept, .timeout = 280);

/* Another chat at the same terminal. */
static void sit_down_again(struct desk *d, const char *words)
{
    char slave[100];
    cr_assert_eq(ptsname_r(d->fd, slave, sizeof slave), 0);
    d->pid = fork();
    if (d->pid == 0)
        child(d, slave, words);
    wait_prompt(d);
}

static void ask(struct desk *d, const char *question)
{
    type(d, question);
    wait_for(d, "tok ");
    wait_prompt(d);
}

Test(repl_kept, a_conversation_goes_on_the_next_time_and_others_are_listed)
{
    struct desk *d = sit_down(fake_tokens(1), "");
    wait_prompt(d);
    ask(d, "the first question\r");
    type(d, "\004");
    cr_expect_eq(leave(d), 0);
    sit_down_again(d, "-c --system brief");
    cr_expect(strstr(d->screen.data, "The conversation goes on: 3 messages (/show history prints") != NULL, "%s", d->screen.data);
    ask(d, "the second\r");
    cr_expect(sent(d, "[{\"role\":\"system\",\"content\":\"brief\"},{\"role\":\"user\",\"content\":\"the first question\"},"
                      "{\"role\":\"assistant\",\"content\":\"tok \"},{\"role\":\"user\",\"content\":\"the second\"}]"), "%s", d->server->body);
    type(d, "/clear\r");
    wait_for(d, "A new conversation begins");
    wait_prompt(d);
    ask(d, "something else\r");
    type(d, "/list\r");
    wait_for(d, "   2  ");
    wait_for(d, "the first question");
    wait_for(d, "*  1  ");
    wait_for(d, "something else");
    wait_prompt(d);
    type(d, "/load 3\r");
    wait_for(d, "there is no conversation 3, expected 1 to 2");
    wait_prompt(d);
    type(d, "/load 2\r");
    wait_for(d, "question: the second");
    wait_prompt(d);
    say_goodbye(d);
}

Test(repl_kept, a_filter_goes_on_with_c_and_keeps_that_and_nothing_else)
{
    static const char *const words[] = {"unkept", "-c one", "-c two", "-c --no-history three"};
    struct desk *d = lay_out(fake_tokens(1));
    char slave[100];
    cr_assert_eq(ptsname_r(d->fd, slave, sizeof slave), 0);
    for (int i = 0; i < 4; i++) {
        d->pid = fork();
        if (d->pid == 0)
            child(d, slave, words[i]);
        cr_expect_eq(leave(d), 0, "%s", words[i]);
        cr_expect(!sent(d, "unkept") || i == 0, "%s", d->server->body);
    }
    cr_expect(strstr(d->screen.data, "no conversation has been kept yet") != NULL, "the first one: %s", d->screen.data);
    cr_expect(sent(d, "[{\"role\":\"user\",\"content\":\"one\"},{\"role\":\"assistant\",\"content\":\"tok \"},{\"role\":\"user\",\"content\":\"two\"},"), "%s",
              d->server->body);
    sit_down_again(d, "-c");
    cr_expect(strstr(d->screen.data, "goes on: 4 messages") != NULL, "%s", d->screen.data);
    say_goodbye(d);
}

Test(repl_kept, no_history_keeps_nothing)
{
    struct desk *d = sit_down(fake_tokens(1), "--no-history");
    wait_prompt(d);
    ask(d, "a secret\r");
    type(d, "/list\r");
    wait_for(d, "Conversations are not kept");
    wait_prompt(d);
    type(d, "\004");
    cr_expect_eq(leave(d), 0);
    DIR *dir = opendir(d->state);
    cr_assert(dir != NULL);
    for (const struct dirent *e; (e = readdir(dir)) != NULL;)
        cr_expect(e->d_name[0] == '.', "%s", e->d_name);
    closedir(dir);
    stand_up(d);
}

Test(repl_kept, how_full_the_context_is_can_be_seen)
{
    struct fake_script script = fake_tokens(1);
    script.models = "{\"data\":[{\"id\":\"fake-model\",\"max_model_len\":12}]}";
    struct desk *d = sit_down(script, "--model fake-model");
    wait_prompt(d);
    type(d, "/show\r");
    wait_for(d, "context");
    wait_for(d, "12 tokens");
    wait_prompt(d);
    const size_t seen = d->seen;
    ask(d, "x\r");
    cr_expect(strstr(d->screen.data + seen, "[context]") == NULL, "8 of 12 are less than three quarters");
    d->server->script.n_tokens = 2;
    type(d, "y\r");
    wait_for(d, "[context] 9 of 12 tokens are in use");
    wait_prompt(d);
    type(d, "/show\r");
    wait_for(d, "9 of 12 tokens");
    wait_prompt(d);
    say_goodbye(d);
}

Test(repl_kept, markdown_is_rendered_unless_it_is_not_wanted_and_steers_nothing)
{
    struct fake_script script = fake_tokens(2);
    script.text = "**b\\u001b[2J** `c`\\n";
    struct desk *d = sit_down(script, "");
    wait_prompt(d);
    type(d, "x\r");
    wait_for(d, "\033[1mb^[[2J\033[0m \033[36mc\033[0m\r\n\033[1mb^[[2J\033[0m");
    wait_prompt(d);
    type(d, "\004");
    cr_expect_eq(leave(d), 0);
    sit_down_again(d, "--no-markdown");
    type(d, "x\r");
    wait_for(d, "**b^[[2J** `c`\r\n**b^[[2J** `c`");
    wait_prompt(d);
    say_goodbye(d);
}
