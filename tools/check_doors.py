#!/usr/bin/env python3
"""Other people's clients at the doors beside chat: openai and openai-agents at /v1/responses, anthropic at /v1/messages, ollama at /api.

    python3 -m venv /tmp/clients && /tmp/clients/bin/pip install openai openai-agents anthropic ollama pydantic
    /tmp/clients/bin/python tools/check_doors.py [--model DIR] [NAME...]

As check_clients.py, in one world more: there the template begins to think, so that all answers begin with reasoning.
"""
import asyncio
import json
import sys
from typing import Literal

import pydantic

import check_clients
from check_clients import SAYS, SCHEMA, TEMPLATE, TOOLS, Animal, fits, is_animal

TELL = SAYS[0]["content"]
THINKING = TEMPLATE.replace("{{ '<|assistant|>' }}{% endif %}", "{{ '<|assistant|>' }}{% if enable_thinking is defined and not enable_thinking %}{{ '<think>\\n\\n</think>\\n\\n' }}"
                            "{% else %}{{ '<think>\\n' }}{% endif %}{% endif %}").replace("(m.content or '')", "('<think>\\n' + m.reasoning_content + '\\n</think>\\n\\n' if m.reasoning_content else '') + (m.content or '')")
CHECKS = []


def check(f):
    CHECKS.append(f)
    return f


def refused(error, f, *words):
    """f is refused with that error, which says these words."""
    try:
        f()
    except error as e:
        assert all(word in str(e) for word in words), e
        return e
    raise AssertionError(f"not refused: {words}")


# ---- openai: Responses ----

FLAT = [{"type": "function", **t["function"]} for t in TOOLS]


def respond(w, **more):
    return w.openai().responses.create(**{"model": w.model, "input": TELL, "temperature": 0, "max_output_tokens": 300, "reasoning": {"effort": "none"}, **more})


def calls_of(r):
    found = [i for i in r.output if i.type == "function_call"]
    for call in found:
        assert call.call_id and call.id.startswith("fc_") and call.name in ("weather", "animal"), call
        value = json.loads(call.arguments)
        if call.name == "weather":
            fits(value)
        else:
            Animal.model_validate(value)
    return found


@check
def responses_create(w):
    r = respond(w, max_output_tokens=20, metadata={"a": "b"}, instructions="Be brief.")
    assert r.object == "response" and r.status in ("completed", "incomplete") and r.output_text and r.metadata == {"a": "b"} and r.instructions == "Be brief.", r
    assert r.usage.output_tokens <= 20 and r.usage.total_tokens == r.usage.input_tokens + r.usage.output_tokens and r.usage.input_tokens_details.cached_tokens >= 0, r.usage
    assert r.status == "completed" or r.incomplete_details.reason == "max_output_tokens", r
    raw = w.openai().responses.with_raw_response.create(model=w.model, input=TELL, max_output_tokens=2)
    assert raw.status_code == 200 and raw.parse().id, raw


@check
def responses_stream(w):
    for more in ({"text": {"format": {"type": "json_schema", "name": "trip", "schema": SCHEMA, "strict": True}}}, {"tools": FLAT, "tool_choice": "required"}, {"max_output_tokens": 30}):
        whole = respond(w, **more)
        events = list(respond(w, stream=True, **more))
        assert [e.sequence_number for e in events] == list(range(len(events))) and events[0].type == "response.created" and events[-1].type == "response." + whole.status, events[-1]
        assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == whole.output_text == events[-1].response.output_text
        assert [c.arguments for c in calls_of(events[-1].response)] == [c.arguments for c in calls_of(whole)]
        with w.openai().responses.stream(model=w.model, input=TELL, temperature=0, reasoning={"effort": "none"}, **{"max_output_tokens": 300, **more}) as stream:
            seen = list(stream)
        final = next(e.response for e in reversed(seen) if e.type in ("response.completed", "response.incomplete"))
        assert final.output_text == whole.output_text, (final, whole)


