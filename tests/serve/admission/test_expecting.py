"""How much the inputs of a query are, and what is expected of a kind before one has ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from teola import App, Runtime, component
from teola.engine import Hit, Source
from teola.serve.admission.expecting import characters_of, planned_of
from teola.serve.admission.learning import QueryClass, size_class
from teola_apps.naive_rag import app as naive_rag


def test_inputs_count_with_all_that_is_in_them(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_bytes(b"x" * 70)
    for value, characters in (
        ("abc", 3),
        ("", 0),
        (None, 0),
        (12345, 0),
        (True, 0),
        (Hit("i", "d", "abcd", 0.5), 4),
        (Source("notes.txt", path=file), 70),
        (Source("notes.txt", text="abcde"), 5),
        (Source("notes.txt", text=""), 0),
        ({"name": "ab", "text": "abc"}, 5),
        (["ab", ("abc", ["d"])], 6),
    ):
        assert characters_of({"one": value}) == characters
        assert characters_of({"one": value, "other": "xyz"}) == characters + 3


@pytest.mark.parametrize(
    ("characters", "size"),
    [(0, 0), (4095, 0), (4096, 1), (16_383, 1), (16_384, 2), (65_535, 2), (65_536, 3)],
)
def test_a_size_reaches_four_times_as_far_as_the_one_before(characters: int, size: int) -> None:
    assert size_class(characters) == size


@component
def echo(question: str) -> str:
    return question


def test_of_a_kind_its_plan_is_expected() -> None:
    more: dict[str, Any] = {"inputs": {"question": "text"}, "outputs": {"answer": "echo"}}
    with Runtime(profile="paper-13b", learn=False) as runtime:
        apps = {"by another name": naive_rag, "echo": App("echo", echo, **more)}
        planned = planned_of(runtime, apps)
        assert planned(QueryClass("by another name", 0)) == planned(QueryClass("gone", 3))
        small, large = (planned(QueryClass("naive-rag", size)) for size in (0, 4))
        assert {"embedding", "vectorstore", "llm"} <= small.work.keys()
        assert large.own_s > small.own_s > 0.0
        assert large.work["embedding"] > 4 * small.work["embedding"] > 0.0
        assert large.work["llm"] == small.work["llm"]
        assert planned(QueryClass("echo", 9)) == planned(QueryClass("echo", 0))
