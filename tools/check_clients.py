#!/usr/bin/env python3
"""Other people's clients against `quire serve`: schemas that are forced come back parsed, calls that are forced come back as calls.

    python3 -m venv /tmp/clients && /tmp/clients/bin/pip install openai openai-agents instructor 'pydantic-ai-slim[openai]' langchain langchain-openai litellm guidance outlines
    /tmp/clients/bin/python tools/check_clients.py [--model DIR] [NAME...]

Optional: nothing builds or tests with it; `./dev check-world` runs it. The bundled model is served twice, with its own template, which knows no tools, and with one that does (TEMPLATE).
What it says may be nonsense; that it fits is what is checked. Each check is a function of a world (a server and what a client needs to know of it) that raises where something is wrong.
Ends with status 1 when a check fails. A library that is not installed is skipped by name.
"""
import argparse
import asyncio
import json
import logging
import os
import re
import shutil
import sys
import tempfile
import traceback
import warnings
from typing import Literal

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))
import lib  # noqa: E402

os.environ.update(OPENAI_API_KEY="none", OPENAI_AGENTS_DISABLE_TRACING="1", LITELLM_LOCAL_MODEL_COST_MAP="True", LITELLM_LOG="ERROR")
try:
    from pydantic import BaseModel, ConfigDict, Field
except ImportError:
    sys.exit("check_clients: pydantic is not installed here; see the head of this file")

TEMPLATE = """{{- bos_token }}
{%- if tools %}{{ '<|system|>Functions: ' + (tools | tojson) + '<|end|>' }}{% endif %}
{%- for m in messages %}
    {%- if m.role == 'tool' %}{{ '<|user|><tool_response>\\n' + m.content + '\\n</tool_response><|end|>' }}
    {%- elif m.tool_calls %}
        {{- '<|assistant|>' + (m.content or '') }}
        {%- for c in m.tool_calls %}{{ '<tool_call>\\n{"name": "' + c.function.name + '", "arguments": ' + (c.function.arguments | tojson) + '}\\n</tool_call>' }}{% endfor %}
        {{- '<|end|>' }}
    {%- else %}{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"""


class Animal(BaseModel):
    """An animal of a story."""
    model_config = ConfigDict(extra="forbid")  # a model that says nonsense would add members for ever
    kind: Literal["fox", "owl", "hare"]
    legs: int = Field(ge=0, le=8)
    name: str = Field(pattern="^[A-Z][a-z]{1,8}$")
    tame: bool


SAYS = [{"role": "user", "content": "Tell me about a fox."}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}, "days": {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 31}, "maxItems": 3}},
          "required": ["city", "days"], "additionalProperties": False}


def function(name, schema, **more):
    return {"type": "function", "function": {"name": name, "description": f"The {name}.", "parameters": schema, **more}}


TOOLS = [function("weather", SCHEMA), function("animal", Animal.model_json_schema())]


CHECKS = []


def check(f):
    CHECKS.append(f)
    return f


class World:
    def __init__(self, port, name=""):
        self.root, self.model, self.thinks = f"http://127.0.0.1:{port}", "tiny", name == "thinks"
        self.url = self.root + "/v1"

    def openai(self):
        import openai
        return openai.OpenAI(base_url=self.url, api_key="none", max_retries=0, timeout=120)

    def chat(self, **more):
        return self.openai().chat.completions.create(**{"model": self.model, "messages": SAYS, "temperature": 0, "max_tokens": 300, **more})

    def message(self, **more):
        return self.chat(**more).choices[0].message


def fits(value):
    """An instance of SCHEMA."""
    assert set(value) == {"city", "days"} and isinstance(value["city"], str) and len(value["city"]) <= 12, value
    assert len(value["days"]) <= 3 and all(d == int(d) and 1 <= d <= 31 for d in value["days"]), value


def is_animal(value):
    assert isinstance(value, Animal), repr(value)


