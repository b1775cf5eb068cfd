"""One colour an engine, the same in every picture of the demo."""

from __future__ import annotations

ENGINES = {
    "embedding": "blue",
    "vectorstore": "green",
    "rerank": "magenta",
    "llm": "yellow",
    "": "white",
}


def of(engine: str) -> str:
    """Colour of an engine; cyan for those not foreseen."""
    return ENGINES.get(engine, "cyan")
