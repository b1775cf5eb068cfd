"""What an embedding engine is asked: the texts of a request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from teola.engine import Chunk, Request
from teola.errors import EngineError
from teola.graph.ops import EmbeddingParams


def runnable(request: Request) -> bool:
    """Whether it has texts to embed."""
    texts = request.inputs.get("texts")
    return (
        isinstance(request.params, EmbeddingParams)
        and isinstance(texts, list | tuple)
        and all(isinstance(text, str | Chunk) for text in texts)
    )


def malformed(request: Request) -> EngineError:
    """The error of one that has none."""
    return EngineError(
        f"the embedding engine takes op embedding with `texts`, a list of strings or chunks; got "
        f"op {request.op.value} with inputs {sorted(request.inputs)}"
    )


def texts_of(request: Request) -> list[str]:
    """The texts of a runnable request."""
    texts = cast("Sequence[str | Chunk]", request.inputs["texts"])
    return [text.text if isinstance(text, Chunk) else text for text in texts]
