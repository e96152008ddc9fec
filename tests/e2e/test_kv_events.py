"""test_kv_events.py - KV events of a server, read with an own subscriber (libzmq by ctypes, an own decoder of msgpack): what it knows says how many tokens of the
next prompt the cache has, exactly, also while blocks are evicted; and what must not be told is not."""
import contextlib
import ctypes
import os
import random
import struct
import tempfile
import time

import lib

MODEL = os.path.join(lib.ROOT, 'models', 'quire-tiny')
BLOCK = 16
SUB, DEALER, SUBSCRIBE, LINGER, RCVMORE, RCVTIMEO, DONTWAIT, SNDMORE = 2, 5, 6, 17, 13, 27, 1, 2


def decode(data):
    """One value of msgpack; nothing may stand behind it."""
    def take(n):
        nonlocal at
        at += n
        assert at <= len(data)
        return data[at - n:at]

    def number(n):
        return int.from_bytes(take(n), 'big')

    def value():
        t = number(1)
        if t < 0x80:
            return t
        if t < 0x90:
            return {value(): value() for _ in range(t & 15)}
        if t < 0xa0 or t == 0xdd:
            return [value() for _ in range(t & 15 if t < 0xa0 else number(4))]
        if t < 0xc0 or t == 0xda:
            return take(t & 31 if t < 0xc0 else number(2)).decode()
        return {0xc0: lambda: None, 0xc4: lambda: bytes(take(number(1))), 0xcb: lambda: struct.unpack('>d', take(8))[0],
                0xcc: lambda: number(1), 0xcd: lambda: number(2), 0xce: lambda: number(4)}[t]()

    at = 0
    found = value()
    assert at == len(data)
    return found


class Subscriber:
    """Has the chains of tokens that the cache has: chain[name] is all tokens from the first block's to that block's."""

    def __init__(self, endpoint, replay):
        try:
            self.z = ctypes.CDLL('libzmq.so.5')
        except OSError as e:
            raise lib.Skip(f'no libzmq: {e}') from e
        for name in ('zmq_ctx_new', 'zmq_socket'):
            getattr(self.z, name).restype = ctypes.c_void_p
        self.context = ctypes.c_void_p(self.z.zmq_ctx_new())
        self.sub, self.dealer = self.socket(SUB, endpoint), self.socket(DEALER, replay)
        self.z.zmq_setsockopt(self.sub, SUBSCRIBE, b'', 0)
        self.chain, self.next, self.topics, self.adapters, self.maps = {}, 0, set(), set(), None

    def socket(self, kind, endpoint):
        s = ctypes.c_void_p(self.z.zmq_socket(self.context, kind))
        for option, n in ((LINGER, 0), (RCVTIMEO, 20)):
            self.z.zmq_setsockopt(s, option, ctypes.byref(ctypes.c_int(n)), 4)
        assert self.z.zmq_connect(s, endpoint.encode()) == 0, endpoint
        return s

    def close(self):
        for s in (self.sub, self.dealer):
            self.z.zmq_close(s)
        self.z.zmq_ctx_term(self.context)

    def receive(self, socket):
        """The parts of a message, or [] when none comes in 20 ms."""
        parts, more, size, buf = [], ctypes.c_int(1), ctypes.c_size_t(4), ctypes.create_string_buffer(1 << 20)
        while more.value:
            n = self.z.zmq_recv(socket, buf, len(buf), 0)
            if n < 0:
                return []
            parts.append(buf.raw[:n])
            self.z.zmq_getsockopt(socket, RCVMORE, ctypes.byref(more), ctypes.byref(size))
        return parts

    def replay(self):
        self.z.zmq_send(self.dealer, b'', 0, SNDMORE)
        self.z.zmq_send(self.dealer, struct.pack('>Q', self.next), 8, 0)
        end = time.monotonic() + 20 * lib.SLOW
        while time.monotonic() < end:
            parts = self.receive(self.dealer)
            if parts and struct.unpack('>q', parts[2])[0] == -1:
                return
            if parts:
                self.apply(parts[1:])
        raise AssertionError('no end of a replay')

    def look(self):
        """Whatever has come since; before the subscription has come through, all there is."""
        parts = self.receive(self.sub)
        if not parts or struct.unpack('>q', parts[1])[0] > self.next:
            self.replay()
        elif struct.unpack('>q', parts[1])[0] == self.next:
            self.apply(parts)

    def apply(self, parts):
        topic, number, payload = parts
        assert struct.unpack('>q', number)[0] == self.next
        self.next += 1
        self.topics.add(topic.decode())
        ts, events, rank = decode(payload)
        assert abs(ts - time.time()) < 3600 and rank == 0
        for e in events:
            self.maps = isinstance(e, dict)
            e = e if self.maps else dict(zip(('type', 'block_hashes', 'medium') if e[0] == 'BlockRemoved' else (
                'type', 'block_hashes', 'parent_block_hash', 'token_ids', 'block_size', 'lora_id', 'medium', 'lora_name'), e))
            if e['type'] == 'AllBlocksCleared':
                self.chain.clear()
                continue
            names = e['block_hashes']
            assert e['medium'] == 'GPU' and all(len(n) == 32 for n in names)
            if e['type'] == 'BlockRemoved':
                for n in names:
                    self.chain.pop(n, None)
                continue
            assert e['block_size'] == BLOCK and len(e['token_ids']) == BLOCK * len(names) and e['lora_id'] is None
            self.adapters.add(e['lora_name'])
            so_far = self.chain[e['parent_block_hash']] if e['parent_block_hash'] else ()
            for i, n in enumerate(names):
                so_far += tuple(e['token_ids'][i * BLOCK:(i + 1) * BLOCK])
                self.chain[n] = so_far

    def has(self, tokens):
        return tuple(tokens) in self.chain.values()

    def credit(self, prompt):
        n = 0
        while (n + 1) * BLOCK < len(prompt) and self.has(prompt[:(n + 1) * BLOCK]):
            n += 1
        return n * BLOCK


