"""Own calls: what an agent has done itself beside calls that it left to its client.

    request 1   charge (ours), notify (the client's)   ──▶ notify, with an id that leads to charge
    request 2   what notify gave, under that id        ──▶ the model sees charge, notify

Clients send the whole conversation again, and know nothing of calls that were made here. So these
are kept, with what they gave, in this server's memory and for the tenant, under the ids of the
client's calls. An id tells that it is ours and whether anything beside it had an effect: then it is
refused where its calls are gone, for a model that does not see them would make them again.

    call_own_ + base64 of turn, place among the client's calls and whether there was an effect,
    and a signature
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from teola.query.result import Result
from teola.runtime.values import bytes_of
from teola.serve.board import Entry
from teola.serve.chat.conversation import EXCHANGE, TOOL_CALLS, Exchange, Made
from teola.serve.intake.limits import OWN_CALLS, OwnCallLimits
from teola.serve.problems import CallsGone
from teola.tools.loop_life import here

MARK: Final = "call_own_"
TURN_BYTES: Final = 9
SIGNATURE_BYTES: Final = 10
"""With the mark and the place, an id has 37 characters: OpenAI's own servers take 40."""
EFFECT: Final = 0x8000
"""Set in the place of a call beside which something had an effect."""
_FORM: Final = re.compile(rf"{MARK}[A-Za-z0-9_-]{{28}}")
GONE: Final = (
    "what this application has done itself beside call {id!r} is not kept any more (it is for "
    "{kept_s:g} s after its last use, by the server that did it), and might be done again: ask "
    "anew without the messages since your question, and say in it what is done already"
)


class CallId(NamedTuple):
    """turn: which answer of ours the call was in. place: among its calls. effect: something beside
    it may have changed the world. signed: by this server."""

    turn: bytes
    place: int
    effect: bool
    signed: bool


class Placed(NamedTuple):
    """A call that a client answers: its place in what its turn did; see Acting."""

    turn: bytes
    place: int
    made: tuple[Mapping[str, Any], ...]


class _Turn(NamedTuple):
    made: tuple[Mapping[str, Any], ...]
    bytes: int
    until: float


