"""Routing by content where engines run elsewhere."""

from __future__ import annotations

import time
from dataclasses import replace

from teola import Runtime
from teola.runtime.engines import EngineConfig
from tests.runtime.pooled import asking

QUESTIONS = ["Why is it so long? " * 40, "What does the second document say?"]
"""The first one keeps an instance busy for longer than what all prompts begin with would."""


def assert_goes_back(config: EngineConfig, *, ray: bool = False) -> None:
    """Two questions are asked at once, so that each has an instance of its own; then the second one
    again and again, while both are idle. config: of two `Keeping` instances."""
    config = replace(config, routing="prefix_affinity")
    with Runtime({"llm": config}, ray=ray) as runtime:
        app, engines = asking(runtime), runtime.engines("llm")
        app.run(question="warm")
        app.batch([{"question": question} for question in QUESTIONS])
        index = runtime.live.core.queues["llm"].placing.prefixes
        assert index is not None
        limit = time.monotonic() + 10
        while not (index.size(0) and index.size(1) and index.tells(0) and index.tells(1)):
            assert time.monotonic() < limit, "what is kept was not told"
            time.sleep(0.01)

        def read() -> list[int]:
            calls = [engine.call("read", QUESTIONS[1]) for engine in engines]  # type: ignore[attr-defined]
            return [runtime.start(call).result(10) for call in calls]

        before = read()
        assert sorted(before) == [0, 1]
        for _ in range(3):
            app.run(question=QUESTIONS[1])
        assert read() == [4 * count for count in before]
