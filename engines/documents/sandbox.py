"""Runs parser.py for one file and turns whatever happens to it into a text or a DocumentError."""

from __future__ import annotations

import asyncio
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from teola import confinement
from teola.errors import DocumentError

from .files import Format, parsed_text, refusal
from .parser import REFUSED

_SCRIPT = Path(__file__).with_name("parser.py")
_CPU_SIGNAL = getattr(signal, "SIGXCPU", 24)
_UNUSED_THREADS = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True, slots=True)
class ParsingLimits:
    """What the parsing of one file may take."""

    memory_bytes: int = 1 << 30
    cpu_s: int = 30
    wall_s: float = 120.0
    text_bytes: int = 200_000_000


@dataclass(frozen=True, slots=True)
class Parsed:
    """The text of a file; hidden: how many texts in it a reader does not see and were left out."""

    text: str
    hidden: int


async def parse(
    path: Path, format: Format, limits: ParsingLimits, keep_hidden: bool = False
) -> Parsed:
    """Read a file that is not plain text in a process of its own; killed if this is cancelled.

    Raises DocumentError for broken, encrypted and excessive files.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-W", "ignore", "-P", str(_SCRIPT), format.value, str(path.absolute())),
        *(str(limits.text_bytes), str(limits.memory_bytes), str(limits.cpu_s)),
        *(str(int(keep_hidden)), confinement.__file__),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=confinement.environment(**_UNUSED_THREADS),  # each thread would take address space
    )
    try:
        text, errors = await asyncio.wait_for(process.communicate(), limits.wall_s)
    except TimeoutError:
        raise refusal(path, f"reading it takes more than {limits.wall_s:.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
    lines = errors.decode("utf-8", "replace").strip().splitlines()
    if process.returncode == 0:
        return Parsed(await asyncio.to_thread(parsed_text, text), int(lines[-1]))
    raise _refused(path, format, limits, process.returncode, lines[-1] if lines else "")


def _refused(
    path: Path, format: Format, limits: ParsingLimits, status: int | None, last_line: str
) -> DocumentError:
    kind = format.name if format in (Format.PDF, Format.HTML) else f"{path.suffix.lower()} file"
    if status == REFUSED and last_line == "encrypted":
        return refusal(path, f"the {kind} is encrypted; remove its password first")
    if status == REFUSED and last_line == "not UTF-8":
        return refusal(path, f"the {kind} is not UTF-8 text; convert it")
    if status == REFUSED and last_line == "too large":
        return refusal(
            path,
            f"it unpacks to more than {limits.text_bytes / 1e6:.0f} MB or 10000 files; split it",
        )
    if status == REFUSED and last_line == "too much text":
        return refusal(path, f"it unpacks to more than {limits.text_bytes / 1e6:.0f} MB of text")
    if "MemoryError" in last_line:
        memory = f"{limits.memory_bytes / 2**20:.0f} MiB"
        return refusal(path, f"reading it takes more than {memory} of memory; split it")
    if status == -_CPU_SIGNAL:
        return refusal(path, f"reading it takes more than {limits.cpu_s} s; split it")
    return refusal(path, f"the {kind} is broken; save it again, or give its text")
