"""What whole-system tests share: one database server and one runtime on the real defaults."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from teola import EngineConfig, Runtime
from teola_engines.vectorstore import EmbeddedPostgres
from tests.command_line import CommandLine


@pytest.fixture(scope="session")
def data_dir() -> Iterator[Path]:
    """Data folder of an embedded server; unlike pytest's own folders, the account that serves root
    can be let into it."""
    folder = Path(tempfile.mkdtemp(prefix="teola-test-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def runtime(data_dir: Path) -> Iterator[Runtime]:
    """The default engines, all running. Give every test a tenant or collection of its own."""
    with Runtime({"vectorstore": EngineConfig("vectorstore", {"data_dir": data_dir})}) as runtime:
        runtime.start(runtime.ensure(runtime.configs)).result()
        yield runtime


@pytest.fixture(scope="session")
def admin(runtime: Runtime, data_dir: Path) -> Iterator[str]:
    """DSN of the superuser of the runtime's database."""
    embedded = EmbeddedPostgres(data_dir)
    try:
        yield embedded.start()[0]
    finally:
        embedded.close()


@pytest.fixture
def teola(data_dir: Path, admin: str, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """Runs command lines on the runtime's database."""
    return CommandLine(capsys, data_dir, admin)
