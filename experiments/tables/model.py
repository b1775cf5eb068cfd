"""A language model in virtual time, asked as a runtime's is: rows in, answers out.

The planner reads DuckDB, sorts, and sends rows as it does to a server. Here they go to the
simulator's driver of the scheduler instead: windows, slices and sequences are those that serve, and
the instance is a StepServer with the times of `llama2-7b-l4`. Tokens are characters over four.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from math import ceil
from typing import Any, Final

from experiments.tables.groups import arranged
from experiments.tables.queries import CHARACTERS, Asked, answer_of
from teola.kv import Excerpt
from teola.profile import Profile, load_profile
from teola.runtime.rows import OnAnswers, Row, RowAnswer, RowsCall, RowsEnd, RowsHandle
from teola.runtime.sim import Sim
from teola.runtime.sim.sim_rows import SimRow, SimulatedRows
from teola.runtime.values import Composite, number_of
from teola.schedule.events import State

PROFILE: Final = "llama2-7b-l4"
EVICTION: Final = "fifo"
CONTEXTS: Final = "contexts: "
"""How a line of retrieved contexts begins."""
AROUND: Final = "Sure! Of these I would say {}."
"""What a model says that is not held to its choices."""


def profile_of(*, cache: bool) -> Profile:
    """The machine of the paper. cache: whether the engine keeps prefixes."""
    llm = replace(load_profile(PROFILE).engines["llm"], prefix_reuse=cache, keeps_prefixes=cache)
    return Profile(PROFILE, {"llm": llm})


class SimulatedModel:
    """Asked by `TableQuery.run(ask_rows=...)`.

    asked: the calls that it knows, by instruction. output: tokens of an answer that is not held to
    choices. cache: whether it keeps prefixes, which are evicted first in, first out. grouped: rows
    and their fields are rearranged on the way to it (`groups`).

    seconds: virtual ones, of all runs so far. processor_s: what simulating them took of the
    processor, less the reading of the rows.
    """

    def __init__(
        self, asked: Mapping[str, Asked], output: int, *, cache: bool = True, grouped: bool = False
    ) -> None:
        self._asked, self._output, self._grouped = asked, output, grouped
        self._sim = Sim(profile_of(cache=cache), eviction=EVICTION)
        self.calls = self.prompt_tokens = self.hit_tokens = self.completion_tokens = 0
        self.seconds = self.processor_s = 0.0
        self._reading_s = 0.0

    def __call__(
        self, call: RowsCall, rows: Iterator[Row], on_answers: OnAnswers, **limits: Any
    ) -> RowsHandle:
        """All rows of a run, before it returns. limits: of the query; none is given here."""
        assert not any(limits.values()), limits
        began, read = time.process_time(), self._reading_s
        said = list[RowAnswer]()
        end = self.simulate(self._rows(call, rows, said), warm=call.warm, shared=call.shared)
        assert end.state is State.OK, end
        assert end.asked == len(said), f"{end.asked} rows of {len(said)} were answered"
        self.calls += end.asked
        self.prompt_tokens += end.prompt_tokens
        self.hit_tokens += end.cached_tokens
        self.completion_tokens += end.completion_tokens
        self.seconds += end.seconds
        self.processor_s += time.process_time() - began - (self._reading_s - read)
        if said:
            on_answers(said)
        done: Future[RowsEnd] = Future()
        done.set_result(
            RowsEnd(
                end.state.value,
                end.asked,
                0,
                end.tries,
                end.prompt_tokens,
                end.cached_tokens,
                end.completion_tokens,
                end.seconds,
            )
        )
        return RowsHandle(done, lambda: None)

    def simulate(self, rows: Iterator[SimRow], *, warm: bool, shared: float) -> SimulatedRows:
        """Ask rows, one run of them; how it ended. warm, shared: see RowsCall."""
        self._sim.ask_rows(rows, at=self._sim.now, warm=warm, shared=shared)
        self._sim.run()
        return self._sim.rows_results[-1]

    def _rows(self, call: RowsCall, rows: Iterator[Row], said: list[RowAnswer]) -> Iterator[SimRow]:
        asked, choices = self._asked[call.instruction], call.decode.choices
        if self._grouped:
            rows = iter(arranged([replace(row, text=parted(row.text)) for row in rows]))
        head = Excerpt(number_of(call.instruction), 0, tokens_in(call.instruction))
        while True:
            began = time.process_time()
            row = next(rows, None)
            self._reading_s += time.process_time() - began
            if row is None:
                return
            lines = parted(row.text).split("\n")[1:]
            parts = [Excerpt(number_of(line), 0, tokens_in(line) + 1) for line in lines]
            prompt = Composite.made_of([head, *parts])
            answer = answer_of(asked, lines)
            # A choice, and the token that ends it.
            output = tokens_in(answer) + 1 if choices else self._output
            text = answer if choices else AROUND.format(answer)
            said.append(RowAnswer(row.id, text, None, int(prompt), None, output))
            yield SimRow(prompt, output, row.opens)


def parted(text: str) -> str:
    """The fields of a row, a line each; of contexts each is one, as prompts may share some."""
    if CONTEXTS not in text:
        return text
    lines = list[str]()
    for line in text.split("\n"):
        listed = line.startswith(CONTEXTS)
        lines += map(str, json.loads(line.removeprefix(CONTEXTS))) if listed else [line]
    return "\n".join(lines)


def tokens_in(text: str) -> int:
    """At four characters each."""
    return ceil(len(text) / CHARACTERS)
