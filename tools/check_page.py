#!/usr/bin/env python3
"""The page at / in headless Chromium, as a person uses it: build/quire with the bundled model, the same with keys, and tools/page_mock.py for what a model of one's own never says.

    apt-get install chromium
    python3 tools/check_page.py [--quire build/quire] [--out build/page] [NAME...]

Standard library only; the browser is driven over DevTools' pipe. Mouse and keys are real events. Screenshots go to --out: look at them. Any console error, exception or violation of the policy
is a failure, but for failed loads where a test wants one. `./dev check-world` runs it. Each check is a function of a Page.
"""
import argparse
import base64
import concurrent.futures
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.error
import urllib.request

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), '..'))
sys.path[:0] = [os.path.join(ROOT, 'tools'), os.path.join(ROOT, 'tests', 'e2e')]
import lib  # noqa: E402
import page_mock  # noqa: E402

CHROMIUM = next((p for p in map(shutil.which, ('chromium', 'chromium-browser', 'google-chrome')) if p), None)
KEYS = {'Enter': 13, 'Escape': 27, 'Tab': 9, 'ArrowRight': 39, 'ArrowLeft': 37, 'ArrowDown': 40, '/': 191}
QUESTION = 'What is 12 plus 30?'


class Browser:
    """Chromium, driven by JSON messages that end in NUL over two pipes, which it knows as descriptors 3 and 4."""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix='check-page-')
        to_browser, self.tx = os.pipe()
        self.rx, from_browser = os.pipe()
        command = [CHROMIUM, '--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--no-first-run', '--disable-background-networking', '--disable-component-update',
                   '--remote-debugging-pipe', '--user-data-dir=' + self.dir, '--force-color-profile=srgb', 'about:blank']
        self.process = subprocess.Popen(['sh', '-c', f'exec "$@" 3<&{to_browser} 4>&{from_browser}', 'sh', *command], pass_fds=(to_browser, from_browser),
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.n, self.text, self.answers, self.events = 0, b'', {}, []

    def read(self, timeout):
        if not select.select([self.rx], [], [], timeout)[0]:
            return False
        data = os.read(self.rx, 1 << 20)
        if not data:
            raise SystemExit('check_page: chromium ended')
        *whole, self.text = (self.text + data).split(b'\0')
        for message in map(json.loads, whole):
            if 'id' in message:
                self.answers[message['id']] = message
            else:
                self.events.append(message)
        return True

    def call(self, method, params=None, session=None, timeout=60):
        self.n += 1
        message = {'id': self.n, 'method': method, 'params': params or {}, **({'sessionId': session} if session else {})}
        os.write(self.tx, json.dumps(message).encode() + b'\0')
        until = time.monotonic() + timeout
        while self.n not in self.answers:
            if time.monotonic() > until:
                raise TimeoutError(method)
            self.read(1)
        answer = self.answers.pop(self.n)
        if 'error' in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer['result']

    def close(self):
        try:
            self.call('Browser.close', timeout=10)
            self.process.wait(20)
        except (Exception, SystemExit):
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)


