"""Which tests run when: `make check`, `make test`, `make nightly` and `make soak`.

A test that needs a server (PostgreSQL, vLLM, Ray, Chromium or a `teola serve`) is marked `server`.
Most get the mark here, because a fixture of theirs asks for `servers`, as every fixture must that
starts one, or because they are marked `vllm`, `ray` or `browser`. Tests that start one themselves
carry the mark. All that tests start is watched: a test without the mark that starts one fails.

Runs with a planted bug (`tests/planted.py`) are marked `bug`. They test the tests, and not what
these are about: `make check` leaves them out. Where a test is slow they say little more than the
test itself: they are marked `nightly`, and run with `make nightly` and `make bugs`.

Workers of pytest-xdist take whole files; files that share a vLLM, a Ray or a Chromium go together.
What takes longest begins first, so that no worker is left alone with it at the end.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Generator, Iterable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

SERVERS: Final = "servers"
"""The fixture that fixtures ask for which start a server."""
ASKED_FOR: Final = ("soak", "nightly")
"""Marks of tests that run only where `-m` names them."""
SHARED: Final = ("vllm", "ray", "browser")
"""Marks of tests that need a server which only one worker shall start."""
AFTER: Final = {"ray": "vllm"}
"""Those of one begin when those of the other have ended, on the same worker: both compute as they
start, and Ray gives up where that takes too long."""
TURNS: Final = (SHARED, ("slow",), ("server",))
"""By marks, which files begin first."""
PROGRAMS: Final = {
    "initdb": "PostgreSQL",
    "pg_ctl": "PostgreSQL",
    "postgres": "PostgreSQL",
    "vllm_worker.py": "vLLM",
    "vllm_main.py": "vLLM",
    "gcs_server": "Ray",
    "raylet": "Ray",
    "chromedriver": "Chromium",
    "chromium": "Chromium",
}


# --- marks and order --------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark, leave out and order the tests."""
    for item in items:
        _mark(item)
    wanted = config.option.markexpr
    out = [tier for tier in ASKED_FOR if tier not in wanted]
    bugs = "planted" in wanted
    left = [
        item
        for item in items
        if any(map(item.get_closest_marker, out)) and not (bugs and _plants_a_bug(item))
    ]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in set(left)]
    _order(items)


def _mark(item: pytest.Item) -> None:
    fixtures = getattr(item, "fixturenames", ())
    if SERVERS in fixtures or any(map(item.get_closest_marker, SHARED)):
        item.add_marker("server")
    if _plants_a_bug(item):
        item.add_marker("bug")
        if item.get_closest_marker("slow"):
            item.add_marker("nightly")


def _plants_a_bug(item: pytest.Item) -> bool:
    return getattr(getattr(item, "callspec", None), "params", {}).get("planted") is not None


def _order(items: list[pytest.Item]) -> None:
    """Files with shared servers first, then those with slow tests, then those with servers."""
    turns: dict[Path, int] = {}
    for item in items:
        turns[item.path] = min(_turn(item), turns.get(item.path, len(TURNS)))
    items.sort(key=lambda item: turns[item.path])


def _turn(item: pytest.Item) -> int:
    found = (i for i, marks in enumerate(TURNS) if any(map(item.get_closest_marker, marks)))
    return next(found, len(TURNS))


# --- workers ----------------------------------------------------------------------------------


class Scheduling(LoadFileScheduling):
    """A file to one worker, and all files that share a server to the same one. What a worker was at
    when it died is not begun again, and the rest of its files goes on."""

    def remove_node(self, node: WorkerController) -> str | None:
        """Called when a worker has ended, of itself or not."""
        left = self.assigned_work[node]
        at = next((test for unit in left.values() for test in unit if not unit[test]), None)
        if at is None:
            del self.assigned_work[node]
            return None
        del left[self._split_scope(at)][at]
        rest = {scope: [test for test in unit if not unit[test]] for scope, unit in left.items()}
        for scope, tests in rest.items():
            left[scope] = dict.fromkeys(tests, False)
            if not tests:
                del left[scope]
        super().remove_node(node)
        return at

    def _assign_work_unit(self, node: WorkerController) -> None:
        """A worker begins a test once it knows the next one, or that there is none."""
        super()._assign_work_unit(node)
        if not self.workqueue:
            node.shutdown()

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        server = shared_server(self.config.rootpath / file)
        return file if server is None else AFTER.get(server, server)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling | None:
    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


@cache
def shared_server(file: Path) -> str | None:
    """The first of SHARED that a file marks tests with. What workers have collected is not known
    where their work is shared out, so it is read."""
    text = file.read_text()
    names = [mark for mark in SHARED if f"mark.{mark}" in text]
    tree = ast.walk(ast.parse(text)) if names else ()
    used = {ast.unparse(node) for node in tree if isinstance(node, ast.Attribute)}
    return next((name for name in names if f"pytest.mark.{name}" in used), None)


# --- what tests start -------------------------------------------------------------------------


class Watch:
    """Notes which servers this process starts."""

    def __init__(self) -> None:
        self.started: list[str] = []

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        """An audit hook."""
        if event == "subprocess.Popen" and (server := server_of(arguments[1])):
            self.started.append(server)


def server_of(command: str | bytes | Path | Iterable[Any]) -> str | None:
    """The server that a command starts, if it starts one."""
    one = isinstance(command, (str, bytes, Path))
    words = [_text(word) for word in ([command] if one else command)]
    names = [word.rpartition("/")[2] for word in words]
    for name in names:
        if name in PROGRAMS:
            return PROGRAMS[name]
    if ("teola", "serve") in pairwise(names):
        return "teola serve"
    return None


def _text(word: Any) -> str:
    return word.decode(errors="replace") if isinstance(word, bytes) else str(word)


_watch = Watch()
sys.addaudithook(_watch)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    _watch.started.clear()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Fails a test that has started a server and is not marked; not for what ends only then."""
    started = list(_watch.started)
    ended = yield
    if started and not item.get_closest_marker("server"):
        pytest.fail(
            f"it starts {started[0]}, so `make check` must leave it out: mark the test "
            f"`server`, or let the fixture that starts it ask for `{SERVERS}`",
            pytrace=False,
        )
    return ended
