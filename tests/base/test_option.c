#include <criterion/criterion.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/option.h"
#include "tests/temp.h"

struct settings {
    bool cache, verbose;
    int64_t port, kv_bytes, wait_us, any;
    double temperature;
    const char *model, *api_key;
    int32_t dtype;
    struct qr_str_list names, keys;
};

#define AT(field) offsetof(struct settings, field)
static const struct qr_option table[] = {
    {.name = "model", .letter = 'm', .type = QR_OPT_STR, .offset = AT(model), .arg = "DIR", .help = "Where the model is.", .group = "Model"},
    {.name = "dtype", .type = QR_OPT_ENUM, .offset = AT(dtype), .builtin = "auto", .choices = "auto|f32|bf16", .help = "Compute type.", .group = "Model"},
    {.name = "port", .brief = true, .letter = 'p', .type = QR_OPT_INT, .offset = AT(port), .builtin = "8000", .min = 1, .max = 65535,
     .help = "Port to listen on; any free one: 0. It is printed.",
     .group = "Server"},
    {.name = "kv-bytes", .type = QR_OPT_BYTES, .offset = AT(kv_bytes), .builtin = "1GiB", .min = 4096, .max = 0x1p50, .help = "Cache size.", .group = "Engine"},
    {.name = "queue-wait", .type = QR_OPT_TIME, .offset = AT(wait_us), .builtin = "30s", .min = 1000, .max = 3.6e9, .help = "Longest wait.", .group = "Engine"},
    {.name = "any-number", .type = QR_OPT_INT, .offset = AT(any), .builtin = "0", .help = "Unbounded.", .group = "Engine"},
    {.name = "temperature", .type = QR_OPT_FLOAT, .offset = AT(temperature), .builtin = "0.7", .min = 0, .max = 2, .help = "Sampling.", .group = "Engine"},
    {.name = "prefix-cache", .type = QR_OPT_FLAG, .offset = AT(cache), .builtin = "true", .help = "Keep prefixes.", .group = "Engine"},
    {.name = "verbose", .letter = 'v', .type = QR_OPT_FLAG, .offset = AT(verbose), .builtin = "false", .help = "Say more.", .group = "Server"},
    {.name = "served-model-name", .type = QR_OPT_LIST, .offset = AT(names), .arg = "NAME", .help = "Names.", .group = "Model"},
    {.name = "api-key", .type = QR_OPT_STR, .offset = AT(api_key), .help = "One key.", .group = "Server"},
    {.name = "admin-keys", .type = QR_OPT_LIST, .offset = AT(keys), .help = "Keys.", .group = "Server"},
};
#define N_ROWS ((int32_t)(sizeof table / sizeof *table))

struct run {
    struct settings v;
    struct qr_option_set *set;
    struct qr_err err;
    int rc, argc;
    char **argv;
    struct run *before;
};

/* Every run of this test's process; forgotten after the test, so that the leak checker sees only our leaks. */
static struct run *runs;

static char temporary[64]; /* one directory per test process */

static void leave_nothing(void)
{
    char command[100];
    snprintf(command, sizeof command, "rm -r '%s'", temporary);
    if (temporary[0])
        cr_expect_eq(system(command), 0);
    while (runs) {
        struct run *r = runs;
        runs = r->before;
        qr_options_free(r->set);
        for (int i = 1; i < r->argc; i++)
            free(r->argv[i]);
        free(r->argv);
        free(r);
    }
}

TestSuite(option, .fini = leave_nothing);

/* Reads the arguments of a command (the program's name is put in front). */
static struct run *read_args_of(const char *command, int argc, const char *const *args)
{
    static char name[] = "quire";
    struct run *r = calloc(1, sizeof *r);
    r->before = runs;
    runs = r;
    r->argc = argc + 1;
    r->argv = calloc((size_t)argc + 2, sizeof *r->argv);
    r->argv[0] = name;
    for (int i = 0; i < argc; i++)
        r->argv[i + 1] = strdup(args[i]);
    r->set = qr_options_new(table, N_ROWS, command, &r->v);
    r->rc = qr_options_read(r->set, r->argc, r->argv, &r->err);
    return r;
}
static struct run *read_args(int argc, const char *const *args)
{
    return read_args_of(NULL, argc, args);
}
#define READ(...) read_args((int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)), (const char *[]){__VA_ARGS__})
#define READ_NONE() read_args(0, NULL)

static void fails(struct run *r, const char *message)
{
    cr_assert_eq(r->rc, QR_E_USAGE, "expected: %s", message);
    cr_assert_eq(r->err.code, QR_E_USAGE);
    cr_assert_str_eq(r->err.msg, message);
}

static void works(struct run *r)
{
    cr_assert_eq(r->rc, 0, "%s", r->err.msg);
}