class Page:
    """A tab with storage of its own."""

    def __init__(self, browser, url, width=1280, height=840, dark=False, out='build/page'):
        self.b, self.url, self.out = browser, url, out
        self.context = browser.call('Target.createBrowserContext')['browserContextId']
        self.target = browser.call('Target.createTarget', {'url': 'about:blank', 'browserContextId': self.context})['targetId']
        self.session = browser.call('Target.attachToTarget', {'targetId': self.target, 'flatten': True})['sessionId']
        self.expected = False  # failed loads are
        for domain in ('Page', 'Runtime', 'Log', 'Network'):
            self.do(domain + '.enable')
        self.do('Emulation.setFocusEmulationEnabled', enabled=True)
        self.do('Page.addScriptToEvaluateOnNewDocument', source="window.violations = []; addEventListener('securitypolicyviolation', e => violations.push(e.violatedDirective + ' ' + e.blockedURI))")
        self.size(width, height)
        self.scheme(dark)
        self.load()

    def do(self, method, **params):
        return self.b.call(method, params, self.session)

    def size(self, width, height):
        self.do('Emulation.setDeviceMetricsOverride', width=width, height=height, deviceScaleFactor=1, mobile=width < 600)

    def scheme(self, dark):
        self.do('Emulation.setEmulatedMedia', features=[{'name': 'prefers-color-scheme', 'value': 'dark' if dark else 'light'}])

    def load(self, tail=''):
        self.do('Page.navigate', url='about:blank')
        self.do('Page.navigate', url=self.url + tail)
        self.until("document.readyState === 'complete' && !!document.querySelector('#send svg')")

    def js(self, text):
        r = self.do('Runtime.evaluate', expression=text, returnByValue=True, awaitPromise=True)
        if 'exceptionDetails' in r:
            raise RuntimeError(text + ': ' + json.dumps(r['exceptionDetails'])[:600])
        return r['result'].get('value')

    def until(self, condition, seconds=30):
        end = time.monotonic() + seconds
        while not self.js(f'!!({condition})'):
            if time.monotonic() > end:
                self.shot('failed')
                raise AssertionError('never: ' + condition)
            time.sleep(.03)

    def click(self, selector):
        box = self.js(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); if (!e) return null; e.scrollIntoView({{block: 'nearest'}}); const r = e.getBoundingClientRect(); "
                      'return [r.x + r.width / 2, r.y + r.height / 2]; })()')
        assert box, 'there is no ' + selector
        self.do('Input.dispatchMouseEvent', type='mouseMoved', x=box[0], y=box[1])
        for kind in ('mousePressed', 'mouseReleased'):
            self.do('Input.dispatchMouseEvent', type=kind, x=box[0], y=box[1], button='left', clickCount=1)

    def hover(self, selector, dx=.5, dy=.5):
        x, y, w, hh = self.js(f"(() => {{ const r = document.querySelector({json.dumps(selector)}).getBoundingClientRect(); return [r.x, r.y, r.width, r.height]; }})()")
        self.do('Input.dispatchMouseEvent', type='mouseMoved', x=x + w * dx, y=y + hh * dy)

    def key(self, name, modifiers=0):
        text = {'Enter': '\r', '/': '/'}.get(name)
        self.do('Input.dispatchKeyEvent', type='keyDown', key=name, code=name if name != '/' else 'Slash', windowsVirtualKeyCode=KEYS[name], modifiers=modifiers, **({'text': text} if text else {}))
        self.do('Input.dispatchKeyEvent', type='keyUp', key=name, windowsVirtualKeyCode=KEYS[name], modifiers=modifiers)

    def type(self, text):
        self.do('Input.insertText', text=text)

    def fill(self, selector, text):
        self.click(selector)
        self.js(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.focus(); e.select(); }})()")  # the page may have moved under the click
        self.type(text) if text else self.do('Input.dispatchKeyEvent', type='keyDown', key='Delete', windowsVirtualKeyCode=46)
        self.js(f"document.querySelector({json.dumps(selector)}).dispatchEvent(new Event('change', {{bubbles: true}}))")

    def choose(self, selector, value):
        self.js(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.value = {json.dumps(value)}; e.dispatchEvent(new Event('change', {{bubbles: true}})); }})()")

    def text(self, selector):
        return self.js(f'document.querySelector({json.dumps(selector)})?.innerText')

    def count(self, selector):
        return self.js(f'document.querySelectorAll({json.dumps(selector)}).length')

    def ask(self, text, wait=True):
        n = self.count('.msg.assistant')
        self.fill('#text', text)
        self.key('Enter')
        if wait:
            self.until(f"document.querySelectorAll('.msg.assistant').length > {n} && document.querySelector('#send').title === 'Send'", 60)

    def shot(self, name, full=False):
        data = self.do('Page.captureScreenshot', format='png', captureBeyondViewport=full)['data']
        with open(os.path.join(self.out, name + '.png'), 'wb') as f:
            f.write(base64.b64decode(data))

    def check_width(self):
        """Nothing is wider than the window, but for what scrolls by itself."""
        wide = self.js("""(() => { const w = document.documentElement.clientWidth, out = [];
            if (document.documentElement.scrollWidth > w) out.push('the document: ' + document.documentElement.scrollWidth);
            for (const e of document.querySelectorAll('body *')) {
              const r = e.getBoundingClientRect(); if (!r.width || r.right <= w + 1 || r.left >= w || e.closest('.sr, svg')) continue;
              let p = e.parentElement; while (p && !['auto', 'scroll', 'hidden'].includes(getComputedStyle(p).overflowX)) p = p.parentElement;
              if (!p || p === document.body || ['talk', 'ops', 'set', 'list'].includes(p.id)) out.push(e.tagName + '.' + e.className + ' ' + Math.round(r.right)); }
            for (const e of document.querySelectorAll('body *'))
              if (e.scrollWidth > e.clientWidth + 1 && ['auto', 'scroll'].includes(getComputedStyle(e).overflowX) && !e.matches('pre, .table, textarea')) out.push(e.id + '.' + e.className + ' scrolls');
            return out; })()""")
        assert not wide, wide

    def complaints(self):
        while self.b.read(.05):
            pass
        found = self.js('window.violations').copy()
        for e in self.b.events:
            if e.get('sessionId') != self.session:
                continue
            p = e['params']
            if e['method'] == 'Runtime.exceptionThrown':
                found.append(p['exceptionDetails'].get('exception', {}).get('description') or p['exceptionDetails']['text'])
            elif e['method'] == 'Runtime.consoleAPICalled' and p['type'] in ('error', 'warning', 'assert'):
                found.append(str(p['args']))
            elif e['method'] == 'Log.entryAdded' and p['entry']['level'] in ('error', 'warning') and not (self.expected and p['entry']['source'] == 'network'):
                found.append(p['entry']['text'] + ' ' + p['entry'].get('url', ''))
            elif e['method'] == 'Network.requestWillBeSent' and not p['request']['url'].startswith((self.url, 'data:', 'blob:', 'about:')):
                found.append('asked for ' + p['request']['url'])
        return found

    def close(self):
        self.b.call('Target.closeTarget', {'targetId': self.target})
        self.b.call('Target.disposeBrowserContext', {'browserContextId': self.context})
        self.b.events = [e for e in self.b.events if e.get('sessionId') != self.session]