def is_call(call, name=None):
    assert call.type == "function" and call.id and call.function.name in ((name,) if name else ("weather", "animal")), call
    arguments = json.loads(call.function.arguments)
    if call.function.name == "weather":
        fits(arguments)
    else:
        Animal.model_validate(arguments)


def joined(chunks):
    """What a stream says: the text, the calls as [id, name, arguments], and how it ended."""
    text, calls, end = "", [], None
    for chunk in chunks:
        for choice in chunk.choices:
            text, end = text + (choice.delta.content or ""), choice.finish_reason or end
            for c in choice.delta.tool_calls or ():
                if c.index == len(calls):
                    assert c.id and c.type == "function" and c.function.name, c
                    calls.append([c.id, c.function.name, ""])
                else:
                    assert c.index == len(calls) - 1 and not c.id and not c.function.name, c
                calls[c.index][2] += c.function.arguments or ""
    return text, calls, end


# ---- openai ----


@check
def openai_parse(w):
    m = w.openai().chat.completions.parse(model=w.model, messages=SAYS, response_format=Animal, temperature=0).choices[0].message
    is_animal(m.parsed)


@check
def openai_parse_tools(w):
    import openai
    m = w.openai().chat.completions.parse(model=w.model, messages=SAYS, tools=[openai.pydantic_function_tool(Animal)], tool_choice="required", temperature=0).choices[0].message
    is_animal(m.tool_calls[0].function.parsed_arguments)


@check
def openai_stream_schema(w):
    with w.openai().chat.completions.stream(model=w.model, messages=SAYS, response_format=Animal, temperature=0) as events:
        seen = [e for e in events if e.type in ("content.delta", "content.done")]
    assert "".join(e.delta for e in seen[:-1]) == seen[-1].content
    is_animal(seen[-1].parsed)
    is_animal(events.get_final_completion().choices[0].message.parsed)


@check
def openai_stream_tools(w):
    import openai
    with w.openai().chat.completions.stream(model=w.model, messages=SAYS, tools=[openai.pydantic_function_tool(Animal)], tool_choice="required", temperature=0) as events:
        seen = [e for e in events if e.type.startswith("tool_calls.function.arguments")]
    first = [e for e in seen if e.index == 0]
    assert "".join(e.arguments_delta for e in first[:-1]) == first[-1].arguments
    is_animal(first[-1].parsed_arguments)


@check
def openai_tools_required(w):
    r = w.chat(tools=TOOLS, tool_choice="required").choices[0]
    assert r.message.tool_calls and r.finish_reason in ("tool_calls", "length"), r
    is_call(r.message.tool_calls[0])


@check
def openai_tools_named(w):
    for name in ("weather", "animal"):
        m = w.message(tools=TOOLS, tool_choice={"type": "function", "function": {"name": name}})
        for call in m.tool_calls:
            is_call(call, name)


