"""What an agent does itself beside calls that it leaves to its client is done once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import openai
import pytest

from teola import Agent, App, Runtime
from teola.engine import Call, Delta
from teola.serve.chat.own_calls import MARK, OwnCalls, TakenUp
from teola.serve.intake.limits import OwnCallLimits
from teola.serve.intake.listed_documents import Intake
from teola.serve.problems import CallsGone
from teola.testing.hash_engines import HashModel
from teola.tools import tool
from teola.workflow.components.agent_parts import PartsMaker
from tests.planted import catches, edited
from tests.serve.chat.talking import user
from tests.serve.chat.test_client_tools import TEXT, made, spec
from tests.serve.conftest import serving
from tests.workflow.test_agent import answer, calls

charged: list[int] = []
NOTIFY = spec("notify", who=TEXT)


@tool
def charge(amount: int) -> str:
    """Charge the card."""
    charged.append(amount)
    return f"receipt {amount}"


@tool(pure=True)
def rate(x: int) -> int:
    """The rate."""
    return 45 * x


class Decides(HashModel):
    """Answers each prompt with what a function of it says."""

    def __init__(self, decide: Callable[[str], str]) -> None:
        super().__init__()
        self.decide, self.prompts = decide, list[str]()

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        self.prompts.append("".join(part.text for part in call.all_parts))
        await asyncio.sleep(0)
        yield Delta(self.decide(self.prompts[-1]))
        yield Delta("", "stop")


class Asks:
    """A client of a model, with tools of its own. told: its conversation."""

    def __init__(self, url: str, model: Decides) -> None:
        self.client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        self.model, self.told = model, [user("Buy.")]

    def ask(self, told: Sequence[Any] | None = None, *, stream: bool = False) -> Any:
        """The message that answers a conversation; its own, if none is given."""
        given: Any = {"model": "shop", "messages": told or self.told, "tools": [NOTIFY]}
        if not stream:
            return self.client.chat.completions.create(**given).choices[0].message
        with self.client.chat.completions.stream(**given) as pieces:
            return pieces.get_final_completion().choices[0].message

    def go_on(self, message: Any) -> None:
        """Answer all calls in a message."""
        told = [*map(as_told, message.tool_calls)]
        self.told += [{"role": "assistant", "content": None, "tool_calls": told}]
        self.told += [gave(one.id) for one in message.tool_calls]


def as_told(call: Any) -> Any:
    return made(call.id, call.function.name, **json.loads(call.function.arguments))


def gave(id: str, text: str = "told") -> Any:
    return {"role": "tool", "tool_call_id": id, "content": text}


@contextmanager
def shop(decide: Callable[[str], str], *, kept: Any = None, **agent: Any) -> Iterator[Asks]:
    charged.clear()
    model = Decides(decide)
    with Runtime({"llm": lambda: model}) as runtime:
        template = Agent([charge, rate], **agent)
        app = App("shop", template, inputs={"question": "text"}, outputs={"answer": "answer"})
        intake = Intake(own_calls=OwnCallLimits(**(kept or {})))
        with serving(runtime, {"shop": app}, intake=intake) as served:
            asks = Asks(served.url, model)
            with asks.client:
                yield asks


BOTH = calls(("charge", {"amount": 10}), ("rate", {"x": 1}), ("notify", {"who": "at ${2}"}))


def once(prompt: str) -> str:
    """A model that charges unless it sees that it has, beside a call of the client's."""
    return answer("done") if "charge(" in prompt else BOTH


# --- what the model sees --------------------------------------------------------------------------


@catches(
    "own-forgotten",
    "the next request's model does not see what was done here",
    edited(TakenUp.of, "(place := placed(id)) is not None", "False"),
)
@pytest.mark.parametrize("stream", [False, True])
def test_an_effect_beside_a_clients_call_is_done_once(stream: bool) -> None:
    with shop(once) as asks:
        first = asks.ask(stream=stream)
        assert [call.function.arguments for call in first.tool_calls] == ['{"who": "at 45"}']
        asks.go_on(first)
        assert asks.ask(stream=stream).content == "done"
        assert asks.ask().content == "done"  # the same request again
        assert charged == [10]
        seen = (
            "You wrote: as it is\n"
            '1. charge({"amount": 10}):\n> receipt 10\n2. rate({"x": 1}):\n> 45\n'
            '3. notify({"who": "at 45"}):\n> told'
        )
        assert seen in asks.model.prompts[1]
        assert asks.model.prompts[1] == asks.model.prompts[2]