/* A file in a fresh directory that is the working directory from now on, so that messages show a short name. */
static void write_file(const char *name, const char *bytes, size_t n)
{
    if (!temporary[0]) {
        temp_dir_make(temporary, "option");
        cr_assert_eq(chdir(temporary), 0);
    }
    FILE *f = fopen(name, "wb");
    cr_assert_eq(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static struct run *read_yaml(const char *text)
{
    write_file("c.yaml", text, strlen(text));
    struct run *r = READ("--config", "c.yaml");
    unlink("c.yaml");
    return r;
}

Test(option, has_its_built_in_values)
{
    struct run *r = READ_NONE();
    works(r);
    cr_assert_null(r->v.model);
    cr_assert_eq(r->v.dtype, 0);
    cr_assert_eq(r->v.port, 8000);
    cr_assert_eq(r->v.kv_bytes, 1 << 30);
    cr_assert_eq(r->v.wait_us, 30000000);
    cr_assert_eq(r->v.temperature, 0.7);
    cr_assert(r->v.cache);
    cr_assert(!r->v.verbose);
    cr_assert_eq(r->v.names.n, 0);
    cr_assert_eq(qr_options_source(r->set, "port"), QR_FROM_BUILTIN);
    qr_options_free(NULL);
}

Test(option, reads_flags_in_every_spelling)
{
    struct run *r = READ("--model", "dir", "--port=81", "--dtype=bf16", "--no-prefix-cache", "-v", "--any_number", "-5", "--temperature", "1e-1");
    works(r);
    cr_assert_str_eq(r->v.model, "dir");
    cr_assert_eq(r->v.port, 81);
    cr_assert_eq(r->v.dtype, 2);
    cr_assert(!r->v.cache);
    cr_assert(r->v.verbose);
    cr_assert_eq(r->v.any, -5);
    cr_assert_eq(r->v.temperature, 0.1);
    cr_assert_eq(qr_options_source(r->set, "port"), QR_FROM_FLAG);
    works(r = READ("-m", "a", "-p82", "--prefix-cache", "--verbose=no"));
    cr_assert_str_eq(r->v.model, "a");
    cr_assert_eq(r->v.port, 82);
    cr_assert(r->v.cache && !r->v.verbose);
    works(r = READ("--model=", "--prefix-cache=false", "--model=--port"));
    cr_assert_str_eq(r->v.model, "--port");
    cr_assert(!r->v.cache);
    works(r = READ("--model="));
    cr_assert_str_eq(r->v.model, "", "given and empty is not unset");
}

Test(option, lets_the_last_flag_win)
{
    struct run *r = READ("-p", "1", "--port", "2", "--prefix-cache", "--no-prefix-cache", "-p3");
    works(r);
    cr_assert_eq(r->v.port, 3);
    cr_assert(!r->v.cache);
}

Test(option, collects_repeated_list_flags)
{
    struct run *r = READ("--served-model-name", "a", "-p", "1", "--served-model-name=b,c", "--served-model-name", "a");
    works(r);
    cr_assert_eq(r->v.names.n, 3);
    cr_assert_str_eq(r->v.names.item[0], "a");
    cr_assert_str_eq(r->v.names.item[1], "b,c", "commas separate in the environment only");
    cr_assert_str_eq(r->v.names.item[2], "a");
}

Test(option, splits_lists_in_the_environment)
{
    setenv("QUIRE_SERVED_MODEL_NAME", ",one,,two words,", 1);
    struct run *r = READ_NONE();
    works(r);
    cr_assert_eq(r->v.names.n, 2);
    cr_assert_str_eq(r->v.names.item[0], "one");
    cr_assert_str_eq(r->v.names.item[1], "two words");
    works(r = READ("--served-model-name", "flag"));
    cr_assert_eq(r->v.names.n, 1, "a list from a stronger source replaces, it does not add");
}

Test(option, takes_positional_arguments_and_ends_flags_at_two_dashes)
{
    struct run *r = READ("one", "--port", "5", "-", "two", "--", "--port", "--", "-x");
    const char *const *args;
    works(r);
    cr_assert_eq(r->v.port, 5);
    cr_assert_eq(qr_options_args(r->set, &args), 6);
    static const char *const want[] = {"one", "-", "two", "--port", "--", "-x"};
    for (int i = 0; i < 6; i++)
        cr_assert_str_eq(args[i], want[i]);
}

Test(option, gives_positional_arguments_to_named_rows_whose_flags_were_not_given)
{
    const char *const *args;
    struct qr_err err;
    setenv("QUIRE_MODEL", "from.the.environment", 1);
    struct run *r = READ("one", "--port", "5");
    works(r);
    cr_assert_eq(qr_options_take_args(r->set, "model api-key", &err), 0);
    cr_assert_str_eq(r->v.model, "one", "as a flag it overrules the environment");
    cr_assert_null(r->v.api_key);
    cr_assert_eq(qr_options_args(r->set, &args), 0);
    cr_assert_eq(qr_options_source(r->set, "model"), QR_FROM_FLAG);
    works(r = READ("one", "two"));
    cr_assert_eq(qr_options_take_args(r->set, "model api-key", &err), 0);
    cr_assert(strcmp(r->v.model, "one") == 0 && strcmp(r->v.api_key, "two") == 0);
    works(r = READ("one", "--model", "flag"));
    cr_assert_eq(qr_options_take_args(r->set, "model api-key", &err), 0);
    cr_assert(strcmp(r->v.model, "flag") == 0 && strcmp(r->v.api_key, "one") == 0, "what a flag gave is not asked for again");
    works(r = READ("one", "--model", "flag"));
    cr_assert_eq(qr_options_take_args(r->set, "model", &err), QR_E_USAGE);
    cr_assert_str_eq(err.msg, "unexpected argument 'one'");
    works(r = READ("one"));
    cr_assert_eq(qr_options_take_args(r->set, "", &err), QR_E_USAGE);
    works(r = READ_NONE());
    cr_assert_eq(qr_options_take_args(r->set, "model", &err), 0);
    cr_assert_str_eq(r->v.model, "from.the.environment");
}

Test(option, reads_variables_that_begin_with_the_name_of_the_command)
{
    static const char *const none[] = {NULL};
    char name[QR_OPTION_VARIABLE_MAX];
    qr_options_variable(name, "bench load", "max-tokens");
    cr_assert_str_eq(name, "QUIRE_BENCH_LOAD_MAX_TOKENS");
    qr_options_variable(name, "serve", "max-tokens");
    cr_assert_str_eq(name, "QUIRE_MAX_TOKENS");
    setenv("QUIRE_PORT", "81", 1);
    setenv("QUIRE_DATA_SHOW_PORT", "82", 1);
    cr_assert_eq(read_args_of("serve", 0, none)->v.port, 81);
    cr_assert_eq(read_args_of("chat", 0, none)->v.port, 8000);
    struct run *r = read_args_of("data show", 0, none);
    cr_assert_eq(r->v.port, 82);
    cr_assert_str_eq(qr_options_label(r->set, "port"), "QUIRE_DATA_SHOW_PORT");
}

Test(option, ranks_flag_over_environment_over_file_over_built_in)
{
    static const char text[] = "port: 1001\nkv-bytes: 8k\nqueue_wait: 2s\n";
    write_file("c.yaml", text, strlen(text));
    setenv("QUIRE_PORT", "1002", 1);
    setenv("QUIRE_KV_BYTES", "9k", 1);
    struct run *r = READ("--config", "c.yaml", "--port", "1003");
    works(r);
    cr_assert_eq(r->v.port, 1003);
    cr_assert_eq(r->v.kv_bytes, 9000);
    cr_assert_eq(r->v.wait_us, 2000000);
    cr_assert_eq(r->v.temperature, 0.7);
    cr_assert_eq(qr_options_source(r->set, "port"), QR_FROM_FLAG);
    cr_assert_eq(qr_options_source(r->set, "kv-bytes"), QR_FROM_ENV);
    cr_assert_eq(qr_options_source(r->set, "queue-wait"), QR_FROM_FILE);
    cr_assert_eq(qr_options_source(r->set, "temperature"), QR_FROM_BUILTIN);
    setenv("QUIRE_CONFIG", "c.yaml", 1);
    setenv("QUIRE_KV_BYTES", "", 1);
    works(r = READ_NONE());
    cr_assert_eq(r->v.port, 1002);
    cr_assert_eq(r->v.kv_bytes, 8000, "an empty variable counts as not set");
    works(r = READ("--config="));
    cr_assert_eq(r->v.wait_us, 30000000, "an empty --config overrules QUIRE_CONFIG");
    unlink("c.yaml");
}

Test(option, names_the_nearest_known_flag)
{
    fails(READ("--prot", "1"), "unknown flag --prot; did you mean --port?");
    fails(READ("--prefix-cahce"), "unknown flag --prefix-cahce; did you mean --prefix-cache?");
    fails(READ("--served_model=x"), "unknown flag --served_model; did you mean --served-model-name?");
    fails(READ("--PORT=1"), "unknown flag --PORT; did you mean --port?");
    fails(READ("--hepl"), "unknown flag --hepl; did you mean --help?");
    fails(READ("--zzzzzz"), "unknown flag --zzzzzz; --help lists the known ones");
    fails(READ("-x"), "unknown flag -x; --help lists the known ones");
    fails(READ("--=3"), "unknown flag --; --help lists the known ones");
}

Test(option, refuses_flags_that_are_used_wrongly)
{
    fails(READ("--port"), "--port needs a value and is the last argument");
    fails(READ("-p"), "-p needs a value and is the last argument");
    fails(READ("--model", "--port", "1"), "--model needs a value, but --port follows; write --model=--port if that is the value");
    fails(READ("--no-port"), "--no-port: --port takes a value and cannot be turned off");
    fails(READ("--no-prefix-cache=true"), "--no-prefix-cache takes no value");
    fails(READ("--help=yes"), "--help takes no value");
    fails(READ("-vv"), "-vv: -v takes no value");
    fails(READ("--prefix-cache=maybe"), "--prefix-cache: expected true or false, found 'maybe'");
    fails(READ("--dtype", "f23"), "--dtype: expected one of auto|f32|bf16, found 'f23'");
    fails(READ("--dtype", "auto|f32"), "--dtype: expected one of auto|f32|bf16, found 'auto|f32'");
    fails(READ("--dtype="), "--dtype: expected one of auto|f32|bf16, found ''");
}

Test(option, checks_ranges_at_the_edge_and_one_beyond)
{
    works(READ("--port", "1"));
    works(READ("--port", "65535"));
    fails(READ("--port", "0"), "--port must be from 1 to 65535, found 0");
    fails(READ("-p", "65536"), "-p must be from 1 to 65535, found 65536");
    works(READ("--kv-bytes", "4096"));
    works(READ("--kv-bytes", "1024TiB"));
    fails(READ("--kv-bytes", "4095"), "--kv-bytes must be from 4KiB to 1024TiB, found 4095");
    fails(READ("--kv-bytes", "1125899906842625"), "--kv-bytes must be from 4KiB to 1024TiB, found 1125899906842625");
    works(READ("--queue-wait", "1ms"));
    works(READ("--queue-wait", "1h"));
    fails(READ("--queue-wait", "999us"), "--queue-wait must be from 1ms to 1h, found 999us");
    fails(READ("--queue-wait", "61m"), "--queue-wait must be from 1ms to 1h, found 61m");
    works(READ("--temperature", "0"));
    works(READ("--temperature", "2"));
    fails(READ("--temperature", "-0.01"), "--temperature must be from 0 to 2, found -0.01");
    fails(READ("--temperature", "2.0001"), "--temperature must be from 0 to 2, found 2.0001");
    works(READ("--any-number=9223372036854775807"));
    works(READ("--any-number=-9223372036854775808"));
    fails(READ("--any-number=9223372036854775808"), "--any-number: expected a whole number such as 4096, 4k (4000) or 4ki (4096), found '9223372036854775808'");
    fails(READ("--any-number=99999999999999999999999999999999999999999"),
          "--any-number: expected a whole number such as 4096, 4k (4000) or 4ki (4096), found '99999999999999999999999999999999999999999'");
}

Test(option, names_environment_variables_in_errors)
{
    setenv("QUIRE_QUEUE_WAIT", "soon", 1);
    fails(READ("--queue-wait", "1s"), "QUIRE_QUEUE_WAIT: expected a time such as 250ms, 30s, 2m or 1h, found 'soon'");
}

Test(option, understands_units)
{
    static const struct {
        const char *text;
        int64_t value;
    } count[] = {{"7", 7}, {"+7", 7}, {"4k", 4000}, {"4K", 4000}, {"4ki", 4096}, {"2m", 2000000}, {"2Mi", 2097152}, {"1g", 1000000000},
                 {"1gi", 1073741824}, {"1.5k", 1500}, {"-3k", -3000}, {"0.5ki", 512}},
      bytes[] = {{"4096", 4096}, {"64k", 64000}, {"64kb", 64000}, {"64KiB", 65536}, {"64ki", 65536}, {"100MB", 100000000}, {"8GiB", 8589934592},
                 {"8 GiB", 8589934592}, {"1.5GiB", 1610612736}, {"1TiB", 1099511627776}, {"2tb", 2000000000000}, {"4096b", 4096}},
      time[] = {{"1", 1000000}, {"0.25", 250000}, {"250ms", 250000}, {"30s", 30000000}, {"2m", 120000000}, {"1h", 3600000000}, {"1500us", 1500},
                {"0.5m", 30000000}};
    for (size_t i = 0; i < sizeof count / sizeof *count; i++) {
        struct run *r = READ("--any-number", count[i].text);
        works(r);
        cr_assert_eq(r->v.any, count[i].value, "%s gave %lld", count[i].text, (long long)r->v.any);
    }
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
        struct run *r = READ("--kv-bytes", bytes[i].text);
        works(r);
        cr_assert_eq(r->v.kv_bytes, bytes[i].value, "%s gave %lld", bytes[i].text, (long long)r->v.kv_bytes);
    }
    for (size_t i = 0; i < sizeof time / sizeof *time; i++) {
        struct run *r = READ("--queue-wait", time[i].text);
        works(r);
        cr_assert_eq(r->v.wait_us, time[i].value, "%s gave %lld", time[i].text, (long long)r->v.wait_us);
    }
}

Test(option, refuses_numbers_that_are_none)
{
    static const char *const ints[] = {"", "x", "1.5", "1.", ".", "-", "1e3", "0x10", "4kk", "4kb", "1 2", "1.5.5", "inf", "4t", "1.0001k"};
    static const char *const floats[] = {"", "x", "nan", "inf", "0x1", "1e999", "1,5", "1.5x", "--1", "1 "};
    char message[300];
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) {
        char flag[64];
        snprintf(flag, sizeof flag, "--any-number=%s", ints[i]);
        snprintf(message, sizeof message, "--any-number: expected a whole number such as 4096, 4k (4000) or 4ki (4096), found '%s'", ints[i]);
        fails(READ(flag), message);
    }
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++) {
        char flag[64];
        snprintf(flag, sizeof flag, "--temperature=%s", floats[i]);
        snprintf(message, sizeof message, "--temperature: expected a number, found '%s'", floats[i]);
        fails(READ(flag), message);
    }
    fails(READ("--kv-bytes=-1"), "--kv-bytes must be from 4KiB to 1024TiB, found -1");
    fails(READ("--kv-bytes=8gb8"), "--kv-bytes: expected a size in bytes such as 512, 64k (64000), 64KiB (65536) or 8GiB, found '8gb8'");
    fails(READ("--queue-wait=5d"), "--queue-wait: expected a time such as 250ms, 30s, 2m or 1h, found '5d'");
    fails(READ("--queue-wait=0.0000001"), "--queue-wait: expected a time such as 250ms, 30s, 2m or 1h, found '0.0000001'");
}

