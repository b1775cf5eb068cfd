"""Applications that ask people questions of every kind, and an agent whose calls need approval."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from teola import Agent, App, Ask, Each, component
from teola.engine import Call, Delta
from teola.testing.hash_engines import HashModel
from teola.tools import tool
from teola.workflow.components.transcript import HEADER

TEXT: dict[str, Any] = {"inputs": {"question": "text"}, "outputs": {"answer": "answer"}}
MAIL = {
    "type": "object",
    "properties": {
        "to": {"type": "string", "description": "whom it goes to"},
        "copies": {"type": "integer", "minimum": 1},
        "urgent": {"type": "boolean"},
        "folder": {"enum": ["sent", "drafts"]},
    },
    "required": ["to"],
    "additionalProperties": False,
}
SCHEMAS: dict[str, dict[str, Any]] = {
    "choice": {"enum": ["yes", "no", "ask again"]},
    "flag": {"type": "boolean"},
    "text": {"type": "string"},
    "number": {"type": "integer", "minimum": 1},
    "lines": {"type": "array", "items": {"type": "string"}},
    "fields": MAIL,
    "json": {"type": "object", "required": ["a"]},
}
WORDS = "About {question}: <img src=x onerror=document.title='owned'>\n\nMay this be sent?"


class Decides(HashModel):
    """Calls a tool, and answers with what it is told of that."""

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        prompt = "".join(part.text for part in call.all_parts)
        _, told, after = prompt.partition(HEADER)
        found: dict[str, Any] = {"answer": after.partition("Reply:")[0].strip()}
        if not told:
            args = {"to": "Mara", "text": "The lamp is out.", "copies": 1}
            found = {"thought": "as it is", "calls": [{"tool": "send", "args": args}]}
        yield Delta(json.dumps(found))
        yield Delta("", "stop")


@tool(approval=True)
def send(to: str, text: str, copies: int = 1) -> str:
    """Send a message.

    Args:
        to: whom it goes to
        text: what it says
        copies: how many
    """
    return f"sent {text!r} to {to}, {copies} times"


@component(outputs="answer")
async def told(said: Any) -> str:
    return f"told {json.dumps(said)}"


def questions() -> dict[str, App]:
    """By the kind of what they ask."""
    found = [
        App(name, Ask(WORDS, schema=schema, gives="said") >> told, **TEXT)
        for name, schema in SCHEMAS.items()
    ]
    many = Each(Ask("{one}?", gives="answer"), over="list", item="one", gives={"answer": "answer"})
    found += [
        App("agent", Agent([send]), **TEXT),
        App("several", many, inputs={"list": "texts"}, outputs={"answer": "answer"}),
    ]
    return {app.name: app for app in found}
