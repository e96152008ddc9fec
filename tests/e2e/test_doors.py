#!/usr/bin/env python3
"""One engine behind all of its doors: the bundled model computes the same ids through each, and a second turn with tools finds the first in the prefix cache."""
import collections
import json
import os

from lib import ROOT, Server, main

BUNDLED = os.path.join(ROOT, 'models', 'quire-tiny')
BLOCK = 16  # tokens of a block of the KV cache
SCHEMA = {'type': 'object', 'properties': {'a': {'enum': [1, 2]}}, 'required': ['a'], 'additionalProperties': False}


def ask(s, path, body):
    """The answer, or the events of a stream, whose end is there."""
    c = s.connect()
    c.request('POST', path, json.dumps(body), {'Content-Type': 'application/json'})
    r = c.getresponse()
    text = r.read().decode()
    c.close()
    assert r.status == 200, (path, body, text)
    if r.getheader('Content-Type') == 'application/json':
        return json.loads(text)
    lines = [line.removeprefix('data: ') for line in text.splitlines() if line.startswith(('data: ', '{'))]
    return [json.loads(line) for line in lines if line != '[DONE]']


def only(events, **wanted):
    return [e for e in events if all(e.get(k) == v for k, v in wanted.items())]


def plain(m):
    """A message of chat is one text."""
    return m['role'] in ('user', 'system')


# What a door says: text, calls (id, name, arguments), tokens of the prompt and of the answer, cached ones (None: it does not say), the response's id.
Said = collections.namedtuple('Said', 'text calls n_prompt n_said cached id', defaults=[None])

# Each door sends what chat's messages and tools are to it.


def chat(s, m, n, tools=None, force=False, stream=False, **more):
    body = {'messages': m, 'max_tokens': n, 'stream': stream, **more}
    if tools:
        body.update(tools=tools, tool_choice='required' if force else 'auto', parallel_tool_calls=False)
    if stream:
        events = ask(s, '/v1/chat/completions', {**body, 'stream_options': {'include_usage': True}})
        usage, deltas = events[-1]['usage'], [e['choices'][0]['delta'] for e in events[:-1]]
        text, calls = ''.join(d.get('content') or '' for d in deltas), []
    else:
        r = ask(s, '/v1/chat/completions', body)
        usage, said = r['usage'], r['choices'][0]['message']
        text, calls = said['content'] or '', [(c['id'], c['function']['name'], json.loads(c['function']['arguments'])) for c in said.get('tool_calls', ())]
    return Said(text, calls, usage['prompt_tokens'], usage['completion_tokens'], usage['prompt_tokens_details']['cached_tokens'])


def messages(s, m, n, tools=None, force=False, stream=False, cch='0a1b2', **more):
    """A billing header in front differs in each request, as Claude Code sends it."""
    def block(c):
        return {'type': 'tool_use', 'id': c['id'], 'name': c['function']['name'], 'input': json.loads(c['function']['arguments'])}
    turns = [t if plain(t) else {'role': 'user', 'content': [{'type': 'tool_result', 'tool_use_id': t['tool_call_id'], 'content': t['content']}]} if t['role'] == 'tool'
             else {'role': 'assistant', 'content': [*([{'type': 'text', 'text': t['content']}] if t['content'] else []), *(block(c) for c in t['tool_calls'])]} for t in m]
    body = {'max_tokens': n, 'stream': stream, 'messages': [t for t in turns if t['role'] != 'system'],
            'system': [{'type': 'text', 'text': f'x-anthropic-billing-header: cc_version=2.1.36; cch={cch};'}, *({'type': 'text', 'text': t['content']} for t in turns if t['role'] == 'system')], **more}
    if tools:
        body['tools'] = [*({'name': t['function']['name'], 'description': t['function']['description'], 'input_schema': t['function']['parameters']} for t in tools), {'type': 'web_search_20250305', 'name': 'w'}]
        body['tool_choice'] = {'type': 'any' if force else 'auto', 'disable_parallel_tool_use': True}
    r = ask(s, '/v1/messages', body)
    if stream:
        text, calls = ''.join(e['delta'].get('text', '') for e in only(r, type='content_block_delta')), []
        usage = only(r, type='message_delta')[0]['usage']
    else:
        text, usage = ''.join(b['text'] for b in only(r['content'], type='text')), r['usage']
        calls = [(b['id'], b['name'], b['input']) for b in only(r['content'], type='tool_use')]
    return Said(text, calls, usage['input_tokens'] + usage['cache_read_input_tokens'], usage['output_tokens'], usage['cache_read_input_tokens'])