/* ---- the file ---- */

Test(option, reads_a_yaml_file)
{
    struct run *r = read_yaml("# a comment\n---\nmodel: \"di\\\"r \\u00e9\"\nport: 9000   # and another\nkv_bytes: '2GiB'\ndtype: f32\nprefix-cache: off\n"
                              "served-model-name:\n  - one\n  - 'two, three'\nadmin-keys: [a, b]\ntemperature: 0.5\n...\n");
    works(r);
    cr_assert_str_eq(r->v.model, "di\"r \xC3\xA9");
    cr_assert_eq(r->v.port, 9000);
    cr_assert_eq(r->v.kv_bytes, (int64_t)2 << 30);
    cr_assert_eq(r->v.dtype, 1);
    cr_assert(!r->v.cache);
    cr_assert_eq(r->v.names.n, 2);
    cr_assert_str_eq(r->v.names.item[1], "two, three");
    cr_assert_eq(r->v.keys.n, 2);
    works(read_yaml(""));
    works(read_yaml("# nothing\n"));
    works(read_yaml("---\n"));
    works(read_yaml("{}"));
    works(r = read_yaml("{port: 1, model: null, served-model-name: x}"));
    cr_assert_null(r->v.model);
    cr_assert_eq(r->v.names.n, 1);
    works(r = read_yaml("model: 'null'\nserved-model-name: ~\n"));
    cr_assert_str_eq(r->v.model, "null");
    cr_assert_eq(r->v.names.n, 0);
}

