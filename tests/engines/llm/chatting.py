"""Conversations with one engine, and what its view predicts of each turn's prompt.

The model writes the same answer each time, in tokens that text is always cut into. So the answer is
found in the prompt of the next turn, where the conversation stands there as it was:

    as text      Answer. Question: TURNS, QUESTION \n\nAnswer:
    as history   Answer. Conversation so far: TURNS \n\nQuestion: QUESTION \n\nAnswer:
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import teola
from teola import App, EngineConfig, Generate, Input, Runtime
from teola.policies.routing.base import Dispatched, Finished, Happening, found_tokens
from teola.policies.routing.prefix_affinity import PrefixAffinity
from tests.scripted_model import make_scripted_model

TEXT = "the a of model if not class lambda tuple Zürich 日本 return 42 yields; and"
TURNS = 8
ANSWER = [f"<{i}>" for i in range(72)]
Heard = Callable[[], Awaitable[None]]
"""Waits until all is known that the engine has told of its cache."""


class Prediction(NamedTuple):
    """Tokens of a call's prompt: all, those it was expected to find kept, and those it found; and
    the tokens of its answer."""

    prompt: int
    predicted: int
    cached: int
    answer: int


class Foretelling(PrefixAffinity):
    """Notes of each call how much of its prompt the view says is kept where it is sent, and how
    much was found there. turns: is given by a subclass."""

    observes = (Dispatched, Finished)
    turns: list[Prediction]

    def __init__(self) -> None:
        self._predicted: dict[tuple[str, int], int] = {}

    def observe(self, event: Happening, now: float) -> None:
        if isinstance(event, Dispatched):
            size = self.view.limits[event.instance].block_tokens
            for work in event.works:
                blocks = self.view.hits(work.keys, now).get(event.instance, 0)
                self._predicted[work.run, work.primitive] = found_tokens(work, blocks, size)
        elif isinstance(event, Finished):
            work = event.work
            assert not event.failed
            assert event.cached is not None
            assert event.generated is not None
            predicted = self._predicted.pop((work.run, work.primitive))
            self.turns.append(Prediction(work.total, predicted, event.cached, event.generated))


def make_chat_model(folder: Path) -> Path:
    return make_scripted_model(folder, ANSWER)


@contextmanager
def chat(config: EngineConfig) -> Iterator[tuple[App, list[Prediction]]]:
    """A chat on this engine, and what was predicted of its turns, in the order of their ends."""
    turns: list[Prediction] = []
    noting = type("Noting", (Foretelling,), {"turns": turns})
    with (
        teola.register("routing", "foretelling", noting),
        Runtime({"llm": replace(config, routing="foretelling")}) as runtime,
    ):
        yield (
            App(
                "chat",
                Generate(instruction="Answer. ", max_tokens=100),
                inputs={"question": "text", "history": Input("text", default=None)},
                outputs={"answer": "answer"},
                runtime=runtime,
            ),
            turns,
        )


class Conversation:
    """One that begins with a text of its own."""

    def __init__(self, app: App, seed: int, tenant: str = "default") -> None:
        self._app, self._chance, self._tenant = app, random.Random(seed), tenant
        self.as_text = seed % 2 == 0
        self._said = self._words(60)

    async def turn(self) -> None:
        """Ask the next question."""
        question = self._words(12)
        if self.as_text:
            self._said += f"\n\n{question}"
            result = await self._app.arun(question=self._said, tenant=self._tenant)
            self._said += f"\n\nAnswer: {result['answer']}"
        else:
            given = {"question": question, "history": self._said}
            result = await self._app.arun(given, tenant=self._tenant)
            self._said += f"\n\nQuestion: {question}\n\nAnswer: {result['answer']}"
        assert result["answer"] == "".join(ANSWER)

    def _words(self, count: int) -> str:
        return " ".join(self._chance.choices(TEXT.split(), k=count))


async def in_turns(app: App, talks: int, heard: Heard | None = None) -> list[Conversation]:
    """Conversations that are all gone on with in a random order; who had which turn. heard: is
    awaited after each turn."""
    order = [Conversation(app, seed) for seed in range(talks)] * TURNS
    random.Random(talks).shuffle(order)
    for talk in order:
        await talk.turn()
        if heard is not None:
            await heard()
    return order


async def at_once(app: App, talks: int, heard: Heard | None = None) -> None:
    """Conversations that go on at the same time, of tenants of their own: what one begins with is
    not found while it is being computed for another. heard: they have their turns together, and it
    is awaited after each round."""
    all_talks = [Conversation(app, seed, tenant=f"{seed}") for seed in range(talks)]

    async def whole(talk: Conversation) -> None:
        for _ in range(TURNS):
            await talk.turn()

    if heard is None:
        await asyncio.gather(*map(whole, all_talks))
        return
    for _ in range(TURNS):
        await asyncio.gather(*(talk.turn() for talk in all_talks))
        await heard()


def gaps(order: Sequence[Conversation], found: Sequence[Prediction]) -> list[tuple[bool, int]]:
    """Of each turn but the first of a conversation: whether that goes on as text, and how many
    tokens more were found than the prompt before had."""
    before: dict[Conversation, int] = {}
    gaps = []
    for talk, turn in zip(order, found, strict=True):
        if talk in before:
            gaps.append((talk.as_text, turn.cached - before[talk]))
        before[talk] = turn.prompt
    return gaps