LAST = '.msg.assistant:last-child'


# ---- the bundled model ----

def real_a_question_is_answered_in_a_stream(p):
    p.until("document.querySelector('#model').value === 'quire-tiny'")
    assert '1,024 tokens of context' in p.text('.hello'), p.text('.hello')
    p.shot('hello')
    p.js('document.activeElement.blur()')
    p.key('/')
    assert p.js('document.activeElement.id') == 'text' and p.js("document.querySelector('#text').value") == ''
    p.type('one')
    p.key('Enter', 8)
    p.type('two')
    assert p.js("document.querySelector('#text').value") == 'one\ntwo' and p.count('.msg') == 0
    p.ask(QUESTION)
    assert '42' in p.text(LAST + ' .md'), p.text(LAST)
    assert 'tokens' in p.text(LAST + ' .meta') and 'first after' in p.text(LAST + ' .meta'), p.text(LAST)
    assert p.text('.msg.user .say') == QUESTION and p.text('#title') == QUESTION
    assert ' / 1,024' in p.text('#gauge') and p.js("document.querySelector('#gauge').getAttribute('aria-valuenow') > 10")
    assert '42' in p.text('#say'), 'the answer is announced'


def real_messages_are_edited_and_answers_made_anew(p):
    p.ask('Hello')
    p.ask('What is 3 plus 4?')
    p.click('.msg.user [title="Edit and ask again"]')
    p.fill('.edit textarea', QUESTION)
    p.key('Enter')
    p.until("document.querySelectorAll('.msg').length === 2 && document.querySelector('#send').title === 'Send'")
    assert '42' in p.text(LAST), p.text(LAST)
    p.click('#toast button')
    p.until("document.querySelectorAll('.msg').length === 4")
    assert 'Hello' in p.text('.msg.user'), 'undone'
    p.click(LAST + ' [title="Another answer"]')
    p.until("document.querySelectorAll('.msg').length === 4 && document.querySelector('#send').title === 'Send' && document.querySelector('.msg.assistant:last-child .meta')")
    p.click('.msg.user [title="Edit and ask again"]')
    p.key('Escape')
    assert p.count('.edit') == 0 and p.count('.msg') == 4


def real_settings_reach_the_server_and_its_words_the_person(p):
    p.click('#tune')
    p.fill('#s-temperature', '9')
    p.expected = True
    p.ask(QUESTION)
    assert 'temperature' in p.text('.fail') and '400' in p.text('.fail small'), p.text('.fail')
    p.fill('#s-temperature', '0')
    p.fill('#s-max_tokens', '2')
    p.fill('#s-seed', '7')
    p.fill('#s-system', 'You answer in one word.')
    p.shot('settings')
    p.click('.fail .btn')
    p.until("document.querySelector('.meta') && document.querySelector('#send').title === 'Send'")
    assert p.count('.fail') == 0 and 'ended at the token limit' in p.text('.meta') and '2 tokens' in p.text('.meta'), p.text('.meta')
    p.fill('#s-max_tokens', '')
    p.click('#s-useSchema')
    p.fill('#s-schema', '{"type": "object", "properties": ')
    p.ask('x', wait=False)
    p.until("!document.querySelector('#s-bad').hidden")
    assert 'The schema is not JSON' in p.text('#s-bad')
    p.fill('#s-schema', json.dumps({'type': 'object', 'properties': {'sum': {'type': 'integer', 'maximum': 99, 'minimum': 0}}, 'required': ['sum'], 'additionalProperties': False}))
    p.ask(QUESTION)
    answer = json.loads(p.text(LAST + ' .md'))
    assert set(answer) == {'sum'} and 0 <= answer['sum'] <= 99, answer
    p.load()
    p.until("document.querySelectorAll('#list li').length === 1")
    p.click('#list .open')
    p.click('#tune') if p.js("document.querySelector('#set').hidden") else None
    assert p.js("document.querySelector('#s-temperature').value") == '0' and p.js("document.querySelector('#s-useSchema').checked"), 'kept with the conversation'