Test(option, says_where_a_yaml_file_is_wrong)
{
    fails(read_yaml("port: 99999\n"), "c.yaml:1:7: port must be from 1 to 65535, found 99999");
    fails(read_yaml("model: x\n\nprefix_cach: 1\n"), "c.yaml:3:1: unknown setting 'prefix_cach'; did you mean 'prefix-cache'?");
    fails(read_yaml("zzzzzz: 1\n"), "c.yaml:1:1: unknown setting 'zzzzzz'");
    fails(read_yaml("config: c.yaml\n"), "c.yaml:1:1: 'config' cannot be set in a file: give it on the command line");
    fails(read_yaml("port: 1\nmodel: x\nport: 2\n"), "c.yaml:3:1: this setting was given before in the same file");
    fails(read_yaml("kv-bytes: 5k\nkv_bytes: 5k\n"), "c.yaml:2:1: this setting was given before in the same file");
    fails(read_yaml("model: &a x\n"), "c.yaml:1:8: anchors (&name) are not allowed here");
    fails(read_yaml("&a model: x\n"), "c.yaml:1:1: anchors (&name) are not allowed here");
    fails(read_yaml("model: *a\n"), "c.yaml:1:8: aliases (*name) are not allowed here");
    fails(read_yaml("model: !!str x\n"), "c.yaml:1:8: tags (!name) are not allowed here");
    fails(read_yaml("model: !x y\n"), "c.yaml:1:8: tags (!name) are not allowed here");
    fails(read_yaml("--- !x\nmodel: y\n"), "c.yaml:1:5: tags (!name) are not allowed here");
    fails(read_yaml("served-model-name: &l [a]\n"), "c.yaml:1:20: anchors (&name) are not allowed here");
    fails(read_yaml("port: [1]\n"), "c.yaml:1:7: a list is not allowed here: this setting has one value");
    fails(read_yaml("port:\n  - 1\n"), "c.yaml:2:3: a list is not allowed here: this setting has one value");
    fails(read_yaml("port: {a: 1}\n"), "c.yaml:1:7: a mapping is not allowed here: settings are flat");
    fails(read_yaml("served-model-name: [a, [b]]\n"), "c.yaml:1:24: expected a plain value as list item; lists and mappings cannot be nested here");
    fails(read_yaml("- port\n"), "c.yaml:1:1: expected settings, one 'name: value' per line");
    fails(read_yaml("just text\n"), "c.yaml:1:1: expected settings, one 'name: value' per line");
    fails(read_yaml("[port]: 1\n"), "c.yaml:1:1: expected the name of a setting");
    fails(read_yaml("port: 1\n---\nport: 2\n"), "c.yaml:2:1: expected the end of the file: only one document is allowed");
    fails(read_yaml("port: null\n"), "c.yaml:1:7: port: expected a whole number such as 4096, 4k (4000) or 4ki (4096), found 'null'");
    fails(read_yaml("model: \"a\\0b\"\n"), "c.yaml:1:8: the character U+0000 is not allowed here");
    fails(read_yaml("port: 1\nmodel: \xC3\xA9\xff\n"), "c.yaml:2:9: invalid leading UTF-8 octet");
    struct run *r = read_yaml("port: 1\nmodel: \"open\n");
    cr_assert_eq(r->rc, QR_E_USAGE);
    cr_assert_eq(strncmp(r->err.msg, "c.yaml:", 7), 0, "%s", r->err.msg);
    r = read_yaml("port: 1\n\tmodel: x\n");
    cr_assert_eq(r->rc, QR_E_USAGE);
    cr_assert_eq(strncmp(r->err.msg, "c.yaml:2:", 9), 0, "%s", r->err.msg);
}

