"""`python -m tests.flaky`: what fails is run once more, alone, and nothing of it is hidden."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.architecture.tiny import run
from tests.flaky import LATE

pytestmark = pytest.mark.slow

FLAKY = """
from pathlib import Path
import pytest

@pytest.mark.parametrize("it", ["a b", "[x]@y"])
def test_first_time(it):
    seen = Path("seen-" + it)
    assert seen.exists() or seen.touch(), "the machine was busy"
"""
BROKEN = "def test_never():\n    assert False, 'always'\n"
GOOD = "def test_good():\n    with open('ran', 'a') as file:\n        file.write('x')\n"
HANGS = """
import signal
import time

def test_for_ever():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})  # as what swallows its own limit
    time.sleep(600)
"""
TWO = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")


def flaky(folder: Path, *arguments: str, **tests: str) -> tuple[int, str]:
    for name, text in tests.items():
        (folder / f"test_{name}.py").write_text(text)
    return run("tests.flaky", folder, *arguments)


def logged(folder: Path) -> list[dict[str, Any]]:
    log = folder / "build" / "flaky.jsonl"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def test_where_all_pass_nothing_is_run_again(tmp_path: Path) -> None:
    code, text = flaky(tmp_path, good=GOOD)
    assert code == 0
    assert text.splitlines()[-1] == "flaky: 0"
    assert (tmp_path / "ran").read_text() == "x"
    assert logged(tmp_path) == []


@pytest.mark.parametrize("workers", [(), TWO], ids=["one process", "two workers"])
def test_what_passes_alone_is_told_counted_and_kept(
    tmp_path: Path, workers: tuple[str, ...]
) -> None:
    code, text = flaky(tmp_path, *workers, good=GOOD, flaky=FLAKY)
    assert code == 0, text
    assert text.splitlines()[-1] == "flaky: 2 (kept in build/flaky.jsonl)"
    assert (tmp_path / "ran").read_text() == "x", "what passed is not run again"
    names = {f"test_flaky.py::test_first_time[{it}]" for it in ("a b", "[x]@y")}
    assert {one["test"] for one in logged(tmp_path)} == names
    told = text[text.rindex(" passed in ") :]
    for one in logged(tmp_path):
        assert set(one) == {"date", "test", "duration", "longrepr"}
        assert "AssertionError: the machine was busy" in one["longrepr"]
        assert f"flaky: {one['test']} passed alone" in told
    assert told.count("AssertionError: the machine was busy") == 2


def test_the_log_grows(tmp_path: Path) -> None:
    for count in (2, 4):
        assert flaky(tmp_path, flaky=FLAKY)[0] == 0
        assert len(logged(tmp_path)) == count
        for seen in tmp_path.glob("seen-*"):
            seen.unlink()


def test_what_fails_again_fails_the_run(tmp_path: Path) -> None:
    code, text = flaky(tmp_path, *TWO, good=GOOD, flaky=FLAKY, broken=BROKEN)
    assert code == 1, text
    assert text.splitlines()[-1] == "flaky: 2 (kept in build/flaky.jsonl)"
    assert {one["test"].partition("::")[0] for one in logged(tmp_path)} == {"test_flaky.py"}


@pytest.mark.parametrize("where", ["setup", "teardown"])
def test_a_fixture_that_fails_is_a_failure_too(tmp_path: Path, where: str) -> None:
    before, after = ("", "yield") if where == "teardown" else ("yield", "")
    fixture = (
        "from pathlib import Path\nimport pytest\n@pytest.fixture\ndef it():\n"
        f"    {after}\n    assert Path('x').exists() or Path('x').touch()\n    {before}\n"
        "def test_it(it): pass\n"
    )
    code, text = flaky(tmp_path, fixture=fixture)
    assert code == 0, text
    assert [one["test"] for one in logged(tmp_path)] == ["test_fixture.py::test_it"]


@pytest.mark.parametrize(
    ("text", "status"),
    [("import nothing_of_that_name\n", 2), ("import os\ndef test_x(): os._exit(7)\n", 7)],
    ids=["not collected", "killed"],
)
def test_any_other_end_of_pytest_is_final(tmp_path: Path, text: str, status: int) -> None:
    code, told = flaky(tmp_path, broken=text)
    assert code == status
    assert "once more" not in told
    assert "flaky" not in told.splitlines()[-1]


def test_a_test_that_cannot_be_found_again_fails_the_run(tmp_path: Path) -> None:
    text = (
        "import os, pytest\n@pytest.mark.parametrize('pid', [os.getpid()])\n"
        "def test_x(pid): assert False\n"
    )
    code, told = flaky(tmp_path, other=text)
    assert code == pytest.ExitCode.USAGE_ERROR
    assert "failed before and cannot be found again: ['test_other.py::test_x[" in told


@pytest.mark.nightly  # takes as long as the limit
def test_what_outlives_its_limit_ends_its_worker_and_nothing_else(tmp_path: Path) -> None:
    code, text = flaky(tmp_path, *TWO, "--stuck=3", good=GOOD, hangs=HANGS)
    assert code == 1, text
    assert "crashed while running 'test_hangs.py::test_for_ever'" in text
    assert text.count("in test_for_ever") >= 2, "where it stood, both times"
    assert (tmp_path / "ran").read_text() == "x", "the others run"
    assert "flaky: 0" in text, "what ends the process a second time did not pass"


def test_what_stands_still_only_beside_others_is_flaky(tmp_path: Path) -> None:
    once = (
        "    from pathlib import Path\n    if Path('s').exists(): return\n    Path('s').touch()\n"
    )
    hangs = HANGS.replace("    signal.pth", once + "    signal.pth")
    code, text = flaky(tmp_path, *TWO, "--stuck=3", good=GOOD, hangs=hangs)
    assert code == 0, text
    (one,) = logged(tmp_path)
    assert one["test"] == "test_hangs.py::test_for_ever"
    assert "in test_for_ever" in one["longrepr"]


@pytest.mark.parametrize("after", [0, 1, 2], ids=["the last of all", "one after", "two after"])
def test_what_follows_a_test_that_ends_its_worker_runs_once(tmp_path: Path, after: int) -> None:
    dies = "import os\ndef test_dies(): os._exit(7)\n"
    rest = GOOD.removeprefix("def test_good():\n")
    dies += "".join(f"def test_{i}():\n{rest}" for i in range(after))
    code, text = flaky(tmp_path, *TWO, "--minutes=2", "-p", "tests.tiers", good=GOOD, zz=dies)
    assert code == 1, text
    assert "time for this run is over" not in text, text
    assert (tmp_path / "ran").read_text() == "x" * (1 + after)


def test_a_run_ends_with_its_minutes_and_tells_what_it_was_at(tmp_path: Path) -> None:
    hangs = HANGS.replace("time.sleep", "import subprocess; subprocess.run(['sleep', '601']) #")
    code, text = flaky(tmp_path, *TWO, "--minutes=0.3", good=GOOD, hangs=hangs)
    assert code == LATE, text
    assert "in test_for_ever" in text
    end = text[text.index("The time for this run is over. What ran:") :].splitlines()
    assert len(end) == 2
    assert end[1].startswith("  test_hangs.py::test_for_ever (for ")
    assert ["sleep", "601"] not in [one.info["cmdline"] for one in psutil.process_iter(["cmdline"])]
