"""Texts made to hold up whoever splits or embeds them: the server answers all the while."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.serve.hostile.asking import RAG
from tests.serve.hostile.flooding import PATIENCE_S, Flooded, flooded, watched

MIB: Final = 2**20
LONGEST: Final = 3_900_000
"""Bytes: with what else is in it, JSON may have 4 MiB."""
DEADLINE_S: Final = 8.0
"""Some of these texts make thousands of chunks; to see them split is enough."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> Iterator[Flooded]:
    folder = tmp_path_factory.mktemp("flooded")
    with flooded(folder, "naive-rag", "--data-dir", str(data_dir)) as found:
        for form in (FORMS["upload"], FORMS["document"], FORMS["embedding"]):
            assert form(found, sentences(1000), PATIENCE_S).status_code == 200
        yield found


def uploaded(server: Flooded, text: str, deadline_s: float = DEADLINE_S) -> httpx.Response:
    request = json.dumps({"inputs": {"question": "What burns?"}, "deadline_s": deadline_s})
    files = {"documents": ("long.txt", text.encode())}
    return server.post(RAG, data={"request": request}, files=files)


def inline(server: Flooded, text: str, deadline_s: float = DEADLINE_S) -> httpx.Response:
    document = {"name": "long.txt", "text": text}
    inputs = {"question": "What burns?", "documents": document}
    return server.post(RAG, {"inputs": inputs, "deadline_s": deadline_s})


def embedded(server: Flooded, text: str, deadline_s: float = DEADLINE_S) -> httpx.Response:
    return server.post("/v1/embeddings", {"model": "embedding", "input": text})


FORMS = {"upload": uploaded, "document": inline, "embedding": embedded}


def spaces(size: int) -> str:
    """White space between two words."""
    return "oil" + " " * size + "lamp"


def lines(size: int) -> str:
    return "oil" + "\n \t" * (size // 3) + "lamp"


def word(size: int) -> str:
    return "a" * size


def marks(size: int) -> str:
    """Accents, one over the other: two bytes each, and no token."""
    return "a" + "\u0301" * (size // 2)


def scattered(size: int) -> str:
    """Accents that stand alone, between spaces: words without tokens."""
    return "a" + " \u0301" * (size // 3)


def sentences(size: int) -> str:
    return "The lamp is lit at dusk. " * (size // 25)


def points(size: int) -> str:
    """Each may be the end of a sentence."""
    return "a" + ". " * (size // 2)


CASES = {
    "45 MiB of spaces, uploaded": ("upload", spaces, 45 * MIB),
    "10 MiB of spaces, uploaded": ("upload", spaces, 10 * MIB),
    "10 MiB of lines, uploaded": ("upload", lines, 10 * MIB),
    "30 MiB of accents, uploaded": ("upload", marks, 30 * MIB),
    "20 MiB of one word, uploaded": ("upload", word, 20 * MIB),
    "a document of spaces": ("document", spaces, LONGEST),
    "a document of one word": ("document", word, LONGEST),
    "a document of accents": ("document", scattered, LONGEST),
    "a document of full stops": ("document", points, LONGEST),
    "spaces to embed": ("embedding", spaces, LONGEST),
    "a word to embed": ("embedding", word, LONGEST),
    "accents to embed": ("embedding", scattered, LONGEST),
    "sentences to embed": ("embedding", sentences, LONGEST),
}


LESS: Final = ("10 MiB of spaces, uploaded", "10 MiB of lines, uploaded", "a document of spaces",
               "a word to embed", "sentences to embed")  # fmt: skip
"""What says little more than the others."""


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=[pytest.mark.nightly] if c in LESS else []) for c in CASES]
)
def test_the_server_answers_meanwhile(server: Flooded, case: str) -> None:
    form, of, size = CASES[case]
    text = of(size)
    with watched(server) as watch:
        response = FORMS[form](server, text)
    watch.check()
    assert response.status_code in (200, 504), response.text