Test(option, refuses_deep_nesting_at_once)
{
    char text[4000] = "served-model-name: ";
    size_t n = strlen(text);
    memset(text + n, '[', 3000);
    text[n + 3000] = 0;
    struct run *r = read_yaml(text);
    cr_assert_eq(r->rc, QR_E_USAGE);
    cr_assert_eq(strncmp(r->err.msg, "c.yaml:1:", 9), 0, "%s", r->err.msg);
}

Test(option, refuses_files_that_cannot_be_read_or_are_too_large)
{
    fails(READ("--config", "/nonexistent/x.yaml"), "--config: cannot open the configuration file '/nonexistent/x.yaml': No such file or directory");
    fails(READ("--config", "/"), "--config: cannot read the configuration file '/': Is a directory");
    setenv("QUIRE_CONFIG", "/nonexistent/x.yaml", 1);
    fails(READ_NONE(), "QUIRE_CONFIG: cannot open the configuration file '/nonexistent/x.yaml': No such file or directory");
    unsetenv("QUIRE_CONFIG");
    size_t n = ((size_t)1 << 20) + 1;
    char *text = malloc(n);
    memset(text, '#', n);
    memcpy(text, "port: 5\n", 8);
    write_file("big.yaml", text, n - 1);
    works(READ("--config", "big.yaml"));
    write_file("big.yaml", text, n);
    free(text);
    fails(READ("--config", "big.yaml"), "--config: the configuration file 'big.yaml' is larger than 1 MiB");
}

