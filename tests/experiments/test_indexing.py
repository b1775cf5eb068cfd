"""The experiment on indexing: what changes, what a mixed answer is, and that the pages say what the
kept report says."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from experiments.indexing import __main__ as main
from experiments.indexing import figures
from experiments.indexing.files import PIECES, drawn, write
from experiments.indexing.watching import mixed
from teola.engine import Hit

ROOT = Path(main.__file__).parents[2]
KEPT = ROOT / "experiments" / "indexing" / "report.json"
KEYS = ["case", "files", "changed", "removed", "renamed", "kills", "embedded", "equal", "mixed"]
KEYS += ["seconds"]
CHANGE = drawn(300, random.Random(1))


def test_files_change_go_and_are_renamed(tmp_path: Path) -> None:
    before, after = CHANGE.before, CHANGE.after
    assert (len(before), len(after)) == (300, 297)
    assert {name for name in after if before.get(name) not in (None, after[name])} == {
        *CHANGE.changed
    }
    assert before.keys() - after.keys() == {*CHANGE.removed, *CHANGE.renamed}
    assert all(after[new] == before[old] for old, new in CHANGE.renamed.items())
    for texts in (before, after, before):
        write(tmp_path, texts)
        found = {str(p.relative_to(tmp_path)): p.read_text() for p in tmp_path.rglob("*.txt")}
        assert found == texts


def test_passages_of_two_versions_are_seen() -> None:
    name, other = CHANGE.changed[0], CHANGE.removed[0]
    paragraphs = {
        at: texts[name].split("\n\n") for at, texts in enumerate((CHANGE.before, CHANGE.after))
    }

    def hit(name: str, text: str) -> Hit:
        return Hit(text, f"harbour/{name}", text, 1.0)

    old, new = hit(name, paragraphs[0][0]), hit(name, paragraphs[1][1])
    gone = hit(other, CHANGE.before[other])
    assert mixed([old, gone, new], CHANGE, "harbour")
    assert not mixed([old, gone, hit(name, paragraphs[0][1])], CHANGE, "harbour")
    assert not mixed([new, gone], CHANGE, "harbour")
    with pytest.raises(AssertionError, match="of no version"):
        mixed([hit(name, "The lamp is out.")], CHANGE, "harbour")


def test_the_kept_report_has_no_difference_and_the_page_says_so() -> None:
    report = json.loads(KEPT.read_text())
    first, second, *killed = report["rows"]
    assert all(list(row) == KEYS for row in report["rows"])
    assert all(row["equal"] and row["mixed"] == 0 for row in report["rows"])
    assert first["embedded"] == first["files"] * PIECES
    assert second["embedded"] == second["changed"] * PIECES > 0
    assert len(killed) == (3 if report["about"]["quick"] else 20)
    assert all(row["embedded"] <= second["embedded"] and row["kills"] == 1 for row in killed)
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    assert figures.section(report, Path("images/indexing.svg")) in page


@pytest.mark.server
@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_a_small_folder_is_indexed_and_its_process_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main.main(["--quick", "--json", "--out", str(tmp_path)])
    told = json.loads(capsys.readouterr().out)
    assert list(told) == ["rows"]
    assert [row["case"] for row in told["rows"]] == [
        "first",
        "second",
        *map("killed {}".format, (1, 2, 3)),
    ]
    assert all(row["equal"] and row["mixed"] == 0 for row in told["rows"])
    assert (tmp_path / "indexing.svg").read_text().startswith("<?xml")
