"""What agents did beside their clients' calls: how long it is kept, and where it stands."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from teola.runtime.values import bytes_of
from teola.serve.chat.conversation import Exchange
from teola.serve.chat.own_calls import OwnCalls, Placed, TakenUp
from teola.serve.intake.limits import OwnCallLimits
from teola.serve.problems import CallsGone
from tests.planted import catches, edited


@catches(
    "kept-twice",
    "a turn that is kept again is counted twice",
    edited(OwnCalls.keep, "if turn in self._kept.get(tenant, ()):", "if False:"),
)
@pytest.mark.parametrize("seed", range(6))
def test_what_is_kept_is_what_was_used_last_and_fits(seed: int) -> None:
    """Against lists that are gone through from the beginning."""
    chance, most, limits = Random(seed), 400, OwnCallLimits(5.0, 4, 400)
    turns = [b"turn0000" + bytes([n]) for n in range(7)]
    model: dict[str, list[tuple[bytes, tuple[Any, ...], int, float]]] = {"us": [], "them": []}

    async def keep() -> None:
        loop, now = asyncio.get_running_loop(), 0.0
        loop.time = lambda: now  # type: ignore[method-assign]
        own = OwnCalls(limits)
        for _ in range(150):
            now += chance.choice([0.0, 0.5, 2.0])
            tenant, turn = chance.choice([*model]), chance.choice(turns)
            held = model[tenant]
            if chance.random() < 0.5:
                text = "x" * chance.choice([0, 30, 60, 100, 350, 500])
                value = chance.choice([None, [text, text + "y"]])
                made = ({"tool": "a", "args": {}, "result": {"text": text, "value": value}},)
                await own.keep(tenant, turn, made)
                for _ in range(2):
                    if bytes_of(list(made)) > most:  # its text in place of its value
                        made = ({**made[0], "result": {"text": text, "value": text}},)
                if (size := bytes_of(list(made))) <= most:
                    held[:] = [one for one in held if one[0] != turn]
                    held.append((turn, made, size, now + 5.0))
                    while len(held) > 4 or sum(one[2] for one in held) > most:
                        del held[0]
            else:
                effect = chance.random() < 0.5
                id = own.id_of(turn, chance.randrange(3), effect)
                there = [one for one in held if one[0] == turn and one[3] > now]
                if not there and effect:
                    with pytest.raises(CallsGone):
                        own.placed(tenant, id)
                    continue
                placed = own.placed(tenant, id)
                assert (placed and placed.made) == (there[0][1] if there else None)
                for one in there:
                    held.remove(one)
                    held.append((*one[:3], now + 5.0))
            if chance.random() < 0.2:
                own._forget()
                for tenant, held in model.items():
                    model[tenant] = [one for one in held if one[3] > now]
            sizes = {tenant: sum(one[2] for one in held) for tenant, held in model.items() if held}
            assert own.bytes == sizes
            assert {tenant: [*kept] for tenant, kept in own._kept.items()} == {
                tenant: [one[0] for one in held] for tenant, held in model.items() if held
            }
        del loop.time

    asyncio.run(keep())


@pytest.mark.parametrize("first", [0, 1])
def test_whichever_call_comes_first_brings_what_the_turn_did(first: int) -> None:
    """In its place once, and of the client's calls those that it has answered."""
    did: tuple[dict[str, Any], ...] = ({"place": 0}, {"tool": "ours"}, {"place": 1}, {"place": 2})
    answered = {id: Exchange(id, {}, "") for id in ("a", "b", "other")}
    order = (["a", "other", "b"], ["b", "other", "a"])[first]
    at = {"a": Placed(b"t", 0, did), "b": Placed(b"t", 2, did)}
    taken_up = TakenUp.of([(id, answered[id]) for id in order], at.get)
    stands = {id: [*taken_up.beside(id, answered[id])] for id in order}
    assert stands == {
        order[0]: [answered["a"], {"tool": "ours"}, answered["b"]],
        "other": [answered["other"]],
        order[2]: [],
    }