/* ---- help and printing ---- */

Test(option, knows_what_it_was_asked_for)
{
    struct run *r = READ("--print-config", "--check-config");
    works(r);
    cr_assert(qr_options_wants_print(r->set) && qr_options_wants_check(r->set) && !qr_options_wants_help(r->set));
    works(r = READ("--config", "/nonexistent", "--help", "--nonsense"));
    cr_assert(qr_options_wants_help(r->set), "help works beside what is wrong");
    cr_assert(!qr_options_wants_brief(r->set));
    works(r = READ("-h"));
    cr_assert(qr_options_wants_help(r->set) && qr_options_wants_brief(r->set));
}

Test(option, helps_within_the_columns)
{
    struct qr_buf b = {0};
    static const int32_t widths[] = {0, 60, 80, 200};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        qr_buf_clear(&b);
        qr_options_help(&b, table, N_ROWS, NULL, widths[i]);
        for (int32_t row = 0; row < N_ROWS; row++)
            cr_assert_not_null(strstr(b.data, table[row].name));
        cr_assert_not_null(strstr(b.data, "QUIRE_KV_BYTES"));
        cr_assert_not_null(strstr(b.data, "--config FILE"));
        size_t limit = (size_t)(widths[i] < 60 ? 60 : widths[i]);
        for (const char *line = b.data; *line; line += strcspn(line, "\n") + 1)
            cr_assert_leq(strcspn(line, "\n"), limit, "%.*s", (int)strcspn(line, "\n"), line);
    }
    cr_assert_not_null(strstr(b.data, "Server:\n  -p, --port N                Port to listen on; any free one: 0. It is printed. "
                                      "[default 8000, 1 to 65535, QUIRE_PORT]\n"), "%s", b.data);
    cr_assert_not_null(strstr(b.data, "      --[no-]prefix-cache     Keep prefixes. [default true, QUIRE_PREFIX_CACHE]\n"), "%s", b.data);
    cr_assert_not_null(strstr(b.data, "      --kv-bytes BYTES        Cache size. [default 1GiB, 4KiB to 1024TiB, QUIRE_KV_BYTES]\n"), "%s", b.data);
    qr_buf_release(&b);
}

Test(option, helps_briefly_with_the_rows_that_are_marked)
{
    struct qr_buf b = {0};
    qr_options_help_brief(&b, table, N_ROWS, 80);
    cr_assert_str_eq(b.data, "  -p, --port N                Port to listen on [default 8000]\n");
    qr_buf_release(&b);
}

Test(option, lines_before_the_table_and_lists_of_choices_are_cut_at_words_and_choices)
{
    static const struct qr_option wide[] = {{.name = "type", .type = QR_OPT_ENUM, .offset = AT(dtype), .builtin = "none", .help = "How.",
                                             .choices = "none|int8-group-of-32|int8-group-of-64|int4-group-of-32|int4-group-of-64|w8a16"}};
    struct qr_buf b = {0};
    static const char text[] = "quire it IN OUT [--type TYPE]\nquire it --all\n\nWrites IN as OUT, and says\nwhat it was. Takes\ntime.\n"
                               "  it is not so long here\n\nEnds.";
    qr_options_help_text(&b, text, 24);
    cr_expect_str_eq(b.data, "quire it IN OUT [--type\nTYPE]\nquire it --all\n\nWrites IN as OUT, and\nsays what it was. Takes\ntime.\n"
                             "  it is not so long here\n\nEnds.\n");
    qr_buf_clear(&b);
    qr_options_help_text(&b, text, 30);
    cr_expect(strncmp(b.data, text, strlen(text)) == 0 && strcmp(b.data + strlen(text), "\n") == 0, "%s", b.data);
    qr_buf_clear(&b);
    qr_options_help_text(&b, "  an indented line is cut\n  and goes on", 20);
    cr_expect_str_eq(b.data, "  an indented line\n  is cut\n  and goes on\n");
    qr_buf_clear(&b);
    qr_options_help(&b, wide, 1, NULL, 60);
    cr_expect_not_null(strstr(b.data, "none|int8-group-of-32|\n"), "%s", b.data);
    cr_expect_not_null(strstr(b.data, "w8a16,"), "%s", b.data);
    for (const char *line = b.data; *line; line += strcspn(line, "\n") + 1)
        cr_expect_leq(strcspn(line, "\n"), 60, "%.*s", (int)strcspn(line, "\n"), line);
    qr_buf_release(&b);
}