def real_tools_are_called_and_a_person_answers(p):
    p.click('#tune')
    p.click('#s-useTools')
    p.fill('#s-tools', json.dumps([{'name': 'weather', 'parameters': {'type': 'object', 'properties': {'city': {'type': 'string', 'enum': ['Oslo', 'Rome']}}, 'required': ['city'],
                                                                     'additionalProperties': False}}]))
    p.choose('#s-choice', 'required')
    p.ask('How warm is it in Oslo?')
    assert p.text('.call header code') == 'weather' and json.loads(p.text('.call pre'))['city'] in ('Oslo', 'Rome'), p.text('.call')
    p.fill('.call textarea', '{"degrees": 21}')
    p.choose('#s-choice', 'none')
    p.click('.msg .btn.main')
    p.until("document.querySelectorAll('.msg.assistant').length === 2 && document.querySelector('#send').title === 'Send'")
    assert p.count('.fail') == 0 and p.text('.call .out pre') == '{"degrees": 21}', p.text('#log')
    p.click('#tune')
    p.shot('tools')


def real_probabilities_are_shown(p):
    p.click('#tune')
    p.click('#s-odds')
    p.click('#tune')
    p.ask(QUESTION)
    assert p.count('.toks span') >= 3
    p.hover('.toks span:nth-child(2)')
    p.until("!document.querySelector('#tip').hidden")
    assert p.count('#tip tr') >= 5 and '%' in p.text('#tip'), p.text('#tip')
    p.js("document.querySelector('.toks').focus()")
    p.key('ArrowRight')
    p.key('ArrowRight')
    assert p.js("document.querySelector('.toks .cur') === document.querySelectorAll('.toks span')[1]")
    p.shot('probabilities-real')
    p.click(LAST + ' [title="Token probabilities"]')
    assert '42' in p.text(LAST + ' .md') and p.js("document.querySelector('.toks').offsetParent") is None


def real_conversations_stay_in_the_browser(p):
    p.ask(QUESTION)
    p.click('#new')
    p.ask('Hello')
    assert p.count('#list li') == 2 and p.text('#list li.now') == 'Hello'
    p.click('#list li.now [title^="Rename"]')
    p.type('A greeting')
    p.key('Enter')
    assert p.text('#list li.now .open') == 'A greeting' and p.text('#title') == 'A greeting'
    p.load()
    p.until("document.querySelectorAll('#list li').length === 2")
    p.click('#list li:nth-child(2) .open')
    assert p.text('.say') == QUESTION and '42' in p.text(LAST)
    p.click('#list li.now [title^="Delete"]')
    assert p.count('#list li') == 1 and 'Deleted' in p.text('#toast') and p.text('.say') == 'Hello'
    p.click('#toast button')
    assert p.count('#list li') == 2
    folder = tempfile.mkdtemp(prefix='check-page-')
    p.b.call('Browser.setDownloadBehavior', {'behavior': 'allow', 'browserContextId': p.context, 'downloadPath': folder})
    p.click('[title="Export conversations"]')
    path = os.path.join(folder, 'quire-conversations.json')
    for _ in range(200):
        if os.path.exists(path) and os.path.getsize(path) > 0:
            break
        time.sleep(.05)
    with open(path, encoding='utf-8') as f:
        doc = json.load(f)
    assert [c['title'] for c in doc['conversations']] == ['A greeting', QUESTION], doc
    p.js('localStorage.clear()')
    p.load()
    assert p.count('#list li') == 0
    node = p.do('DOM.querySelector', nodeId=p.do('DOM.getDocument')['root']['nodeId'], selector='#file')['nodeId']
    p.do('DOM.setFileInputFiles', files=[path], nodeId=node)
    p.until("document.querySelectorAll('#list li').length === 2")
    p.click('#list li:nth-child(2) .open')
    assert p.text('.say') == QUESTION
    with open(path, 'w', encoding='utf-8') as f:
        f.write('{"conversations": 1}')
    p.do('DOM.setFileInputFiles', files=[path], nodeId=node)
    p.until("document.querySelector('#toast').innerText.includes('was not imported')")
    shutil.rmtree(folder)


