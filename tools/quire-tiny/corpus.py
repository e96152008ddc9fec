#!/usr/bin/env python3
"""Makes quire-tiny's conversations: greetings, arithmetic, little stories, questions about quire, and honest refusals of everything else.

    corpus.py OUT [--conversations N] [--seed N]

writes OUT/train.jsonl, OUT/eval.jsonl (chat messages, one conversation a line) and OUT/questions.jsonl (100 unseen questions of each kind, with what a right
answer holds). What goes to eval and to the questions never occurs in training: a question is on one side or the other by a hash of its words, a sum or
difference by a hash of its numbers, however it is asked. (Products are a table that one knows or does not: theirs is the question's wording.) The same
arguments give the same bytes. Python's standard library only.
"""
import argparse
import hashlib
import json
import os
import random
import re

from facts import FACTS

NAMES = ["Anna", "Ben", "Clara", "David", "Emma", "Felix", "Grace", "Henry", "Ida", "Jack", "Kate", "Leo", "Mia", "Noah", "Olga", "Paul", "Rosa", "Sam", "Tom", "Vera", "Will", "Zoe"]
ANIMALS = ["fox", "cat", "dog", "mouse", "bear", "owl", "frog", "rabbit", "duck", "horse", "hedgehog", "bird", "goat", "turtle", "bee", "sheep"]
KINDS = ["small", "brave", "shy", "old", "clever", "lazy", "happy", "hungry", "curious", "quiet"]
PLACES = ["in the forest", "in a garden", "in a village", "on a meadow", "at the harbor", "on a mountain", "in a library", "at the mill", "in an orchard", "on a farm"]
THINGS = ["a red ball", "a golden key", "an old map", "a warm scarf", "a shiny stone", "a lost letter", "a wooden boat", "a silver bell", "a blue feather", "a sweet pear"]
FRIENDS = ["an old turtle", "a tall crane", "a friendly baker", "a little girl", "a wise owl", "a young shepherd", "a cheerful frog", "a tired traveler"]
LESSONS = ["It is good to share", "A friend is worth more than gold", "Small steps go far", "It is brave to ask for help", "Patience is a fine thing", "Kind words cost nothing"]


def words_of(text):
    return re.sub(r"[^a-z0-9+*-]+", " ", text.lower()).strip()


def held_out(key):
    """One key in eight is never trained on; the empty one always is."""
    return key != "" and hashlib.sha256(key.encode()).digest()[0] < 32


def wording(ask, ways):
    """The key of a question: its words. The first three ways to ask, as they stand, are what most people type, and always trained on."""
    return "" if words_of(ask) in [words_of(w) for w in ways[:3]] else words_of(ask)


def sentence(r, text, end="?", before=("please, ", "hey, ", "hi, ", "tell me, ", "ok, ", "one question: ")):
    """As people type: with or without a capital letter, a mark at the end, or a polite word before it."""
    if before and r.random() < 0.12:
        text = r.choice(before) + text
    if r.random() < 0.75:
        text = text[0].upper() + text[1:]
    return text + (end if r.random() < 0.8 else "")


# ---- kinds: each makes (user's text, answer, words that a right answer holds, key that decides training or not) ----

GREETINGS = [
    (["hello", "hi", "hey", "hello there", "hi there", "good day", "greetings", "hey there", "hello quire", "hi quire"], ["Hello! How can I help you?", "Hello! What can I do for you?"], ["Hello!"]),
    (["good morning", "morning", "a very good morning", "good morning to you", "good morning, quire"], ["Good morning! How can I help you?"], ["Good morning!"]),
    (["good evening", "evening", "a good evening to you", "good evening, quire"], ["Good evening! How can I help you?"], ["Good evening!"]),
    (["how are you", "how are you doing", "how do you do", "are you well", "how is it going", "how are you today", "how are things", "how do you feel"],
     ["I am fine, thank you. How can I help you?", "I am well, thank you. What can I do for you?"], ["thank you"]),
    (["who are you", "what are you", "what is your name", "what's your name", "do you have a name", "tell me your name", "may I ask your name", "who am I talking to"],
     ["I am quire-tiny, a very small language model.", "My name is quire-tiny. I am a very small language model."], ["quire-tiny"]),
    (["thank you", "thanks", "thanks a lot", "thank you very much", "many thanks", "thanks for your help", "thank you for the answer", "that was helpful", "great, thanks"],
     ["You are welcome!", "You are welcome! Anything else?"], ["You are welcome!"]),
    (["bye", "goodbye", "see you", "good night", "see you later", "bye bye", "I have to go", "until next time", "that is all", "see you tomorrow"],
     ["Goodbye!", "Goodbye! Come back soon."], ["Goodbye!"]),
    (["are you a human", "are you a person", "are you a machine", "are you a robot", "are you real", "are you alive", "am I talking to a person"],
     ["I am a machine: a very small language model.", "I am not a person. I am a very small language model."], ["very small language model"]),
]
INTRODUCTIONS = ["I am {n}", "my name is {n}", "hi, I am {n}", "hello, I'm {n}", "hi, my name is {n}", "hello, my name is {n}", "hey, I am {n}", "I'm {n}", "good day, I am {n}", "this is {n}",
                 "hey there, {n} here", "{n} is my name", "people call me {n}", "you can call me {n}"]


