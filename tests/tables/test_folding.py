"""fold := [...]: texts that a rule takes for the same are one question."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from teola import tables
from teola.errors import InputError
from teola.tables.folding import FOLDS, folded
from tests.planted import catches, edited
from tests.tables.oracle import FunctionAsker

WORDS = [
    "Yes",
    "yes ",
    "YES!",
    " y es",
    "don't",
    "Dont",
    "4.5",
    "45",
    "-5",
    "5",
    "a,b",
    "ab",
    "a\n b",
    "A  b.",
    "?!",
    "...",
    "",
    "\u00c4\u3000\u00df\u2014x",
    "\u00e4 \u00dfx",
    "C++",
    "C",
    None,
]


def plainly(text: str, folds: tuple[str, ...]) -> str:
    """What a rule makes of a text, without any of Teola."""
    found = text
    if "punctuation" in folds:
        found = re.sub(r"[!-#%-*,-/:;?@\[-\]_{}\u2014\u2026]++(?!\d)", "", found)
    if "space" in folds:
        found = " ".join(found.split())
    if "case" in folds:
        found = found.lower()
    return found or text


def run(values: list[Any], options: str, **more: Any) -> tuple[FunctionAsker, Any]:
    asker = FunctionAsker(lambda i, v: (f"<{'|'.join(v)}>", None))
    t = pa.table({"a": pa.array(values, pa.string()), "n": [4.5, 45.0] * (len(values) // 2)})
    made = tables.sql(f"SELECT LLM('q', a{options}) FROM t", {"t": t}, ask_rows=asker)
    return asker, made.run(**{"answers": False, **more})


@catches(
    "numbers-folded",
    "punctuation goes before a digit, too",
    edited(folded, r"\p{{Nd}}]", "]"),
)
def test_rows_have_the_answer_of_the_first_that_is_the_same() -> None:
    for folds in (("case",), ("punctuation",), ("case", "space"), FOLDS):
        first: dict[str, str] = {}
        wanted = []
        for value in WORDS:
            shown = (value or "").replace("\n", "\\n")
            wanted.append((f"<{first.setdefault(plainly(value or '', folds), shown)}>",))
        asker, done = run(WORDS, f", fold := {list(folds)}")
        assert done.rows == wanted
        assert len(asker.prompts) == len(first) == done.report["stages"][0]["distinct"]


def test_only_texts_are_folded_and_answers_are_found_again(tmp_path: Path) -> None:
    asker, _ = run(["x", "X"], ", n, fold := ['punctuation', 'case']")
    assert len(asker.prompts) == 2
    path = tmp_path / "a.duckdb"
    assert len(run(["Good", "good"], ", fold := ['case']", answers=path)[0].prompts) == 1
    again, done = run(["GOOD", "bad"], ", fold := ['case']", answers=path)
    assert again.prompts == ["q\na: bad"]
    assert done.rows[0] == ("<Good>",)
    assert len(run(["good", "bad"], "", answers=path)[0].prompts) == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (", fold := 'case'", "must be a list"),
        (", fold := ['cases']", "unknown rule of fold 'cases'.*case"),
        (", fold := ['case'], temperature := 1", "shared := true"),
        (", fold := []", "must be a list"),
    ],
)
def test_refused(options: str, said: str) -> None:
    with pytest.raises(InputError, match=f"(?s){said}"):
        run(["x", "y"], options)