# ---- one that runs one request at a time ----

def busy_operators_see_and_cancel(p):
    ask = {'messages': [{'role': 'user', 'content': 'Tell me a story.'}], 'max_tokens': 600, 'ignore_eos': True}
    try:
        with urllib.request.urlopen(p.url + 'v1/ops/state', timeout=10) as r:
            assert 'limits' in json.load(r)
    except urllib.error.HTTPError:
        p.expected = True
        p.click('#go-ops')
        p.until("document.querySelector('#warns').innerText.includes('There is no route')")
        print('     SKIPPED: this build has no /v1/ops/state')
        return

    def post(i):
        request = urllib.request.Request(p.url + 'v1/chat/completions', json.dumps({**ask, 'seed': i}).encode(), {'Content-Type': 'application/json'})
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:
                return answer.status
        except urllib.error.HTTPError as e:
            return e.code

    p.click('#go-ops')
    p.until("document.querySelector('#title').innerText.includes('ready') && document.querySelectorAll('#o-facts div').length > 7")
    assert p.text('#o-none') == 'Nothing runs or waits.'
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        answers = [pool.submit(post, i) for i in range(24)]
        p.until("document.querySelectorAll('#reqs tbody tr').length > 5")
        p.check_width()
        p.shot('ops-busy')
        name = p.js("document.querySelector('#reqs tbody tr:last-child td:nth-child(2)').innerText")
        assert p.text('#reqs tbody tr:last-child td') == 'waiting', p.text('#reqs')
        p.click('#reqs tbody tr:last-child .btn')
        p.until(f"document.querySelector('#toast').innerText === {json.dumps(f'Cancelled {name}.')}")
        p.until("!document.querySelector('#reqs tbody tr')", 120)
        codes = sorted(a.result() for a in answers)
    assert codes[:23] == [200] * 23 and codes[23] >= 400, codes
    p.until("document.querySelector('#o-steps').innerText.includes('the last 240') && document.querySelector('#o-ttft').innerText.includes('half ')")
    p.hover('#map', .002, .02)
    p.until("document.querySelector('#tip').innerText.includes('cached, ')")
    p.hover('#steps', .99, .9)
    assert ' decoding' in p.text('#tip'), p.text('#tip')
    p.size(1280, 1400)
    time.sleep(1.5)
    p.shot('ops-real')


# ---- a server with keys ----

def keyed_the_key_is_wanted_once(p):
    p.expected = True
    p.until("document.querySelector('#keys').open")
    assert 'API key is required' in p.text('#keys-why'), p.text('#keys-why')
    p.shot('key')
    p.fill('#key', 'wrong')
    p.key('Enter')
    p.until("document.querySelector('#keys').open && document.querySelector('#keys-why').innerText.includes('not valid')")
    p.fill('#key', 'user-key')
    p.click('#keys .main')
    p.until("document.querySelector('#model').value === 'quire-tiny'")
    p.ask(QUESTION)
    assert '42' in p.text(LAST)
    assert p.js('[sessionStorage.getItem("quire.key"), localStorage.getItem("quire.key")]') == ['user-key', None]
    p.load()
    p.until("document.querySelector('#model').value === 'quire-tiny' && !document.querySelector('#keys').open")
    p.click('[title="API key"]')
    p.click('#keep')
    p.click('#keys .main')
    assert p.js('[sessionStorage.getItem("quire.key"), localStorage.getItem("quire.key")]') == [None, '"user-key"']
    p.click('#go-ops')
    p.until("document.querySelector('#warns').innerText.length > 10")
    if 'no route' not in p.text('#warns'):
        assert 'admin key' in p.text('#warns'), p.text('#warns')
        p.click('#warns button')
        p.fill('#key', 'admin-key')
        p.key('Enter')
        p.until("document.querySelector('#title').innerText.includes('ready')")


# ---- the mock ----

