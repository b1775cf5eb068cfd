"""Applications that talk to a language model, which is a server that remembers what it was sent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from teola import App, EngineConfig, Generate, QueryExpansion, Runtime, component
from teola.serve.intake.listed_documents import Intake
from tests.fake_openai import FakeOpenAI
from tests.serve.conftest import Served, serving

BEGIN = "Be exact.\n\n"
ASKED, ANSWER = {"question": "text"}, {"answer": "answer"}
TALK: Any = [
    {"role": "system", "content": "Answer in French."},
    {"role": "user", "content": "Who keeps the lamp?"},
    {"role": "assistant", "content": "Mara."},
    {"role": "developer", "content": "Be kind."},
    {"role": "user", "content": "Since when?"},
]


@dataclass
class Model:
    """What a language model answers, and what it was sent. says: by what its prompt holds."""

    says: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.server = FakeOpenAI(self._answer, vllm=False)

    def _answer(self, messages: list[dict[str, str]]) -> str:
        text = "".join(message["content"] for message in messages)
        return next((said for word, said in self.says.items() if word in text), "Since 1987.")

    @property
    def sent(self) -> list[dict[str, Any]]:
        """The bodies of its completion requests."""
        return [seen.body for seen in self.server.calls]

    @property
    def prompts(self) -> list[str]:
        return ["".join(m["content"] for m in body["messages"]) for body in self.sent]


@component(outputs="context")
def joined(queries: list[str]) -> str:
    return f"searched for {' and '.join(queries)}"


def apps() -> dict[str, App]:
    plain = App("plain", template=Generate(instruction=BEGIN), inputs=ASKED, outputs=ANSWER)
    searched = App(
        "searched",
        template=QueryExpansion(n=2) >> joined >> Generate(instruction=BEGIN),
        inputs=ASKED,
        outputs=ANSWER,
    )
    return {"plain": plain, "searched": searched}


@contextmanager
def talking(**intake: Any) -> Iterator[tuple[Served, Model]]:
    model = Model()
    with model.server:
        engines = {"llm": EngineConfig("openai", {"url": model.server.url})}
        with (
            Runtime(engines) as runtime,
            serving(runtime, apps(), intake=Intake(**intake)) as served,
        ):
            yield served, model


class Keeper(BaseModel):
    """Who keeps the lamp."""

    name: str
    since: int


GOOD = '{"name": "Mara", "since": 1987}'
FORM: Any = {
    "type": "json_schema",
    "json_schema": {"name": "keeper", "schema": Keeper.model_json_schema()},
}


def user(text: str) -> Any:
    return {"role": "user", "content": text}
