"""Two servers of different speed behind one engine: work in proportion to speed.

Held against the clock, so it needs a machine that does nothing else; tests/schedule/test_speeds.py
says the same of simulated servers."""

import asyncio

import pytest

from teola.engine import Call, Keys
from teola.schedule.events import State
from teola_engines.llm import OpenAIServer
from tests.fake_openai import FakeOpenAI
from tests.recording import Bench
from tests.schedule.plans import call, plan

FASTER = 3
TOKEN_S = 0.010
CALLS, AT_ONCE = 120, 12


class Keyed(OpenAIServer):
    """Knows a prompt's blocks, 16 characters each: all prompts here begin alike."""

    block_tokens = 4

    def keys(self, call: Call) -> Keys:
        prompt = "".join(part.text for part in call.all_parts)
        return Keys(len(prompt) // 4, tuple(prompt[:end] for end in range(16, len(prompt), 16)))


@pytest.mark.nightly
@pytest.mark.parametrize("routing", ["least_loaded", "prefix_affinity"])
async def test_work_goes_by_speed_bound_late_or_early(routing: str) -> None:
    servers = [FakeOpenAI("a b c d e f g h", token_delay_s=d) for d in (TOKEN_S, FASTER * TOKEN_S)]
    with servers[0], servers[1]:
        engines = [Keyed(url=s.url, model="fake-model", max_sequences=2) for s in servers]
        async with Bench({"llm": engines}, routing=routing) as bench:
            p = plan(*call("m"))
            places = asyncio.Semaphore(AT_ONCE)

            async def ask() -> State:
                async with places:
                    return (await bench.run(p, {"question": "why is it so?"})).state

            states = await asyncio.gather(*(ask() for _ in range(CALLS)))
    assert set(states) == {State.OK}
    fast, slow = (len(s.calls) for s in servers)
    assert fast + slow == CALLS
    assert fast / slow == pytest.approx(FASTER, rel=0.2)
