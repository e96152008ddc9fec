#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "hub/digest.h"
#include "hub/files.h"

Test(names, a_name_of_a_model_is_an_organisation_and_a_name)
{
    static const struct {
        const char *text, *folder, *file; /* folder NULL: it is none */
    } cases[] = {
        {"Qwen/Qwen3-0.6B", "models--Qwen--Qwen3-0.6B", NULL}, {"a/b:Q4_K_M", "models--a--b", "Q4_K_M"}, {"a/b:c/d.gguf", "models--a--b", "c/d.gguf"},
        {"a_1/b.c-d", "models--a_1--b.c-d", NULL}, {"a", NULL, NULL}, {"a/b/c", NULL, NULL}, {"/a/b", NULL, NULL}, {"a/", NULL, NULL}, {"./b", NULL, NULL},
        {"../b", NULL, NULL}, {"a/..", NULL, NULL}, {"a/b..c", NULL, NULL}, {"a/b--c", NULL, NULL}, {"a--b/c", NULL, NULL}, {"-a/b", NULL, NULL},
        {"a/.b", NULL, NULL}, {"a/b:", NULL, NULL}, {"a b/c", NULL, NULL}, {"a/b\n", NULL, NULL}, {"", NULL, NULL}, {"a/b?x", NULL, NULL}};
    for (int i = 0; i < QR_COUNT(cases); i++) {
        struct qr_hub_name name, back;
        const bool ok = qr_hub_name_parse(&name, cases[i].text);
        cr_assert_eq(ok, cases[i].folder != NULL, "'%s'", cases[i].text);
        if (!ok)
            continue;
        cr_expect_str_eq(name.folder, cases[i].folder);
        cr_expect(name.file == cases[i].file || strcmp(name.file, cases[i].file) == 0, "'%s'", cases[i].text);
        cr_expect(qr_hub_name_of_folder(&back, name.folder) && strcmp(back.repo, name.repo) == 0, "'%s'", name.folder);
    }
}

Test(names, a_part_of_a_name_has_96_characters_at_most)
{
    char text[300];
    struct qr_hub_name name;
    for (int n = 96; n <= 97; n++) {
        snprintf(text, sizeof text, "a/%0*d", n, 0);
        cr_expect_eq(qr_hub_name_parse(&name, text), n == 96, "%d", n);
    }
}

Test(names, a_path_stays_inside)
{
    static const struct {
        const char *path;
        bool ok;
    } cases[] = {{"config.json", true}, {"1_Pooling/config.json", true}, {"a/..b", true}, {"...", true}, {"", false}, {"/a", false}, {"a/", false},
                 {"a//b", false}, {".", false}, {"..", false}, {"a/../b", false}, {"a/./b", false}, {"a\nb", false}, {"a\x7f", false}, {"refs/pr/1", true},
                 {"a\xc2\x9b", false}, {"a\xc2\xa0", true}, {"a\xc2", false}};
    for (int i = 0; i < QR_COUNT(cases); i++)
        cr_expect_eq(qr_hub_path_ok(cases[i].path), cases[i].ok, "'%s'", cases[i].path);
}

Test(names, a_path_in_the_cache_has_the_name_of_its_model)
{
    static const struct {
        const char *path, *name;
    } cases[] = {{"/r/hub/models--a--b/snapshots/01", "a/b"}, {"/r/hub/models--a--b.c/snapshots/01/x.gguf", "a/b.c"}, {"models--a--b/snapshots/01", "a/b"},
                 {"/r/models--x/models--a--b/snapshots/1", "a/b"}, {"/r/hub/models--a--b", NULL}, {"/r/hub/models--a--b/blobs/01", NULL},
                 {"/r/xmodels--a--b/snapshots/01", NULL}, {"/r/models--a/snapshots/01", NULL}};
    for (int i = 0; i < QR_COUNT(cases); i++) {
        char name[QR_HUB_NAME_MAX] = "";
        cr_expect_eq(qr_hub_name_of_path(name, cases[i].path), cases[i].name != NULL, "%s", cases[i].path);
        cr_expect_str_eq(name, cases[i].name ? cases[i].name : "");
    }
}

Test(tree, the_next_page_is_the_link_that_says_so)
{
    static const struct {
        const char *header, *next;
    } cases[] = {{"<http://h/x?a=1>; rel=\"next\"", "http://h/x?a=1"},
                 {"<http://h/1>; rel=\"prev\", <http://h/2>; rel=\"next\"", "http://h/2"},
                 {"<http://h/1>; rel=next", "http://h/1"},
                 {"<http://h/1>; rel=\"last\"", NULL}, {"<http://h/1; rel=\"next\"", NULL}, {"<>; rel=\"next\"", NULL},
                 {"<http://a-url-that-is-too-long-for-the-place-it-goes-to/>; rel=\"next\"", NULL}, {"", NULL}};
    for (int i = 0; i < QR_COUNT(cases); i++) {
        char next[40] = "";
        cr_expect_eq(qr_hub_link_next(next, sizeof next, cases[i].header), cases[i].next != NULL, "%s", cases[i].header);
        cr_expect_str_eq(next, cases[i].next ? cases[i].next : "");
    }
}

Test(tree, files_and_bytes_of_a_list_are_bounded)
{
    struct qr_hub_files f = {0};
    struct qr_err err;
    static const char hash[] = "0123456789abcdef0123456789abcdef01234567";
    cr_assert_eq(qr_hub_files_add(&f, "a", QR_HUB_BYTES_MAX, hash, &err), 0);
    cr_assert_eq(qr_hub_files_add(&f, "b", 1, hash, &err), QR_E_TOO_LARGE);
    for (int32_t i = f.n; i < QR_HUB_FILES_MAX; i++)
        cr_assert_eq(qr_hub_files_add(&f, "c", 0, hash, &err), 0);
    cr_assert_eq(qr_hub_files_add(&f, "d", 0, hash, &err), QR_E_TOO_LARGE);
    qr_hub_files_release(&f);
}

Test(digest, of_a_small_file_is_gits_and_of_a_large_one_sha256)
{
    struct qr_hub_digest d = {0};
    char hex[QR_HUB_HASH_MAX];
    qr_hub_digest_begin(&d, false, 6);
    qr_hub_digest_put(&d, "hello\n", 6);
    qr_hub_digest_take(&d, hex);
    cr_expect_str_eq(hex, "ce013625030ba8dba906f756967f9e9ca394464a"); /* git hash-object */
    qr_hub_digest_begin(&d, true, 3);
    qr_hub_digest_put(&d, "abc", 3);
    qr_hub_digest_take(&d, hex);
    cr_expect_str_eq(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"); /* FIPS 180-2 */
}
