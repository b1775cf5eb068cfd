"""What the marks of `tests/tiers.py` leave out, how files are shared out, and what is noticed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.architecture.tiny import run
from tests.tiers import server_of

pytestmark = pytest.mark.slow

CONFTEST = """
import pytest
pytest_plugins = ("tests.tiers",)

@pytest.fixture(scope="session")
def servers():
    pass

@pytest.fixture
def database(servers):
    pass
"""
STARTS = """
import subprocess, sys
import pytest

def start():
    subprocess.run([sys.executable, "-c", "", "bin/postgres"], check=True)

@pytest.fixture(scope="module")
def forgotten():
    start()

@pytest.fixture(scope="module")
def declared(servers):
    start()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    return tmp_path


def collected(folder: Path, *arguments: str) -> list[str]:
    """Names of the tests that would run, in their order."""
    code, text = run("pytest", folder, "--collect-only", "-q", *arguments)
    assert code in (0, 5), text
    return re.findall(r"::(\w+)", text)


def test_a_fixture_that_asks_for_servers_marks_its_tests(folder: Path) -> None:
    (folder / "test_some.py").write_text(
        "import pytest\n"
        "def test_plain(): pass\n"
        "def test_stored(database): pass\n"
        "@pytest.mark.ray\ndef test_ray(): pass\n"
    )
    assert collected(folder, "-m", "not server") == ["test_plain"]
    assert collected(folder, "-m", "server") == ["test_stored", "test_ray"]


@pytest.mark.parametrize("tier", ["nightly", "soak"])
def test_some_run_only_where_they_are_asked_for(folder: Path, tier: str) -> None:
    (folder / "test_some.py").write_text(
        f"import pytest\ndef test_plain(): pass\n@pytest.mark.{tier}\ndef test_long(): pass\n"
    )
    assert collected(folder) == ["test_plain"]
    assert collected(folder, "-m", "not server") == ["test_plain"]
    assert collected(folder, "-m", tier) == ["test_long"]


def test_bugs_are_planted_beside_slow_tests_only_where_they_are_asked_for(folder: Path) -> None:
    bug = '@catches("bug", "it is wrong", lambda patch: None)\n'
    (folder / "test_some.py").write_text(
        "import pytest\nfrom tests.planted import catches\n"
        f"{bug}def test_quick(): pass\n@pytest.mark.slow\n{bug}def test_slow(): pass\n"
    )
    planted = ("-p", "tests.planted")
    assert collected(folder, *planted) == ["test_quick", "test_quick", "test_slow"]
    assert collected(folder, *planted, "-m", "not bug") == ["test_quick", "test_slow"]
    assert collected(folder, *planted, "-m", "nightly") == ["test_slow"]
    assert len(collected(folder, *planted, "-m", "planted")) == 4


def test_whole_files_begin_early_for_what_takes_longest_in_them(folder: Path) -> None:
    (folder / "test_a.py").write_text("def test_quick(): pass\n")
    (folder / "test_b.py").write_text("def test_one(): pass\ndef test_stored(database): pass\n")
    (folder / "test_c.py").write_text(
        "import pytest\ndef test_first(): pass\n@pytest.mark.vllm\ndef test_vllm(): pass\n"
    )
    found = collected(folder)
    assert found == ["test_first", "test_vllm", "test_one", "test_stored", "test_quick"]


def test_files_stay_whole_and_those_that_share_a_server_go_together(folder: Path) -> None:
    told = "import os\ndef test_{0}_{1}(): print('at', os.environ['PYTEST_XDIST_WORKER'])\n"
    vllm, ray = (f"import pytest\npytestmark = pytest.mark.{name}\n" for name in ("vllm", "ray"))
    for name, first in (("a", vllm), ("b", ray), ("c", ""), ("d", "")):
        text = "".join(told.format(name, i) for i in range(3))
        (folder / f"test_{name}.py").write_text(first + text)
    code, text = run(
        "pytest", folder, "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", "-rP"
    )
    assert code == 0, text
    workers: dict[str, set[str]] = {}
    for name, worker in re.findall(r"_ test_(\w)_\d _+\n(?:.*\n)*?at (gw\d)", text):
        workers.setdefault(name, set()).add(worker)
    assert {name: len(found) for name, found in workers.items()} == dict.fromkeys("abcd", 1)
    assert workers["a"] == workers["b"]


@pytest.mark.parametrize(
    ("test", "fails"),
    [
        ("def test_it(): start()", True),
        ("def test_it(forgotten): pass", True),
        ("def test_it(declared): pass", False),
        ("@pytest.mark.server\ndef test_it(): start()", False),
        ("def test_it(): pass", False),
    ],
)
def test_who_starts_a_server_unmarked_is_noticed(folder: Path, test: str, fails: bool) -> None:
    (folder / "test_some.py").write_text(f"{STARTS}\n{test}\n")
    code, text = run("pytest", folder)
    assert code == int(fails), text
    assert ("it starts PostgreSQL, so `make check` must leave it out" in text) is fails


@pytest.mark.parametrize(
    ("command", "server"),
    [
        (["/x/bin/initdb", "-D", "y"], "PostgreSQL"),
        ([Path("/x/bin/pg_ctl"), "start"], "PostgreSQL"),
        (["python", "/x/teola/runtime/hosts/vllm_main.py", "0-3"], "vLLM"),
        (["python", "/x/engines/llm/vllm_worker.py"], "vLLM"),
        (["/x/ray/core/src/ray/gcs/gcs_server", "--a"], "Ray"),
        ("/usr/bin/chromedriver", "Chromium"),
        (["python", "-m", "teola", "serve", "app.py"], "teola serve"),
        (["sh", "-c", "exec", b"python", "-m", "teola", "serve"], "teola serve"),
        (["python", "-m", "teola", "run", "serve"], None),
        (["git", "status"], None),
    ],
)
def test_servers_are_known_by_their_commands(command: Any, server: str | None) -> None:
    assert server_of(command) == server
