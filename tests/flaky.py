"""Runs pytest, and what failed once more, alone:

    python -m tests.flaky [--minutes N] ARGUMENTS OF PYTEST

Some tests watch real servers, which a busy machine can starve. One that fails beside its neighbours
and passes alone is flaky: it is printed with its first failure, counted in the last line, and kept
in build/flaky.jsonl. One that fails again fails the run, and so does every other end of pytest than
failed tests, after which nothing is run again. After N minutes, if it comes to that, everything is
ended, what ran then is told with where it stood, and the run has failed. As a plugin it notes what
fails, and selects it.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import psutil
import pytest

from tests import stuck

LOG: Final = Path("build/flaky.jsonl")
ALONE: Final = ("-n", "0", "-p", "no:cacheprovider")
ALONE_IN_A_WORKER: Final = ("-n", "1", "-p", "no:cacheprovider")
"""For tests of which one has ended its worker: if it does so again, the rest still runs."""
LATE: Final = 124
"""Exit status of a run that its minutes ended, as `timeout` has it."""


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


def main(given: Sequence[str]) -> int:
    """Exit status: of the tests that ran alone, if it came to that."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--minutes", type=float)
    options, arguments = parser.parse_known_args(given)
    end = None if options.minutes is None else time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory(prefix="teola-flaky-") as folder:
        first, again = Path(folder, "first"), Path(folder, "again")
        status = _pytest(end, *arguments, f"--failures={first}")
        failed = failures(first)
        if status == pytest.ExitCode.OK:
            _tell([])
        if status != pytest.ExitCode.TESTS_FAILED or not failed:
            return status
        print(f"\n{len(failed)} failed; once more, alone", flush=True)
        alone = ALONE_IN_A_WORKER if any(map(_ended_its_worker, failed)) else ALONE
        status = _pytest(end, *arguments, *alone, f"--only={first}", f"--failures={again}")
        kept = {failure.test for failure in failures(again)}
        ended = status in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        ran = ended and _whole(again).exists()
        for failure in filter(_ended_its_worker, failed):
            print(f"\n{failure.test}, beside others:\n{failure.longrepr}")
        _tell([failure for failure in failed if ran and failure.test not in kept])
    return status


def _ended_its_worker(failure: Failure) -> bool:
    return bool(re.search(r"^worker '\w+' crashed while running ", failure.longrepr, re.MULTILINE))


def _pytest(end: float | None, *arguments: str) -> int:
    """Its exit status. Ctrl-C is for pytest, which has servers to stop; here it is waited for."""
    with tempfile.TemporaryDirectory(prefix="teola-stands-") as stands:
        plugins = ("-p", "tests.stuck", "-p", "tests.flaky", f"--stands={stands}")
        with subprocess.Popen([sys.executable, "-m", "pytest", *plugins, *arguments]) as process:
            before = signal.signal(signal.SIGINT, signal.SIG_IGN)
            try:
                code = process.wait(None if end is None else max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                _end(process, Path(stands))
                return LATE
            finally:
                signal.signal(signal.SIGINT, before)
    return code if code >= 0 else 128 - code


def _end(process: subprocess.Popen[bytes], stands: Path) -> None:
    """Kill it with all that it has started, and tell what ran."""
    where, running = stuck.standing(stands), stuck.running(stands)
    everything = [psutil.Process(process.pid)]
    everything += everything[0].children(recursive=True)
    for one in everything:
        one.kill()
    process.wait()
    print(f"\n{where}\n\nThe time for this run is over. What ran:")
    for test, began in running.items():
        print(f"  {test} (for {time.time() - began:.0f} s)")
    if not running:
        print("  no test")


def _tell(flaky: Sequence[Failure]) -> None:
    for failure in flaky:
        _add(LOG, failure)
        print(f"\nflaky: {failure.test} passed alone; before that, after {failure.duration:g} s:")
        print(failure.longrepr)
    print(f"\nflaky: {len(flaky)}" + (f" (kept in {LOG})" if flaky else ""))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
