"""KeptModel: an LLM whose text is committed before anybody reads it."""

from __future__ import annotations

from collections.abc import AsyncIterator

from teola.engine import Call, Delta, LanguageModel
from teola.runtime.live.steps import Steps
from teola.runtime.outputs import no_delta, stream_of


class KeptModel:
    """Calls `model`, and keeps what it writes as the step `key`. Where steps outlive the query's
    process, the first token is told when it comes, without its text, which follows when it is
    committed; else all is told as it comes."""

    def __init__(self, model: LanguageModel, steps: Steps, key: str) -> None:
        self._model, self._steps, self._key = model, steps, key
        self.spec = model.spec

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        """See LanguageModel."""
        pieces: list[str] = []
        holds = self._steps.outlive
        last: Delta | None = None
        async with stream_of(self._model, call) as stream:
            async for delta in stream:
                if not isinstance(delta, Delta):
                    raise no_delta(self.spec.name, delta)
                if not holds:
                    yield delta
                elif last is None:
                    yield Delta("")
                pieces.append(delta.text)
                last = delta
        if last is None:
            return
        text, end = "".join(pieces), last.finish_reason
        end = end if end in ("length", "refusal") else "" if text.strip() else "empty"
        await self._steps.keep(self._key, {"text": text, "end": end})
        if holds:
            yield Delta(text, last.finish_reason, last.usage)
