"""How long an LLM call takes on each instance of its engine, by kinds of equal instances.

    t_comp = prefill of the prompt, in steps of the instance's budget + a step for each answer token

(Hexgen-Text2SQL, section 2: `t_prefill(L) + t_decode(Lout)`.) Instances whose times are equal are
one kind, so that a thousand of them cost no more than two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log
from typing import Final

from teola.policies.routing.base import EngineView
from teola.policies.work import Work
from teola.profile import EngineProfile, StepTime

ANSWER: Final = 256.0
"""Tokens of an answer before any has come."""
LAST: Final = 1000
"""Answers whose mean counts, about."""
ALIKE: Final = 1.05
"""Instances whose learned times differ by a smaller factor are one kind."""


class MeanAnswer:
    """How long the answers are that came last. tokens: their mean. count: how many have come."""

    def __init__(self) -> None:
        self.tokens, self.count = ANSWER, 0

    def came(self, tokens: int) -> None:
        """An answer of so many tokens."""
        self.count += 1
        self.tokens += (tokens - self.tokens) / min(self.count, LAST)


def prompt_alone_s(profile: EngineProfile, tokens: float) -> float:
    """Seconds of the steps that compute a prompt alone."""
    step = profile.step
    steps = -(-tokens // max(1, profile.max_batch))
    fixed = step.base_s + max(0.0, step.prefill_s)
    return steps * fixed + step.per_token_s * tokens + step.per_pair_s * tokens * (tokens + 1) / 2


def step_s(profile: EngineProfile, context: float = 0.0) -> float:
    """Seconds of a decoding step of one sequence that attends to so many tokens."""
    return profile.step.seconds(1, context)


def call_s(profile: EngineProfile, prompt: float, answer: float) -> float:
    """Seconds of a call that has the instance to itself."""
    return prompt_alone_s(profile, prompt) + answer * step_s(profile, prompt)


def _about(slowness: float) -> int:
    """A figure that is equal for instances whose learned slowness differs by a few percent: no two
    are the same."""
    return round(log(slowness, ALIKE))


class InstanceKinds:
    """The instances of an engine by equal times.

    profiles: one of each kind. members: the instances of each. of: the kind of each instance.
    timed: whether the times of all are known. answer: tells the tokens of a call's answer.
    """

    def __init__(self, view: EngineView) -> None:
        self._view = view
        self.answer: Callable[[Work], float] = lambda work: work.spec.answer_tokens
        self._seen: tuple[EngineProfile, ...] = ()
        self._version: int | None = None
        self.profiles: list[EngineProfile] = []
        self.members: list[list[int]] = []
        self.of: list[int] = []
        self.timed = False
        self.renew()

    def renew(self) -> bool:
        """Look at the times anew. Returns whether they have changed."""
        profiles = self._view.profiles
        version = getattr(profiles, "version", None)  # of learned ones, which change
        if self._seen and version == self._version and profiles[0] is self._seen[0]:
            return False
        self._seen, self._version = tuple(profiles), version
        by_times: dict[tuple[StepTime | int, int], int] = {}
        self.profiles, self.members, self.of = [], [], []
        for i, profile in enumerate(self._seen):
            times = profile.step if profile.slowness is None else _about(profile.slowness)
            kind = by_times.setdefault((times, profile.max_batch), len(by_times))
            if kind == len(self.profiles):
                self.profiles.append(profile)
                self.members.append([])
            self.members[kind].append(i)
            self.of.append(kind)
        self.timed = all(profile.timed for profile in self.profiles)
        return True

    def seconds(self, work: Work) -> list[float]:
        """A call's seconds on an instance of each kind."""
        prompt, answer = work.tokens, self.answer(work)
        return [call_s(profile, prompt, answer) for profile in self.profiles]

    def mean(self, seconds: Sequence[float]) -> float:
        """The mean over all instances of a figure that is given for each kind."""
        pairs = zip(seconds, self.members, strict=True)
        return sum(each * len(members) for each, members in pairs) / len(self.of)
