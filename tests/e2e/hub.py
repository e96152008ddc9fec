"""hub.py - a hub of models on loopback, as the program sees one: the API's list of files page by page, files that are served or redirected to another host,
ranges, ETags, and the faults of a bad day. Standard library only; tests/e2e/test_hub.py and tools/check_hub.py use it.
"""
import hashlib
import http.server
import json
import re
import threading
import time
import urllib.parse


def blob_sha1(data):
    return hashlib.sha1(b'blob %d\0' % len(data) + data).hexdigest()


class Model:
    """One revision of a model. Files of 1,000 bytes and more, and *.gguf and *.safetensors, are large ones: hashed by SHA-256 and served by the other host."""

    def __init__(self, files, commit=None):
        self.files = {path: data if isinstance(data, bytes) else data.encode() for path, data in files.items()}
        self.commit = commit or hashlib.sha1(repr(sorted(self.files.items())).encode()).hexdigest()

    def is_large(self, path):
        return len(self.files[path]) >= 1000 or path.endswith(('.gguf', '.safetensors'))

    def hash_of(self, path):
        data = self.files[path]
        return hashlib.sha256(data).hexdigest() if self.is_large(path) else blob_sha1(data)

    def entry(self, path):
        data = self.files[path]
        entry = {'type': 'file', 'oid': blob_sha1(data), 'size': len(data), 'path': path}
        if self.is_large(path):
            entry['lfs'] = {'oid': self.hash_of(path), 'size': len(data), 'pointerSize': 134}
        return entry


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def log_message(self, *_):
        pass

    def say(self, status, body=b'', headers=None, body_sent=None):
        """An answer; body_sent: what is sent of it before the connection ends."""
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        if self.command != 'HEAD':
            self.wfile.write(body if body_sent is None else body_sent)
        if body_sent is not None:
            self.close_connection = True

    def say_json(self, value, headers=None):
        self.say(200, value if isinstance(value, bytes) else json.dumps(value).encode(), {'Content-Type': 'application/json', **(headers or {})})

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        hub = self.server.hub
        url = urllib.parse.urlsplit(self.path)
        with hub.lock:
            hub.requests.append((self.server.name, self.command, self.path, dict(self.headers)))
        try:
            if self.server.name == 'files':
                _, commit, path = urllib.parse.unquote(url.path).split('/', 2)
                self.send_file(hub.commits[commit], path)
            elif not hub.refuse(self):
                self.route(hub, url)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def route(self, hub, url):
        query = urllib.parse.parse_qs(url.query)
        if url.path == '/api/models':
            return self.say_json([{'id': name} for name in hub.near])
        m = re.fullmatch(r'/api/models/([^/]+/[^/]+)/(revision|tree)/([^/]+)', url.path)
        if m:
            model = hub.find(m[1], urllib.parse.unquote(m[3]))
            if m[2] == 'revision' and model:
                return self.say_json(hub.bad.get('revision') or {'id': m[1], 'sha': model.commit, 'siblings': [{'rfilename': path} for path in model.files]})
            if model:
                return self.tree(hub, model, url, int(query.get('cursor', ['0'])[0]))
        m = m or re.fullmatch(r'/([^/]+/[^/]+)/resolve/([^/]+)/(.+)', url.path)
        if m and m.re.pattern.startswith('/([^/]+/[^/]+)/resolve'):
            model, path = hub.find(m[1], urllib.parse.unquote(m[2])), urllib.parse.unquote(m[3])
            if model and path in model.files:
                return self.resolve(hub, model, path)
            return self.say(404, b'', {'X-Error-Code': 'EntryNotFound' if model else 'RevisionNotFound'})
        known = m and any(name == m[1] for name, _ in hub.models)
        return self.say(404, b'', {'X-Error-Code': 'RevisionNotFound' if known else 'RepoNotFound'})

    def tree(self, hub, model, url, at):
        if 'tree' in hub.bad:
            return self.say_json(hub.bad['tree'])
        assert 'recursive=true' in url.query, url.query
        entries = [{'type': 'directory', 'oid': '0' * 40, 'size': 0, 'path': 'a'}] + [model.entry(path) for path in model.files]
        headers = {}
        if at + hub.page < len(entries):
            headers['Link'] = f'<{hub.bad.get("next") or hub.endpoint}{url.path}?recursive=true&cursor={at + hub.page}>; rel="next"'
        return self.say_json(entries[at:at + hub.page], headers)

    def resolve(self, hub, model, path):
        headers = {'X-Repo-Commit': model.commit, 'ETag': f'"{model.hash_of(path)}"', 'Accept-Ranges': 'bytes'}
        if not model.is_large(path):
            return self.send_file(model, path, headers)
        headers.update({'X-Linked-Etag': headers['ETag'], 'X-Linked-Size': str(len(model.files[path])),
                        'Location': hub.bad.get('location') or f'{hub.files_endpoint}/{model.commit}/{urllib.parse.quote(path)}'})
        return self.say(302, b'moved', headers)

    def send_file(self, model, path, headers=None):
        """One fault of the file is used up for each GET."""
        hub = self.server.hub
        data = model.files[path]
        with hub.lock:
            faults = hub.faults.get(path, [])
            fault = faults.pop(0) if faults and self.command == 'GET' else None
        headers = {'ETag': '"etag-of-' + hashlib.md5(path.encode()).hexdigest() + '"', 'Accept-Ranges': 'bytes', **(headers or {})}
        if isinstance(fault, int):
            return self.say(fault, b'no', {'Retry-After': '0', 'X-Error-Message': 'no\x1b[2J'})
        if fault == 'wrong':
            data = data[:-1] + bytes([data[-1] ^ 1])
        if fault == 'longer':
            data = data + b'more'
        if fault == 'moved':
            headers['ETag'] = '"another"'
        wanted = self.headers.get('If-Match')
        if wanted and wanted != headers['ETag']:
            return self.say(412)
        m = re.fullmatch(r'bytes=(\d+)-', self.headers.get('Range', ''))
        status, at = (206, int(m[1])) if m and fault != 'no range' else (200, 0)
        if status == 206 and at >= len(data):
            return self.say(416, b'', {'Content-Range': f'bytes */{len(data)}'})
        if status == 206:
            headers['Content-Range'] = f'bytes {at}-{len(data) - 1}/{len(data)}'
        body = data[at:]
        if fault == 'slow':
            return self.send_slowly(status, body, headers)
        return self.say(status, body, headers, body[:len(body) // 2] if fault in ('cut', 'moved') else None)

    def send_slowly(self, status, body, headers):
        """Half of it, and the rest when the test says so."""
        hub = self.server.hub
        self.send_response(status)
        for name, value in {**headers, 'Content-Length': str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[:len(body) // 2])
        self.wfile.flush()
        hub.half_sent.set()
        hub.go_on.wait(60)
        self.wfile.write(body[len(body) // 2:])
        return None


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, hub, name):
        super().__init__(('127.0.0.1', 0), Handler)
        self.hub, self.name = hub, name
        threading.Thread(target=self.serve_forever, kwargs={'poll_interval': 0.02}, daemon=True).start()

    def handle_error(self, request, client_address):
        pass


class Hub:
    """models: {'ORG/NAME': Model or {revision: Model}}. Two servers: the hub's own, and the one that it redirects large files to."""

    def __init__(self, models, page=1000):
        self.lock = threading.Lock()
        self.requests, self.faults, self.bad, self.near = [], {}, {}, []
        self.half_sent, self.go_on = threading.Event(), threading.Event()
        self.page, self.gated, self.token = page, False, None
        self.models, self.commits = {}, {}
        for name, revisions in models.items():
            for revision, model in (revisions if isinstance(revisions, dict) else {'main': revisions}).items():
                self.models[name, revision] = self.models[name, model.commit] = model
                self.commits[model.commit] = model

    def __enter__(self):
        self.servers = [Server(self, 'hub'), Server(self, 'files')]
        self.endpoint, self.files_endpoint = (f'http://127.0.0.1:{s.server_port}' for s in self.servers)
        return self

    def __exit__(self, *_):
        self.go_on.set()
        for server in self.servers:
            server.shutdown()
            server.server_close()

    def find(self, name, revision):
        return self.models.get((name, revision))

    def refuse(self, handler):
        """Models that want a token."""
        if not self.token or handler.headers.get('Authorization') == f'Bearer {self.token}':
            return False
        handler.say(403 if handler.headers.get('Authorization') and self.gated else 401, b'', {'X-Error-Code': 'GatedRepo'} if self.gated else {})
        return True

    def asked(self, server, what):
        """Paths of GETs whose path has `what`, with their headers."""
        with self.lock:
            return [(path, headers) for name, command, path, headers in self.requests if name == server and command == 'GET' and what in path]
