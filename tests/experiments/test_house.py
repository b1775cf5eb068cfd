"""What counts as a statement, comment, circle and satellite; the page has what was counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.common import pages
from experiments.house.__main__ import COLUMNS, PAGE, main, section

KEPT = PAGE.with_name("report.json")
FILES = {
    "teola/app.py": '"""A page."""\nfrom teola.a import one\n# why\nX = 1\n"""An attribute."""\n',
    "teola/a/one.py": "import teola.b.two\n\nclass Many:\n    def f(self): return _Own(self)\n",
    "teola/a/deep/other.py": "from teola.b import two as t\nclass _Own: ...\n",
    "teola/b/two.py": (
        "# --- part ---\nfrom teola.a import one  # noqa: F401\n"
        "class Moon:\n    def __init__(self, owner): self.owner = owner  # back\n"
        "class Planet:\n    def orbit(self):\n        a, b = Moon(owner=self), Moon(self)\n"
        "        return replace(self), Free(a)\n"
        "class Free: ...\ndef alone(self): return Free(self)\n"
    ),
    "engines/llm/model.py": "def f():\n    '''Says.'''\n    if f: pass\n    ...\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


def test_a_tree_is_counted(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--tree", str(tree), "--json"])
    assert json.loads(capsys.readouterr().out) == {
        "rows": [
            dict(zip(COLUMNS, row, strict=True))
            for row in (
                ("teola", 1, 5, 2, 1, 0, 0),
                ("teola.a", 2, 6, 6, 0, 1, 0),
                ("teola.b", 1, 10, 11, 1, 1, 1),
                ("teola_engines.llm", 1, 4, 3, 0, 0, 0),
                ("all", 5, 25, 22, 2, 1, 1),
            )
        ]
    }
    main(["--tree", str(tree)])
    assert "teola_engines.llm" in capsys.readouterr().out


def test_two_trees_are_compared_in_the_page(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tree / "README.md"
    page.write_text(f"Before.\n\n{pages.begin('house')}\n{pages.end('house')}\n")
    monkeypatch.setattr("experiments.house.__main__.PAGE", page)
    later = tree / "later"
    for name in ("teola/app.py", "engines/sql/run.py"):
        file = later / name
        file.parent.mkdir(parents=True)
        file.write_text("X = 1\n")
    main(["--tree", str(later), "--before", str(tree), "--out", str(tree / "kept"), "--docs"])
    assert "| teola | 1 | 1 (5) | 1 (2) | 0 (1) | 0 | 0 |\n| teola.a | 0 (2) |" in page.read_text()
    assert "| all | 2 (5) |" in page.read_text().splitlines()[-2]
    first = page.read_text()
    main(["--report", str(tree / "kept" / "report.json"), "--docs"])
    assert page.read_text() == first


def test_a_folder_that_is_no_checkout_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["--tree", str(tmp_path)])
    assert "has no folder 'teola'" in capsys.readouterr().err


def test_the_readme_says_what_the_kept_report_does() -> None:
    report = json.loads(KEPT.read_text())
    whole = f"{pages.begin('house')}\n{section(report)}\n{pages.end('house')}"
    assert whole in PAGE.read_text()
    for counted in (report, report["before"]):
        *packages, total = counted["rows"]
        assert total["package"] == "all"
        for key in ("files", "lines", "statements", "comments", "satellites"):
            assert total[key] == sum(row[key] for row in packages)