def mock_an_answer_is_stopped(p):
    p.ask('slow please', wait=False)
    p.until("document.querySelector('.msg.assistant .md').innerText.includes('word3')")
    assert p.js("document.querySelector('#send').title") == 'Stop' and p.count('#list .run') == 1
    p.key('Escape')
    p.until("document.querySelector('#send').title === 'Send'")
    assert 'stopped' in p.text(LAST + ' .meta') and 'tokens/s' in p.text(LAST + ' .meta') and 'word3' in p.text(LAST)
    p.ask('slow again', wait=False)
    p.until("document.querySelectorAll('.msg.assistant').length === 2 && document.querySelector('.msg.assistant:last-child .md')?.innerText.includes('word1')")
    p.click('#send')
    p.until("document.querySelector('#send').title === 'Send'")
    assert 'stopped' in p.text(LAST + ' .meta')


def mock_an_answer_goes_on_while_another_conversation_is_read(p):
    p.ask('slow please', wait=False)
    p.until("document.querySelector('.msg.assistant .md')?.innerText.includes('word2')")
    p.click('#new')
    p.ask('Hello')
    p.click('#list li:nth-child(2) .open')
    p.until("document.querySelector('.msg.assistant .md').innerText.includes('word20')")
    p.click('#list li.now [title^="Delete"]')
    p.until("document.querySelectorAll('#list .run').length === 0")


def mock_markdown_becomes_elements(p):
    p.ask('markdown')
    md = LAST + ' .md'
    found = {tag: p.count(f'{md} {tag}') for tag in ('h2', 'strong', 'em', 'del', 'ol > li', 'ol ul > li', 'table tr', 'th', '.code code', 'blockquote', 'hr', 'a', 'img', 'b')}
    assert found == {'h2': 1, 'strong': 2, 'em': 1, 'del': 1, 'ol > li': 3, 'ol ul > li': 2, 'table tr': 3, 'th': 3, '.code code': 1, 'blockquote': 1, 'hr': 1, 'a': 3, 'img': 0, 'b': 0}, found
    assert p.js(f"[...document.querySelectorAll('{md} a')].map(a => a.href + ' ' + a.rel)") == [
        f'https://example.org/{x} noopener noreferrer' for x in ('paged', 'a_b(c)', 'x.png')]
    text = p.text(md)
    assert all(x in text for x in ('snake_case_name, 2 * 3 * 4, a *star*, ', '# <b>rounded up</b>', 'code with <tags>', 'an unclosed **mark')), text
    p.b.call('Browser.grantPermissions', {'permissions': ['clipboardReadWrite', 'clipboardSanitizedWrite'], 'browserContextId': p.context})
    p.click(md + ' .code button')
    p.until(f"document.querySelector('{md} .code button').title === 'Copied'")
    assert p.js('navigator.clipboard.readText()').startswith('def blocks(n_tokens')
    p.shot('chat-light')
    p.js("document.querySelector('#talk').scrollTop = 0")
    p.shot('chat-top')


def mock_nothing_that_a_model_writes_is_run(p):
    p.ask('xss')
    p.click('.think summary')
    time.sleep(.3)
    assert p.js('window.hit') is None
    assert p.js(f"[...document.querySelectorAll('{LAST} a')].map(a => a.href)") == ['https://example.org/"onmouseover="window.hit=5'.replace('"', '%22')] or p.count(LAST + ' a') == 0
    assert p.count('.msg img') == p.count('.msg iframe') == p.count('.msg script') == 0
    assert '<img src=x onerror="window.hit=1">' in p.text(LAST + ' .md') and '<svg/onload' in p.text(LAST + ' .md')
    hostile = {'conversations': [{'id': '../../x"><img src=x onerror=window.hit=20>', 'title': '<img src=x onerror=window.hit=21>', 'at': 'x', 'set': {'system': 5, 'temperature': {}},
                                  'msgs': [{'role': '<b>', 'text': 'no'}, {'role': 'user', 'text': '<script>window.hit=22</script>'}, {'role': 'assistant', 'text': 7, 'calls': [5, {'name': '<i>'}], 'err': {'message': '<img src=x onerror=window.hit=23>'}}]}, 5]}
    p.js(f"(() => {{ const d = new DataTransfer(); d.items.add(new File([{json.dumps(json.dumps(hostile))}], '<b>.json')); const f = document.querySelector('#file'); f.files = d.files; f.dispatchEvent(new Event('change')); }})()")
    p.until("document.querySelectorAll('#list li').length === 3")
    p.click('#list li .open[title^="<img"]')
    assert p.text('.say') == '<script>window.hit=22</script>' and p.text('.fail p').startswith('<img') and p.js('window.hit') is None


