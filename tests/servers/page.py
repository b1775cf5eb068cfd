"""The table of docs/servers.md: made by the suite, read by its tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from experiments.common import pages
from experiments.common.scripted.kinds import KINDS

BEGIN: Final = "<!-- servers: made by python -m tests.servers, do not edit -->"
END: Final = "<!-- servers: end -->"


def table(columns: Mapping[str, Mapping[str, str]]) -> str:
    """A row for each behaviour, a column for each kind."""
    behaviours = list(next(iter(columns.values())))
    rows = [[one, *(found[one] for found in columns.values())] for one in behaviours]
    return pages.table(("", *columns), rows)


def sources() -> str:
    """Where each kind's answers are documented, as a list."""
    lines = []
    for kind, differences in KINDS.items():
        places = list(dict.fromkeys(one.where for one in differences))
        lines.append(f"* {kind}: " + ", ".join(f"<{place}>" for place in places))
    return "\n".join(lines)


def written(text: str, columns: Mapping[str, Mapping[str, str]]) -> str:
    """The page with this table in place of its own."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table(columns)}\n\n{sources()}\n{END}{after}"


def read(text: str) -> dict[str, dict[str, str]]:
    """The table as the page has it: kind -> behaviour -> how it goes."""
    _, _, rest = text.partition(BEGIN)
    head, _, *rows = list(_cells(rest.partition(END)[0]))
    found: dict[str, dict[str, str]] = {kind: {} for kind in head[1:]}
    for behaviour, *words in rows:
        for kind, word in zip(head[1:], words, strict=True):
            found[kind][behaviour] = word
    return found


def _cells(text: str) -> Iterator[list[str]]:
    for line in text.splitlines():
        if line.startswith("|"):
            yield [cell.strip() for cell in line.strip("|").split("|")]
