"""Tool: something that a model may call, by name and with arguments that a JSON schema describes.

How it is carried out is the tool's own: a Python function (`function_tool.py`), a server of the
Model Context Protocol (`mcp_server.py`), an application (`teola/app_tool.py`). What holds for all
is here: arguments are checked first, calls are bounded in number and time, what fails becomes text
that the model reads. Only a cancellation leaves `call` as an exception.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import isfinite
from typing import Any, Final, Protocol, TypedDict

from teola.errors import (
    DeadlineExceeded,
    InputError,
    TeolaError,
    ToolError,
    ToolLost,
    reason_of,
)
from teola.tools.arguments import MOST_STEPS, MOST_STEPS_ASIDE, ArgumentChecker
from teola.tools.context import ToolContext
from teola.tools.gate import Gate
from teola.tools.json_schema import JsonSchema
from teola.tools.loop_life import here
from teola.tools.references import MOST_ARGUMENT_CHARS
from teola.tools.tool_result import LEAST_CHARS, ToolResult, cut, read_result

MOST_CHARS: Final = 20_000
"""Characters of a result, unless a tool says otherwise."""
MOST_BYTES: Final = 8 * 2**20
"""Bytes of a result as JSON, unless a tool says otherwise."""
LEAST_BYTES: Final = 1_000
TRIES: Final = 2
"""Further tries that a call may have which can be repeated, after failures that others may mend."""
PAUSE_S: Final = 0.1
"""Before the second try; doubled before each further one."""
NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""What every server of models takes as the name of a tool."""

Approval = bool | Callable[[Mapping[str, Any]], bool]
"""Whether a person has to agree to a call, or a function of its arguments that says so."""


class ToolOptions(TypedDict, total=False):
    """What may be said of any tool; see Tool."""

    name: str | None
    description: str | None
    pure: bool
    timeout_s: float | None
    retries: int | None
    at_once: int | None
    approval: Approval
    most_chars: int
    most_bytes: int
    most_argument_chars: int


class CarriesOut(Protocol):
    """How a tool is carried out. Gets arguments that fit its schema; what it returns becomes JSON,
    and what it raises a text for the model."""

    async def __call__(self, arguments: Mapping[str, Any], context: ToolContext) -> Any: ...