@check
def openai_tools_allowed(w):
    m = w.message(tools=TOOLS, tool_choice={"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "animal"}}]}})
    is_call(m.tool_calls[0], "animal")


@check
def openai_tools_auto(w):
    for m in (w.message(tools=TOOLS), w.message(tools=TOOLS, tool_choice="auto")):
        assert m.content or m.tool_calls, m
        for call in m.tool_calls or ():
            is_call(call)


@check
def openai_tools_none(w):
    m = w.message(tools=TOOLS, tool_choice="none")
    assert m.content and not m.tool_calls, m


@check
def openai_tools_one_at_a_time(w):
    assert len(w.message(tools=TOOLS, tool_choice="required", parallel_tool_calls=False).tool_calls) == 1


@check
def openai_tools_missing(w):
    import openai
    try:
        w.chat(tools=TOOLS, tool_choice={"type": "function", "function": {"name": "absent"}})
    except openai.BadRequestError as e:
        assert "absent" in str(e), e
        return
    raise AssertionError("a tool_choice without its tool was not refused")


@check
def openai_stream_is_the_answer(w):
    for more in ({"tools": TOOLS, "tool_choice": "required"}, {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}}):
        whole = w.chat(seed=1, **more).choices[0]
        text, calls, end = joined(w.chat(seed=1, stream=True, **more))
        assert text == (whole.message.content or "") and end == whole.finish_reason, (text, whole)
        assert [c[1:] for c in calls] == [[c.function.name, c.function.arguments] for c in whole.message.tool_calls or ()], (calls, whole)


@check
def openai_tools_second_turn(w):
    m = w.message(tools=TOOLS, tool_choice={"type": "function", "function": {"name": "weather"}}, parallel_tool_calls=False)
    turns = [*SAYS, m.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": m.tool_calls[0].id, "content": "it rains"}]
    assert w.message(messages=turns, tools=TOOLS, max_tokens=50).content is not None


@check
def openai_json_object(w):
    ends = [w.chat(response_format={"type": "json_object"}, temperature=1, seed=seed, max_tokens=200).choices[0] for seed in range(10)]
    assert all(e.message.content.startswith("{") for e in ends)
    whole = [json.loads(e.message.content) for e in ends if e.finish_reason == "stop"]
    assert whole and all(isinstance(v, dict) for v in whole), ends


@check
def openai_json_schema(w):
    for strict in (True, False):
        fits(json.loads(w.message(response_format={"type": "json_schema", "json_schema": {"name": "trip", "schema": SCHEMA, "strict": strict}}).content))


@check
def openai_schema_beside_tools(w):
    m = w.message(tools=TOOLS, response_format={"type": "json_schema", "json_schema": {"name": "trip", "schema": SCHEMA}})
    for call in m.tool_calls or ():
        is_call(call)
    assert m.tool_calls or fits(json.loads(m.content)) is None


@check
def openai_three_choices(w):
    choices = w.chat(n=3, temperature=1, seed=5, response_format={"type": "json_schema", "json_schema": {"name": "trip", "schema": SCHEMA}}).choices
    assert len(choices) == 3
    for c in choices:
        fits(json.loads(c.message.content))


@check
def openai_refused_schema(w):
    import openai
    try:
        w.chat(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "properties": {"a": {"$ref": "#/absent"}}}}})
    except openai.BadRequestError as e:
        assert "$" in str(e), e
        return
    raise AssertionError("a schema that cannot be enforced was not refused")


# ---- fields of other servers, through openai's extra_body ----

GBNF = 'root ::= "a" [0-9]{2} "z"'
LARK = 'start: "a" N "z"\nN: /[0-9]{2}/\n'
FIELDS = [
    ({"structured_outputs": {"choice": ["red", "green"]}}, "red|green"),
    ({"structured_outputs": {"regex": "[a-c]{3}"}}, "[a-c]{3}"),
    ({"structured_outputs": {"grammar": GBNF}}, "a[0-9]{2}z"),
    ({"structured_outputs": {"grammar": LARK}}, "a[0-9]{2}z"),
    ({"structured_outputs": {"json": SCHEMA}}, None),
    ({"structured_outputs": {"json": json.dumps(SCHEMA)}}, None),
    ({"guided_choice": ["red", "green"]}, "red|green"),
    ({"guided_regex": "[a-c]{3}"}, "[a-c]{3}"),
    ({"guided_grammar": GBNF}, "a[0-9]{2}z"),
    ({"guided_json": SCHEMA}, None),
    ({"grammar": GBNF}, "a[0-9]{2}z"),
    ({"json_schema": SCHEMA}, None),
    ({"response_format": {"type": "structural_tag", "format": {"type": "const_string", "value": "yes"}}}, "yes"),
]


def says(field, text, pattern):
    try:
        if pattern:
            assert re.fullmatch(pattern, text), repr(text)
        else:
            fits(json.loads(text))
    except (AssertionError, ValueError) as e:
        raise AssertionError(f"{json.dumps(field)[:80]}: {text!r}") from e


@check
def fields_chat(w):
    for field, pattern in FIELDS:
        says(field, w.message(extra_body=field).content, pattern)


