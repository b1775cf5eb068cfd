"""A plug-in of pytest that notes which functions each test reaches, for the table.

Every function that is imported from the copy gets a statement that notes its number, before it
does anything else. That costs a test little, and works inside threads and coroutines, too. What a
fixture of several tests reaches counts for the first of them.
"""

from __future__ import annotations

import ast
import builtins
import json
import os
import sys
from collections import defaultdict
from collections.abc import Generator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any, Final

import pytest

from experiments.mutants import processor, tree

OWN: Final = "experiments/mutants/probe.py"
"""Who makes the table otherwise makes it anew."""
NOTE: Final = "__mutants_reached__"
WRITTEN: Final = ("teola", "engines")
"""Folders whose functions are noted."""


class Probe:
    """Functions by number, and what each test reached."""

    def __init__(self, root: Path, kept: Path) -> None:
        self.root = root
        self.kept = kept
        self.names: list[str] = []
        self.paths: list[str] = []
        self.now: set[int] = set()
        self.tests: dict[str, dict[str, tuple[float, list[int]]]] = defaultdict(dict)
        self.failed = False

    def compiled(self, data: bytes, path: str) -> Any:
        """The code of a file with a note in each function."""
        relative = Path(path).resolve().relative_to(self.root).as_posix()
        module = ast.parse(data, path)
        for node in module.body:
            self._into(node, relative, "")
        return compile(module, path, "exec", dont_inherit=True)

    def _into(self, node: ast.stmt, path: str, owner: str) -> None:
        if isinstance(node, ast.ClassDef) and not owner:
            for inner in node.body:
                self._into(inner, path, f"{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            number = len(self.names)
            self.names.append(f"{tree.module_of(path)}.{owner}{node.name}")
            self.paths.append(path)
            for function in ast.walk(node):
                if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                    self._note(function, number)

    @staticmethod
    def _note(function: ast.FunctionDef | ast.AsyncFunctionDef, number: int) -> None:
        first = function.body[0]
        note = ast.parse(f"{NOTE}({number})").body[0]
        for node in ast.walk(note):
            if isinstance(node, ast.expr | ast.stmt):
                ast.copy_location(node, first)
        function.body.insert(1 if ast.get_docstring(function, clean=False) else 0, note)

    # --- what pytest calls -----------------------------------------------------------------

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        bugs = [item for item in items if plants_a_bug(item)]
        if bugs:
            config.hook.pytest_deselected(items=bugs)
            items[:] = [item for item in items if not plants_a_bug(item)]

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self.now.clear()
        self.failed = False
        began = processor.spent_s()
        ended = yield
        if not self.failed:
            file = item.nodeid.partition("::")[0]
            seconds = round(processor.spent_s() - began, 4)
            self.tests[file][item.nodeid] = (seconds, sorted(self.now))
        return ended

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed = self.failed or report.failed

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write an entry for each file that was asked for, also if none of its tests is run."""
        asked = {item for item in session.config.args if item.endswith(".py")}
        for file in asked | self.tests.keys():
            self._keep(file)

    def _keep(self, file: str) -> None:
        tests = self.tests.get(file, {})
        reached = sorted({number for _, numbers in tests.values() for number in numbers})
        place = {number: i for i, number in enumerate(reached)}
        names = {file, OWN, *(self.paths[number] for number in reached)}
        entry = {
            "file": file,
            "digests": {name: tree.file_digest(self.root / name) for name in sorted(names)},
            "functions": [self.names[number] for number in reached],
            "tests": {
                test: [seconds, [place[number] for number in numbers]]
                for test, (seconds, numbers) in tests.items()
            },
        }
        name = file.removesuffix(".py").replace("/", ".")
        (self.kept / f"{name}.json").write_text(json.dumps(entry), encoding="utf-8")


def plants_a_bug(item: pytest.Item) -> bool:
    """Whether a bug is planted in this run of a test (tests/planted.py), which has to fail."""
    return getattr(getattr(item, "callspec", None), "params", {}).get("planted") is not None


def _watch(probe: Probe) -> None:
    """Note functions of all modules that are imported from now on."""
    folders = tuple(str(probe.root / name) + os.sep for name in WRITTEN)
    plain = SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, fullname: str) -> Any:
        path = str(Path(self.get_filename(fullname)).resolve())
        if path.startswith(folders):
            return probe.compiled(self.get_data(path), path)
        return plain(self, fullname)

    setattr(builtins, NOTE, probe.now.add)
    SourceFileLoader.get_code = get_code  # type: ignore[method-assign]
    for name in [
        name for name in sys.modules if name.partition(".")[0] in ("teola", "teola_engines")
    ]:
        del sys.modules[name]  # this plug-in itself needed them


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Begin to note, before tests/conftest.py imports anything."""
    given = json.loads(Path(os.environ["MUTANTS_PROBE"]).read_text(encoding="utf-8"))
    probe = Probe(Path(given["work"]).resolve() / "tree", Path(given["kept"]))
    early_config.pluginmanager.register(probe, "mutants-probe")
    _watch(probe)
