"""Writes the golden decisions anew: `python -m tests.golden`, after a change that means to change
them. Look at what `git diff` says.

`python -m tests.golden FOLDER` writes the whole runs to a folder instead, a file each, to be
compared with those of another commit by `diff -r`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.golden import beside, runs
from tests.golden.decisions import SCENARIOS, decisions, path_of

if len(sys.argv) > 1:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in runs.texts().items():
        (folder / f"{name.replace(' ', '-')}.txt").write_text("\n".join(lines) + "\n")
else:
    for scenario in SCENARIOS:
        path_of(*scenario).write_text(decisions(*scenario))
    beside.KEPT.write_text(beside.decisions())
    runs.KEPT.write_text(runs.digests(runs.texts()))
