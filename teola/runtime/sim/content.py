"""What simulated prompts and answers say, so that equal beginnings are found in a prefix cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from teola.graph import Prompt
from teola.kv import Excerpt, excerpt_keys
from teola.profile import EngineProfile
from teola.runtime.in_flight import Query
from teola.runtime.sim.outcome import Delivery
from teola.runtime.values import Composite, Tokens, new_text, number_of, text_of, tokens_of


class PromptContent(NamedTuple):
    """What a call's prompt says. tokens: how many. keys: of its full blocks of `block_tokens`
    tokens each (0: nobody wants any)."""

    excerpts: tuple[Excerpt, ...]
    tokens: int
    block_tokens: int = 0
    keys: tuple[int, ...] = ()

    def grown(self, answer: Excerpt, salt: int, tokens: int) -> tuple[int, ...]:
        """Keys of the first so many tokens of the prompt and its answer."""
        generated = answer._replace(length=tokens - self.tokens)
        return excerpt_keys((*self.excerpts, generated), self.block_tokens, salt, self.keys)


class Prefix(Tokens):
    """A sequence of that many tokens. said: what they say. ends: of the parts of that, in tokens,
    where somebody wants to know. release: lets its instance forget it."""

    said: PromptContent
    ends: tuple[int, ...] = ()
    release: Callable[[], None] = staticmethod(lambda: None)


def salt_of(query: Query, profile: EngineProfile) -> int:
    """Whoever has the same one shares prefixes: a tenant's queries, where they are kept."""
    return number_of(query.run.asker.tenant if profile.keeps_prefixes else f"query {query.id}")


def prompt_said(
    query: Query, i: int, block_tokens: int = 0, salt: int = 0, keys: Sequence[int] = ()
) -> PromptContent:
    """The whole prompt of primitive `i`, with the prefix that was computed before. salt: of its
    keys. keys: the first ones, which need not be worked out again."""
    excerpts, tokens, block_keys = prompt_of(query, i), 0, tuple(keys)
    for piece in reversed(query.run.fused.get(i, ())):
        excerpts = prompt_of(query, piece) + excerpts
    for excerpt in excerpts:
        tokens += excerpt.length
    before = query.run.before(i)
    if before >= 0:
        prefix: PromptContent = query.store.values[before]["sequence"].said
        excerpts, tokens = prefix.excerpts + excerpts, prefix.tokens + tokens
        if not block_keys and prefix.block_tokens == block_tokens:
            block_keys = prefix.keys
    elif block_tokens and not block_keys and i not in query.run.fused:
        block_keys = _beginning(query, i, block_tokens, salt)
    if block_tokens and len(block_keys) < tokens // block_tokens:
        block_keys = excerpt_keys(excerpts, block_tokens, salt, block_keys)
    return PromptContent(excerpts, tokens, block_tokens, block_keys)


def _beginning(query: Query, i: int, block_tokens: int, salt: int) -> tuple[int, ...]:
    """The keys of what the prompt of primitive `i` begins with, if that remembers them."""
    prompt = query.plan.primitives[i].input("prompt")
    assert isinstance(prompt, Prompt)
    first = prompt.parts[0].content
    value = None if isinstance(first, str) else query.store.read(first)
    return value.keys(block_tokens, salt) if type(value) is Composite else ()


def ends_of_parts(query: Query, i: int) -> tuple[int, ...]:
    """Where each part of the whole prompt of primitive `i` ends that is there, in tokens."""
    before, read = query.run.before(i), query.store.read
    ends: list[int] = [] if before < 0 else [*query.store.values[before]["sequence"].ends]
    for piece in (*query.run.fused.get(i, ()), i):
        prompt = query.plan.primitives[piece].input("prompt")
        assert isinstance(prompt, Prompt)
        for part in prompt.parts:
            content = part.content
            value = content if isinstance(content, str) else read(content)
            if value is not None:
                ends.append((ends[-1] if ends else 0) + tokens_of(value))
    return tuple(ends)


def prompt_of(query: Query, i: int) -> tuple[Excerpt, ...]:
    """The prompt of primitive `i`, without any prefix computed before."""
    prompt = query.plan.primitives[i].input("prompt")
    assert isinstance(prompt, Prompt)
    excerpts: list[Excerpt] = []
    read = query.store.read
    for part in prompt.parts:
        content = part.content
        if isinstance(content, str):
            excerpts.append(_literal(content))
        else:
            _add(excerpts, read(content))
    return tuple(excerpts)


def _add(excerpts: list[Excerpt], value: Any) -> None:
    if type(value) is Composite:
        excerpts += value.excerpts
    elif isinstance(value, Tokens):
        excerpts.append(value.excerpt())
    elif isinstance(value, list):
        for item in value:
            _add(excerpts, item)
    elif value is not None:
        excerpts.append(Excerpt(number_of(text_of(value)), 0, tokens_of(value)))


@lru_cache(4096)
def _literal(text: str) -> Excerpt:
    return Excerpt(number_of(text), 0, tokens_of(text))


def answer_of(deliveries: Sequence[Delivery], length: int) -> Excerpt:
    """What a call generates in all: the text of which its last decoding delivers the end, else one
    that nobody reads."""
    for value in deliveries[-1].result.values() if deliveries else ():
        if isinstance(value, Tokens) and value.start + int(value) == length:
            return Excerpt(value.excerpt().text, 0, length)
    return Excerpt(new_text(), 0, length)
