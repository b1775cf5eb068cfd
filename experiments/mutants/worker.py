"""A process that runs mutants: it collects their tests once, and forks for each of them.

    python -m experiments.mutants.worker CHUNK.json

It runs in the copy of the tree. A mutant's tests run in a child, one after the other, until one
fails; the child tells through a pipe where it is. A row for each mutant is added to a file.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from select import select
from typing import Any, Final, NoReturn

import pytest

from experiments.mutants import processor
from experiments.mutants.probe import plants_a_bug

LIMIT_S: Final = 60.0
"""The longest that a mutant's tests compute."""
SLOWER: Final = 10.0
SLACK_S: Final = 5.0
"""A test hangs when it computes so many times as long as usual, and so much longer."""
STILL_S: Final = 30.0
STIRS_S: Final = 0.1
"""It hangs, too, when it has computed for less than that in so long a time of the clock."""
FAR: Final = 20.0
"""By the clock tests run at most so many times as long as they may compute."""
ENDING_S: Final = 5.0
"""How long a child may clean up, by the clock."""


@dataclass(slots=True)
class Course:
    """What a child told. passed: its tests that passed, with their processor seconds. failed: the
    one that did not. at: the one that it was at when it was stopped, which had taken `at_s`. still:
    whether that one only waited."""

    passed: dict[str, float] = field(default_factory=dict)
    failed: str | None = None
    at: str | None = None
    at_s: float = 0.0
    still: bool = False