@contextlib.contextmanager
def serving(*flags):
    with tempfile.TemporaryDirectory() as folder:
        events, replay = (f'ipc://{folder}/{name}' for name in ('events', 'replay'))
        s = Subscriber(events, replay)
        try:
            with lib.Server('--kv-events', events, '--kv-events-replay', replay, '--served-model-name', 'tiny', *flags, model=MODEL) as server:
                yield server, s
        finally:
            s.close()


def ask(server, prompt, **more):
    """The prompt's tokens that the cache had."""
    status, r = server.post('/v1/completions', {'prompt': prompt, 'max_tokens': 4, 'ignore_eos': True, **more})
    assert status == 200, r
    return r['usage']['prompt_tokens_details']['cached_tokens']


def wait_for(s, tokens, n=0):
    """The last full block of what was computed is told of behind all that the request has changed. n: it ends a chain of n tokens, of which these are known."""
    end = time.monotonic() + 20 * lib.SLOW
    while not any(len(c) == (n or len(tokens)) and c[:len(tokens)] == tuple(tokens) for c in s.chain.values()):
        assert time.monotonic() < end, 'the events of a prompt have not come'
        s.look()


def credits_are_the_cached_tokens(flags, maps):
    """Prompts of shared beginnings and an end of their own, through a cache of few of them. No block is begun behind the last full one's computation."""
    rng = random.Random(29)
    hits = 0
    with serving('--kv-tokens', '320', '--max-len', '128', *flags) as (server, s):
        for i in range(60):
            shared = [3 + 7 * k + 50 * (rng.random() < 0.3) * (k % BLOCK == 0) for k in range(BLOCK * rng.randrange(5))]
            prompt = shared + [200 + i] + [3 + rng.randrange(180) for _ in range(BLOCK + 5)]
            credit = s.credit(prompt)
            cached = ask(server, prompt)
            assert cached == credit, (i, cached, credit)
            hits += cached
            wait_for(s, prompt[:len(prompt) // BLOCK * BLOCK])
        status, text = server.get('/metrics')
        assert status == 200 and 'quire_kv_events_lost_total{model_name="tiny",engine="0"} 0.0' in text, text[-2000:]
        assert s.maps == maps and s.topics == {''} and s.adapters == {None}, s.topics
        blocks = int(float(text.split('quire_kv_blocks_cached{model_name="tiny",engine="0"} ')[1].split('\n')[0]))
        assert len(s.chain) == blocks and hits > 500, (len(s.chain), blocks, hits)
        print(f'     {hits} tokens found, {s.next} batches, {blocks} blocks at the end')


def test_a_subscriber_knows_how_many_tokens_of_a_prompt_are_cached():
    credits_are_the_cached_tokens((), True)


def test_it_knows_the_same_from_arrays():
    credits_are_the_cached_tokens(('--kv-events-format', 'arrays'), False)


def test_answers_are_told_and_blocks_with_a_salt_of_their_own_are_not():
    with serving('--kv-events-topic', 'kv@pod-7@mine') as (server, s):
        salted = [100 + k for k in range(3 * BLOCK)]
        ask(server, salted, cache_salt='mine alone')
        prompt = [3 + k for k in range(2 * BLOCK)]
        ask(server, prompt, max_tokens=2 * BLOCK)
        wait_for(s, prompt, 3 * BLOCK)
        assert s.topics == {'kv@pod-7@mine'}
        assert not [c for c in s.chain.values() if c[:BLOCK] == tuple(salted[:BLOCK])]


def test_a_server_with_subscribers_ends_at_once():
    with serving() as (server, s):
        ask(server, [3 + k for k in range(40)])
        wait_for(s, [3 + k for k in range(2 * BLOCK)])
        began = time.monotonic()
        server.process.terminate()
        assert server.process.wait(60 * lib.SLOW) == 0
        assert time.monotonic() - began < 2 * lib.PATIENCE


def test_settings_that_cannot_be_are_refused_with_their_names():
    for flags, rc, says in ((('--kv-events', '127.0.0.1:5557'), 2, '--kv-events must be tcp://HOST:PORT'),
                            (('--kv-events-replay', 'tcp://127.0.0.1:1'), 2, '--kv-events-replay needs --kv-events'),
                            (('--kv-events', 'ipc:///tmp/x', '--no-prefix-cache'), 2, 'which is off (--no-prefix-cache)'),
                            (('--kv-events', 'ipc:///tmp/x', '--kv-events-format', 'xml'), 2, '--kv-events-format')):
        for check in ((), ('--check-config',)):
            found, _, err = lib.run('serve', MODEL, '--port', '0', *flags, *check)
            assert found == rc and says in err, (flags, check, found, err)
    Subscriber('ipc:///nowhere', 'ipc:///nowhere').close()  # or there is no libzmq
    rc, _, err = lib.run('serve', MODEL, '--port', '0', '--kv-events', 'ipc:///no/such/folder/x')
    assert rc == 3 and "--kv-events: cannot listen on 'ipc:///no/such/folder/x'" in err, (rc, err)
    with lib.Server('--kv-events', 'tcp://0.0.0.0:*', model=MODEL) as server:
        assert 'events carry token ids, which are prompts' in server.stderr(), server.stderr()
        assert '\nevents  tcp://0.0.0.0:' in server.stderr(), server.stderr()


if __name__ == '__main__':
    lib.main(globals())
