"""What simulated prompts and answers say, so that equal beginnings are found in a prefix cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from teola.graph import Prompt
from teola.kv import Excerpt
from teola.runtime.driver import Query
from teola.runtime.sim.outcome import Delivery
from teola.runtime.values import Tokens, new_text, number_of, text_of, tokens_of


def prompt_of(query: Query, i: int) -> tuple[Excerpt, ...]:
    """The prompt of primitive `i`, without any prefix computed before."""
    prompt = query.plan.primitives[i].input("prompt")
    assert isinstance(prompt, Prompt)
    found: list[Excerpt] = []
    for part in prompt.parts:
        content = part.content
        found += _excerpts(content if isinstance(content, str) else query.store.read(content))
    return tuple(found)


def _excerpts(value: Any) -> Iterator[Excerpt]:
    if isinstance(value, Tokens):
        yield value.excerpt()
    elif isinstance(value, list):
        for item in value:
            yield from _excerpts(item)
    elif value is not None:
        yield Excerpt(number_of(text_of(value)), 0, tokens_of(value))


def answer_of(deliveries: Sequence[Delivery], length: int) -> Excerpt:
    """What a call generates in all: the text of which its last decoding delivers the end, else one
    that nobody reads."""
    for value in deliveries[-1].result.values() if deliveries else ():
        if isinstance(value, Tokens) and value.start + int(value) == length:
            return Excerpt(value.excerpt().text, 0, length)
    return Excerpt(new_text(), 0, length)