def mock_long_answers_stay_quick(p):
    for kind in ('', ' stars', ' brackets', ' ticks', ' lines', ' quotes', ' word', ' pipes'):
        p.click('#new')
        began = time.monotonic()
        p.ask('long' + kind)
        took = time.monotonic() - began
        length = p.js(f"document.querySelector('{LAST} .md').textContent.length")
        work = p.js(f"(() => {{ const t = performance.now(); new Markdown().set(({{stars: '*a ', brackets: '[', ticks: '`a``', lines: 'a\\n', quotes: '> ', word: 'x', pipes: '|a'}}[{json.dumps(kind.strip())}] || 'word ').repeat(1e5).slice(0, 1e5)); return performance.now() - t; }})()")
        print(f'     100,000 characters{kind}: {took:.1f} s, the last painting {work:.0f} ms')
        assert took < 20 and work < 1000 and (length > 24000 or kind == ' quotes'), (kind, took, work, length)


def mock_thinking_is_folded_and_errors_are_told(p):
    p.ask('think')
    assert p.text('.think summary').startswith('Thought for') and not p.js("document.querySelector('.think').open")
    p.click('.think summary')
    assert 'gathering of leaves of paper' in p.text('.think div') and 'A quire is' in p.text(LAST + ' .md')
    p.shot('thinking')
    p.ask('break')
    assert 'This much was' in p.text(LAST + ' .md') and '--request-timeout' in p.text(LAST + ' .fail') and 'timeout' in p.text(LAST + ' .fail small')
    p.expected = True
    p.ask('full')
    assert 'The queue is full (512 requests)' in p.text(LAST + ' .fail')
    p.shot('errors')
    p.ask('call the tool')
    p.fill('.call textarea', '<b>cold</b>')
    p.click(LAST + ' .btn.main')
    p.until(f"document.querySelector('{LAST} .md')?.innerText === 'The tool said: <b>cold</b>'")
    p.choose('#model', 'terse')
    assert p.js("[...document.querySelectorAll('#model optgroup option')].map(o => o.value)") == ['terse']


def mock_probabilities_have_colours(p):
    p.click('#tune')
    p.click('#s-odds')
    p.click('#tune')
    p.ask('Say something of some length, so that one sees how the probabilities of tokens look like where a text fills more than one row')
    assert all(p.count('.toks .p' + str(i)) > 0 for i in range(5) if i != 1)
    p.hover('.toks span:nth-child(6)')
    p.until("!document.querySelector('#tip').hidden")
    p.shot('probabilities')


def mock_operators_see_and_cancel(p):
    p.click('#go-ops')
    p.until("document.querySelectorAll('#reqs tbody tr').length >= 8 && document.querySelector('#o-out').innerText.includes('tokens/s')")
    time.sleep(2.2)
    p.js("document.querySelector('#map').scrollIntoView()")
    p.hover('#map', .3, .4)
    p.until("!document.querySelector('#tip').hidden")
    assert p.text('#tip').startswith('Blocks '), p.text('#tip')
    p.hover('#steps', .9, .8)
    assert 'prompt tokens' in p.text('#tip'), p.text('#tip')
    p.js("document.querySelector('#map').focus()")
    for k in ('ArrowRight', 'ArrowDown'):
        p.key(k)
    assert not p.js("document.querySelector('#tip').hidden")
    p.js("document.activeElement.blur(); document.querySelector('#ops').scrollTop = 0")
    name = p.js("document.querySelector('#reqs tbody tr td:nth-child(2)').innerText")
    p.click('#reqs tbody tr .btn')
    p.until(f"![...document.querySelectorAll('#reqs td')].some(x => x.innerText === {json.dumps(name)})")
    folder = tempfile.mkdtemp(prefix='check-page-')
    p.b.call('Browser.setDownloadBehavior', {'behavior': 'allow', 'browserContextId': p.context, 'downloadPath': folder})
    p.click('#profile')
    p.until("document.querySelector('#profile').innerText === 'Record 5 s'")
    for _ in range(200):
        if os.listdir(folder) == ['quire-profile.json']:
            break
        time.sleep(.05)
    assert os.listdir(folder) == ['quire-profile.json']
    shutil.rmtree(folder)
    p.until("document.querySelector('#toast').hidden")
    p.size(1280, 1500)
    time.sleep(1.2)
    p.shot('ops-light')
    p.scheme(True)
    time.sleep(1.2)
    p.shot('ops-dark')
    p.size(360, 1900)
    time.sleep(1.2)
    p.check_width()
    p.shot('ops-phone')
    p.click('#menu')
    time.sleep(.3)
    p.click('#go-chat')
    p.until("!document.querySelector('#talk').hidden")


