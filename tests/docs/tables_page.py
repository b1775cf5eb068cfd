"""docs/tables.md as somebody follows it: files are saved, commands and code run, in order.

`python -m tests.docs.tables_page` writes the output of its commands anew. A small server stands in
for the model that the page asks; its address is put in the place of the page's.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.docs.blocks import ROOT, Block, blocks
from tests.fake_openai import Fail, FakeOpenAI

PAGE: Final = ROOT / "docs" / "tables.md"
URL: Final = "http://localhost:8000/v1"
WIDTH: Final = 80
TERMINAL: Final = {"TTY_COMPATIBLE": "1", "COLUMNS": str(WIDTH), "NO_COLOR": "1"}
"""What makes the CLI write as it does to a terminal of 80 columns."""
_CODES: Final = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
_VARIES: Final = (
    (r"\d[\d,]*\.\d\s+s\b", "# s"),
    (r"about [\d,]+ s\b", "about # s"),
    (r"\d{4}-\d\d-\d\d", "DATE"),
    (r"\b[0-9a-f]{8}\b", "OPERATOR"),
    (r"http://\w*…", "http://…"),
)
"""What differs from run to run, and what stands for it."""


def said(messages: list[dict[str, str]]) -> str:
    """What the stand-in answers."""
    text = "\n".join(one["content"] for one in messages)
    gentle = "gentle" in text
    if "kids" in text:
        return "Yes." if gentle else "No."
    if "long?" in text or "sad?" in text:
        return "Yes." if "long" in text.partition("review:")[2] else "No."
    if "How long" in text:
        return "2" if gentle else "About two hours."
    if "Who would like it" in text:
        return "People who like lamps." if gentle else "Nobody."
    return "They say little."


@contextlib.contextmanager
def stand_in() -> Iterator[FakeOpenAI]:
    """The server. It refuses one of the prompts of the page."""
    with FakeOpenAI(said) as server:
        server.cursed = {"title: Tern": Fail(400, "the prompt was refused by a filter")}
        yield server


@dataclass(frozen=True, slots=True)
class Shown:
    """A command of the page. words: after `teola`. output: what is shown below it."""

    line: str
    words: tuple[str, ...]
    output: str


def commands(block: Block) -> list[Shown]:
    """The commands of a block, with their output."""
    found = []
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        line, output = re.fullmatch(r"((?:.*\\\n)*.*)\n((?:.|\n)*)", part).groups()  # type: ignore[union-attr]
        program, *words = shlex.split(line.replace("\\\n", " "))
        if program == "teola":
            found.append(Shown(line, tuple(words), output))
    return found


def run(shown: Shown, url: str) -> tuple[int, str]:
    """Run a command in this process. Its exit code and what it prints, errors last."""
    from teola.cli import call

    logging.getLogger("teola").addHandler(logging.NullHandler())  # as a program has it
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = call([url if word == URL else word for word in shown.words])
    told = _CODES.sub("", out.getvalue()).replace(url, URL)
    lines = [line.rstrip() for line in told.splitlines()]
    for line in err.getvalue().replace(url, URL).splitlines():
        lines += textwrap.wrap(line, WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    return code, "\n".join(lines).rstrip() + "\n"


def same(output: str) -> list[str]:
    """The words of an output, without what differs from run to run."""
    for pattern, stands in _VARIES:
        output = re.sub(pattern, stands, output)
    return output.split()


def follow(folder: Path, url: str) -> Iterator[tuple[Shown, int, str]]:
    """Do in the current folder what the page says; each command, its exit code and its output."""
    namespace: dict[str, Any] = {"__name__": "__docs__"}
    for block in blocks(PAGE):
        if block.file:
            (folder / block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            code = "\n" * block.line + block.text.replace(URL, url)
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(code, "docs/tables.md", "exec"), namespace)
        elif block.language == "bash":
            words = [sys.executable, *shlex.split(block.text)[1:]]
            subprocess.run(words, check=True, cwd=folder, capture_output=True)
        for shown in commands(block):
            yield (shown, *run(shown, url))


def main() -> None:
    """Write the page's output anew."""
    with tempfile.TemporaryDirectory() as folder, stand_in() as server:
        os.environ |= {**TERMINAL, "TEOLA_DATA_DIR": f"{folder}/data"}
        os.chdir(folder)
        text = PAGE.read_text(encoding="utf-8")
        at = 0
        for shown, _, output in follow(Path(folder), server.url):
            begins = text.index(f"$ {shown.line}\n", at) + len(shown.line) + 3
            output = output.replace("http://127…", "http://loc…")
            text = text[:begins] + output + text[begins + len(shown.output) :]
            at = begins
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
