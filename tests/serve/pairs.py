"""A server whose LLM has two instances, which go by content."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from teola import App, EngineConfig, Generate, Runtime
from tests.fake_openai import FakeOpenAI
from tests.serve.conftest import Served, serving

ANSWER = "The keeper of the lamp is Mara Quist, who has kept it since 1987."
QUESTION = "Who looks after the lamp of the lighthouse, and since when? " * 12


def asking() -> App:
    template = Generate(context_required=False)
    return App("ask", template, inputs={"question": "text"}, outputs={"answer": "answer"})


def asking_twice() -> App:
    """Two calls with one prompt, whose answers may differ."""
    names = ("one", "two")
    more: dict[str, Any] = {"context_required": False, "temperature": 0.5}
    one, two = (Generate(name=x, outputs={"answer": x}, **more) for x in names)
    outputs = {name: name for name in names}
    return App("twice", one >> two, inputs={"question": "text"}, outputs=outputs)


@contextmanager
def paired(
    routing: str = "marginal_cost",
    *,
    token_delay_s: float = 0.0,
    prefill_s_per_token: float = 0.0,
    **options: Any,
) -> Iterator[Served]:
    """Caches of 3,200 tokens each, of which nothing is told."""
    slow = {"token_delay_s": token_delay_s, "prefill_s_per_token": prefill_s_per_token}
    with (
        FakeOpenAI(ANSWER, tokenizes=True, **slow) as one,  # type: ignore[arg-type]
        FakeOpenAI(ANSWER, tokenizes=True, **slow) as two,  # type: ignore[arg-type]
    ):
        pool = [{"url": one.url}, {"url": two.url}]
        llm = EngineConfig("vllm", options, pool=pool, routing=routing)
        engines = {"llm": llm}
        apps = {app.name: app for app in (asking(), asking_twice())}
        with Runtime(engines) as runtime, serving(runtime, apps) as found:
            yield found


def ask(served: Served, question: str = QUESTION, app: str = "ask", **more: Any) -> str:
    """The query's id."""
    told = {"inputs": {"question": question}, **more}
    response = httpx.post(f"{served.url}/v1/apps/{app}/queries", json=told, timeout=60)
    return str(response.json()["query_id"])
