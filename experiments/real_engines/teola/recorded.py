"""Our engines with a record of what they were asked: the same engines, one list append more.

logs["<query id>"] = Log()      from then on the calls of that query are in it
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any, cast

from experiments.real_engines import prompts
from experiments.real_engines.calls import llm_options
from experiments.real_engines.recording import Completion, Log
from teola.engine import Call, Chunk, Delta, EngineResult, Hit, Request
from teola.graph import Op, Role, SearchParams
from teola_engines.embedding import MiniLM
from teola_engines.llm import VLLMServer
from teola_engines.rerank import MaxSim
from teola_engines.vectorstore import PgVector

logs: defaultdict[str, Log] = defaultdict(Log)
"""By query id."""


class RecordedMiniLM(MiniLM):
    """Records the texts."""

    def execute(self, requests: Sequence[Request]) -> list[EngineResult | Exception]:
        for request in requests:
            texts = request.inputs["texts"]
            plain = [text.text if isinstance(text, Chunk) else text for text in texts]
            logs[request.context.query_id].embedded += plain
        return super().execute(requests)


class RecordedMaxSim(MaxSim):
    """Records the questions and passages."""

    def execute(self, requests: Sequence[Request]) -> list[EngineResult | Exception]:
        for request in requests:
            passages = frozenset(hit.text for hit in request.inputs["hits"])
            scored = (request.inputs["question"], passages)
            logs[request.context.query_id].scored.append(scored)
        return super().execute(requests)


class RecordedPgVector(PgVector):
    """Records what is stored and what is found."""

    async def execute(self, requests: Sequence[Request]) -> list[EngineResult | Exception]:
        results = await super().execute(requests)
        for request, result in zip(requests, results, strict=True):
            log = logs[request.context.query_id]
            if request.op is Op.INGESTION:
                log.stored += [chunk.text for chunk in request.inputs["chunks"]]
            elif not isinstance(result, Exception):
                top_k = cast("SearchParams", request.params).top_k
                found: Sequence[Sequence[Hit]] = result["hits"]
                log.searched += [(top_k, tuple(hit.text for hit in hits)) for hits in found]
        return results


class RecordedVLLM(VLLMServer):
    """Records prompts and answers, and asks for the fixed rewritings where a list is wanted."""

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        prompt = "".join(part.text for part in call.all_parts)
        record = Completion(prompt, call.decode.max_tokens)
        logs[call.context.query_id].completions.append(record)
        pieces = []
        async with aclosing(super().generate(call)) as stream:  # type: ignore[type-var]
            async for delta in stream:
                pieces.append(delta.text)
                if delta.usage:
                    record.tokens = (delta.usage.prompt_tokens, delta.usage.completion_tokens)
                    record.text = "".join(pieces).strip()
                yield delta

    def _body(self, call: Call, ids: list[int], *, complete: bool) -> dict[str, Any]:
        body = super()._body(call, ids, complete=complete)
        if complete and call.decode.items:
            asked = (part.text for part in call.all_parts if part.role is Role.QUESTION)
            body["extra_body"] |= llm_options(prompts.expansion_text(next(asked)))
        return body
