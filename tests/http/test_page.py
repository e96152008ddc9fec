"""The page at /: who gets it, its header fields, its size, and that it names no other host. tools/check_page.py runs it in a browser."""
import base64
import hashlib
import os
import re

from lib import Server, call, get, run_tests

BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
PROBE = b"quire is running; the API is below /v1, as /v1/models and /v1/chat/completions\n"
FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "server", "page", "page.html")


def digest(page, tag):
    (text,) = re.findall(rb"(?s)<%b>(.*?)</%b>" % (tag, tag), page)
    return base64.b64encode(hashlib.sha256(text).digest()).decode()


def test_browsers_get_the_page_and_others_a_line_of_text():
    with open(FILE, "rb") as f:
        page = f.read()
    with Server("--api-key", "secret") as s:
        for accept in (BROWSER["Accept"], "text/html", "TEXT/HTML; q=0.5", "image/png, text/html"):
            r = get(s.port, "/", {"Accept": accept})
            assert (r.status, r.headers["content-type"], r.body) == (200, "text/html; charset=utf-8", page), accept
        for accept in (None, "", "*/*", "application/json", "text/plain", "text/htmlx", "xtext/html", "text/*"):
            r = get(s.port, "/", {"Accept": accept})
            assert (r.status, r.headers["content-type"], r.body) == (200, "text/plain; charset=utf-8", PROBE), accept
            assert r.headers["vary"] == "Accept"
        for fields, length in ((BROWSER, len(page)), ({}, len(PROBE))):
            r = call(s.port, "HEAD", "/", headers=fields)
            assert (r.status, int(r.headers["content-length"]), r.body) == (200, length, b"")
            assert r.headers["content-type"] == get(s.port, "/", fields).headers["content-type"]


def test_the_policy_allows_the_page_s_own_script_and_style_and_nothing_else():
    with Server() as s:
        r = get(s.port, "/", BROWSER)
        policy = dict(p.strip().split(" ", 1) for p in r.headers["content-security-policy"].split(";"))
        assert policy == {"default-src": "'none'", "script-src": "'sha256-%s'" % digest(r.body, b"script"), "style-src": "'sha256-%s'" % digest(r.body, b"style"),
                          "connect-src": "'self'", "img-src": "data:", "base-uri": "'none'", "form-action": "'none'", "frame-ancestors": "'none'",
                          "require-trusted-types-for": "'script'"}, policy
        assert r.headers["x-content-type-options"] == "nosniff" and r.headers["referrer-policy"] == "no-referrer" and r.headers["vary"] == "Accept"


def test_a_page_that_a_browser_has_is_not_sent_again():
    with Server() as s:
        r = get(s.port, "/", BROWSER)
        etag = r.headers["etag"]
        assert re.fullmatch(r'"[A-Za-z0-9+/]{32}"', etag) and r.headers["cache-control"] == "no-cache"
        for known in (etag, "W/" + etag, '"other", ' + etag):
            again = get(s.port, "/", {**BROWSER, "If-None-Match": known})
            assert (again.status, again.body, again.headers["etag"]) == (304, b"", etag) and "content-length" not in again.headers
        assert get(s.port, "/", {**BROWSER, "If-None-Match": '"other"'}).status == 200
        assert get(s.port, "/", {"If-None-Match": etag}).status == 200, "the line of text has no tag"


def test_the_page_is_one_small_file_that_names_no_other_host():
    with open(FILE, encoding="utf-8") as f:
        page = f.read()
    assert len(page.encode()) <= 80000, len(page.encode())
    assert not re.search(r"""(?i)https?://\w|["'(=]\s*//\w|<(?:img|iframe|object|embed|base)\b""", page)
    assert not re.search(r"(?i)@import|url\(", page.split("</style>")[0])
    assert re.findall(r"<link [^>]*>", page) == re.findall(r'<link rel="icon" href="data:[^>]*>', page) and page.count("<link") == 1
    assert page.count("<script") == page.count("<style") == 1 and not re.search(r"<[^>]*\s(?:style|on\w+)=", page.split("</script>", 1)[1])
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc", page)


run_tests(globals())
