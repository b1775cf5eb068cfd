"""What a loader of documents may get wrong is told."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from teola.engine import EngineKind, EngineSpec, Fingerprint, Source, Splitting
from teola.errors import DocumentError
from teola.testing import ContractBroken, check_engine


class Sentences:
    """A loader of texts, which are cut into sentences."""

    def __init__(self) -> None:
        self.spec = EngineSpec("documents", EngineKind.DOCUMENTS, frozenset())

    def start(self) -> None:
        """Nothing to load."""

    def close(self) -> None:
        """Nothing to free."""

    def pipeline(self, splitting: Splitting) -> str:
        return "sentences"

    def fingerprint(self, source: Source) -> Fingerprint:
        if source.text is None:
            raise DocumentError("no such file")
        return Fingerprint(source.text, len(source.text))

    def split(self, source: Source, splitting: Splitting, encode: Any) -> list[str]:
        return [f"{sentence}." for sentence in (source.text or "").split(".")[:-1]]


def loader(**methods: Any) -> Callable[[], Any]:
    """One that does something else."""
    return type("Broken", (Sentences,), methods)


NUMBERS = count()


def cut(change: Callable[[list[str]], Any]) -> dict[str, Any]:
    """Another way of cutting."""
    return {"split": lambda self, *given: change(Sentences.split(self, *given))}


def by(key: Callable[[Source], str]) -> dict[str, Any]:
    """Another fingerprint."""
    return {"fingerprint": lambda self, source: Fingerprint(key(source), 1)}


def test_a_loader_keeps_its_contract() -> None:
    check_engine(Sentences)


@pytest.mark.parametrize(
    ("methods", "told"),
    [
        ({"pipeline": lambda self, splitting: None}, "`pipeline` has to be a text"),
        ({"fingerprint": lambda self, source: source.text}, "`fingerprint` gave 'Pier"),
        (by(lambda source: source.name + str(source.text)), "one text under two names has two"),
        (by(lambda source: ""), "`fingerprint` of two texts is the same"),
        (by(lambda source: str(source.text)), "that is not there raised no DocumentError"),
        (cut(lambda texts: []), r"`split` gave \[\], not texts"),
        (cut(lambda texts: [*texts, " "]), "`split` gave .*, not texts"),
        (cut(lambda texts: ["".join(texts)]), "`split` gave one chunk"),
        (cut(lambda texts: texts[:-1]), "`split` lost sentence 19"),
        (cut(lambda texts: texts[1:]), "`split` lost sentence 0"),
        (cut(lambda texts: [*texts, str(next(NUMBERS))]), "other chunks the second"),
    ],
)
def test_a_loader_that_breaks_a_promise_is_told(methods: dict[str, Any], told: str) -> None:
    with pytest.raises(ContractBroken, match=f"^engine 'documents' .*{told}"):
        check_engine(loader(**methods))
