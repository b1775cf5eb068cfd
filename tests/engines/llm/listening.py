"""Listening to what an engine's server keeps, and predicting by it what a call will find there."""

import asyncio

from tests.engines.llm.openai_calls import answer


class Listener:
    """What an engine's server keeps, as it is told."""

    def __init__(self, engine):
        self.kept, self.clearings = set(), 0
        self._task = asyncio.create_task(self._listen(engine))

    async def _listen(self, engine):
        async for change in engine.prefix_changes():
            self.clearings += change.cleared
            if change.cleared:
                self.kept.clear()
            self.kept -= set(change.evicted)
            self.kept |= set(change.stored)

    async def until(self, holds):
        async with asyncio.timeout(60.0):
            while not holds():
                assert not self._task.done(), self._task
                await asyncio.sleep(0.02)

    async def caught_up(self):
        """With all that was told until now: only its own turn on the event loop was missing, and
        nothing that is told from now on comes before the caller's next one."""
        await asyncio.sleep(0)

    async def ended(self):
        async with asyncio.timeout(60.0):
            await self._task

    async def stop(self):
        """Before the engine ends."""
        self._task.cancel()
        await asyncio.wait([self._task])

    def found(self, keys, block_tokens):
        """How many blocks a call would find; its last token is computed in any case."""
        kept = next((i for i, k in enumerate(keys.blocks) if k not in self.kept), len(keys.blocks))
        return min(kept, (keys.tokens - 1) // block_tokens)


async def asked(engine, listener, call):
    """(blocks found, predicted; the call's keys; what was cached, as reported)."""
    keys = await asyncio.to_thread(engine.keys, call)
    predicted = listener.found(keys, engine.block_tokens)
    _, last = await answer(engine, call)
    assert last.usage.prompt_tokens == keys.tokens
    await listener.until(lambda: listener.kept.issuperset(keys.blocks))
    return predicted, keys, last.usage.cached_tokens
