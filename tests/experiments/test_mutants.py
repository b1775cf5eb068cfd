"""Which mutants are drawn, which tests they get, what a worker makes of them, and what is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from experiments.common import pages
from experiments.mutants import judged, processor, reaching, running, tree
from experiments.mutants.__main__ import KEYS, PAGE, counts, main, section
from experiments.mutants.finding import Place, changed_lines, drawn, quotas

KEPT = PAGE.with_name("report.json")


def row(state: str, function: str = "teola.kv.f", change: str = "a -> b") -> dict[str, Any]:
    return {
        "path": "teola/kv/x.py",
        "line": 3,
        "operator": change,
        "state": state,
        "by": None if state == "survived" else "tests/kv/test_x.py::test_y",
        "seconds": 0.1,
        "package": "teola/kv",
        "function": function,
    }


# --- drawing --------------------------------------------------------------------------------


def test_packages_give_evenly_and_small_ones_all_they_have() -> None:
    assert quotas(12, {"a": 100, "b": 2, "c": 50}) == {"a": 5, "b": 2, "c": 5}
    assert quotas(2, {"a": 9, "b": 9, "c": 9}) == {"a": 1, "b": 1, "c": 0}
    assert quotas(9, {"a": 1, "b": 0}) == {"a": 1, "b": 0}


def test_a_seed_draws_the_same_mutants_again_and_another_others() -> None:
    places = [Place("teola/x.py", number, "teola.x.f", 1) for number in range(50)]
    assert drawn(places, 1, "teola") == drawn(places, 1, "teola")
    assert sorted(drawn(places, 1, "teola")) == places
    assert drawn(places, 1, "teola") != drawn(places, 2, "teola")


@pytest.mark.parametrize(
    ("after", "change"),
    [
        (" if a <= b:\n  g(\n   1,\n  )\n", "if a < b: -> if a <= b:"),
        (" if a < b:\n  g(\n  )\n", "1, -> (nothing)"),
        (" if a < b:\n  g()\n", "g( 1, ) -> g()"),
    ],
)
def test_a_change_is_told_by_its_lines(after: str, change: str) -> None:
    before = "def f():\n if a < b:\n  g(\n   1,\n  )\n"
    assert changed_lines(before, f"def f():\n{after}") == change


# --- which tests ----------------------------------------------------------------------------


def test_tests_of_a_file_are_those_of_its_name_those_listed_and_those_beside_it() -> None:
    ranks = reaching.files_of("teola/kv/policies/ranks.py")
    assert "tests/kv/policies/test_baselines.py" in ranks  # listed in tests/README.md
    assert "tests/kv/policies/test_next_use.py" in ranks  # beside
    assert "tests/kv/test_cache.py" in reaching.files_of("teola/kv/cache.py")
    grows = reaching.files_of("teola/runtime/in_flight.py")
    assert {"tests/runtime/live/test_fed.py", "tests/runtime/sim/test_weights.py"} <= {*grows}
    assert (
        reaching.files_of("teola/schedule/plan.py").count("tests/schedule/test_graph_run.py") == 1
    )


def test_every_file_that_is_mutated_by_itself_has_test_files() -> None:
    within = running.packages(running.PACKAGES)
    assert all(reaching.files_of(path) for paths in within.values() for path in paths)


def test_the_table_forgets_what_has_changed_since(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    for name in ("test_a.py", "x.py"):
        (tmp_path / name).write_text("1")
    entry = {
        "file": "test_a.py",
        "digests": {name: tree.file_digest(tmp_path / name) for name in ("test_a.py", "x.py")},
        "functions": ["x.f", "x.g"],
        "tests": {"test_a.py::test_slow": [2.0, [0]], "test_a.py::test_quick": [0.5, [0, 1]]},
    }
    (tmp_path / "kept" / "a.json").write_text(json.dumps(entry))
    reach = reaching.load(tmp_path / "kept", tmp_path)
    names = ["test_a.py::test_quick", "test_a.py::test_slow"]
    assert reaching.within(reach.tests["x.f"], reach, 60.0) == names
    assert reaching.within(reach.tests["x.f"], reach, 2.5) == names
    assert reaching.within(reach.tests["x.f"], reach, 2.4) == names[:1]
    assert reach.tests["x.g"] == names[:1]
    (tmp_path / "x.py").write_text("2")
    assert reaching.load(tmp_path / "kept", tmp_path) == reaching.Reach()


# --- a worker -------------------------------------------------------------------------------

TESTS = """
import os, threading, time
from pathlib import Path
import pytest

MUTANT = lambda: os.environ.get("MUTANT_UNDER_TEST")
DONE = Path(__file__).with_name("done.txt")

@pytest.fixture(scope="module")
def shared():
    return []

def test_a_quick():
    assert MUTANT() != "quick"

def test_b_hangs():
    while MUTANT() == "hangs": pass

def test_b_waits():
    if MUTANT() == "waits": threading.Event().wait()

def test_b_waits_long_enough_to_be_far_over_its_time():
    if MUTANT() == "nobody": time.sleep(2.5)

def test_c_dies():
    if MUTANT() == "dies": os._exit(0)

def test_d_is_always_wrong():
    assert False

def test_e_leaves(shared):
    shared.append(1)

def test_f_is_wrong_behind_another(shared):
    assert not shared

def test_g_last():
    assert MUTANT() != "last"
    with DONE.open("a") as file: file.write(str(MUTANT()) + "\\n")
