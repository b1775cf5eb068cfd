"""Short files, and what becomes of them: some change, some go, some are renamed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PIECES: Final = 2
"""Chunks of a file: its paragraphs, at the `CHUNKING` below."""
CHUNKING: Final = {"index.chunk_size": 40, "index.overlap": 0}
SHARE: Final = 100
"""One file of so many changes, one goes, one is renamed."""
KEEPERS: Final = ("Mia", "Olga", "Cora", "Anders", "Moa", "Carl", "Eve", "Jonas")
PORTS: Final = ("Bergen", "Kiel", "Turku", "Riga", "Visby", "Narva", "Oulu", "Ystad")

Texts = Mapping[str, str]
"""Text of each file, by its path in the folder."""


@dataclass(frozen=True, slots=True)
class Change:
    """Files before and after. changed, removed: names. renamed: new name by the old one."""

    before: Texts
    after: Texts
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    renamed: Mapping[str, str]

    @property
    def touched(self) -> tuple[str, ...]:
        """Names that stand for something else afterwards, or for nothing, or did before."""
        return (*self.changed, *self.removed, *self.renamed, *self.renamed.values())


def drawn(count: int, chance: random.Random) -> Change:
    """`count` files and a change of them."""
    before = {f"{number % 10}/lamp-{number:05}.txt": text(number, 0) for number in range(count)}
    some = count // SHARE
    chosen = chance.sample(sorted(before), 3 * some)
    changed, removed, moved = chosen[:some], chosen[some : 2 * some], chosen[2 * some :]
    renamed = {name: name.replace("lamp", "light") for name in moved}
    after = {renamed.get(n, n): text for n, text in before.items() if n not in removed}
    after |= {name: text(int(name[-9:-4]), 1) for name in changed}
    return Change(before, after, tuple(changed), tuple(removed), renamed)


def text(number: int, edition: int) -> str:
    """Two paragraphs, which differ between editions."""
    keeper, port = KEEPERS[(number + edition) % 8], PORTS[(number // 8 + edition) % 8]
    return (
        f"Lamp {number} stands on the pier of {port}. In the year {1900 + edition} its keeper "
        f"{keeper} lights it {3 + edition} times in an hour.\n\n"
        f"The oil of lamp {number} comes by ship from {port}. Of the year {1900 + edition} there "
        f"are {7 + number + edition} barrels, which {keeper} has counted.\n"
    )


def write(folder: Path, texts: Texts) -> None:
    """Make the folder hold these files and no others."""
    there = {str(path.relative_to(folder)) for path in folder.rglob("*.txt")}
    for name in there - texts.keys():
        (folder / name).unlink()
    for name, content in texts.items():
        path = folder / name
        if name not in there or path.read_text() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
