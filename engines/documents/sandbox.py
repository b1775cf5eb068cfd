"""Runs parser.py for one file and turns whatever happens to it into a text or a DocumentError."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from teola import confinement
from teola.errors import DocumentError

from .files import Format, lacks, parsed_text, refusal
from .formats import LONGEST_HEADING, MOST_PLACES
from .parser import REFUSED, REHEARSE
from .places import KINDS, NOWHERE, Places

_SCRIPT = Path(__file__).with_name("parser.py")
_CPU_SIGNAL = getattr(signal, "SIGXCPU", 24)
REHEARSAL_S = 60.0
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
    hidden: int = 0
    places: Places = NOWHERE


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
    last_line = lines[-1] if lines else ""
    parsed = None
    if process.returncode == 0:
        parsed = await asyncio.to_thread(_parsed, text, last_line)
    if parsed is None:
        raise _refused(path, format, limits, process.returncode, last_line)
    return parsed


def _parsed(text: bytes, report: str) -> Parsed | None:
    """What the process wrote, parsed; None if it is not what parser.py writes: the file may have
    taken the process over."""
    try:
        fields = json.loads(report)
        places = Places(fields["kind"], fields["starts"], fields["names"])
        if type(fields["hidden"]) is not int or not _sound(places):
            return None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    plain, starts = parsed_text(text, places.starts)
    if len(starts) != len(places.names):
        return None
    return Parsed(plain, fields["hidden"], replace(places, starts=starts))


def _sound(places: Places) -> bool:
    return (
        places.kind in KINDS
        and type(places.starts) is type(places.names) is list
        and len(places.starts) == len(places.names) <= MOST_PLACES
        and all(type(start) is int and start >= 0 for start in places.starts)
        and all(a < b for a, b in pairwise(places.starts))
        and all(_is_name(name) for name in places.names)
    )


def _is_name(name: Any) -> bool:
    return type(name) is int or (type(name) is str and 0 < len(name) <= LONGEST_HEADING)


async def rehearse() -> list[Format]:
    """Start the process once without a file, for every format that can be read here: what it
    imports is compiled and in the system's cache then. Raises DocumentError if it does not run."""
    formats = [format for format in Format if format is not Format.TEXT and not lacks(format)]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-W", "ignore", "-P", str(_SCRIPT), REHEARSE, *(format.value for format in formats)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=confinement.environment(**_UNUSED_THREADS),
    )
    try:
        imported, _ = await asyncio.wait_for(process.communicate(), REHEARSAL_S)
    except TimeoutError:
        raise DocumentError(f"the parser does not start within {REHEARSAL_S:.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
    if process.returncode != 0:
        raise DocumentError(f"the parser does not start (exit status {process.returncode})")
    return [Format(name) for name in imported.decode().split()]


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
