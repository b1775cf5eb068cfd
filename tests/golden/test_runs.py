"""Whole runs are the same as before, to the byte: every event, every command, every trace."""

from __future__ import annotations

from collections import Counter

import pytest

from teola.schedule.core import Core
from tests.golden.runs import KEPT, digests, texts
from tests.planted import catches, edited


@catches(
    "another-number",
    "works are numbered in steps of two",
    edited(Core._submit, "self._seq += 1", "self._seq += 2"),
)
@pytest.mark.slow
def test_whole_runs_are_as_before() -> None:
    """If a change means to change them: `python -m tests.golden`, in a commit of its own. Else
    `python -m tests.golden FOLDER`, here and at the commit before, shows by `diff -r` what has
    changed."""
    runs = texts()
    assert digests(runs) == KEPT.read_text()
    said = Counter(line.split("(")[0].split()[-1] for lines in runs.values() for line in lines)
    wanted = {"Dispatch", "AbortRequest", "Retried", "Fused", "Skipped", "Release", "Measure"}
    wanted |= {"Finish", "Control", "InstanceDown", "FirstToken", "MemberCompleted", "CallEnded"}
    assert wanted <= said.keys(), "the runs do not show everything"
