#!/usr/bin/env python3
"""One engine behind all of its doors: the bundled model says the same through each, and a second turn with tools finds the first in the prefix cache."""
import os

from lib import ROOT, Server, main

BUNDLED = os.path.join(ROOT, 'models', 'quire-tiny')
BLOCK = 16  # tokens of a block of the KV cache
SCHEMA = {'type': 'object', 'properties': {'a': {'enum': [1, 2]}}, 'required': ['a'], 'additionalProperties': False}


def answer(s, path, **body):
    status, r = s.post(path, body)
    assert status == 200, (path, status, r)
    return r


def test_the_same_question_has_the_same_answer_through_every_door():
    with Server(model=BUNDLED) as s:
        for question in ('What is 12 + 30?', 'Tell me a story.', 'Na\u00efve caf\u00e9?'):
            m = [{'role': 'user', 'content': question}]
            for sampling in ({'temperature': 0}, {'temperature': 0.9, 'seed': 7}):
                options = {**sampling, 'num_predict': 24}
                chat = answer(s, '/v1/chat/completions', messages=m, max_tokens=24, **sampling)
                text = chat['choices'][0]['message']['content']
                messages = answer(s, '/v1/messages', messages=m, max_tokens=24, **sampling)
                assert ''.join(b['text'] for b in messages['content']) == text, (messages, text)
                assert messages['usage']['output_tokens'] == chat['usage']['completion_tokens']
                responses = answer(s, '/v1/responses', input=question, max_output_tokens=24, **sampling)
                assert ''.join(p['text'] for i in responses['output'] for p in i['content']) == text, (responses, text)
                assert responses['usage']['input_tokens'] == chat['usage']['prompt_tokens'], (responses, chat)
                assert answer(s, '/v1/messages/count_tokens', messages=m)['input_tokens'] == chat['usage']['prompt_tokens']
                for stream in (answer(s, '/api/chat', messages=m, options=options, stream=False)['message']['content'],
                               answer(s, '/api/generate', prompt=question, options=options, stream=False)['response']):
                    assert stream == text, (stream, text)


def test_a_second_turn_with_tools_hits_the_prefix_cache():
    def system(cch):
        return [{'type': 'text', 'text': f'x-anthropic-billing-header: cc_version=2.1.36; cch={cch};'}, {'type': 'text', 'text': 'You are brief. ' * 20}]
    with Server(model=BUNDLED) as s:
        m = [{'role': 'user', 'content': 'What is 12 + 30?'}]
        tools = {'tools': [{'name': 'f', 'input_schema': SCHEMA}, {'type': 'web_search_20250305', 'name': 'w'}], 'temperature': 0, 'max_tokens': 60}
        first = answer(s, '/v1/messages', system=system('0a1b2'), messages=m, tool_choice={'type': 'any'}, **tools)
        call = first['content'][-1]
        assert call['type'] == 'tool_use' and call['name'] == 'f', first
        m += [{'role': 'assistant', 'content': first['content']}, {'role': 'user', 'content': [{'type': 'tool_result', 'tool_use_id': call['id'], 'content': '42'}]}]
        shared = first['usage']['input_tokens'] + first['usage']['cache_read_input_tokens']
        second = answer(s, '/v1/messages', system=system('fffff'), messages=m, **tools)
        cached = second['usage']['cache_read_input_tokens']
        assert cached >= (shared - BLOCK) // BLOCK * BLOCK and cached > 100, (first['usage'], second['usage'])
        print(f'   {cached} of {shared} tokens')


def test_a_stored_response_goes_on_in_the_prefix_cache():
    with Server(model=BUNDLED) as s:
        tools = {'tools': [{'type': 'function', 'name': 'f', 'parameters': SCHEMA}, {'type': 'web_search'}], 'temperature': 0, 'max_output_tokens': 60,
                 'instructions': 'You are brief. ' * 20}
        first = answer(s, '/v1/responses', input='What is 12 + 30?', tool_choice='required', **tools)
        call = first['output'][-1]
        assert call['type'] == 'function_call' and call['name'] == 'f', first
        result = [{'type': 'function_call_output', 'call_id': call['call_id'], 'output': '42'}]
        second = answer(s, '/v1/responses', input=result, previous_response_id=first['id'], **tools)
        shared, cached = first['usage']['input_tokens'], second['usage']['input_tokens_details']['cached_tokens']
        assert cached >= (shared - BLOCK) // BLOCK * BLOCK and cached > 100, (first['usage'], second['usage'])
        print(f'   {cached} of {shared} tokens')


if __name__ == '__main__':
    main(globals())