"""


@pytest.mark.slow
def test_a_worker_tells_what_noticed_each_mutant_and_believes_no_test_that_fails_anyway(
    tmp_path: Path,
) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\n  server\n")
    names = ("quick", "hangs", "waits", "dies", "last", "nobody")
    told = {
        "mutants": [{"key": n, "name": n, "tests": None, "files": ["test_it.py"]} for n in names],
        "files": ["test_it.py"],
        "seconds": {},
        "out": str(tmp_path / "rows.jsonl"),
        "tmp": str(tmp_path / "tmp"),
        "limit_s": 2.2,
        "still_s": 4.0,
    }
    (tmp_path / "chunk.json").write_text(json.dumps(told))
    done = subprocess.run(
        [sys.executable, "-m", "experiments.mutants.worker", "chunk.json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tree.ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert [(row["key"], row["state"], row["by"]) for row in rows] == [
        ("quick", "killed", "test_it.py::test_a_quick"),
        ("hangs", "timeout", "test_it.py::test_b_hangs"),
        ("waits", "timeout", "test_it.py::test_b_waits"),
        ("dies", "killed", "test_it.py::test_c_dies"),
        ("last", "killed", "test_it.py::test_g_last"),
        ("nobody", "survived", None),
    ], done.stdout
    assert "unfit, it fails without a mutant: test_it.py::test_d_is_always_wrong" in done.stdout
    assert "test_f_is_wrong_behind_another" in done.stdout
    assert Counter((tmp_path / "done.txt").read_text().split())["nobody"] == 1


COMPUTES = "import time\nwhile time.process_time() < 0.3: pass"
STARTS = (
    f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {COMPUTES!r} + '\\ninput()'])"
)


def test_time_is_what_a_test_and_all_that_it_starts_compute_and_not_what_it_waits() -> None:
    began = processor.spent_s()
    subprocess.run([sys.executable, "-c", COMPUTES], check=True)
    assert processor.spent_s() - began >= 0.3
    began = processor.spent_s()
    time.sleep(0.3)
    assert processor.spent_s() - began < 0.3
    with subprocess.Popen([sys.executable, "-c", STARTS], stdin=subprocess.PIPE) as process:
        while processor.spent_below_s(process.pid) < 0.3:  # though its child has not ended yet
            assert process.poll() is None
            time.sleep(0.01)
    assert processor.spent_below_s(process.pid) == 0.0


# --- what is told ---------------------------------------------------------------------------


def test_a_share_is_of_what_can_be_noticed_and_a_timeout_is_noticed() -> None:
    states = ("killed", "killed", "timeout", "survived", "equivalent")
    rows = [row(state) for state in states]
    told = {"killed": 3, "survived": 1, "equivalent": 1, "share": 0.75}
    assert counts(rows) == told
    assert counts(rows[4:])["share"] is None


def test_json_has_these_keys_and_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "report.json"
    kept.write_text(json.dumps({"rows": [row("killed")], "seed": 1, "sample": 1}))
    main(["--report", str(kept), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert list(told) == ["rows", "killed", "survived", "equivalent", "share"]
    assert [tuple(one) for one in told["rows"]] == [KEYS]


def test_a_survivor_is_equivalent_by_its_function_and_change(tmp_path: Path) -> None:
    kept = tmp_path / "equivalents.json"
    entry = {"function": "teola.kv.f", "change": "a -> b", "reason": "nobody reads it"}
    kept.write_text(json.dumps([entry]))
    reasons = judged.equivalents(kept)
    rows = [row("survived"), row("survived", change="a -> c"), row("survived", "teola.kv.g")]
    assert judged.judge(rows, reasons) == []
    assert [one["state"] for one in rows] == ["equivalent", "survived", "survived"]
    (wrong,) = judged.judge([row("killed")], reasons)
    assert "tests/kv/test_x.py::test_y" in wrong
    for bad in ([entry, entry], [{**entry, "reason": ""}], [{**entry, "line": 3}]):
        kept.write_text(json.dumps(bad))
        with pytest.raises(judged.TeolaError, match=r"equivalents\.json"):
            judged.equivalents(kept)


@pytest.mark.parametrize(
    ("paths", "why"),
    [
        ("teola/no_such_folder", "no Python file or folder"),
        ("docs", "no Python file or folder"),
        ("teola/kv,teola/kv/policies", "is in two of the packages"),
    ],
)
def test_packages_without_code_and_within_each_other_are_refused(
    paths: str, why: str, tmp_path: Path
) -> None:
    with pytest.raises(SystemExit, match=why):
        main(["--paths", paths, "--work", str(tmp_path)])


@pytest.mark.nightly
def test_a_run_that_is_killed_goes_on(tmp_path: Path) -> None:
    """It fetches mutmut, where that is not there yet."""
    paths = ("--paths", "teola/kv/policies", "--work", str(tmp_path))
    command = [sys.executable, "-m", "experiments.mutants", *paths]
    made = subprocess.run([*command, "--table", "--json"], capture_output=True, check=True)
    assert json.loads(made.stdout)["functions"] > 50
    command += ["--sample", "6", "--workers", "1"]
    with subprocess.Popen(command) as process:
        while not (found := [*tmp_path.glob("runs/*/rows-*.jsonl")]):
            assert process.poll() is None
            time.sleep(0.05)
        process.kill()
    before = found[0].read_text()
    done = subprocess.run([*command, "--json"], capture_output=True, check=True)
    told = json.loads(done.stdout)
    assert len(told["rows"]) == 6
    assert {row["path"].rpartition("/")[0] for row in told["rows"]} == {"teola/kv/policies"}
    assert told["killed"] >= 3
    assert found[0].read_text().startswith(before)
    assert not [*tmp_path.glob("runs/*/tree")]


def test_the_readme_says_what_the_kept_report_does_and_each_judgement_has_a_reason() -> None:
    report = json.loads(KEPT.read_text())
    whole = f"{pages.begin('mutants')}\n{section(report)}\n{pages.end('mutants')}"
    assert whole in PAGE.read_text()
    assert judged.equivalents()