@catches(
    "place-lost",
    "what was done here stands behind the client's calls of all turns",
    edited(TakenUp.beside, "elif placed.turn not in", "elif placed.turn in"),
)
@pytest.mark.parametrize("rounds", [1, 2, 5])
@pytest.mark.parametrize("mode", ["plan", "parallel"])
def test_effects_are_done_as_often_as_the_model_asks_anew(rounds: int, mode: str) -> None:
    def each(prompt: str) -> str:
        done = [n for n in range(rounds) if f'charge({{"amount": {n}}})' in prompt]
        if len(done) == rounds:
            return answer("done")
        new = ("charge", {"amount": len(done)})
        return calls(new, ("notify", {"who": f"n{len(done)}"}), ("notify", {"who": "all"}))

    with shop(each, mode=mode) as asks:
        for _ in range(rounds):
            asks.go_on(asks.ask())
        message = asks.ask()
        assert message.content == "done"
        assert charged == [*range(rounds)]
        told = asks.model.prompts[-1]
        order = [told.index(f"n{n}") for n in range(rounds)]
        assert order == sorted(order)
        assert all(told.index(f'charge({{"amount": {n}}})') < order[n] for n in range(rounds))
        assert told.count("charge(") == rounds
        assert told.count("notify(") == 2 * rounds


def test_results_keep_their_types() -> None:
    def refers(prompt: str) -> str:
        if "rate(" not in prompt:
            return calls(("rate", {"x": 2}), ("notify", {"who": "a"}))
        return answer("done") if "charge(" in prompt else calls(("charge", {"amount": "$1"}))

    with shop(refers) as asks:
        asks.go_on(asks.ask())
        assert asks.ask().content == "done"
    assert charged == [90]


@catches(
    "forced-again",
    "a tool that has to be called first is called first in each request",
    edited(PartsMaker.box, 'client.get("exchange")', "False"),
)
def test_what_had_to_be_called_first_is_not_called_again() -> None:
    def forced(prompt: str) -> str:
        return answer("done") if "notify(" in prompt else BOTH

    with shop(forced, tool_choice="charge") as asks:
        asks.model.decide = lambda prompt: (
            calls(("charge", {"amount": 10})) if "charge({" not in prompt else forced_rest(prompt)
        )
        asks.go_on(asks.ask())
        assert asks.ask().content == "done"
    assert charged == [10]


def forced_rest(prompt: str) -> str:
    return answer("done") if "notify({" in prompt else calls(("notify", {"who": "a"}))


# --- what clients make of their conversations -----------------------------------------------------


def test_any_call_of_a_turn_leads_to_it() -> None:
    def two(prompt: str) -> str:
        both = ("notify", {"who": "a"}), ("notify", {"who": "b"})
        return answer("done") if "charge(" in prompt else calls(*both, ("charge", {"amount": 3}))

    with shop(two) as asks:
        a, b = asks.ask().tool_calls
        ways = [
            [[a, b]],
            [[b]],  # one of them only
            [[a], [b]],  # each in a message of its own
            [[b], [a]],
        ]
        for way in ways:
            told = [*asks.told]
            for some in way:
                told += [{"role": "assistant", "tool_calls": [*map(as_told, some)]}]
                told += [gave(one.id) for one in some]
            assert asks.ask(told).content == "done"
        others = made("call_theirs", "notify", who="c")
        mixed = {"role": "assistant", "tool_calls": [others, as_told(b)]}
        assert asks.ask([user("Buy."), mixed, gave("call_theirs"), gave(b.id)]).content == "done"
        assert charged == [3]
        *_, alone, _, _, last = asks.model.prompts
        assert '"who": "a"' not in asks.model.prompts[2]
        assert alone.count("charge(") == 1
        assert last.index('"c"') < last.index('"b"') < last.index("charge(")


def test_a_question_that_was_given_up_is_history() -> None:
    with shop(once) as asks:
        asks.go_on(asks.ask())
        asks.told.append(user("Well?"))
        assert asks.ask().content == "done"
        assert "Assistant: (calls charge({" in asks.model.prompts[1]
        assert "Tool charge: receipt 10" in asks.model.prompts[1]
    assert charged == [10]