@check
def fields_completions(w):
    for field, pattern in FIELDS:
        r = w.openai().completions.create(model=w.model, prompt="A fox is", max_tokens=300, temperature=0, extra_body=field)
        says(field, r.choices[0].text, pattern)


# ---- agents ----


def agents_model(w):
    import agents
    import openai
    agents.set_tracing_disabled(True)
    return agents, agents.OpenAIChatCompletionsModel(model=w.model, openai_client=openai.AsyncOpenAI(base_url=w.url, api_key="none", max_retries=0))


@check
def agents_output_type(w):
    agents, model = agents_model(w)
    agent = agents.Agent(name="a", model=model, output_type=Animal, model_settings=agents.ModelSettings(temperature=0))
    is_animal(agents.Runner.run_sync(agent, "Tell me about a fox.").final_output)


def agents_tool(agents, seen):
    @agents.function_tool
    def add(a: Literal[1, 2, 3], b: Literal[1, 2, 3]) -> str:
        """The sum."""
        seen.append((a, b))
        return str(a + b)
    return add


@check
def agents_function_tool(w):
    agents, model = agents_model(w)
    seen = []
    agent = agents.Agent(name="a", model=model, tools=[agents_tool(agents, seen)], model_settings=agents.ModelSettings(tool_choice="required", temperature=0, max_tokens=300))
    result = agents.Runner.run_sync(agent, "What is 1 + 2?", max_turns=8)
    assert seen and isinstance(result.final_output, str), (seen, result)


@check
def agents_streamed(w):
    agents, model = agents_model(w)
    seen = []
    agent = agents.Agent(name="a", model=model, tools=[agents_tool(agents, seen)], tool_use_behavior="stop_on_first_tool",
                         model_settings=agents.ModelSettings(tool_choice="add", temperature=0, max_tokens=300))

    async def run():
        result = agents.Runner.run_streamed(agent, "What is 1 + 2?")
        async for _ in result.stream_events():
            pass
        return result.final_output
    assert asyncio.run(run()) == str(sum(seen[0]))


# ---- instructor, pydantic-ai ----


def instructor_mode(w, name):
    import instructor
    client = instructor.from_openai(w.openai(), mode=getattr(instructor.Mode, name))
    is_animal(client.chat.completions.create(model=w.model, messages=SAYS, response_model=Animal, max_retries=0, temperature=0))


@check
def instructor_tools(w):
    instructor_mode(w, "TOOLS")


@check
def instructor_tools_strict(w):
    instructor_mode(w, "TOOLS_STRICT")


@check
def instructor_json_schema(w):
    instructor_mode(w, "JSON_SCHEMA")


@check
def instructor_partial(w):
    import instructor
    client = instructor.from_openai(w.openai(), mode=instructor.Mode.TOOLS)
    last = list(client.chat.completions.create_partial(model=w.model, messages=SAYS, response_model=Animal, max_retries=0, temperature=0))[-1]
    Animal.model_validate(last.model_dump())


def pydantic_agent(w, **more):
    import pydantic_ai
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    return pydantic_ai.Agent(OpenAIChatModel(w.model, provider=OpenAIProvider(base_url=w.url, api_key="none")), retries=0, model_settings={"temperature": 0, "max_tokens": 300}, **more)


@check
def pydantic_ai_tool_output(w):
    is_animal(pydantic_agent(w, output_type=Animal).run_sync("Tell me about a fox.").output)


@check
def pydantic_ai_native_output(w):
    import pydantic_ai
    is_animal(pydantic_agent(w, output_type=pydantic_ai.NativeOutput(Animal)).run_sync("Tell me about a fox.").output)


@check
def pydantic_ai_streamed(w):
    async def run():
        async with pydantic_agent(w, output_type=Animal).run_stream("Tell me about a fox.") as result:
            return await result.get_output()
    is_animal(asyncio.run(run()))


# ---- langchain, litellm ----


