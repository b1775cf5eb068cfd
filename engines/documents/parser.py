"""The child process that reads one file: `python parser.py FORMAT PATH TEXT MEM CPU HIDDEN LIMITS`.

A file made to blow up (a "bomb") must not take the service with it, so parsing happens here, under
limits that the process sets for itself before it looks at the file: bytes of memory, seconds of
CPU, bytes of text; and without the network, other programs or files to change, as far as Python
knows what its code does: a fault in a C library can do whatever this account may. The text goes to
stdout as UTF-8; the last line of stderr is JSON: how many hidden texts were left out, and the kind,
beginnings and names of the text's places. A refusal is exit status 3 with its reason on stderr, see
sandbox.py.

It is started as a script and imports nothing of ours but the module of its format, to start soon,
and LIMITS, the path of `teola/confinement.py`.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, NoReturn

REFUSED = 3
REHEARSE = "--import"
"""In the place of FORMAT: import what the formats behind it need, and read nothing."""
_FORMATS = "teola_formats"
"""What the folder `formats` is called here, where the package around it is not imported."""
_FORBIDDEN = re.compile(
    "socket|subprocess|os|shutil|tempfile|ctypes|signal|fcntl|mmap|pty|sqlite3|dbm|syslog|urllib|"
    "http|ftplib|smtplib|poplib|imaplib|webbrowser"
)
"""Modules that reach outside: whatever they do and Python tells of is refused."""
_ALLOWED = ("os.listdir", "os.scandir")
"""What an import does."""
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def reader(kind: str) -> Callable[..., Any]:
    """The function that reads a format; everything it needs is imported by then."""
    folder = Path(__file__).parent / "formats"
    spec = spec_from_file_location(
        _FORMATS, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    sys.modules[_FORMATS] = package = module_from_spec(spec)
    spec.loader.exec_module(package)
    read: Callable[..., Any] = import_module(f"{_FORMATS}.{kind}").read
    return read


def refuse(reason: str) -> NoReturn:
    """End the process with a reason that sandbox.py knows."""
    sys.stderr.write(f"\n{reason}\n")
    sys.stderr.flush()
    os._exit(REFUSED)


def main(kind: str, path: str, max_text: int, keep_hidden: int) -> None:
    """Read one file and write its text."""
    logging.disable(logging.CRITICAL)
    read, formats = reader(kind), sys.modules[_FORMATS]
    sys.dont_write_bytecode = True  # a codec may still be imported; a written file ends it
    sys.addaudithook(_forbid)
    try:
        extracted = read(Path(path), formats.Allowed(max_text, bool(keep_hidden)))
    except formats.Refused as refused:
        refuse(str(refused))
    text = extracted.text.replace("\0", "").encode("utf-8", "replace")
    if len(text) > max_text:
        refuse("too much text")
    sys.stdout.buffer.write(text)
    sys.stdout.buffer.flush()
    places = extracted.places if len(extracted.places) <= formats.MOST_PLACES else ()
    starts, names = zip(*places, strict=True) if places else ((), ())
    report = {"hidden": extracted.hidden, "kind": extracted.kind, "starts": starts, "names": names}
    sys.stderr.write(f"\n{json.dumps(report)}\n")


def rehearse(kinds: Sequence[str]) -> None:
    """Import what reading these formats needs, and write their names."""
    for kind in kinds:
        reader(kind)
        print(kind)


def _confine(path: str, memory: int, cpu_s: int) -> None:
    spec = spec_from_file_location("confinement", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    module.confine(address_bytes=memory, cpu_s=cpu_s)


def _forbid(event: str, args: tuple[object, ...]) -> None:
    writes = event == "open" and isinstance(args[2], int) and args[2] & _WRITING
    if writes or (_FORBIDDEN.fullmatch(event.partition(".")[0]) and event not in _ALLOWED):
        refuse("broken")


if __name__ == "__main__":
    if sys.argv[1] == REHEARSE:
        rehearse(sys.argv[2:])
    else:
        _confine(sys.argv[7], int(sys.argv[4]), int(sys.argv[5]))
        main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[6]))
