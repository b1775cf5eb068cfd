"""Runs pytest, and what failed once more, alone: `python -m tests.flaky ARGUMENTS OF PYTEST`.

Some tests watch real servers, which a busy machine can starve. One that fails beside its neighbours
and passes alone is flaky: it is printed with its first failure, counted in the last line, and kept
in build/flaky.jsonl. One that fails again fails the run, and so does every other end of pytest than
failed tests, after which nothing is run again. As a plugin it notes what fails, and selects it.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

LOG: Final = Path("build/flaky.jsonl")
ALONE: Final = ("-n", "0", "-p", "no:cacheprovider")


@dataclass(frozen=True, slots=True)
class Failure:
    """A test that failed: when it ended, the seconds it took, and what pytest tells of it."""

    date: str
    test: str
    duration: float
    longrepr: str


# --- the plugin -------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("flaky")
    group.addoption("--failures", metavar="FILE", help="add a line of JSON for each failed test")
    group.addoption("--only", metavar="FILE", help="run only the tests in a file of --failures")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep only those that failed before. Raises UsageError if one is not there any more."""
    if not (file := config.getoption("--only")):
        return
    wanted = {failure.test for failure in failures(Path(file))}
    if lost := wanted - {item.nodeid for item in items}:
        raise pytest.UsageError(f"failed before and cannot be found again: {sorted(lost)}")
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in wanted])
    items[:] = [item for item in items if item.nodeid in wanted]


class Notes:
    """Writes down what fails, on all workers."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            date = datetime.now(UTC).isoformat(timespec="seconds")
            seconds = round(report.duration, 3)
            _add(self.file, Failure(date, report.nodeid, seconds, report.longreprtext))

    def pytest_sessionfinish(self) -> None:
        _whole(self.file).touch()


def pytest_configure(config: pytest.Config) -> None:
    file = config.getoption("--failures")
    if file and not hasattr(config, "workerinput"):  # a worker's reports come here as well
        config.pluginmanager.register(Notes(Path(file)))


def _add(file: Path, failure: Failure) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as lines:
        lines.write(json.dumps(asdict(failure)) + "\n")


def _whole(file: Path) -> Path:
    """Is there once all tests of `file` have run: one that ends the process has none after it, and
    the exit status is that of a failed test."""
    return file.with_suffix(".whole")


def failures(file: Path) -> list[Failure]:
    """Those in a file, the first of each test."""
    lines = file.read_text().splitlines() if file.exists() else []
    found: dict[str, Failure] = {}
    for failure in (Failure(**json.loads(line)) for line in lines):
        found.setdefault(failure.test, failure)
    return list(found.values())


# --- the program ------------------------------------------------------------------------------


def main(arguments: Sequence[str]) -> int:
    """Exit status: of the tests that ran alone, if it came to that."""
    with tempfile.TemporaryDirectory(prefix="teola-flaky-") as folder:
        first, again = Path(folder, "first"), Path(folder, "again")
        status = _pytest(*arguments, f"--failures={first}")
        failed = failures(first)
        if status == pytest.ExitCode.OK:
            _tell([])
        if status != pytest.ExitCode.TESTS_FAILED or not failed:
            return status
        print(f"\n{len(failed)} failed; once more, alone", flush=True)
        status = _pytest(*arguments, *ALONE, f"--only={first}", f"--failures={again}")
        kept = {failure.test for failure in failures(again)}
        ended = status in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        ran = ended and _whole(again).exists()
        _tell([failure for failure in failed if ran and failure.test not in kept])
    return status


def _pytest(*arguments: str) -> int:
    """Its exit status. Ctrl-C is for pytest, which has servers to stop; here it is waited for."""
    command = [sys.executable, "-m", "pytest", "-p", "tests.flaky", *arguments]
    with subprocess.Popen(command) as process:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            code = process.wait()
        finally:
            signal.signal(signal.SIGINT, before)
    return code if code >= 0 else 128 - code


def _tell(flaky: Sequence[Failure]) -> None:
    for failure in flaky:
        _add(LOG, failure)
        print(f"\nflaky: {failure.test} passed alone; before that, after {failure.duration:g} s:")
        print(failure.longrepr)
    print(f"\nflaky: {len(flaky)}" + (f" (kept in {LOG})" if flaky else ""))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