def langchain_model(w, **more):
    from langchain_openai import ChatOpenAI
    return ChatOpenAI(base_url=w.url, api_key="none", model=w.model, temperature=0, max_retries=0, max_tokens=300, **more)


@check
def langchain_json_schema(w):
    is_animal(langchain_model(w).with_structured_output(Animal, method="json_schema").invoke("Tell me about a fox."))
    is_animal(langchain_model(w).with_structured_output(Animal, method="json_schema", strict=True).invoke("Tell me about a fox."))


@check
def langchain_function_calling(w):
    is_animal(langchain_model(w).with_structured_output(Animal, method="function_calling").invoke("Tell me about a fox."))


@check
def langchain_json_mode(w):
    assert isinstance(langchain_model(w).with_structured_output(None, method="json_mode").invoke("Tell me about a fox in JSON."), dict)


@check
def langchain_bind_tools(w):
    for choice in ("any", "animal"):
        m = langchain_model(w).bind_tools(TOOLS, tool_choice=choice).invoke("Tell me about a fox.")
        assert m.tool_calls and not m.invalid_tool_calls, m
        assert choice == "any" or {c["name"] for c in m.tool_calls} == {choice}, m


@check
def langchain_streamed_tools(w):
    whole = None
    for chunk in langchain_model(w).bind_tools(TOOLS, tool_choice="animal").stream("Tell me about a fox."):
        whole = chunk if whole is None else whole + chunk
    Animal.model_validate(whole.tool_calls[0]["args"])


@check
def langchain_agent(w):
    from langchain.agents import create_agent
    from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
    for strategy in (ToolStrategy, ProviderStrategy):
        is_animal(create_agent(langchain_model(w), [], response_format=strategy(Animal)).invoke({"messages": SAYS}, {"recursion_limit": 12})["structured_response"])


def litellm_ask(w, **more):
    import litellm
    litellm.suppress_debug_info = True
    return litellm.completion(**{"model": f"openai/{w.model}", "api_base": w.url, "api_key": "none", "messages": SAYS, "temperature": 0, "max_tokens": 300, "num_retries": 0, **more})


@check
def litellm_schema(w):
    Animal.model_validate_json(litellm_ask(w, response_format=Animal).choices[0].message.content)
    fits(json.loads(litellm_ask(w, model=f"hosted_vllm/{w.model}", extra_body={"guided_json": SCHEMA}).choices[0].message.content))


@check
def litellm_tools(w):
    # hosted_vllm/ would take additionalProperties out of the tools' schemas.
    is_call(litellm_ask(w, tools=TOOLS, tool_choice="required").choices[0].message.tool_calls[0])


@check
def litellm_streamed_tools(w):
    _, calls, _ = joined(litellm_ask(w, tools=TOOLS, tool_choice="required", stream=True))
    json.loads(calls[0][2])


# ---- guidance, outlines ----


def guidance_ask(model, node):
    import guidance
    with guidance.user():
        model += "Tell me about a fox."
    with guidance.assistant():
        model += node
    return model


@check
def guidance_openai_json(w):
    import guidance
    is_animal(Animal.model_validate_json(guidance_ask(guidance.models.OpenAI(w.model, api_key="none", base_url=w.url, echo=False), guidance.json(name="a", schema=Animal))["a"]))


@check
def guidance_vllm(w):
    import guidance
    from guidance.models.experimental import VLLMModel

    def ask(node):
        return guidance_ask(VLLMModel(w.model, base_url=w.url, api_key="none", echo=False), node)
    assert ask(guidance.select(["red", "green"], name="x"))["x"] in ("red", "green")
    assert re.fullmatch("[a-c]{3}", ask(guidance.gen("x", regex="[a-c]{3}"))["x"])
    m = ask(guidance.gen("name", regex="[A-Z][a-z]{2,5}") + " is " + guidance.select(["an owl", "a fox"], name="kind"))
    assert re.fullmatch("[A-Z][a-z]{2,5}", m["name"]) and m["kind"] in ("an owl", "a fox")
    is_animal(Animal.model_validate_json(ask(guidance.json(name="a", schema=Animal))["a"]))


