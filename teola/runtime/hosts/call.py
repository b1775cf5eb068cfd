"""One LLM call on a host: drain the engine's stream, cut it into what its decodings deliver.

The group of a call (a prefilling and its decodings) shares one stream. The first piece of text ends
the prefilling; a parser watches for items; the end delivers the rest. Tokens go straight to the
client and never to the core.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from teola.engine import LONGEST_ANSWER, Call, Delta, LanguageModel, Usage, check_length
from teola.errors import OutputError
from teola.graph import DecodeParams, Primitive
from teola.runtime.hosts.parsers import ListParser, make_parser
from teola.runtime.hosts.structured import Misfit, prepare, validate_schema, was_checked
from teola.runtime.observe.noting import working_for
from teola.runtime.outputs import no_delta, stream_of

PIECE: Final = 8192
"""Characters of one delta that are read in one turn of the event loop."""
FENCES: Final = " \t\r\n`json"
"""What may stand before a JSON object that is in a block of code."""


class Listener(NamedTuple):
    """Functions that are told what a call brings.

    first: its first token has come.
    deliver: outputs of one of its decodings, by position.
    token: a piece of its text; None if nobody wants to hear it.
    ends: the text did not end as it should: `length` (it had all the tokens that it may have),
    `refusal` (it says why there is no answer), or `empty`.
    item: an item of the list that it writes is complete; None if nobody wants to know.
    over: the stream has ended, well or not: how many characters came, and the usage as far as its
    engine told it.
    finished: why the text ended, in the engine's word.
    again: an empty text is a failure, because there is another try for that.
    """

    first: Callable[[], None]
    deliver: Callable[[int, Mapping[str, Any]], None]
    token: Callable[[str], None] | None
    ends: Callable[[str], None] = lambda end: None
    item: Callable[[Any], None] | None = None
    over: Callable[[int, Usage], None] = lambda characters, usage: None
    finished: Callable[[str], None] = lambda reason: None
    again: bool = False


async def run_call(
    model: LanguageModel,
    call: Call,
    members: Sequence[Primitive],
    listener: Listener,
    text_wanted: bool,
) -> Usage:
    """Run a whole call. text_wanted: somebody reads the text, so the stream is drained to its end.

    Raises EngineError (OutputError: the output is not what a parser or a schema asks for, or has no
    end).
    """
    output = CallOutput(members, listener.deliver, listener.item)
    usage = Usage()
    started = end_reported = False
    written = 0
    working_for.set((call.context.query_id,))
    for params in output.params:
        if held_to := params.check or params.schema:
            prepare(held_to)
    try:
        async with stream_of(model, call) as stream:
            async for delta in stream:
                if not isinstance(delta, Delta):
                    raise no_delta(model.spec.name, delta)
                if not started:
                    started = True
                    listener.first()
                if delta.usage:
                    usage = delta.usage
                if delta.text:
                    written += len(delta.text)
                    check_length(model.spec.name, "an answer", written, LONGEST_ANSWER)
                    if listener.token:
                        listener.token(delta.text)
                    for at in range(0, len(delta.text), PIECE):
                        if at:  # parsers read character by character, and this is an event loop
                            await asyncio.sleep(0)
                        output.feed(delta.text[at : at + PIECE])
                if delta.finish_reason:
                    listener.finished(delta.finish_reason)
                if delta.finish_reason in ("length", "refusal"):
                    output.cut = delta.finish_reason == "length"
                    listener.ends(delta.finish_reason)
                    end_reported = True
                if output.complete and not text_wanted:
                    break
    finally:
        listener.over(written, usage)
    if not started:
        raise OutputError("the engine ended the stream before its first token", retryable=True)
    await output.check_values()
    if text_wanted and not end_reported and output.blank:
        if listener.again:
            raise OutputError("the answer is empty", retryable=True)
        listener.ends("empty")
    output.close()
    return usage


class CallOutput:
    """Collects a call's text and hands each decoding what is its own."""

    def __init__(
        self,
        members: Sequence[Primitive],
        deliver: Callable[[int, Mapping[str, Any]], None],
        item: Callable[[Any], None] | None,
    ) -> None:
        self.members, self.deliver, self.item = members, deliver, item
        self.params: list[DecodeParams] = []
        for member in members:
            assert isinstance(member.params, DecodeParams)
            self.params.append(member.params)
        kind = self.params[0].parser
        self.parser = make_parser(kind) if kind else None
        self.limit = self.params[0].items
        self.text: list[str] = []
        self.items: list[Any] = []
        self.delivered = 0
        self.cut = False
        self.values: dict[int, Any] = {}

    @property
    def complete(self) -> bool:
        """All items that anybody waits for are there."""
        return self.limit is not None and len(self.items) >= self.limit

    @property
    def blank(self) -> bool:
        """Nothing was written."""
        return not any(map(str.strip, self.text))

    def feed(self, text: str) -> None:
        self.text.append(text)
        if self.parser and not self.complete:
            self._add(self.parser.feed(text))

    async def check_values(self) -> None:
        """Hold a text that is to be JSON against its schema in a thread, before it is delivered,
        where the text is long or the schema new. Raises Misfit, InputError."""
        long = sum(map(len, self.text)) > PIECE
        for k in range(self.delivered, len(self.members)):
            if "value" not in self.members[k].outputs:
                continue
            held_to = self.params[k].check or self.params[k].schema or "{}"
            if long or not was_checked(held_to):
                self.values[k] = await asyncio.to_thread(self._value, self.params[k])

    def close(self) -> None:
        """The stream has ended: deliver everything that is left."""
        if self.parser and not self.complete:
            self._add(self._last_items(self.parser))
        for k in range(self.delivered, len(self.members)):
            self.deliver(k, self._outputs(k))
        self.delivered = len(self.members)

    def _last_items(self, parser: ListParser) -> Sequence[Any]:
        """The items that the end of the text completes. Raises OutputError."""
        try:
            return parser.close()
        except OutputError as error:
            if not self.cut:
                raise
            raise OutputError(self._too_long("list", self.params[0], error)) from None

    def _too_long(self, what: str, params: DecodeParams, error: OutputError) -> str:
        return (
            f"the {what} was cut off after max_tokens={params.max_tokens}: raise max_tokens, or "
            f"ask for less ({error})"
        )

    def _add(self, items: Sequence[Any]) -> None:
        room = None if self.limit is None else self.limit - len(self.items)
        self.items += items[:room]
        if self.item is not None:
            for one in items[:room]:
                self.item(one)
        while self.delivered < len(self.members) and self._ready(self.delivered):
            self.deliver(self.delivered, self._outputs(self.delivered))
            self.delivered += 1

    def _ready(self, k: int) -> bool:
        """A partial decoding is done with its item, unless its text is read as well."""
        item = self.params[k].item
        if item is None or "text" in self.members[k].outputs:
            return False
        return item < len(self.items)

    def _outputs(self, k: int) -> Mapping[str, Any]:
        params = self.params[k]
        outputs: dict[str, Any] = {}
        for port in self.members[k].outputs:
            if port == "items":
                item = params.item
                outputs[port] = self.items if item is None else self.items[item : item + 1]
            elif port == "text":
                outputs[port] = "".join(self.text).strip()
            elif port == "value":
                outputs[port] = self.values[k] if k in self.values else self._value(params)
            else:
                outputs[port] = True
        return outputs

    def _value(self, params: DecodeParams) -> Any:
        """The text as the JSON value that it is to be. Raises Misfit, InputError."""
        text = "".join(self.text)
        if params.bare and params.field and not text.lstrip(FENCES).startswith("{"):
            return {params.field: text.strip()}
        try:
            return validate_schema(text, params.check or params.schema or "{}")
        except Misfit as error:
            if not self.cut:
                raise
            raise Misfit(self._too_long("JSON", params, error)) from None