@dataclass(frozen=True, slots=True, eq=False)
class Tool:
    """See the module.

    name, description: what the model knows it by.
    schema: JSON schema of its arguments, which are an object.
    carry_out: does it.
    pure: it changes nothing outside the query, so it may be called again, or for nothing.
    keyed: it takes an idempotency key, so that calling it again does not do it again.
    timeout_s: seconds that one try may take.
    retries: further tries after any failure; None: a few, after those that another may mend.
    gate: bounds how many calls run at once, over all queries.
    approval: whether a person has to agree; it is asked for by whoever calls.
    most_chars: characters of a result's text.
    most_bytes: of a result's value as JSON. What is more is left out, at the end of an item.
    most_argument_chars: characters of arguments as JSON, with results in the place of references.
    source: the server that it is of, if any.
    further: what is wrong with arguments that fit the schema, where it cannot say all. Patterns of
    texts are always its to check, or the server's: whose regular expressions they are differs.
    """

    name: str
    description: str
    schema: JsonSchema
    carry_out: CarriesOut
    pure: bool = False
    keyed: bool = False
    timeout_s: float | None = None
    retries: int | None = None
    gate: Gate = field(default_factory=lambda: Gate(None))
    approval: Approval = False
    most_chars: int = MOST_CHARS
    most_bytes: int = MOST_BYTES
    most_argument_chars: int = MOST_ARGUMENT_CHARS
    source: str = ""
    further: Callable[[Mapping[str, Any]], list[str]] | None = None
    _checker: ArgumentChecker = field(init=False, repr=False)

    def __post_init__(self) -> None:
        called = f"tool {self.name!r}"
        if not NAME.fullmatch(self.name):
            raise InputError(f"{called}: a name is 1 to 64 letters, digits, _ and -")
        if not self.description.strip():
            raise InputError(
                f"{called} needs a description, by which a model chooses it: a docstring, or "
                "description=..."
            )
        check_options(called, self.timeout_s, self.retries, self.most_chars, self.most_bytes)
        if not _whole(self.most_argument_chars, 1):
            most = self.most_argument_chars
            raise InputError(f"{called}: most_argument_chars must be at least 1, got {most!r}")
        if self.retries and not (self.pure or self.keyed):
            raise InputError(
                f"{called}: retries={self.retries} calls it again after a failure, which may do "
                "twice what it does: say pure=True if that is harmless, or take an IdempotencyKey"
            )
        if not isinstance(self.approval, bool) and not callable(self.approval):
            raise InputError(f"{called}: approval is true, false or a function of the arguments")
        object.__setattr__(self, "_checker", ArgumentChecker(self.schema, patterns=False))

    @property
    def checked_schema(self) -> JsonSchema:
        """What arguments are held against here: the schema without patterns."""
        return self._checker.schema

    def problems(self, arguments: Any, most_steps: int = MOST_STEPS) -> list[str]:
        """What is wrong with arguments, for the model; empty if nothing is. most_steps: see
        ArgumentChecker."""
        try:
            problems = self._checker.problems(arguments, most_steps)
            return self.further(arguments) if not problems and self.further else problems
        except Exception as error:  # noqa: BLE001 - validators and schemas may be anybody's
            return [f"its arguments cannot be checked: {reason_of(error)}"]

    def needs_approval(self, arguments: Mapping[str, Any]) -> bool:
        """Whether a person has to agree to a call with these arguments. A function that fails to
        say has not said that none need to."""
        if isinstance(self.approval, bool):
            return self.approval
        try:
            return bool(self.approval(arguments))
        except Exception:  # noqa: BLE001 - anything that it raises leaves the question open
            return True

    async def call(
        self, arguments: Mapping[str, Any], context: ToolContext | None = None
    ) -> ToolResult:
        """Call it and wait. Whatever goes wrong is in the result; a cancellation goes through."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        if problems := await here().aside(
            partial(self.problems, arguments, MOST_STEPS_ASIDE), arguments
        ):
            text = f"{self.name} was not called: {'; '.join(problems)}"
            return ToolResult(cut(text, self.most_chars), failed=True)
        async with self.gate:
            ended = await self._tried(arguments, context or ToolContext())
        return replace(ended, seconds=loop.time() - began)

    async def _tried(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        repeatable = self.pure or self.keyed
        left = self.retries if self.retries is not None else TRIES if repeatable else 0
        pause = PAUSE_S
        while True:
            try:
                return await self._try(arguments, context)
            except _Ended as error:
                if not left or not self._may_mend(error.cause):
                    return self._failure(error.cause, error.late)
            left -= 1
            await asyncio.sleep(pause)
            pause *= 2

    async def _try(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """One try. Raises _Ended."""
        task = asyncio.current_task()
        assert task is not None
        timer = asyncio.timeout(self.timeout_s)
        try:
            async with timer:
                returned = await self.carry_out(arguments, context)
            reading = partial(read_result, returned, self.most_chars, self.most_bytes)
            return await here().aside(reading, returned)
        except asyncio.CancelledError as error:
            if task.cancelling():
                raise
            raise _Ended(error) from None  # something that it waited for was cancelled
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 - a tool may raise anything
            raise _Ended(error, late=timer.expired()) from None

    def _may_mend(self, cause: BaseException) -> bool:
        """Whether another try may succeed."""
        if isinstance(cause, ToolError):
            return False
        if self.retries is not None:
            return True
        return isinstance(cause, TeolaError) and cause.retryable

    def _failure(self, cause: BaseException, late: bool) -> ToolResult:
        if late:
            reason = f"it took longer than {self.timeout_s:g} s"
        elif isinstance(cause, Exception):
            reason = reason_of(cause)
        else:
            reason = f"it raised {type(cause).__name__}"
        unfinished = late or isinstance(cause, (ToolLost, DeadlineExceeded))
        unknown = unfinished and not self.pure and not self.keyed
        more = "; whether it did what it was asked is not known" if unknown else ""
        text = cut(f"{self.name} failed: {reason}{more}", self.most_chars)
        return ToolResult(text, failed=True, unknown=unknown)


class _Ended(Exception):
    """A try ended without a result. late: because its time was over."""

    def __init__(self, cause: BaseException, *, late: bool = False) -> None:
        super().__init__(cause)
        self.cause, self.late = cause, late


def check_options(
    called: str,
    timeout_s: float | None,
    retries: int | None,
    most_chars: int,
    most_bytes: int = MOST_BYTES,
) -> None:
    """Raises InputError for options that no tool can have."""
    if timeout_s is not None and not (timeout_s > 0 and isfinite(timeout_s)):
        raise InputError(f"{called}: timeout_s must be positive, got {timeout_s}")
    if retries is not None and not _whole(retries, 0):
        raise InputError(f"{called}: retries must be 0, 1, 2, ..., got {retries!r}")
    if not _whole(most_chars, LEAST_CHARS):
        raise InputError(f"{called}: most_chars must be at least {LEAST_CHARS}, got {most_chars!r}")
    if not _whole(most_bytes, LEAST_BYTES):
        raise InputError(f"{called}: most_bytes must be at least {LEAST_BYTES}, got {most_bytes!r}")


def _whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