@check
def outlines_openai(w):
    import outlines
    is_animal(Animal.model_validate_json(outlines.from_openai(w.openai(), w.model)("Tell me about a fox.", Animal, max_tokens=300)))


@check
def outlines_vllm(w):
    import outlines
    from outlines.types import CFG, Regex
    model = outlines.from_vllm(w.openai(), w.model)

    def ask(kind):
        return model("Tell me about a fox.", kind, max_tokens=300)
    is_animal(Animal.model_validate_json(ask(Animal)))
    assert ask(Literal["red", "green"]) in ("red", "green")
    assert re.fullmatch("[a-c]{3}", ask(Regex("[a-c]{3}")))
    int(ask(int))
    assert re.fullmatch(r"[-+*/()0-9. \t]+", model("1 + 2 =", CFG(outlines.grammars.arithmetic), max_tokens=40))


@check
def outlines_streamed(w):
    import outlines
    is_animal(Animal.model_validate_json("".join(outlines.from_vllm(w.openai(), w.model).stream("Tell me about a fox.", Animal, max_tokens=300))))


def attempt(f, w):
    try:
        f(w)
        return "ok", ""
    except ModuleNotFoundError as e:
        return "skipped", str(e)
    except Exception as e:  # pylint: disable=broad-except
        return "FAILED", f"{type(e).__name__}: {e}\n{traceback.format_exc()[-1500:]}"


def serve(name, folder, wanted, checks):
    with lib.Server("--served-model-name", "tiny", model=folder) as server:
        w = World(server.port, name)
        for f in checks:
            if wanted and not f.__name__.startswith(tuple(wanted)):
                continue
            yield f.__name__, *attempt(f, w)
            if server.process.poll() is not None:
                raise SystemExit(f"the server ended with {server.process.returncode} at {f.__name__}: {server.stderr()[-3000:]}")


def with_template(model, folder, template):
    """A copy of the model with another template."""
    shutil.copytree(model, folder)
    path = os.path.join(folder, "tokenizer_config.json")
    with open(path, encoding="utf-8") as f:
        config = json.load(f)
    with open(path, "w", encoding="utf-8") as f:
        json.dump({**config, "chat_template": template}, f)


def main(doc, checks, templates):
    """templates: of further worlds, by what these are called."""
    p = argparse.ArgumentParser(description=doc.splitlines()[0])
    p.add_argument("--model", default=os.path.join(ROOT, "models", "quire-tiny"))
    p.add_argument("--verbose", action="store_true", help="where an error came from")
    p.add_argument("names", nargs="*", help="libraries or checks; without, all")
    args = p.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    table, errors = {}, []
    with tempfile.TemporaryDirectory() as folder:
        worlds = {"own template": args.model}
        for world, template in templates.items():
            worlds[world] = os.path.join(folder, world)
            with_template(args.model, worlds[world], template)
        for world, where in worlds.items():
            for name, end, why in serve(world, where, args.names, checks):
                table.setdefault(name, []).append(end)
                if end == "FAILED":
                    errors.append(f"{name}, {world}: {why if args.verbose else why.splitlines()[0][:400]}")
                print(f"{end:8} {name}, {world}" + (f": {why.splitlines()[0][:100]}" if why else ""), flush=True)
    print(f"\n| check | {' | '.join(worlds)} |\n|---|{'---|' * len(worlds)}")
    for name, ends in table.items():
        print(f"| {name} | {' | '.join(ends)} |")
    print("\n".join(errors))
    ends = [e for row in table.values() for e in row]
    print(f"clients: {ends.count('ok')} passed, {ends.count('FAILED')} failed, {ends.count('skipped')} skipped")
    return 1 if "FAILED" in ends else 0


if __name__ == "__main__":
    sys.exit(main(__doc__, CHECKS, {"tools in the template": TEMPLATE}))
