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


@pytest.mark.slow
def test_a_stranger_gets_a_plan_with_its_price_and_a_result(tmp_path: Path) -> None:
    """In a folder and a home of his own: the page's files and commands as they stand, then the
    same with a table of his own, as the page says."""
    script, code = ["set -u"], []
    for block in blocks(PAGE):
        if block.file:
            (tmp_path / block.file).write_text(block.text)
        elif block.language == "python":
            code.append(block.text)
        elif block.language == "bash":
            script.append(block.text)
        script += [f"teola {line}" for line in (one.line[6:] for one in commands(block))]
    (tmp_path / "mine.csv").write_text(OWN)
    kids = (tmp_path / "kids.sql").read_text().partition("WHERE")[0]
    own = kids.replace("title", "number").replace("review", "note")
    (tmp_path / "mine.sql").write_text(own)
    firsts = [line for line in script if "--file kids.sql" in line][:2]
    mine = [one.replace("reviews.csv", "mine.csv").replace("kids", "mine") for one in firsts]
    (tmp_path / "page.py").write_text("\n".join(code))
    checked = [f"{line}\ncode $?" for line in [*script[1:], "python page.py", *mine]]
    told = 'code() { echo "exit $1"; }\n' + "\n".join([script[0], *checked])
    began = time.monotonic()
    with stand_in() as server:
        bin = Path(sys.executable).parent
        ran = subprocess.run(
            ["bash", "-c", told.replace(URL, server.url)],
            cwd=tmp_path,
            env={
                "PATH": f"{bin}:{os.environ['PATH']}",
                "HOME": str(tmp_path / "home"),
                "PYTHONPATH": os.environ.get("PYTHONPATH", str(ROOT)),
            },
            capture_output=True,
            text=True,
        )
    codes = [int(one) for one in re.findall(r"^exit (\d+)$", ran.stdout, re.MULTILINE)]
    assert codes == [expected_code(line) for line in checked], ran.stdout + ran.stderr
    assert time.monotonic() - began < 300
    plan, result = re.split(r"^exit 0$", ran.stdout, flags=re.MULTILINE)[-3:-1]
    assert re.search(r"total: 2 calls, \d+ prompt tokens \(\d+ cached\), cost 0\.0+\d", plan)
    assert re.search(r"7 +Yes *\n8 +No *\n9 +Yes", result)
    assert (tmp_path / "home" / ".local" / "share" / "teola" / "answers.duckdb").is_file()


def test_its_figures_are_those_of_the_report() -> None:
    """Within 5 %: the page says when it was simulated by a link and no date."""
    report = json.loads((ROOT / "experiments" / "tables" / "report.json").read_text())
    seconds = {(row["query"], row["data"], row["system"]): row["seconds"] for row in report["rows"]}
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
