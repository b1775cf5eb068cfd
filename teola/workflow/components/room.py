"""Room: how much of a conversation and of results a prompt has, and what a run may cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final, NamedTuple

from teola.errors import EngineError

CHARACTERS: Final = 4
"""Of a token, about."""
TOLD_TOKENS: Final = 512
"""What an agent is told besides its tools, about."""
SAMPLED: Final = 16_384
"""Characters of a text whose tokens are counted one by one."""
LEAST_TOKENS: Final = 64
"""Of results, however little room there is."""
LEFT_OUT: Final = "(earlier calls are left out)"
CUT: Final = " [cut]"
MILLION: Final = 1_000_000


class Counting(NamedTuple):
    """tokens: of a text. window: of a prompt and its answer together, where that is known."""

    tokens: Callable[[str], int]
    window: int | None = None


ABOUT: Final = Counting(lambda text: ceil(len(text) / CHARACTERS))
"""Where no tokenizer is known."""


def sampled(tokens: Callable[[str], int]) -> Callable[[str], int]:
    """Tokens as counted by `tokens`; of a longer text than `SAMPLED` about, by its beginning and
    its end. Agents count on the event loop, and a tokenizer reads a megabyte in a second."""

    def about(text: str) -> int:
        if len(text) <= SAMPLED:
            return tokens(text)
        half = SAMPLED // 2
        return ceil((tokens(text[:half]) + tokens(text[-half:])) * len(text) / (2 * half))

    return about


def recent_lines(text: str, most: int, tokens: Callable[[str], int]) -> str:
    """The last lines of a conversation, at most so many tokens; of a last one that is longer, its
    end. They are left out in steps of half of that, so that the next question finds what is
    cached of this one's prompt."""
    if len(text) <= most or tokens(text) <= most:  # a token is a character at least
        return text
    lines = text.split("\n")
    sizes = [tokens(line) + 1 for line in lines]
    step = max(1, most // 2)
    drop, at = ceil((sum(sizes) - most) / step) * step, 0
    while drop > 0 and at < len(lines) - 1:
        drop -= sizes[at]
        at += 1
    kept = "\n".join(lines[at:])
    return kept if at < len(lines) - 1 or sizes[-1] <= most + 1 else _end(kept, most, tokens)


def recent_entries(entries: Sequence[str], most: int, tokens: Callable[[str], int]) -> list[str]:
    """The last entries, at most so many tokens, with a note where some are left out. The last one
    is always there, cut if it is too long."""
    left, kept = most, list[str]()
    for entry in reversed(entries):
        size = tokens(entry)
        if size > left and kept:
            kept.append(LEFT_OUT)
            break
        kept.append(entry if size <= left else _beginning(entry, left, tokens))
        left -= size
    return kept[::-1]


def _beginning(text: str, most: int, tokens: Callable[[str], int]) -> str:
    while (size := tokens(text)) > most and len(text) > most:
        text = text[: max(most, int(len(text) * most / size))]
    return text + CUT


def _end(text: str, most: int, tokens: Callable[[str], int]) -> str:
    while (size := tokens(text)) > most and len(text) > most:
        text = text[-max(most, int(len(text) * most / size)) :]
    return text


@dataclass(frozen=True, slots=True)
class Bound:
    """What a run may take. tokens: of all its calls of LLMs, prompts included. cost: in the
    currency of `prices`, which are for a million tokens of prompts and of answers."""

    tokens: int | None = None
    cost: float | None = None
    prices: tuple[float, float] = (0.0, 0.0)


@dataclass
class Spending:
    """What a run has taken so far. last: the most that one part of it took. around: of the agent
    whose part this run is, with that part's key: what is taken here is told it at once. returns:
    whether that one still has to answer after this run. ahead: what runs in parts have told before
    their part ended."""

    bound: Bound
    tokens: int = 0
    cost: float = 0.0
    last_tokens: int = 0
    last_cost: float = 0.0
    around: tuple[Spending, str] | None = None
    returns: bool = False
    ahead: dict[str, tuple[int, int]] = field(default_factory=dict)

    def ended(self, key: str, prompt_tokens: int, generated_tokens: int) -> None:
        """Part `key` has ended, and took so many in all."""
        prompts, answers = self.ahead.pop(key, (0, 0))
        self.add(prompt_tokens - prompts, generated_tokens - answers)

    def add(self, prompt_tokens: int, generated_tokens: int) -> None:
        """So many more are taken."""
        if self.around is not None:
            outer, key = self.around
            before = outer.ahead.get(key, (0, 0))
            outer.ahead[key] = before[0] + prompt_tokens, before[1] + generated_tokens
            outer.add(prompt_tokens, generated_tokens)
        prompts, answers = self.bound.prices
        tokens = prompt_tokens + generated_tokens
        cost = (prompt_tokens * prompts + generated_tokens * answers) / MILLION
        self.tokens, self.cost = self.tokens + tokens, self.cost + cost
        self.last_tokens = max(self.last_tokens, tokens)
        self.last_cost = max(self.last_cost, cost)

    def has_to_answer(self) -> bool:
        """Whether there is no room for a turn with calls and an answer after it, each as large as
        the largest so far, here or in a run that this one is a part of, which may have to answer
        after it. Raises EngineError where there is none at all."""
        last, turns, at = False, 2, self
        while True:
            last |= at._lacks(turns)
            if at.around is None:
                return last
            turns += at.returns
            at = at.around[0]

    def _lacks(self, turns: int) -> bool:
        """Whether there is no room for so many turns."""
        most, worth = self.bound.tokens, self.bound.cost
        if most is not None and self.tokens >= most:
            raise EngineError(
                f"it has taken {self.tokens:,} tokens without an answer, and may take {most:,}: "
                "raise most_tokens, or give it fewer tools or turns"
            )
        if worth is not None and self.cost >= worth:
            raise EngineError(
                f"it has cost {self.cost:.6g} without an answer, and may cost {worth:.6g}: raise "
                "most_cost, or give it fewer tools or turns"
            )
        dear = worth is not None and self.cost + turns * self.last_cost > worth
        return dear or (most is not None and self.tokens + turns * self.last_tokens > most)
