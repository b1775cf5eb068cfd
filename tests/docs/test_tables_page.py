"""docs/tables.md: its commands print what it shows, and a stranger gets on with it alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, blocks
from tests.docs.tables_page import PAGE, TERMINAL, URL, commands, follow, same, stand_in

FAILING = {"--most-calls 1": 1, "WHERE LLM(review)": 2}
"""What stands in commands that do not end well, and their exit codes."""


def expected_code(line: str) -> int:
    return next((code for words, code in FAILING.items() if words in line), 0)


def test_commands_print_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else `python -m tests.docs.tables_page` writes their output anew."""
    monkeypatch.chdir(tmp_path)
    for name, value in {**TERMINAL, "TEOLA_DATA_DIR": str(tmp_path / "data")}.items():
        monkeypatch.setenv(name, value)
    with stand_in() as server:
        for shown, code, output in follow(tmp_path, server.url):
            assert same(output) == same(shown.output), shown.line
            assert code == expected_code(shown.line), shown.line
            widest = max(map(len, shown.output.splitlines()), default=0)
            assert widest <= 80, f"a terminal of 80 columns breaks a line of {shown.line}"


OWN = "number,note\n7,A gentle start.\n8,Loud.\n9,A gentle start.\n"


@pytest.mark.nightly  # six processes of `teola`; the test above runs the same commands in this one
def test_a_stranger_gets_a_plan_with_its_price_and_a_result(tmp_path: Path) -> None:
    """In a folder and a home of his own, by the page's first sections: its commands as they stand,
    then the first two with a table of his own, as the page says. At most five minutes."""
    lines = []
    for block in blocks(PAGE):
        if "--most-calls" in block.text:
            break
        if block.file:
            (tmp_path / block.file).write_text(block.text)
        lines += [shown.line for shown in commands(block)]
    assert len(lines) == 4
    (tmp_path / "mine.csv").write_text(OWN)
    kids = (tmp_path / "kids.sql").read_text().partition("WHERE")[0]
    (tmp_path / "mine.sql").write_text(kids.replace("title", "number").replace("review", "note"))
    own = [line.replace("reviews.csv", "mine.csv").replace("kids", "mine") for line in lines[:2]]
    began = time.monotonic()
    with stand_in() as server:
        ran = subprocess.run(
            ["bash", "-e", "-c", "\n".join([*lines, *own]).replace(URL, server.url)],
            cwd=tmp_path,
            env={
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "HOME": str(tmp_path / "home"),
                "PYTHONPATH": os.environ.get("PYTHONPATH", str(ROOT)),
            },
            capture_output=True,
            text=True,
        )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert time.monotonic() - began < 300
    plan = ran.stdout.partition("3 rows, 2 distinct, 2 to ask")[2]
    assert re.search(r"total: 2 calls, \d+ prompt tokens \(\d+ cached\), cost 0\.0+\d", plan)
    assert re.search(r"7 +Yes *\n8 +No *\n9 +Yes", ran.stdout)
    assert (tmp_path / "home" / ".local" / "share" / "teola" / "answers.duckdb").is_file()


def test_its_figures_are_those_of_the_report() -> None:
    """Within 5 %: the page says when it was simulated by a link and no date."""
    report = json.loads((ROOT / "experiments" / "tables" / "report.json").read_text())
    simulated = [row for row in report["rows"] if row["where"] == "simulated"]
    seconds = {(row["query"], row["data"], row["system"]): row["seconds"] for row in simulated}
    section = PAGE.read_text().partition("## How it compares")[2]
    for query, *figures in re.findall(
        r"^\| (Q\d),[^|]+\| (.+) \| (.+) \| (.+) \| (.+) \|$", section, re.M
    ):
        wanted = [
            seconds[query, data, "no_cache"] / seconds[query, data, system]
            for data in ("movies", "products")
            for system in ("fifo", "ours")
        ]
        assert [float(one) for one in figures] == pytest.approx(wanted, rel=0.05), query