def mock_it_fits_a_phone_and_the_dark(p):
    p.ask('markdown')
    p.ask('think')
    p.click('#theme')
    p.click('#theme')
    assert p.js("document.documentElement.dataset.theme") == 'dark' and p.js("getComputedStyle(document.body).colorScheme") == 'dark'
    p.shot('chat-dark')
    p.load()
    assert p.js("document.documentElement.dataset.theme") == 'dark', 'kept'
    p.js("localStorage.removeItem('quire.theme')")
    p.size(360, 740)
    p.load()
    p.shot('hello-phone')
    p.check_width()
    p.click('#menu')
    time.sleep(.3)
    p.shot('side-phone')
    p.click('#list .open')
    p.check_width()
    p.js("document.querySelector('#talk').scrollTop = 0")
    p.shot('phone')
    p.js("document.querySelector('.md table').scrollIntoView()")
    p.shot('phone-table')
    p.ask('call the tool ' + 'x' * 300)
    p.expected = True
    p.ask('full ' + 'y' * 300)
    p.check_width()
    p.shot('phone-tools')
    p.click('#tune')
    p.check_width()
    p.shot('settings-phone')
    p.key('Escape')
    assert p.js("document.querySelector('#set').hidden")


def mock_the_keyboard_reaches_everything(p):
    p.ask('call the tool')
    p.js("document.querySelector('#go-chat').focus()")
    seen = []
    for i in range(40):
        p.key('Tab') if i else None
        what = p.js("""(() => { const e = document.activeElement; if (e === document.body) return null; const r = e.getBoundingClientRect(), s = getComputedStyle(e);
            return {name: e.getAttribute('aria-label') || e.innerText || e.labels?.[0]?.innerText || '', size: r.width * r.height, id: e.id, ring: s.outlineStyle !== 'none' || s.boxShadow !== 'none' || !!e.closest('.box')}; })()""")
        if what is None:
            break
        seen.append(what)
    assert all(x['name'].strip() and x['size'] > 0 and x['ring'] for x in seen), seen
    order = ['go-chat', 'go-ops', 'new', 'theme', 'model', 'tune', 'text']
    assert [x['id'] for x in seen if x['id'] in order] == order, seen
    for view in ('chat', 'ops'):
        p.click('#go-' + view)
        p.until("document.querySelector('#ops').hidden || document.querySelector('#o-facts div')")
        unnamed = p.js("[...document.querySelectorAll('button, input, select, textarea, a, canvas')].filter(e => e.offsetParent && !(e.getAttribute('aria-label') || e.textContent.trim() || e.labels?.length)).map(e => e.outerHTML.slice(0, 90))")
        assert not unnamed, unnamed


def run(browser, checks, url, args):
    failed = 0
    for f in checks:
        if args.names and f.__name__ not in args.names:
            continue
        page, began = Page(browser, url, out=args.out), time.monotonic()
        try:
            f(page)
            complaints = page.complaints()
            assert not complaints, complaints
            print(f'ok   {f.__name__} ({time.monotonic() - began:.1f} s)', flush=True)
        except Exception:
            failed += 1
            print(f'FAIL {f.__name__}\n{traceback.format_exc()}', flush=True)
        page.close()
    return failed


def main():
    p = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    p.add_argument('--quire', default=os.path.join(ROOT, 'build', 'quire'))
    p.add_argument('--out', default=os.path.join(ROOT, 'build', 'page'))
    p.add_argument('names', nargs='*')
    args = p.parse_args()
    if not CHROMIUM:
        sys.exit('check_page: no chromium here; apt-get install chromium')
    lib.QUIRE = args.quire
    os.makedirs(args.out, exist_ok=True)
    checks = [f for name, f in globals().items() if name.startswith(('real_', 'busy_', 'keyed_', 'mock_'))]
    of = lambda kind: [f for f in checks if f.__name__.startswith(kind)]
    failed, browser = 0, Browser()
    try:
        tiny = os.path.join(ROOT, 'models', 'quire-tiny')
        for kind, more in (('real_', ()), ('busy_', ('--max-running', '1')), ('keyed_', ('--api-key', 'user-key', '--admin-key', 'admin-key'))):
            with lib.Server(*more, model=tiny) as s:
                failed += run(browser, of(kind), f'http://127.0.0.1:{s.port}/', args)
        with page_mock.Mock() as mock:
            failed += run(browser, of('mock_'), f'http://127.0.0.1:{mock.server_address[1]}/', args)
    finally:
        browser.close()
    print(f'check_page: {failed} failed; screenshots in {args.out}')
    sys.exit(1 if failed else 0)


if __name__ == '__main__':
    main()