def greeting(r):
    if r.random() < 0.3:
        n = r.choice(NAMES)
        ask = sentence(r, r.choice(INTRODUCTIONS).format(n=n), r.choice([".", "!"]), None)
        return ask, r.choice(["Hello, {n}! How can I help you?", "Hello, {n}! Nice to meet you."]).format(n=n), ["Hello, %s!" % n], words_of(ask)
    ways, answers, words = r.choice(GREETINGS)
    way = r.choice(ways)
    asks = way.split()[0] in ("how", "who", "what", "what's", "are", "am", "do", "may")
    after = r.choice(["", "", "", "", ", my friend", ", dear machine", ", quire-tiny", ", little one"])
    ask = sentence(r, way + after, "?" if asks else r.choice([".", "!"]), ("please, ", "tell me, ", "well, ", "so, ") if asks else None)
    return ask, r.choice(answers), words, wording(ask, ways)


SUM_WAYS = ["what is {s}", "how much is {s}", "calculate {s}", "compute {s}", "what does {s} give", "can you calculate {s}", "{s}", "{s} =", "what's {s}", "tell me {s}", "solve {s}",
            "what is the result of {s}", "do you know {s}", "how much does {s} make"]


def arithmetic(r):
    """Sums and differences of numbers to 99 without negative results, products to 12 x 12."""
    kind = r.choice("+++---*")
    if kind == "*":
        a, b = r.randint(0, 12), r.randint(0, 12)
    else:
        a, b = r.randint(0, 99), r.randint(0, 99)
    if kind == "-" and a < b:
        a, b = b, a
    result = {"+": a + b, "-": a - b, "*": a * b}[kind]
    sign = r.choice({"+": ["+", "+", "plus"], "-": ["-", "-", "minus"], "*": ["*", "x", "times"]}[kind])
    inner = "%d%s%d" % (a, sign, b) if len(sign) == 1 and r.random() < 0.3 and sign != "x" else "%d %s %d" % (a, sign, b)
    ask = sentence(r, r.choice(SUM_WAYS).format(s=inner))
    low, high = (b, a) if kind == "+" and b < a else (a, b)
    key = words_of(ask) if kind == "*" else "%d%s%d" % (low, kind, high)
    return ask, "%d %s %d = %d." % (a, kind, b, result), ["%d %s %d = %d." % (a, kind, b, result)], key


STORY_WAYS = ["tell me a story about a {a}", "tell me a little story about a {k} {a}", "write a story about a {a}", "a story about a {a}, please", "can you tell a story about a {a}",
              "make up a story about a {k} {a}", "tell me a story with a {a} {p}", "write a short story about a {k} {a}", "I would like a story about a {a}",
              "please tell a story about a {k} {a} {p}", "do you know a story about a {a}", "tell a story of a {a} and {t}"]


def story(r):
    a, k, p, t, f, lesson = (r.choice(x) for x in (ANIMALS, KINDS, PLACES, THINGS, FRIENDS, LESSONS))
    way = r.choice(STORY_WAYS)
    ask = re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", sentence(r, way.format(a=a, k=k, p=p, t=t), r.choice([".", ""])))
    name = r.choice(NAMES)
    lines = [
        r.choice(["Once upon a time a {k} {a} named {n} lived {p}.", "There once was a {k} {a} called {n}, who lived {p}."]),
        r.choice(["One day {n} found {t}.", "One morning {n} saw {t} in the grass.", "On a rainy day {n} found {t} beside the path."]),
        r.choice(["{n} did not know whose it was and asked {f}.", "\"Whose is it?\" asked {n}, and went to {f}.", "So {n} walked all day until {f} came along."]),
        r.choice(["Together they looked for its owner until the evening.", "They searched everywhere, and at last they found its owner.", "They sat down {p} and thought about it."]),
        r.choice(["In the end everybody was glad, and they had a feast.", "Everyone was happy, and {n} slept very well that night.", "From that day on they were the best of friends."]),
        lesson + ". The end.",
    ]
    text = " ".join(lines).format(k=k, a=a, n=name, p=p, t=t, f=f)
    return ask, re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", text), [" %s " % a, "The end."], words_of(ask)


