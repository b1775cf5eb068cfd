"""What whole-system tests share: one database server and one runtime on the real defaults."""

from __future__ import annotations

import gc
import json
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import httpx._transports.default as httpx_transports
import pytest
from hypothesis import HealthCheck, settings

from teola import EngineConfig, Runtime
from teola.runtime import machine
from teola.runtime.observe.trace import Trace
from teola_apps.advanced_rag import app as advanced_rag
from teola_engines.vectorstore import EmbeddedPostgres
from tests.command_line import CommandLine
from tests.soak.forms import Figures

# Certificates take tens of milliseconds to read, at each `httpx.get`: they are read once.
_TRANSPORTS = vars(httpx_transports)
_TRANSPORTS["create_ssl_context"] = cache(_TRANSPORTS["create_ssl_context"])
# For a format that nothing here checks, jsonschema builds a parser of IRIs as it is imported, where
# the development tools have brought the package along: 2 s.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "false"  # before a test of the adapters imports it

pytest_plugins = ("tests.planted", "tests.tiers")

settings.register_profile(  # the same examples on every machine and in every run
    "fixed",
    derandomize=True,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("fixed")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as shells start what is in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)  # programs under test inherit it


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exempt what exists after collection from garbage collection. Ten thousand tests and their
    imports are millions of objects, and each full collection would look through all of them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


PAGES = {
    "lighthouse.md": "# The lighthouse\n\nThe lamp of the lighthouse is looked after by Mara "
    "Quist, who has kept it since 1987. It burns vegetable oil and is lit at dusk.\n",
    "boats.md": "# Boats\n\nFourteen boats are moored in the harbour. The largest is the "
    "Kittiwake, a herring drifter built in 1931.\n",
    "market.txt": "The fish market opens at five in the morning. Herring is sold by the cran, "
    "which is 170 litres.\n",
}


@pytest.fixture(scope="session")
def servers() -> None:
    """What a fixture asks for that starts a server, so that `make check` leaves its tests out."""


@pytest.fixture(scope="session")
def data_dir(servers: None) -> Iterator[Path]:
    """Data folder of an embedded server; unlike pytest's own folders, the account that serves root
    can be let into it."""
    folder = Path(tempfile.mkdtemp(prefix="teola-test-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def harbour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a few pages: the web, as far as the tests' own engine can see."""
    folder = tmp_path_factory.mktemp("harbour")
    for name, text in PAGES.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="session")
def runtime(data_dir: Path, harbour: Path) -> Iterator[Runtime]:
    """The default engines, all running. Give every test a tenant or collection of its own."""
    place = {"data_dir": data_dir}
    engines = {
        "vectorstore": EngineConfig("vectorstore", place),
        "websearch": EngineConfig("corpus", {"folder": harbour, **place}),
    }
    with Runtime(engines) as runtime:
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


@pytest.fixture(scope="session")
def traced(runtime: Runtime) -> Trace:
    """The trace of a query of a real application on real engines."""
    before, advanced_rag.runtime = advanced_rag.runtime, runtime
    try:
        result = advanced_rag.run(
            question="Who keeps the lamp?",
            documents={"name": "notes.md", "text": "Mara keeps the lamp. " * 200},
            tenant="traced",
        )
    finally:
        advanced_rag.runtime = before
    assert result.trace is not None
    return result.trace


@pytest.fixture(scope="module", autouse=True)
def levels() -> Iterator[None]:
    """What programs under test say less of, others may want to hear."""
    loggers = [logging.getLogger(name) for name in ("teola", "httpx", "httpcore")]
    before = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


@pytest.fixture(scope="module")
def figures() -> Iterator[Figures]:
    """Keeps what was seen, in the file that SOAK_REPORT names (`make soak` sets it)."""
    for name in ("httpx", "httpcore"):  # a line for each request
        logging.getLogger(name).setLevel(logging.WARNING)
    found: dict[str, Any] = {}
    yield found.__setitem__
    if (where := os.environ.get("SOAK_REPORT")) and found:
        about = {"machine": machine.describe(("teola", "uvicorn", "psycopg"))}
        before = json.loads(Path(where).read_text()) if Path(where).exists() else {}
        Path(where).write_text(json.dumps({**before, **found, "about": about}, indent=1) + "\n")
