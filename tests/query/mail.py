"""Applications that ask people, and note what they do to the world."""

from __future__ import annotations

from typing import Any

from teola import App, Ask, Embedding, EngineConfig, Indexing, Search, component
from teola.engine import Hit
from tests.serve.restartable import Embedder, Lines

LOG: list[str] = []
"""What components did, in any process of this test."""


@component(outputs="draft")
def draft(topic: str) -> str:
    LOG.append(f"draft {topic}")
    return f"About {topic}."


@component(outputs="sent")
def send(draft: str, verdict: str, again: str) -> str:
    LOG.append(f"send {verdict}")
    if again == "fail":
        raise ValueError("no stamps")
    return f"{verdict} {again}: {draft}"


@component(outputs="answer", pure=True)
def tell(hits: list[Hit], verdict: str) -> str:
    return f"{verdict}: {hits[0].text}"


FIRST = Ask("Send?\n{draft}", schema={"enum": ["yes", "no"]}, gives="verdict", name="first")
SECOND = Ask("Sure? {verdict}", gives="again", name="second")
SHOWN = Ask("Show?", gives="verdict", name="shown")


def mail_apps(version: str = "") -> dict[str, App]:
    """`mail` asks twice; `read` asks once, and finds something in documents before."""
    mail = App(
        "mail",
        draft >> FIRST >> SECOND >> send,
        inputs={"topic": "text"},
        outputs={"sent": "sent"},
        version=version,
    )
    read = App(
        "read",
        Indexing() >> Embedding(inputs={"texts": "topic"}) >> Search(top_k=1) >> SHOWN >> tell,
        inputs={"topic": "text", "documents": "documents"},
        outputs={"answer": "answer"},
    )
    return {app.name: app for app in (mail, read)}


def engines(dsn: str) -> dict[str, Any]:
    """Small but real ones, the documents being in the database."""
    return {
        "documents": EngineConfig(Lines),
        "embedding": EngineConfig(Embedder),
        "vectorstore": EngineConfig("vectorstore", {"dsn": dsn}),
    }
