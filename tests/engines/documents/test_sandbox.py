"""Files made to blow up end in a DocumentError, at a bounded cost, and leave no process behind."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from teola.engine import Source, Splitting
from teola.errors import DocumentError
from teola_engines.documents import FileLoader, parser
from teola_engines.documents.files import Format, lacks
from teola_engines.documents.sandbox import ParsingLimits, parse, rehearse
from tests.serve.hostile.bombs import deflated

from .conftest import Encode

MIB = 1 << 20
SECRETS = (
    "OPENAI_API_KEY",
    "TEOLA_CANARY",
    "AWS_SECRET_ACCESS_KEY",
    "PGPASSWORD",
    "RAY_AUTH_TOKEN",
)


def html(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "page.html"
    path.write_text(text)
    return path


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


async def refused(path: Path, format: Format, limits: ParsingLimits) -> str:
    before = children()
    with pytest.raises(DocumentError) as caught:
        await parse(path, format, limits)
    assert children() <= before
    assert "\n" not in str(caught.value)
    return str(caught.value)


async def test_a_rehearsal_imports_what_each_format_needs() -> None:
    before = children()
    wanted = {format for format in Format if format is not Format.TEXT and not lacks(format)}
    assert {*await rehearse()} == wanted
    assert Format.PDF in wanted
    assert children() <= before


@pytest.mark.slow
async def test_a_compressed_bomb_costs_the_parent_nothing(tmp_path: Path, encode: Encode) -> None:
    path = tmp_path / "bomb.pdf"
    path.write_bytes(deflated())
    assert path.stat().st_size < 4 * MIB  # of 600 MiB
    before = psutil.Process().memory_info().rss
    with pytest.raises(DocumentError):
        await FileLoader().split(Source("bomb", path=path), Splitting(), encode)
    assert psutil.Process().memory_info().rss - before < 50 * MIB


@pytest.mark.slow
async def test_memory_is_limited(tmp_path: Path) -> None:
    path = html(tmp_path, "<p>text</p>" * 1_500_000)
    message = await refused(path, Format.HTML, ParsingLimits(memory_bytes=64 * MIB))
    assert "64 MiB" in message


async def test_cpu_time_is_limited(tmp_path: Path) -> None:
    path = html(tmp_path, "<p>text</p>" * 1_500_000)
    assert "more than 1 s" in await refused(path, Format.HTML, ParsingLimits(cpu_s=1))


async def test_wall_time_is_limited(tmp_path: Path) -> None:
    path = html(tmp_path, "<p>text</p>" * 1_500_000)
    assert "more than 0 s" in await refused(path, Format.HTML, ParsingLimits(wall_s=0.2))


@pytest.mark.slow
async def test_text_is_limited(tmp_path: Path) -> None:
    path = html(tmp_path, "<p>text</p>" * 200_000)
    assert "1 MB of text" in await refused(path, Format.HTML, ParsingLimits(text_bytes=1_000_000))


async def test_deep_nesting_is_only_text(tmp_path: Path) -> None:
    path = html(tmp_path, "<div>" * 200_000 + "bottom")
    assert (await parse(path, Format.HTML, ParsingLimits())).text.strip() == "bottom"


async def test_cancelling_kills_the_process(tmp_path: Path) -> None:
    path = html(tmp_path, "<p>text</p>" * 1_500_000)
    before = children()
    task = asyncio.create_task(parse(path, Format.HTML, ParsingLimits()))
    while children() <= before:
        await asyncio.sleep(0.01)
    for child in children() - before:
        os.kill(child, signal.SIGSTOP)  # from now on it ends by being killed, or not at all
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(60):
            await task
    assert children() <= before


async def test_the_parser_gets_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, "canary")
    monkeypatch.setenv("TZ", "Europe/Lisbon")
    path = html(tmp_path, "<p>text</p>" * 1_500_000)
    before = children()
    task = asyncio.create_task(parse(path, Format.HTML, ParsingLimits()))
    while not (started := children() - before):
        await asyncio.sleep(0.01)
    process = psutil.Process(started.pop())
    while not any(word.endswith("parser.py") for word in process.cmdline()):
        await asyncio.sleep(0.01)
    environ = process.environ()
    task.cancel()
    await asyncio.wait({task})
    assert "canary" not in environ.values()
    assert environ["TZ"] == "Europe/Lisbon"
    assert "PATH" in environ


@pytest.mark.parametrize(
    "attempt",
    [
        "import socket; socket.create_connection(('127.0.0.1', 9))",
        "import subprocess; subprocess.run(['true'])",
        "import os; os.system('true')",
        "open('written', 'w')",
        "import os; os.open('written', os.O_CREAT)",
        "import os; os.open('kept', os.O_TRUNC)",
        "import os; os.remove('kept')",
        "import os; os.rename('kept', 'written')",
        "import os; os.replace('kept', 'written')",
        "import os; os.truncate('kept', 0)",
        "import os; os.chmod('kept', 0)",
        "import os; os.link('kept', 'written')",
        "import os; os.symlink('kept', 'written')",
        "import os; os.mkdir('written')",
        "import os; os.rmdir('folder')",
        "import os; os.kill(os.getppid(), 0)",
        "import os; os.killpg(os.getpgid(os.getppid()), 0)",
        "import signal; signal.pthread_kill(0, 0)",
        "import shutil; shutil.rmtree('folder')",
        "import pathlib; pathlib.Path('kept').unlink()",
        "import ctypes; ctypes.CDLL(None)",
        "import sqlite3; sqlite3.connect('written')",
        "import mmap; mmap.mmap(-1, 10)",
    ],
)
def test_the_parser_may_not_reach_outside(attempt: str, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept")
    (tmp_path / "folder").mkdir()
    code = (
        f"import runpy, sys; m = runpy.run_path({parser.__file__!r})\n"
        f"sys.addaudithook(m['_forbid'])\n{attempt}"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True)
    assert done.returncode == parser.REFUSED, done.stderr
    assert not (tmp_path / "written").exists()
    assert (tmp_path / "kept").read_text() == "kept"
    assert (tmp_path / "folder").is_dir()
