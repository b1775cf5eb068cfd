"""Copies of docs that can be made new to the system, so that a run indexes them again."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from pathlib import Path


class Documents:
    """Files of `origin`, copied to `folder`."""

    def __init__(self, origin: Path, names: Sequence[str], folder: Path) -> None:
        self.folder = folder
        self.paths = [origin / name for name in names]
        self.size = sum(path.stat().st_size for path in self.paths)
        self._editions = count(1)
        self.renew()

    def renew(self) -> None:
        """Change the last line of every copy: other bytes, hence another document."""
        edition = next(self._editions)
        for path in self.paths:
            text = path.read_text(encoding="utf-8")
            copy = self.folder / path.name
            copy.write_text(f"{text}\n\nEdition {edition}.\n", encoding="utf-8")
