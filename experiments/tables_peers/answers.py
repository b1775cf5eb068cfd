"""What the scripted model says of a row, and how it finds the row in whatever prompt it stands.

Standard library only. The answer is made of the row's fields as they stand in the prompt: of the
letters and digits of each line `name: value`, whatever order they come in and whatever a system
writes around them. So a system that mixes rows up, cuts them or invents answers is found out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Final

POISON: Final = "poisoned row"
"""The server refuses a prompt in which it stands."""
TOKENS: Final = 8
"""Of an answer."""


class NoRow(ValueError):
    """There is no whole row in the prompt."""


def row_prompt(instruction: str, fields: Mapping[str, str]) -> str:
    """The prompt of a row, as Teola writes it: the instruction, and a line for each field."""
    return "\n".join([instruction, *(f"{name}: {value}" for name, value in fields.items())])


def answer_to(fields: Mapping[str, str]) -> str:
    """Eight hexadecimal digits."""
    lines = sorted(f"{name} {_bare(value)}" for name, value in fields.items())
    return blake2b("\n".join(lines).encode(), digest_size=4).hexdigest()


def _bare(text: str) -> str:
    return "".join(one for one in text if one.isalnum())


def fields_in(prompt: str, instruction: str, names: Sequence[str]) -> dict[str, str]:
    """The fields of the last row in a prompt: the lines that have their names, behind the
    instruction and perhaps the head of the next message. Raises NoRow."""
    at = prompt.rfind(instruction)
    if at < 0:
        raise NoRow("the instruction does not stand in the prompt")
    text = prompt[at + len(instruction) :]
    if not text.startswith("\n"):  # within JSON, or another text with escapes
        text = _unescaped(text)
    wanted = re.compile(rf"({'|'.join(map(re.escape, names))}): (.*)")
    found: dict[str, str] = {}
    for line in text.split("\n"):
        matched = wanted.fullmatch(line)
        if matched is not None:
            found[matched[1]] = matched[2]
        elif found:
            break
    if len(found) != len(names):
        raise NoRow(f"of the fields {', '.join(names)} there are {', '.join(found) or 'none'}")
    return found


def _unescaped(text: str) -> str:
    """A part of a JSON text, up to its end."""
    end = re.search(r'(?<!\\)"', text)
    try:
        return str(json.loads(f'"{text[: end.start()] if end else text}"'))
    except ValueError:
        raise NoRow("the fields do not follow the instruction") from None