def items(m):
    for t in m:
        if plain(t):
            yield t
        elif t['role'] == 'tool':
            yield {'type': 'function_call_output', 'call_id': t['tool_call_id'], 'output': t['content']}
        else:
            if t['content']:
                yield {'role': 'assistant', 'content': t['content']}
            yield from ({'type': 'function_call', 'call_id': c['id'], **c['function']} for c in t['tool_calls'])


def responses(s, m, n, tools=None, force=False, stream=False, **more):
    body = {'input': list(items(m)), 'max_output_tokens': n, 'stream': stream, 'store': False, **more}
    if tools:
        body['tools'] = [*({'type': 'function', **t['function']} for t in tools), {'type': 'web_search'}, {'type': 'namespace', 'name': 'x', 'tools': []}]
        body.update(tool_choice='required' if force else 'auto', parallel_tool_calls=False)
    r = ask(s, '/v1/responses', body)
    if stream:
        assert ''.join(e['delta'] for e in only(r, type='response.output_text.delta')) == ''.join(e['text'] for e in only(r, type='response.output_text.done'))
        r = r[-1]['response']
    text = ''.join(p['text'] for i in only(r['output'], type='message') for p in i['content'])
    calls = [(i['call_id'], i['name'], json.loads(i['arguments'])) for i in only(r['output'], type='function_call')]
    usage = r['usage']
    return Said(text, calls, usage['input_tokens'], usage['output_tokens'], usage['input_tokens_details']['cached_tokens'], r['id'])


def stored(s, m, n, after=None, **more):
    """Responses again: what is behind the last answer goes on from it, whose id is `after`."""
    behind = max((i + 1 for i, t in enumerate(m) if t['role'] == 'assistant'), default=0)
    return responses(s, m[behind:], n, store=True, previous_response_id=after, **more)


def options(n, **more):
    own = {k: more.pop(k) for k in ('temperature', 'seed') if k in more}
    return {'options': {'num_predict': n, **own}, **more}


def ollama(s, m, n, tools=None, force=False, stream=False, **more):
    """There is no tool_choice."""
    turns = [t if not t.get('tool_calls') else {**t, 'tool_calls': [{**c, 'function': {**c['function'], 'arguments': json.loads(c['function']['arguments'])}} for c in t['tool_calls']]} for t in m]
    before = cached_tokens(s)
    r = ask(s, '/api/chat', {'messages': turns, 'stream': stream, **options(n, **more), **({'tools': tools} if tools else {})})
    lines = r if stream else [r]
    return Said(''.join(e['message']['content'] for e in lines), [], lines[-1]['prompt_eval_count'], lines[-1]['eval_count'], cached_tokens(s) - before)


def generate(s, m, n, stream=False, **more):
    r = ask(s, '/api/generate', {'prompt': m[-1]['content'], 'system': ''.join(t['content'] for t in m[:-1]), 'stream': stream, **options(n, **more)})
    lines = r if stream else [r]
    return Said(''.join(e['response'] for e in lines), [], lines[-1]['prompt_eval_count'], lines[-1]['eval_count'], None)


def cached_tokens(s):
    return next(float(line.rsplit(' ', 1)[1]) for line in s.get('/metrics')[1].splitlines() if line.startswith('vllm:prompt_tokens_cached_total{'))


