"""The simulated testbed: the paper's profile, its workloads, and what a baseline waits for a batch.

Every figure that an experiment rests on is a field here or in `teola.profile.paper`; where it comes
from (the paper, derived, assumed) is in experiments/sensitivity, which varies them one by one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from teola.profile import Profile, paper

SIZES = ("7b", "13b", "30b")
"""LLMs of the paper's testbed."""


@dataclass(frozen=True, slots=True)
class Values:
    """What the workloads are made of. Lengths in tokens.

    chunks_*: of a document, lognormal and clipped. instruction, expansion, judge: the text of an
    answer's prompt, of an expansion's, of a judge's without the draft. rewriting: length of one as
    a multiple of the question's. answer_extra: an answer is that much longer than the data set's.
    searches: fraction of the questions for which the judge wants a search.
    """

    chunks_median: float = 48.0
    chunks_sigma: float = 0.5
    chunks_min: int = 8
    chunks_max: int = 192
    chunk: int = 256
    instruction: int = 60
    expansion: int = 80
    judge: int = 120
    rewriting: float = 1.2
    answer_extra: int = 4
    draft: int = 40
    verdict: int = 4
    searches: float = 0.7
    snippet: int = 120


@dataclass(frozen=True)
class Testbed:
    """One setting of everything. wait_s, wait_store_s: how long TO waits for a batch to fill."""

    __test__ = False  # pytest would take the name for a test class

    profile: Profile
    values: Values = field(default_factory=Values)
    wait_s: float = 0.1
    wait_store_s: float = 0.05


def testbed(size: str) -> Testbed:
    """The paper's, with an LLM of `size`. Raises UnknownName."""
    return Testbed(paper(size))


testbed.__test__ = False  # type: ignore[attr-defined]
