"""Prompt parts as token ids, so that a beginning of the parts gives a beginning of the ids.

Each part is tokenised on its own: a merge across two parts would make a prefix's ids depend on what
follows. What a chat template puts around the parts is found by rendering it once with sentinels
for the texts, and cutting there:

    rendered   <s><|system|> S <|end|><|user|> U <|end|><|assistant|>
    pieces     opening         middle              end

`chat_prompt` says which part is the system message. A template that shows a sentinel not
exactly once, or not in this order, cannot be cut: then the prompt is rendered whole, and nothing is
a prefix.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from teola.engine import Reading, TextPart
from teola.graph.prompt import Role

from . import chat_prompt

SYSTEM, USER = "\u2063teola-system\u2063", "\u2063teola-user\u2063"
CACHED_TEXTS = 512

_SAMPLE: Final = "Two words.\n\n  naïve 東京 🦉 x=1;\t{ }"

Encode = Callable[[str], list[int]]
Render = Callable[[list[dict[str, str]]], str]


class ChatTemplate(NamedTuple):
    """What a chat template puts before, between and after its texts, as ids.

    middle: between a system message and the user's; empty if there is no system message.
    """

    opening: tuple[int, ...]
    middle: tuple[int, ...]
    end: tuple[int, ...]


class PromptTokens:
    """Tokenises prompts of one model.

    encode: ids of a text without special tokens around it, but knowing those within it. bos: put
    before every prompt; a chat template brings its own instead. render: chat messages to text, up
    to where the answer begins, ValueError if the template takes no such messages; None: no
    template. plain: as `encode`, but to which special tokens are mere text, so that no document
    can forge a turn of the conversation; None: there is no such function.
    """

    def __init__(
        self,
        encode: Encode,
        bos: tuple[int, ...],
        render: Render | None,
        plain: Encode | None = None,
    ) -> None:
        self._encode, self._bos, self._render = encode, bos, render
        self._plain = plain or encode
        self._literal = lru_cache(CACHED_TEXTS)(lambda text: tuple(self._plain(text)))
        self._user = ChatTemplate(bos, (), ()) if render is None else self._cut((USER,))
        self._system = None if render is None else self._cut((SYSTEM, USER))
        self.reading = Reading(
            _digest(tuple(self._plain(_SAMPLE))), _digest((self._user, self._system))
        )
        """What tells whether somebody else's prompts have the same ids."""

    @property
    def splittable(self) -> bool:
        """Whether a prefix of the parts has ids of its own; otherwise prefilling gains nothing."""
        return self._user is not None

    def ids(
        self, parts: Sequence[TextPart], *, complete: bool, after: Sequence[TextPart] = ()
    ) -> list[int]:
        """The ids of `parts`, which follow `after`; `complete` adds the template's end.

        `ids(after, complete=False) + ids(parts, complete=c, after=after)` equals
        `ids([*after, *parts], complete=c)`, so a prefix's ids begin the whole prompt's. One case
        is different: a complete prompt that is a lone instruction is the user's message, whereas
        the same part as a prefix opens a system message. Where splitting is declined, a prefix has
        no ids, and what follows it has all.
        """
        whole = (*after, *parts)
        if self._user is None:
            return self._whole(whole) if complete else []
        if not whole and not complete:
            return []
        template = self._template(whole, lone=complete and len(whole) == 1 and not after)
        found: list[int] = [] if after else list(template.opening)
        for i, part in enumerate(parts, start=len(after)):
            literal = part.role is Role.INSTRUCTION
            found += self._literal(part.text) if literal else self._plain(part.text)
            if i == 0:
                found += template.middle
        return found + list(template.end) if complete else found

    def _template(self, parts: Sequence[TextPart], *, lone: bool) -> ChatTemplate:
        assert self._user is not None
        if self._system is None or lone or not parts or parts[0].role is not Role.INSTRUCTION:
            return self._user
        return self._system

    def _whole(self, parts: Sequence[TextPart]) -> list[int]:
        assert self._render is not None
        try:
            rendered = self._render(chat_prompt.messages(parts, complete=True))
        except ValueError:
            rendered = self._render([{"role": "user", "content": chat_prompt.text(parts)}])
        return self._encode(rendered)

    def _cut(self, sentinels: tuple[str, ...]) -> ChatTemplate | None:
        """The template's pieces around the sentinels; None if it cannot be cut there."""
        assert self._render is not None
        roles = ("system", "user")[-len(sentinels) :]
        turns = zip(roles, sentinels, strict=True)
        try:
            rest = self._render([{"role": role, "content": text} for role, text in turns])
        except ValueError:
            return None
        pieces: list[tuple[int, ...]] = []
        for sentinel in sentinels:
            if rest.count(sentinel) != 1:
                return None
            piece, _, rest = rest.partition(sentinel)
            pieces.append(tuple(self._encode(piece)))
        return ChatTemplate(pieces[0], pieces[1] if pieces[1:] else (), tuple(self._encode(rest)))


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()