def full(n):
    """Tokens of the full blocks among n."""
    return n // BLOCK * BLOCK


def computed(s, ids, salt):
    """How many of these ids, from the first on, the cache of this salt has: a block is found by its ids and those of all before it."""
    r = ask(s, '/v1/completions', {'prompt': ids, 'max_tokens': 1, 'cache_salt': salt})
    return r['usage']['prompt_tokens_details']['cached_tokens']


def ids_of(s, m, n, **more):
    """Of chat: those of the prompt, those of the answer."""
    r = ask(s, '/v1/chat/completions', {'messages': m, 'max_tokens': n, 'return_token_ids': True, **more})
    return r['prompt_token_ids'], r['choices'][0]['token_ids']


def test_the_same_question_computes_the_same_ids_through_every_door_whole_and_streamed():
    n_compared = 0
    with Server(model=BUNDLED) as s:
        for question in ('Tell me a story about a fox.', 'Na\u00efve caf\u00e9?'):
            m = [{'role': 'system', 'content': 'You are brief.'}, {'role': 'user', 'content': question}]
            for sampling in ({'temperature': 0}, {'temperature': 0.9, 'seed': 7}):
                prompt, said = ids_of(s, m, 40, **sampling)
                ids = prompt + said
                assert ask(s, '/v1/chat/completions/render', {'messages': m})['token_ids'] == prompt
                text = chat(s, m, 40, **sampling)[0]
                for door in (chat, messages, responses, stored, ollama, generate):
                    for stream in (False, True):
                        salt = f'{question} {sampling} {door.__name__} {stream}'
                        r = door(s, m, 40, stream=stream, cache_salt=salt, **sampling)
                        assert r[:4] == (text, [], len(prompt), len(said)), (door, r, text)
                        assert computed(s, ids, salt) == full(len(ids) - 1), (door, stream)
                        n_compared += full(len(ids) - 1)
    print(f'   {n_compared} ids')


def common(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def test_a_second_turn_with_tools_hits_the_prefix_cache_through_every_door():
    tools = [{'type': 'function', 'function': {'name': 'f', 'description': 'Adds.', 'parameters': SCHEMA}}]
    with Server(model=BUNDLED) as s:
        first = [{'role': 'system', 'content': 'You are brief. ' * 20}, {'role': 'user', 'content': 'What is 12 + 30?'}]
        prompt, said = ids_of(s, first, 120, tools=tools, tool_choice='required', parallel_tool_calls=False, temperature=0)
        for door in (chat, messages, responses, stored, ollama):
            more = {'tools': tools, 'temperature': 0, 'cache_salt': door.__name__}
            one = door(s, first, 120, force=True, **more)
            assert one.n_prompt == len(prompt) and one.cached == 0, (door, one)
            if door is ollama:  # it may have said something else
                known = prompt
            else:
                assert one.calls and one.calls[0][1] == 'f' and one.n_said == len(said), (door, one)
                called, known = one, (prompt + said)[:-1]  # the last token of an answer is not computed
            second = [*first, {'role': 'assistant', 'content': called.text or None, 'tool_calls': [
                {'id': i, 'type': 'function', 'function': {'name': name, 'arguments': json.dumps(arguments)}} for i, name, arguments in called.calls]},
                {'role': 'tool', 'tool_call_id': called.calls[0][0], 'content': '42'}]
            ids = ask(s, '/v1/chat/completions/render', {'messages': second, 'tools': tools})['token_ids']
            shared = common(known, ids)
            two = door(s, second, 20, **more, **({'cch': 'fffff'} if door is messages else {'after': one.id} if door is stored else {}))
            assert two.n_prompt == len(ids) and two.cached >= full(shared) > 100, (door, two, len(ids), shared)
            print(f'   {door.__name__}: {two.cached:.0f} of {shared} shared tokens, {two.n_prompt} in all')


if __name__ == '__main__':
    main(globals())