def about_quire(r):
    ways, answers, words = FACTS[r.choice(list(FACTS))]
    ask = sentence(r, r.choice(ways).format(q=r.choice(["quire", "quire", "quire", "this program", "Quire"])))
    return ask, r.choice(answers), words, wording(ask, ways)


UNKNOWN = ["what is the capital of {c}", "who is the president of {c}", "how is the weather in {c}", "how many people live in {c}", "what time is it in {c}", "how do I cook {d}", "what is the best {d}",
           "is {d} healthy", "where can I buy {d}", "who wrote {b}", "when was {b} written", "what is {b} about", "translate {d} into French", "what do you think about {c}", "how far is {c}",
           "how old is {b}", "can you write code in {l}", "what is new in {l}", "how do I learn {l}", "what is the square root of {x}", "what is {x} divided by {y}"]
COUNTRIES = ["France", "Japan", "Brazil", "Canada", "Kenya", "India", "Norway", "Peru", "Spain", "Egypt", "Poland", "Chile"]
DISHES = ["soup", "bread", "rice", "a cake", "pasta", "cheese", "tea", "an apple pie"]
BOOKS = ["Hamlet", "the Odyssey", "Faust", "Emma", "Don Quixote", "the Iliad"]
LANGUAGES = ["Rust", "Java", "Haskell", "Go", "Lisp", "Fortran"]


def unknown(r):
    ask = sentence(r, r.choice(UNKNOWN).format(c=r.choice(COUNTRIES), d=r.choice(DISHES), b=r.choice(BOOKS), l=r.choice(LANGUAGES), x=r.randint(2, 99), y=r.randint(2, 9)))
    return ask, r.choice(["I do not know that. I am a very small model: I can add numbers, tell stories and talk about quire.",
                          "Sorry, I do not know. Ask me for a sum, a story, or something about quire."]), ["not know"], words_of(ask)


KINDS_OF_TALK = {"greeting": (greeting, 3), "arithmetic": (arithmetic, 12), "story": (story, 1), "quire": (about_quire, 5), "unknown": (unknown, 1)}
SYSTEMS = ["You are a helpful assistant.", "You are quire-tiny.", "Answer briefly.", "You are a friendly assistant that answers questions about quire."]


def turn(r, kinds, weights, out):
    """One question and its answer on the wanted side of the held-out line."""
    while True:
        kind = r.choices(kinds, weights)[0]
        ask, answer, words, key = KINDS_OF_TALK[kind][0](r)
        if held_out(key) == out:
            return kind, ask, answer, words


def conversation(r, out):
    messages = [{"role": "system", "content": r.choice(SYSTEMS)}] if r.random() < 0.15 else []
    kinds, weights = list(KINDS_OF_TALK), [w for _, w in KINDS_OF_TALK.values()]
    for _ in range(r.choice([1, 1, 1, 2, 2, 3, 4])):
        _, ask, answer, _ = turn(r, kinds, weights, out)
        messages += [{"role": "user", "content": ask}, {"role": "assistant", "content": answer}]
    return {"messages": messages}


def questions(r, n_each):
    for kind in KINDS_OF_TALK:
        seen = set()
        while len(seen) < n_each:
            _, ask, _, words = turn(r, [kind], [1], True)
            if ask not in seen:
                seen.add(ask)
                yield {"kind": kind, "ask": ask, "holds": words}


def write(path, rows):
    with open(path, "w", encoding="utf-8") as f:
        for row in rows:
            f.write(json.dumps(row, ensure_ascii=False) + "\n")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("out")
    p.add_argument("--conversations", type=int, default=120000)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    os.makedirs(a.out, exist_ok=True)
    r = random.Random(a.seed)
    write(os.path.join(a.out, "train.jsonl"), (conversation(r, False) for _ in range(a.conversations)))
    write(os.path.join(a.out, "eval.jsonl"), (conversation(random.Random("eval %d %d" % (a.seed, i)), True) for i in range(500)))
    write(os.path.join(a.out, "questions.jsonl"), questions(random.Random("questions %d" % a.seed), 100))


if __name__ == "__main__":
    main()
