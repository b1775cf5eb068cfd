"""Rows: many prompts of one instruction, asked of an LLM engine as one run.

    handle = runtime.ask_rows(RowsCall("Is this a complaint?"), rows, on_answers)
    end = handle.result()

A million rows are no million queries. They go through the same queue as all other calls, in windows
of about 2,048 (teola/schedule/row_run.py), under the same limits, retries and shares, and leave
room to calls that are no rows. The source is read as fast as the engine answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

from teola.engine import EngineKind, EngineSpec
from teola.errors import InputError, QueryCancelled, UnknownName
from teola.graph import DecodeParams

RowPriority = Literal["rows", "interactive"]


@dataclass(frozen=True, slots=True)
class RowsCall:
    """What is asked of each row.

    instruction: the beginning of each prompt. engine: who is asked, by its name in the runtime.
    decode: how an answer is generated; `items`, `parser`, `item` and `field` mean nothing here.
    warm: the first row goes alone, and the others once it has given its first token, so that they
    find the instruction computed. shared: part of a prompt's tokens that the engine is expected to
    find in its prefix cache (0 to 1), until answers have told.
    """

    instruction: str
    engine: str = "llm"
    decode: DecodeParams = field(default_factory=DecodeParams)
    warm: bool = False
    shared: float = 0.0


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table.

    id: its name in answers, which nothing else depends on. text: what follows the instruction in
    its prompt. opens: the first ordered column changes with it, so that what it shares with the
    rows before it is little: a good place to cut.
    """

    id: int
    text: str
    opens: bool = False


class RowAnswer(NamedTuple):
    """How a row ended: with a text, or with an error.

    text: the answer (None: there is none). error: why (None: it was answered). prompt_tokens,
    generated: as the engine counted them (0: it does not tell). cached: tokens of the prompt that
    the engine had kept (None: it does not tell).
    """

    id: int
    text: str | None
    error: str | None
    prompt_tokens: int = 0
    cached: int | None = None
    generated: int | None = None


OnAnswers = Callable[[Sequence[RowAnswer]], None]
"""Is given rows as they end, some at a time, in a thread of its own. Each row comes once; what had
not ended when its run did does not come."""


@dataclass(frozen=True, slots=True)
class RowsEnd:
    """How a run of rows ended.

    state: ok; partial, where rows have errors or a budget is spent; failed, cancelled or deadline.
    asked: rows that were sent, each counted once. failed: rows that ended with an error. tries:
    prompts that were sent in all, those that were sent again included. prompt_tokens,
    cached_tokens, completion_tokens: of all rows that were answered, as the engine counted them.
    seconds: from its beginning to its end. error: why it ended before its last row (None: it did
    not).
    """

    state: str
    asked: int
    failed: int
    tries: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    seconds: float
    error: Exception | None = None


class RowsHandle:
    """A run of rows that goes on. Use it from any thread but a runtime's loop."""

    def __init__(self, done: Future[RowsEnd], cancel: Callable[[], None]) -> None:
        self._done, self._cancel = done, cancel

    def result(self, timeout: float | None = None) -> RowsEnd:
        """Wait until it has ended and all answers were given. timeout: in seconds (None: as long as
        it takes). Raises TimeoutError, while it goes on, what `on_answers` raised, and
        QueryCancelled if its runtime was closed meanwhile."""
        try:
            return self._done.result(timeout)
        except CancelledError:
            raise QueryCancelled("the runtime was closed before all rows had ended") from None

    def when_over(self, then: Callable[[], object]) -> None:
        """Call `then` when `result` waits no more: at once, or in a thread that is the runtime's,
        where it must not block."""
        self._done.add_done_callback(lambda _: then())

    def cancel(self) -> None:
        """End it: nothing more is asked, and what is under way is stopped. `result` tells then."""
        self._cancel()


def check_rows(call: RowsCall, spec: EngineSpec, priority: str, deadline_s: float | None) -> None:
    """Raise InputError or UnknownName if rows cannot be asked so. spec: of the engine."""
    if not isinstance(call.instruction, str):
        raise InputError(f"the instruction of rows must be a text, not {call.instruction!r}")
    if not isinstance(call.decode, DecodeParams):
        raise InputError(f"decode must be DecodeParams, not {call.decode!r}")
    if call.decode.items is not None or call.decode.parser is not None:
        raise InputError("a row has one answer: leave `items` and `parser` out of its DecodeParams")
    if not 0.0 <= call.shared <= 1.0:
        raise InputError(
            f"shared is a part of the prompts' tokens, from 0 to 1, not {call.shared!r}"
        )
    if spec.kind is not EngineKind.LLM:
        raise InputError(
            f"rows are asked of a language model, and engine {call.engine!r} is of the kind "
            f"{spec.kind.value}: name another engine"
        )
    if priority not in (known := get_args(RowPriority)):
        raise UnknownName("priority", priority, known, "ask_rows")
    if deadline_s is not None and not deadline_s > 0:
        raise InputError(f"deadline_s must be seconds above 0, got {deadline_s!r}")