class Runner:
    """Runs mutants in pytest's loop of tests."""

    def __init__(self, chunk: Mapping[str, Any]) -> None:
        self.mutants: Sequence[Mapping[str, Any]] = chunk["mutants"]
        self.out = Path(chunk["out"])
        self.usual: dict[str, float] = dict(chunk["seconds"])
        self.limit_s: float = chunk["limit_s"]
        self.still_s: float = chunk["still_s"]
        self.unfit: set[str] = set()
        self.child: int | None = None
        self.parent = os.getppid()
        self._alone: dict[str, Course] = {}
        self._items: dict[str, pytest.Item] = {}
        self._failed = False

    # --- what pytest calls -----------------------------------------------------------------

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed = self._failed or report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """In place of running every test: run some for each mutant."""
        if session.testsfailed:
            raise session.Interrupted("some tests cannot be imported")
        self._items = {item.nodeid: item for item in session.items if not plants_a_bug(item)}
        for mutant in self.mutants:
            began = processor.spent_s()
            state, by = self.judge(mutant["name"], self.tests(mutant))
            row = {"key": mutant["key"], "state": state, "by": by}
            row["seconds"] = round(processor.spent_s() - began, 2)
            with self.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        return True

    # --- one mutant ------------------------------------------------------------------------

    def tests(self, mutant: Mapping[str, Any]) -> list[str]:
        """The tests of a mutant, fastest first. Those with servers come only where there is no
        other one. The table knows neither these nor slow ones: they are what is left where it says
        that nothing reaches the function."""
        known = mutant["tests"]
        if known:
            return [name for name in known if name in self._items]
        near = [name for name in self._items if name.partition("::")[0] in set(mutant["files"])]
        slow = {name for name in near if self._marked(name, "slow")}
        server = {name for name in near if self._marked(name, "server")}
        if known is not None:
            near = [name for name in near if name in slow | server]
        if server != set(near):
            near = [name for name in near if name not in server]
        return sorted(near, key=lambda name: (name in slow, self.usual.get(name, 0.0)))

    def _marked(self, test: str, mark: str) -> bool:
        return self._items[test].get_closest_marker(mark) is not None

    def judge(self, mutant: str, tests: Sequence[str]) -> tuple[str, str | None]:
        """The state of a mutant, and the test that noticed it."""
        while True:
            asked = [test for test in tests if test not in self.unfit]
            course = self.run(mutant, asked)
            self.usual = {**course.passed, **self.usual}
            if course.failed is not None:
                if self._fits(mutant, asked, course.failed):
                    return "killed", course.failed
            elif course.at is not None:
                sound = self._sound(course.at)
                if sound.failed is None and sound.at is None:
                    if course.still or course.at_s > 3 * sound.passed[course.at] + 2:
                        return "timeout", course.at
                    return "survived", None
                self.unfit.add(course.at)
            else:
                return "survived", None

    def _fits(self, mutant: str, tests: Sequence[str], failed: str) -> bool:
        """Whether a test failed because of the mutant, and not without it or by its place."""
        sound = self._sound(failed)
        if sound.failed is None and sound.at is None:
            if self.run(mutant, [failed]).passed.get(failed) is None:
                return True
            before = list(tests[: tests.index(failed) + 1])
            if self.run(None, before).failed is None:
                return True
        print(f"unfit, it fails without a mutant: {failed}", flush=True)
        self.unfit.add(failed)
        return False

    def _sound(self, test: str) -> Course:
        """How a test ends alone and without a mutant; asked once."""
        if test not in self._alone:
            self._alone[test] = self.run(None, [test])
        return self._alone[test]

    # --- children --------------------------------------------------------------------------

    def run(self, mutant: str | None, tests: Sequence[str]) -> Course:
        """Run tests in a child until one fails."""
        reader, writer = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            os.close(reader)
            self._be_child(mutant, tests, writer)
        self.child = child
        with suppress(PermissionError, ProcessLookupError):  # it may have done so, and have ended
            os.setpgid(child, child)
        os.close(writer)
        try:
            return self._watch(child, reader)
        finally:
            os.close(reader)
            self.stop()

    def stop(self) -> None:
        """End the child that runs, with all that it started."""
        child, self.child = self.child, None
        if child is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)

    def _watch(self, child: int, reader: int) -> Course:
        """Follow a child until it ends, or a test of it hangs, or it has used its time."""
        course, rest = Course(), b""
        began = stirred_at = ended_at = time.monotonic()
        spent = since = stirred = 0.0
        while True:
            now = time.monotonic()
            if spent > stirred + STIRS_S:
                stirred_at, stirred = now, spent
            if course.failed is not None:
                if now > ended_at + ENDING_S:
                    return course
            elif spent >= min(self.limit_s, since + self._longest(course.at)):
                course.at_s = spent - since
                return course
            elif now > min(stirred_at + self.still_s, began + FAR * self.limit_s):
                course.at_s, course.still = spent - since, now > stirred_at + self.still_s
                return course
            if os.getppid() != self.parent:
                raise RuntimeError("whoever started this process has ended")
            if not select([reader], [], [], 0.5)[0]:
                spent = max(spent, processor.spent_below_s(child))
                continue
            piece = os.read(reader, 65536)
            if not piece:  # it ended early: in a test, if that made it
                course.failed, course.at = course.failed or course.at, None
                if course.failed is None:
                    raise RuntimeError("a child ended between two tests")
                return course
            stirred_at = time.monotonic()
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                word, seconds, test = line.decode().split(" ", 2)
                spent = float(seconds)
                if word == "begin":
                    course.at = test
                elif word == "passed":
                    course.passed[test], course.at = spent - since, None
                elif word == "ended":
                    return course
                else:
                    course.failed, course.at, ended_at = test, None, stirred_at
                since = spent

    def _longest(self, test: str | None) -> float:
        """How long a test may compute."""
        return SLOWER * self.usual[test] + SLACK_S if test in self.usual else self.limit_s

    def _be_child(self, mutant: str | None, tests: Sequence[str], writer: int) -> NoReturn:
        try:
            os.setpgid(0, 0)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            if mutant is not None:
                _activate(mutant)

            def tell(word: str, test: str) -> None:
                os.write(writer, f"{word} {processor.spent_s():.6f} {test}\n".encode())

            for test, following in pairwise([*tests, None]):
                assert test is not None
                self._failed = False
                tell("begin", test)
                item = self._items[test]
                item.config.hook.pytest_runtest_protocol(
                    item=item, nextitem=self._items[following] if following else None
                )
                tell("failed" if self._failed else "passed", test)
                if self._failed:
                    item.session._setupstate.teardown_exact(None)
                    break
            tell("ended", ".")
        finally:
            os._exit(0)


def _activate(mutant: str) -> None:
    """Let this process run a mutant, and those that it starts. mutmut keeps the name in a variable
    of its own, too, for tests that clear the environment."""
    os.environ["MUTANT_UNDER_TEST"] = mutant
    if trampoline := sys.modules.get("mutmut.mutation.trampoline"):
        trampoline.set_mutant_under_test(mutant)


def main() -> None:
    chunk = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    runner = Runner(chunk)

    def end(number: int, frame: object) -> NoReturn:
        runner.stop()
        os._exit(128 + number)

    signal.signal(signal.SIGTERM, end)
    options = ["-q", "-p", "no:cacheprovider", f"--basetemp={chunk['tmp']}"]
    raise SystemExit(pytest.main([*options, *chunk["files"]], plugins=[runner]))


if __name__ == "__main__":
    main()