Test(option, prints_every_value_with_its_source)
{
    static const char text[] = "queue-wait: 1500ms\n";
    write_file("c.yaml", text, strlen(text));
    setenv("QUIRE_KV_BYTES", "8000", 1);
    struct run *r = READ("--config", "c.yaml", "--model", "a\n\"b\"", "--no-prefix-cache", "--served-model-name", "x,y", "--api-key", "secret",
                         "--admin-keys", "s2");
    works(r);
    struct qr_buf b = {0};
    qr_options_print(&b, r->set);
    cr_assert_str_eq(b.data, "# Model\n"
                             "model: \"a\\n\\\"b\\\"\"  # --model\n"
                             "dtype: auto  # built-in\n"
                             "served-model-name: [\"x,y\"]  # --served-model-name\n"
                             "\n# Server\n"
                             "port: 8000  # built-in\n"
                             "verbose: false  # built-in\n"
                             "#api-key: ***  # --api-key\n"
                             "#admin-keys: ***  # --admin-keys\n"
                             "\n# Engine\n"
                             "kv-bytes: 8kB  # QUIRE_KV_BYTES\n"
                             "queue-wait: 1500ms  # c.yaml:1:13\n"
                             "any-number: 0  # built-in\n"
                             "temperature: 0.7  # built-in\n"
                             "prefix-cache: false  # --no-prefix-cache\n");
    qr_buf_release(&b);
    unlink("c.yaml");
}

static void same_settings(const struct settings *a, const struct settings *b)
{
    cr_assert_eq(a->cache, b->cache);
    cr_assert_eq(a->verbose, b->verbose);
    cr_assert_eq(a->port, b->port);
    cr_assert_eq(a->kv_bytes, b->kv_bytes);
    cr_assert_eq(a->wait_us, b->wait_us);
    cr_assert_eq(a->any, b->any);
    cr_assert_eq(a->temperature, b->temperature);
    cr_assert_eq(a->dtype, b->dtype);
    cr_assert_eq(!a->model, !b->model);
    if (a->model)
        cr_assert_str_eq(a->model, b->model);
    cr_assert_eq(a->names.n, b->names.n);
    for (int32_t i = 0; i < a->names.n; i++)
        cr_assert_str_eq(a->names.item[i], b->names.item[i]);
}

Test(option, reads_back_what_it_printed)
{
    static const char *const values[] = {"plain", "", " lead and trail ", "null", "~", "true", "- x", "a: b # c", "\"quoted\" \\ 'single'",
                                         "line\nbreak\ttab\r\x01\x7f",
                                         "\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80", "\xC2\x85 \xE2\x80\xA8 \xEF\xBB\xBF \xEF\xBF\xBE \xC2\xA0", "%",
                                         "@x", "&a", "*a", "!t", "[", "{", ",", "---", "..."};
    struct qr_buf b = {0};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        char model[200];
        snprintf(model, sizeof model, "--model=%s", values[i]);
        struct run *r = READ(model, "--served-model-name", values[i], "--served-model-name", "second", "--temperature=0.1", "--kv-bytes", "123457",
                             "--queue-wait=1234567us", "--any-number=-9223372036854775808", "--dtype=bf16", "-v");
        works(r);
        qr_buf_clear(&b);
        qr_options_print(&b, r->set);
        struct run *again = read_yaml(b.data);
        works(again);
        same_settings(&r->v, &again->v);
    }
    qr_buf_clear(&b);
    struct run *r = READ_NONE();
    qr_options_print(&b, r->set);
    struct run *again = read_yaml(b.data);
    works(again);
    same_settings(&r->v, &again->v);
    qr_buf_release(&b);
}

Test(option, does_not_let_a_path_break_out_of_its_comment)
{
    static const char text[] = "port: 5\n", name[] = "odd\nname\xff.yaml";
    write_file(name, text, strlen(text));
    struct run *r = READ("--config", name);
    works(r);
    struct qr_buf b = {0};
    qr_options_print(&b, r->set);
    cr_assert_not_null(strstr(b.data, "port: 5  # odd?name?.yaml:1:7\n"), "%s", b.data);
    works(read_yaml(b.data));
    unlink(name);
    qr_buf_release(&b);
}

Test(option, finds_the_nearest_name)
{
    static const char *const known[] = {"serve", "chat", "generate", "tokenize", "detokenize", "max_tokens", "max_completion_tokens"};
    static const struct {
        const char *name, *near;
    } row[] = {{"sevre", "serve"}, {"server", "serve"}, {"chta", "chat"}, {"Generate", "generate"}, {"tokenise", "tokenize"}, {"detokenise", "detokenize"},
               {"max-tokens", "max_tokens"}, {"maxtokens", "max_tokens"}, {"max_comp", "max_completion_tokens"}, {"gen", "generate"}, {"xyz", NULL}, {"", NULL},
               {"ca", NULL}, {"completely different and far too long to be any of these names whatsoever", NULL}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const char *near = qr_nearest(row[i].name, known, 7);
        cr_assert_eq(near == NULL, row[i].near == NULL, "%s gave %s", row[i].name, near ? near : "nothing");
        if (near)
            cr_assert_str_eq(near, row[i].near);
    }
    cr_assert_null(qr_nearest("x", NULL, 0));
}

