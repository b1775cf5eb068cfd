"""Writes the golden decisions anew: `python -m tests.golden`, after a change that means to change
them. Look at what `git diff` says."""

from __future__ import annotations

from tests.golden.decisions import SCENARIOS, decisions, path_of

for scenario in SCENARIOS:
    path_of(*scenario).write_text(decisions(*scenario))
