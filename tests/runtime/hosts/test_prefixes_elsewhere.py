"""What prefix caches keep, and what prompts are to them, of engines in child processes."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from teola.engine import PrefixChange
from teola.errors import EngineUnavailable
from teola.runtime.hosts.local import LocalHost
from teola.runtime.hosts.remote import RemoteEngine
from tests.planted import catches, edited
from tests.runtime.hosts.elsewhere import Keeping
from tests.runtime.hosts.going_back import assert_goes_back
from tests.runtime.hosts.test_process import call, engine, two

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@catches(
    "keys-of-the-near-one",
    "keys are made here, where no tokenizer is",
    edited(LocalHost.__init__, 'cast("MakesKeys", engine)', "asked"),
)
async def test_keys_are_made_over_there_where_the_tokenizer_is() -> None:
    far, near = engine(Keeping), Keeping()
    host = LocalHost(far, 0)
    await host.start()
    await near.start()
    try:
        asked = call("two words ", "and two")
        assert host.keys is not None
        found = await asyncio.to_thread(host.keys.keys, asked)
        assert found == near.keys(asked)
        handle = await far.prefill(call("two words "))
        again = await asyncio.to_thread(host.keys.keys, call("and two", prefix=handle))
        assert again == found
        assert far.spec.block_tokens == near.spec.block_tokens == 2
        far.kill()
        while far.dead is None:
            await asyncio.sleep(0.01)
        lost = await asyncio.to_thread(host.keys.keys, asked)
        assert lost.blocks == ("two words and two",)  # of the text, and so of nothing
    finally:
        await host.close()


async def test_what_a_cache_keeps_over_there_is_told_until_nobody_listens() -> None:
    far = engine(Keeping)
    await far.start()
    try:
        async with aclosing(far.prefix_changes()) as changes:
            assert await anext(changes) == PrefixChange(cleared=True)
            told = asyncio.ensure_future(anext(changes))
            while not await far.call("listeners"):
                await asyncio.sleep(0.01)
            async for _ in far.generate(call("two words")):
                pass
            assert await told == PrefixChange(("two words",))
        async with asyncio.timeout(2):
            while await far.call("listeners"):
                await asyncio.sleep(0.01)
        changes = far.prefix_changes()
        await anext(changes)
        far.kill()
        with pytest.raises(EngineUnavailable, match="was killed by signal 9"):
            await anext(changes)
    finally:
        await far.close()


@catches(
    "told-nothing-from-there",
    "what caches keep in another process does not reach the routing",
    edited(RemoteEngine.prefix_changes, "yield change", "yield PrefixChange()"),
)
@pytest.mark.slow
def test_a_question_goes_back_to_the_process_that_keeps_it() -> None:
    assert_goes_back(two(Keeping))