struct nested {
    double lr;
    int64_t warmup, steps;
    const char *from;
    struct qr_str_list prompts;
};

static const struct qr_option nested_table[] = {
    {.name = "steps", .type = QR_OPT_INT, .offset = offsetof(struct nested, steps), .builtin = "10", .min = 1, .max = 1e9},
    {.name = "optimizer.lr", .type = QR_OPT_FLOAT, .offset = offsetof(struct nested, lr), .builtin = "0.1", .min = 0, .max = 1},
    {.name = "optimizer.warm-up", .type = QR_OPT_INT, .offset = offsetof(struct nested, warmup), .builtin = "0"},
    {.name = "model.from", .type = QR_OPT_STR, .offset = offsetof(struct nested, from)},
    {.name = "sample.prompts", .type = QR_OPT_LIST, .offset = offsetof(struct nested, prompts)},
};

/* Reads `text` and settings; the error's text, or the settings in one line. */
static const char *read_nested(char out[600], const char *text, const char *const *setting, int32_t n)
{
    struct nested v;
    struct qr_err err;
    struct qr_option_set *set = qr_options_new(nested_table, (int32_t)(sizeof nested_table / sizeof *nested_table), NULL, &v);
    write_file("n.yaml", text, strlen(text));
    if (qr_options_read_settings(set, "n.yaml", setting, n, &err) != 0)
        snprintf(out, 600, "%s", err.msg);
    else
        snprintf(out, 600, "%g %d %d %s %d %s; lr by %s", v.lr, (int)v.warmup, (int)v.steps, v.from ? v.from : "-", (int)v.prompts.n,
                 v.prompts.n ? v.prompts.item[v.prompts.n - 1] : "-", qr_options_label(set, "optimizer.lr"));
    qr_options_free(set);
    return out;
}

Test(option, nests_names_with_dots_in_a_file)
{
    char out[600];
    static const char *const lr[] = {"optimizer.lr=1e-3", "steps=2k"}, *const lists[] = {"sample.prompts=a, b", "sample.prompts=c=d"};
    static const char *const unset[] = {"model.from=", "sample.prompts="};
    static const char *const bad[] = {"optimizer.lrr=1", "steps", "optimizer.lr=2", "zzzzzzzzzzzz=1", "lr=3", "optim.lr=3"};
    cr_assert_str_eq(read_nested(out, "optimizer:\n  lr: 0.5\n  warm_up: 3\nmodel: {from: x}\nsteps: 7\n", NULL, 0), "0.5 3 7 x 0 -; lr by n.yaml:2:7");
    cr_assert_str_eq(read_nested(out, "optimizer.lr: 0.5\noptimizer:\n", lr, 2), "0.001 0 2000 - 0 -; lr by --set optimizer.lr");
    cr_assert_str_eq(read_nested(out, "sample: {prompts: [x, y, z]}", lists, 2), "0.1 0 10 - 2 c=d; lr by built-in");
    cr_assert_str_eq(read_nested(out, "{model.from: x, sample.prompts: [y]}", unset, 2), "0.1 0 10 - 0 -; lr by built-in");
    cr_assert_str_eq(read_nested(out, "optimizer:\n  lrr: 1\n", NULL, 0), "n.yaml:2:3: unknown setting 'optimizer.lrr'; did you mean 'optimizer.lr'?");
    cr_assert_str_eq(read_nested(out, "optimizer: 3\n", NULL, 0),
                     "n.yaml:1:12: expected settings of 'optimizer', such as 'optimizer.lr', in a mapping");
    cr_assert_str_eq(read_nested(out, "optimizer: {lr: 1}\noptimizer.lr: 1\n", NULL, 0), "n.yaml:2:1: this setting was given before in the same file");
    cr_assert_str_eq(read_nested(out, "optimizer: {lr: {x: 1}}\n", NULL, 0), "n.yaml:1:17: a mapping is not allowed here: settings are flat");
    cr_assert_str_eq(read_nested(out, "", &bad[0], 1), "--set optimizer.lrr: unknown setting; did you mean 'optimizer.lr'?");
    cr_assert_str_eq(read_nested(out, "", &bad[1], 1), "--set steps: expected name=value");
    cr_assert_str_eq(read_nested(out, "", &bad[2], 1), "--set optimizer.lr must be from 0 to 1, found 2");
    cr_assert_str_eq(read_nested(out, "", &bad[3], 1), "--set zzzzzzzzzzzz: unknown setting");
    cr_assert_str_eq(read_nested(out, "", &bad[4], 1), "--set lr: unknown setting; did you mean 'optimizer.lr'?");
    cr_assert_str_eq(read_nested(out, "", &bad[5], 1), "--set optim.lr: unknown setting; did you mean 'optimizer.lr'?");
    cr_assert_str_eq(read_nested(out, "lr: 3\n", NULL, 0), "n.yaml:1:1: unknown setting 'lr'; did you mean 'optimizer.lr'?");
}