def test_another_clients_ids_are_taken_as_they_are() -> None:
    with shop(lambda prompt: answer("done")) as asks:
        told = {"role": "assistant", "tool_calls": [made("call_1", "notify", who="a")]}
        assert asks.ask([user("Buy."), told, gave("call_1")]).content == "done"
        assert '1. notify({"who": "a"}):\n> told' in asks.model.prompts[0]


# --- what is gone ---------------------------------------------------------------------------------


def gone(asks: Asks) -> None:
    with pytest.raises(openai.ConflictError, match="is not kept any more") as caught:
        asks.ask()
    assert caught.value.code == "calls_gone"
    assert caught.value.response.headers["x-should-retry"] == "false"


@catches(
    "gone-taken",
    "a call beside which an effect was done is taken though the effect is forgotten",
    edited(OwnCalls.placed, "if call_id.effect:", "if False:"),
)
def test_what_is_gone_is_refused() -> None:
    with shop(once) as asks:
        asks.go_on(asks.ask())
        kept = [*asks.told]
    with shop(once) as asks:  # another server, with another key
        asks.told = kept
        gone(asks)
        asks.told += [{"role": "assistant", "content": "Done."}, user("And now?")]
        assert asks.ask().tool_calls  # that question was answered
    with shop(once, kept={"turns_of_tenant": 1}) as asks:
        asks.go_on(asks.ask())
        asks.ask([user("Buy.")])
        gone(asks)
    with shop(once, kept={"kept_s": 0.001}) as asks:
        asks.go_on(asks.ask())
        gone(asks)
        assert charged == [10]


def test_without_effects_nothing_is_refused() -> None:
    def harmless(prompt: str) -> str:
        return (
            answer("x")
            if "notify(" in prompt
            else calls(("rate", {"x": 1}), ("notify", {"who": "a"}))
        )

    with shop(harmless, kept={"bytes_of_tenant": 1}) as asks:
        asks.go_on(asks.ask())
        assert asks.ask().content == "x"
        asks.model.decide = lambda prompt: calls(("notify", {"who": "a"}))
        assert not asks.ask([user("Buy.")]).tool_calls[0].id.startswith(MARK)


# --- the store ------------------------------------------------------------------------------------


def test_ids_say_whose_they_are() -> None:
    ours, others = OwnCalls(key=b"a" * 32), OwnCalls(key=b"b" * 32)
    id = ours.id_of(b"123456789", 7, effect=True)
    assert len(id) <= 40
    told = ours.read(id)
    assert told == (b"123456789", 7, True, True)
    assert others.read(id) == (b"123456789", 7, True, False)
    assert OwnCalls(key=b"a" * 32).read(id) == told  # a server that shares the key
    for other in ("call_1", id + "A", id[:-1], f"{MARK}{'!' * 28}"):
        assert ours.read(other) is None


@catches(
    "anybodys",
    "what was done for one tenant is found by another",
    edited(OwnCalls.placed, "self._kept.get(tenant)", "next(iter(self._kept.values()), None)"),
)
def test_each_tenant_has_its_own_and_no_more_than_that() -> None:
    turns = [b"turn0000" + bytes([n]) for n in range(3)]
    done = ({"tool": "a", "args": {}, "result": {"text": "x" * 100, "value": None}},)

    async def keep() -> None:
        own = OwnCalls(OwnCallLimits(kept_s=0.01, turns_of_tenant=9, bytes_of_tenant=300))
        ids = [own.id_of(turn, 0, effect=True) for turn in turns]
        await own.keep("us", turns[0], done)
        with pytest.raises(CallsGone):
            own.placed("them", ids[0])
        await own.keep("them", turns[0], done)
        await own.keep("us", turns[1], done)
        assert own.placed("us", ids[0]) == (turns[0], 0, done)  # the other one is older now
        await own.keep("us", turns[2], done)
        with pytest.raises(CallsGone):
            own.placed("us", ids[1])
        for tenant, id in (("us", ids[0]), ("us", ids[2]), ("them", ids[0])):
            assert own.placed(tenant, id) is not None
        async with asyncio.timeout(5):
            while own.bytes:
                await asyncio.sleep(0)  # until it is forgotten of itself

    asyncio.run(keep())