@check
def responses_parse(w):
    is_animal(w.openai().responses.parse(model=w.model, input=TELL, text_format=Animal, temperature=0, reasoning={"effort": "none"}).output_parsed)
    with w.openai().responses.stream(model=w.model, input=TELL, text_format=Animal, temperature=0, reasoning={"effort": "none"}) as stream:
        for _ in stream:
            pass
        is_animal(stream.get_final_response().output_parsed)


@check
def responses_parse_tools(w):
    import openai
    tool = openai.pydantic_function_tool(Animal)["function"]
    r = w.openai().responses.parse(model=w.model, input=TELL, tools=[{"type": "function", **tool}], tool_choice="required", parallel_tool_calls=False, temperature=0, reasoning={"effort": "none"})
    (call,) = [i for i in r.output if i.type == "function_call"]
    Animal.model_validate(call.parsed_arguments if isinstance(call.parsed_arguments, dict) else call.parsed_arguments.model_dump())


@check
def responses_tool_choice(w):
    assert calls_of(respond(w, tools=FLAT, tool_choice="required"))
    assert {c.name for c in calls_of(respond(w, tools=FLAT, tool_choice={"type": "function", "name": "animal"}))} == {"animal"}
    assert {c.name for c in calls_of(respond(w, tools=FLAT, tool_choice={"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "weather"}]}))} == {"weather"}
    assert not calls_of(respond(w, tools=FLAT, tool_choice="none", max_output_tokens=30))
    assert len(calls_of(respond(w, tools=[{"type": "web_search"}, *FLAT], tool_choice="required", parallel_tool_calls=False))) == 1


@check
def responses_tools_loop(w):
    """With the items sent back, and from the stored response."""
    first = respond(w, tools=FLAT, tool_choice="required", parallel_tool_calls=False)
    (call,) = calls_of(first)
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "it rains"}
    flat = respond(w, tools=FLAT, input=[*SAYS, *first.output, result], max_output_tokens=40, store=False)
    chained = respond(w, tools=FLAT, input=[result], previous_response_id=first.id, max_output_tokens=40)
    assert flat.output_text == chained.output_text and flat.usage.input_tokens == chained.usage.input_tokens and chained.previous_response_id == first.id, (flat, chained)
    assert chained.usage.input_tokens_details.cached_tokens > 0, chained.usage
    branch = respond(w, input="And now?", tools=FLAT, previous_response_id=chained.id, max_output_tokens=10)
    assert branch.usage.input_tokens > chained.usage.input_tokens


@check
def responses_stored(w):
    import openai
    c = w.openai()
    r = respond(w, input=[{"role": "user", "content": str(i)} for i in range(5)], max_output_tokens=5)
    assert c.responses.retrieve(r.id) == r
    items = list(c.responses.input_items.list(r.id, limit=2, order="asc"))
    assert [i.content[0].text for i in items] == list("01234") and [i.id for i in c.responses.input_items.list(r.id, limit=3)] == [i.id for i in reversed(items)], items
    assert [i.id for i in c.responses.input_items.list(r.id, after=items[1].id, order="asc")] == [i.id for i in items[2:]]
    assert c.responses.cancel(r.id).id == r.id
    refused(openai.BadRequestError, lambda: c.responses.retrieve(r.id, stream=True), "stream")
    c.responses.delete(r.id)
    for f in (lambda: c.responses.retrieve(r.id), lambda: c.responses.delete(r.id), lambda: list(c.responses.input_items.list(r.id)), lambda: respond(w, previous_response_id=r.id)):
        refused(openai.NotFoundError, f, r.id)
    gone = respond(w, store=False, max_output_tokens=3)
    refused(openai.NotFoundError, lambda: c.responses.retrieve(gone.id))


@check
def responses_cancel_while_it_runs(w):
    stream = respond(w, stream=True, temperature=1, max_output_tokens=1500, extra_body={"seed": 1})
    running = next(iter(stream)).response.id
    assert w.openai().responses.cancel(running).status in ("cancelled", "completed", "incomplete")
    last = list(stream)[-1]
    assert last.type in ("response.failed", "response.completed", "response.incomplete"), last


@check
def responses_input_tokens(w):
    counted = w.openai().responses.input_tokens.count(model=w.model, input=TELL, instructions="Be brief.", tools=FLAT, reasoning={"effort": "none"})
    assert counted.object == "response.input_tokens" and counted.input_tokens == respond(w, instructions="Be brief.", tools=FLAT, max_output_tokens=1).usage.input_tokens, counted


@check
def responses_logprobs(w):
    r = respond(w, include=["message.output_text.logprobs"], top_logprobs=2, max_output_tokens=8)
    (part,) = next(i for i in r.output if i.type == "message").content
    assert len(part.logprobs) in (7, 8) and all(len(t.top_logprobs) == 2 for t in part.logprobs), part


@check
def responses_reasoning(w):
    r = respond(w, reasoning={"effort": "medium", "summary": "auto"}, include=["reasoning.encrypted_content"], max_output_tokens=30)
    if not w.thinks:
        return
    (thought,) = [i for i in r.output if i.type == "reasoning"]
    assert thought.id.startswith("rs_") and thought.content[0].text and thought.encrypted_content and r.usage.output_tokens_details.reasoning_tokens > 0, r
    events = list(respond(w, reasoning={"effort": "medium"}, max_output_tokens=30, stream=True))
    assert "".join(e.delta for e in events if e.type == "response.reasoning_text.delta") == thought.content[0].text
    again = respond(w, input=[*SAYS, thought, {"role": "user", "content": "And?"}], max_output_tokens=5)
    assert again.usage.input_tokens > r.usage.input_tokens


@check
def responses_refused(w):
    import openai
    refused(openai.BadRequestError, lambda: respond(w, background=True), "background")
    refused(openai.BadRequestError, lambda: respond(w, input=[{"role": "user", "content": [{"type": "input_image", "image_url": "data:,", "detail": "auto"}]}]), "input_image")
    refused(openai.NotFoundError, lambda: respond(w, model="absent"), "absent")


@check
def responses_async(w):
    import openai

    async def run():
        async with openai.AsyncOpenAI(base_url=w.url, api_key="none", max_retries=0) as c:
            return await asyncio.gather(*(c.responses.create(model=w.model, input=TELL, max_output_tokens=9, temperature=0) for _ in range(8)))
    assert len({r.output_text for r in asyncio.run(run())}) == 1


# ---- openai-agents on Responses ----


def agent(w, **more):
    import agents
    import openai
    settings = {"temperature": 0, "max_tokens": 300, "extra_body": {"reasoning": {"effort": "none"}}, **more.pop("settings", {})}
    agents.set_tracing_disabled(True)
    model = agents.OpenAIResponsesModel(model=w.model, openai_client=openai.AsyncOpenAI(base_url=w.url, api_key="none", max_retries=0))
    return agents, agents.Agent(name="a", model=model, model_settings=agents.ModelSettings(**settings), **more)


@check
def agents_output_type(w):
    agents, a = agent(w, output_type=Animal)
    is_animal(agents.Runner.run_sync(a, TELL).final_output)


@check
def agents_tools(w):
    import agents
    for chained in (False, True):
        seen = []
        _, a = agent(w, tools=[check_clients.agents_tool(agents, seen)], settings={"tool_choice": "required"})
        result = agents.Runner.run_sync(a, "What is 1 + 2?", max_turns=8, auto_previous_response_id=chained)
        assert seen and isinstance(result.final_output, str), (seen, result)


@check
def agents_streamed(w):
    import agents
    seen = []
    _, a = agent(w, tools=[check_clients.agents_tool(agents, seen)], tool_use_behavior="stop_on_first_tool", settings={"tool_choice": "add"})

    async def run():
        result = agents.Runner.run_streamed(a, "What is 1 + 2?")
        async for _ in result.stream_events():
            pass
        return result.final_output
    assert asyncio.run(run()) == str(sum(seen[0]))


@check
def agents_session(w):
    agents, a = agent(w, output_type=Animal)
    session = agents.SQLiteSession("s")
    for question in (TELL, "And an owl?"):
        is_animal(agents.Runner.run_sync(a, question, session=session).final_output)
    assert len(asyncio.run(session.get_items())) >= 4


# ---- anthropic ----

BLOCKS = [{"name": t["function"]["name"], "description": "It.", "input_schema": t["function"]["parameters"]} for t in TOOLS]
OFF = {"thinking": {"type": "disabled"}}


def anthropic_client(w, kind="Anthropic"):
    import anthropic
    return getattr(anthropic, kind)(base_url=w.root, api_key="none", max_retries=0, timeout=120)


def message(w, **more):
    return anthropic_client(w).messages.create(**{"model": w.model, "max_tokens": 300, "messages": SAYS, "extra_body": {"temperature": 0}, **OFF, **more})


def uses_of(m):
    found = [b for b in m.content if b.type == "tool_use"]
    for b in found:
        if b.name == "weather":
            fits(b.input)
        else:
            Animal.model_validate(b.input)
    return found


def text_of(m):
    return "".join(b.text for b in m.content if b.type == "text")


@check
def anthropic_create(w):
    m = message(w, max_tokens=20, system="Be brief.", metadata={"user_id": "u"})
    assert m.type == "message" and m.role == "assistant" and m.stop_reason in ("max_tokens", "end_turn") and text_of(m) and m.usage.output_tokens <= 20, m
    blocks = [{"type": "text", "text": "Be ", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "brief."}]
    assert message(w, max_tokens=5, system=blocks, messages=[{"role": "user", "content": [{"type": "text", "text": TELL, "cache_control": {"type": "ephemeral"}}]}]).content


@check
def anthropic_stream(w):
    for more in ({"max_tokens": 30}, {"tools": BLOCKS, "tool_choice": {"type": "any"}}):
        whole = message(w, **more)
        with anthropic_client(w).messages.stream(**{"model": w.model, "max_tokens": 300, "messages": SAYS, "extra_body": {"temperature": 0}, **OFF, **more}) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        assert text == text_of(whole) == text_of(final) and final.stop_reason == whole.stop_reason, (final, whole)
        assert [(b.name, b.input) for b in uses_of(final)] == [(b.name, b.input) for b in uses_of(whole)], (final, whole)
        events = list(message(w, stream=True, **more))
        assert events[0].type == "message_start" and events[-1].type == "message_stop" and events[-2].usage.output_tokens == whole.usage.output_tokens, events[-2]


@check
def anthropic_tool_choice(w):
    assert uses_of(message(w, tools=BLOCKS, tool_choice={"type": "any"}))
    assert {b.name for b in uses_of(message(w, tools=BLOCKS, tool_choice={"type": "tool", "name": "animal"}))} == {"animal"}
    assert not uses_of(message(w, tools=BLOCKS, tool_choice={"type": "none"}, max_tokens=30))
    assert len(uses_of(message(w, tools=[*BLOCKS, {"type": "web_search_20250305", "name": "web_search"}], tool_choice={"type": "any", "disable_parallel_tool_use": True}))) == 1
    uses_of(message(w, tools=BLOCKS))


@check
def anthropic_tools_loop(w):
    first = message(w, tools=BLOCKS, tool_choice={"type": "any", "disable_parallel_tool_use": True})
    assert first.stop_reason == "tool_use", first
    (use,) = uses_of(first)
    turns = [*SAYS, {"role": "assistant", "content": first.content}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": "it rains"}]}]
    second = message(w, tools=BLOCKS, messages=turns, max_tokens=40)
    assert second.content and second.usage.cache_read_input_tokens > 0, second


@check
def anthropic_parse(w):
    class Beast(pydantic.BaseModel):
        """Without texts: the client takes their patterns and lengths out of the schema."""
        kind: Literal["fox", "owl", "hare"]
        tame: bool
    assert isinstance(anthropic_client(w).messages.parse(model=w.model, max_tokens=300, messages=SAYS, output_format=Beast, extra_body={"temperature": 0}, **OFF).parsed_output, Beast)


@check
def anthropic_tool_runner(w):
    import anthropic
    seen = []

    @anthropic.beta_tool
    def add(a: int, b: int) -> str:
        """The sum.

        Args:
            a: one
            b: another
        """
        seen.append((a, b))
        return str(a + b)
    runner = anthropic_client(w).beta.messages.tool_runner(model=w.model, max_tokens=300, messages=SAYS, tools=[add], tool_choice={"type": "any"}, max_iterations=2, extra_body={"temperature": 0}, **OFF)
    assert list(runner) and seen, seen


@check
def anthropic_count_tokens(w):
    counted = anthropic_client(w).messages.count_tokens(model=w.model, messages=SAYS, system="Be brief.", tools=BLOCKS, **OFF)
    usage = message(w, system="Be brief.", tools=BLOCKS, max_tokens=1).usage
    assert counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens, (counted, usage)


@check
def anthropic_stop_sequences(w):
    text = text_of(message(w, max_tokens=40))
    word = text[len(text) // 2:][:2]
    m = message(w, max_tokens=40, stop_sequences=[word])
    assert m.stop_reason == "stop_sequence" and m.stop_sequence == word and text_of(m) == text[:text.index(word)], (m, text)


@check
def anthropic_thinking(w):
    m = message(w, thinking={"type": "enabled", "budget_tokens": 1024}, max_tokens=40)
    if not w.thinks:
        return
    assert m.content[0].type == "thinking" and m.content[0].thinking and m.content[0].signature, m
    m = message(w, thinking={"type": "enabled", "budget_tokens": 3}, max_tokens=60)
    assert [b.type for b in m.content] == ["thinking", "text"], m
    again = message(w, messages=[*SAYS, {"role": "assistant", "content": m.content}, {"role": "user", "content": "And?"}], max_tokens=5)
    assert again.content, again


@check
def anthropic_beta(w):
    m = anthropic_client(w).beta.messages.create(model=w.model, max_tokens=10, messages=SAYS, betas=["context-management-2025-06-27"], context_management={"edits": []}, **OFF)
    assert m.content, m


@check
def anthropic_models(w):
    c = anthropic_client(w)
    assert w.model in [m.id for m in c.models.list()] and c.models.retrieve(w.model).id == w.model


@check
def anthropic_refused(w):
    import anthropic
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    refused(anthropic.BadRequestError, lambda: message(w, messages=[{"role": "user", "content": [image]}]), "image", "invalid_request_error")
    refused(anthropic.NotFoundError, lambda: message(w, model="absent"), "absent", "not_found_error")
    refused(anthropic.BadRequestError, lambda: message(w, max_tokens=0), "max_tokens")
    refused(anthropic.BadRequestError, lambda: message(w, messages=[{"role": "user", "content": "x " * 20000}]), "prompt is too long")


@check
def anthropic_async(w):
    async def run():
        async with anthropic_client(w, "AsyncAnthropic") as c:
            return await asyncio.gather(*(c.messages.create(model=w.model, max_tokens=9, messages=SAYS, extra_body={"temperature": 0}, **OFF) for _ in range(8)))
    assert len({text_of(m) for m in asyncio.run(run())}) == 1


# ---- ollama ----


def ollama_client(w, kind="Client"):
    import ollama
    return getattr(ollama, kind)(host=w.root, timeout=120)


def ollama_chat(w, **more):
    return ollama_client(w).chat(**{"model": w.model, "messages": SAYS, "options": {"temperature": 0, "num_predict": 300}, "think": False, **more})


@check
def ollama_finds_the_model(w):
    c = ollama_client(w)
    assert w.model in [m.model for m in c.list().models] and w.model in [m.model for m in c.ps().models]
    shown = c.show(w.model)
    assert "completion" in shown.capabilities and "tools" in shown.capabilities and ("thinking" in shown.capabilities) == w.thinks and shown.details.family, shown


@check
def ollama_chat_whole_and_streamed(w):
    for model in (w.model, w.model + ":latest"):
        whole = ollama_chat(w, model=model, options={"temperature": 0, "num_predict": 30})
        parts = list(ollama_chat(w, model=model, options={"temperature": 0, "num_predict": 30}, stream=True))
        assert "".join(p.message.content or "" for p in parts) == whole.message.content and parts[-1].done and parts[-1].eval_count == whole.eval_count and whole.total_duration > 0, (parts[-1], whole)


@check
def ollama_generate(w):
    c, more = ollama_client(w), {"model": w.model, "prompt": TELL, "system": "Be brief.", "options": {"temperature": 0, "num_predict": 30}, "think": False}
    whole = c.generate(**more)
    assert "".join(p.response for p in c.generate(stream=True, **more)) == whole.response and whole.done_reason in ("stop", "length"), whole
    assert c.generate(model=w.model).done_reason == "load"


@check
def ollama_formats(w):
    Animal.model_validate_json(ollama_chat(w, format=Animal.model_json_schema()).message.content)
    fits(json.loads(ollama_client(w).generate(model=w.model, prompt=TELL, format=SCHEMA, options={"temperature": 0}, think=False).response))
    assert ollama_chat(w, format="json").message.content.lstrip().startswith("{")


@check
def ollama_tools(w):
    def add(a: int, b: int) -> str:
        """The sum.

        Args:
            a: one
            b: another
        """
        return str(a + b)
    for tools in ([add], TOOLS):
        m = ollama_chat(w, tools=tools, options={"temperature": 0, "num_predict": 40}).message
        assert m.content or m.tool_calls, m
    call = {"function": {"name": "add", "arguments": {"a": 1, "b": 2}}}
    turns = [*SAYS, {"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "content": "3", "tool_name": "add"}]
    parts = list(ollama_chat(w, messages=turns, tools=[add], options={"temperature": 0, "num_predict": 20}, stream=True))
    assert parts[-1].done and parts[-1].prompt_eval_count > 0


@check
def ollama_thinking(w):
    m = ollama_chat(w, think=True, options={"temperature": 0, "num_predict": 30})
    if w.thinks:
        parts = list(ollama_chat(w, think=True, options={"temperature": 0, "num_predict": 30}, stream=True))
        assert m.message.thinking and "".join(p.message.thinking or "" for p in parts) == m.message.thinking, m
        assert not ollama_chat(w, think=False, options={"num_predict": 10}).message.thinking


@check
def ollama_embed(w):
    c = ollama_client(w)
    one, two = c.embed(model=w.model, input="a fox"), c.embed(model=w.model, input=["a fox", "an owl"])
    assert len(two.embeddings) == 2 and list(two.embeddings[0]) == list(one.embeddings[0]), one


@check
def ollama_logprobs(w):
    r = ollama_chat(w, logprobs=True, top_logprobs=2, options={"temperature": 0, "num_predict": 5})
    assert len(r.logprobs) == r.eval_count and len(r.logprobs[0].top_logprobs) == 2, r


@check
def ollama_refused(w):
    import ollama
    e = refused(ollama.ResponseError, lambda: ollama_chat(w, model="absent"), "absent")
    assert e.status_code == 404
    refused(ollama.ResponseError, lambda: ollama_chat(w, messages=[{"role": "user", "content": "x", "images": ["aGk="]}]), "images")
    refused(ollama.ResponseError, lambda: ollama_client(w).pull("x"), "Ollama")


@check
def ollama_async(w):
    async def run():
        c = ollama_client(w, "AsyncClient")
        return await asyncio.gather(*(c.chat(model=w.model, messages=SAYS, options={"temperature": 0, "num_predict": 9}, think=False) for _ in range(8)))
    assert len({r.message.content for r in asyncio.run(run())}) == 1


if __name__ == "__main__":
    sys.exit(check_clients.main(__doc__, CHECKS, {"tools in the template": TEMPLATE, "thinks": THINKING}))