class OwnCalls:
    """See the module; on one event loop. key: that ids are signed with; None: one of this
    process. bytes: that are kept, by tenant."""

    def __init__(self, limits: OwnCallLimits = OWN_CALLS, key: bytes | None = None) -> None:
        self.limits = limits
        self._key = key or secrets.token_bytes(32)
        self._kept: dict[str, OrderedDict[bytes, _Turn]] = {}
        self.bytes: dict[str, int] = {}
        self._timer: asyncio.TimerHandle | None = None

    # --- ids --------------------------------------------------------------------------------

    def id_of(self, turn: bytes, place: int, effect: bool) -> str:
        """The id of a call of the client's."""
        body = turn + (place | (EFFECT if effect else 0)).to_bytes(2, "big")
        return MARK + base64.urlsafe_b64encode(body + self._signature(body)).decode()

    def read(self, id: str) -> CallId | None:
        """What an id says; None if it is not one of ours."""
        if not _FORM.fullmatch(id):
            return None
        raw = base64.urlsafe_b64decode(id.removeprefix(MARK))
        body, signature = raw[:-SIGNATURE_BYTES], raw[-SIGNATURE_BYTES:]
        place = int.from_bytes(body[TURN_BYTES:], "big")
        signed = hmac.compare_digest(signature, self._signature(body))
        return CallId(body[:TURN_BYTES], place & ~EFFECT, bool(place & EFFECT), signed)

    def _signature(self, body: bytes) -> bytes:
        size, person = SIGNATURE_BYTES, b"teola-call-id"
        return blake2b(body, key=self._key, digest_size=size, person=person).digest()

    # --- keeping ----------------------------------------------------------------------------

    async def settled(self, entry: Entry, result: Result) -> Result:
        """A result whose calls have their ids, what was done beside them being kept."""
        outputs = dict(result.outputs)
        calls, exchange = outputs.get(TOOL_CALLS), tuple(outputs.pop(EXCHANGE, None) or ())
        own = [entry for entry in exchange if "result" in entry]
        effect, turn = any(entry["effect"] for entry in own), _digest(entry.id, TURN_BYTES)
        if own:
            await self.keep(entry.job.tenant, turn, exchange)
        if calls:
            outputs[TOOL_CALLS] = [
                {"id": self.id_of(turn, k, effect) if own else _plain_id(entry, k), **call}
                for k, call in enumerate(calls)
            ]
        return replace(result, outputs=outputs)

    async def keep(self, tenant: str, turn: bytes, exchange: tuple[Mapping[str, Any], ...]) -> None:
        """Keep what a turn has done; if it is too large, its texts, or nothing."""
        size = await here().aside(lambda: bytes_of(list(exchange)), *exchange)
        most = self.limits.bytes_of_tenant
        if size > most:
            exchange = tuple(map(_as_text, exchange))
            size = bytes_of(list(exchange))
        if size > most:
            return
        now = asyncio.get_running_loop().time()
        if turn in self._kept.get(tenant, ()):
            self._drop(tenant, turn)
        kept = self._kept.setdefault(tenant, OrderedDict())
        kept[turn] = _Turn(exchange, size, now + self.limits.kept_s)
        self.bytes[tenant] = self.bytes.get(tenant, 0) + size
        while len(kept) > self.limits.turns_of_tenant or self.bytes[tenant] > most:
            self._drop(tenant, next(iter(kept)))
        self._wake(now)

    def _drop(self, tenant: str, turn: bytes) -> None:
        self.bytes[tenant] -= self._kept[tenant].pop(turn).bytes
        if not self._kept[tenant]:
            del self._kept[tenant], self.bytes[tenant]

    def _wake(self, now: float) -> None:
        """Set the timer for the turn that is too old next."""
        firsts = [next(iter(kept.values())).until for kept in self._kept.values()]
        if firsts and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.0, min(firsts) - now), self._forget)

    def _forget(self) -> None:
        self._timer, now = None, asyncio.get_running_loop().time()
        for tenant, kept in [*self._kept.items()]:
            for turn, kept_turn in [*kept.items()]:
                if kept_turn.until > now:
                    break  # they are in the order of their last use
                self._drop(tenant, turn)
        self._wake(now)

    # --- finding ----------------------------------------------------------------------------

    def placed(self, tenant: str, id: str) -> Placed | None:
        """Where a call belongs that a client answers; None where nothing of ours is beside it.
        Raises CallsGone where something was that had an effect."""
        call_id = self.read(id)
        if call_id is None:
            return None
        now, kept = asyncio.get_running_loop().time(), self._kept.get(tenant)
        own_turn = kept.get(call_id.turn) if kept is not None and call_id.signed else None
        if kept is not None and own_turn is not None and own_turn.until > now:
            kept[call_id.turn] = own_turn._replace(until=now + self.limits.kept_s)
            kept.move_to_end(call_id.turn)
            return Placed(call_id.turn, call_id.place, own_turn.made)
        if call_id.effect:
            raise CallsGone(GONE.format(id=id, kept_s=self.limits.kept_s))
        return None


@dataclass(slots=True)
class TakenUp:
    """The client's calls of a conversation, in its order, with what was done here beside them.
    Whichever call of a turn comes first brings all that the turn did, where it was."""

    _placed: dict[str, Placed]
    _of_turn: dict[bytes, dict[int, Exchange]]
    _seen: set[bytes]

    @classmethod
    def of(
        cls, calls: Iterable[tuple[str, Exchange]], placed: Callable[[str], Placed | None]
    ) -> TakenUp:
        """calls: with their ids. Raises CallsGone."""
        taken_up = cls({}, {}, set())
        for id, exchange in calls:
            if (place := placed(id)) is not None:
                taken_up._placed[id] = place
                taken_up._of_turn.setdefault(place.turn, {})[place.place] = exchange
        return taken_up

    def beside(self, id: str, exchange: Exchange) -> Iterator[Made]:
        """What stands in the place of this call."""
        placed = self._placed.get(id)
        if placed is None:
            yield exchange
        elif placed.turn not in self._seen:
            self._seen.add(placed.turn)
            answered = self._of_turn[placed.turn]
            for call in placed.made:
                if "place" not in call:
                    yield call
                elif call["place"] in answered:
                    yield answered[call["place"]]


def _as_text(call: Mapping[str, Any]) -> Mapping[str, Any]:
    if "result" not in call:
        return call
    result = call["result"]
    return {**call, "result": {**result, "value": result["text"]}}


def _plain_id(entry: Entry, k: int) -> str:
    """The id of a call beside which nothing of ours stands."""
    return f"call_{_digest(f'{entry.id}/{k}', 12).hex()}"


def _digest(text: str, size: int) -> bytes:
    return blake2b(text.encode(), digest_size=size).digest()
