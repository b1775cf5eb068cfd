"""Keeping habits: running means of what calls of a component turned out to be."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from teola.habit import MOST_TURNS, Habit

REMEMBERED: Final = 64
"""Answers that a distribution of lengths is made of."""
NEWEST: Final = 1 / 32
"""Weight of a new value in a mean of many."""
BILLED: Final = 1 - 1 / 64
"""Of sums of what was billed, with each prompt that is added."""
LATE: Final = 0.9
"""The quantile that is told beside the mean."""
MOVED: Final = 0.1
FEW_TOKENS: Final = 16.0
"""About a block of a cache: no prompt takes noticeably longer for so many."""


class _Means:
    """Running means of one component."""

    __slots__ = (
        *("billed", "billed_cached", "billed_calls", "branches", "cached", "calls", "outputs"),
        *("planned", "prompt", "seconds", "turns"),
    )

    def __init__(self, habit: Habit | None = None) -> None:
        self.calls = habit.calls if habit else 0
        self.prompt = habit.prompt if habit else 1.0
        self.cached = habit.cached if habit else 0.0
        self.seconds = habit.seconds if habit else None
        self.branches = dict(habit.branches) if habit else {}
        self.turns = [*habit.turns] if habit else []
        self.billed_calls = habit.billed_calls if habit else 0.0
        self.planned = habit.planned if habit else 0.0
        self.billed = habit.billed if habit else 0.0
        self.billed_cached = habit.billed_cached if habit else 0.0
        self.outputs: deque[float] = deque(maxlen=REMEMBERED)
        if habit and (habit.output, habit.output_p90) != (1.0, 1.0):
            others = max(0.0, (10 * habit.output - habit.output_p90) / 9)
            self.outputs += [others] * 9 + [habit.output_p90]

    def habit(self) -> Habit:
        outputs = sorted(self.outputs)
        late = outputs[min(len(outputs) - 1, int(LATE * len(outputs)))] if outputs else 1.0
        return Habit(
            calls=self.calls,
            prompt=self.prompt,
            cached=self.cached,
            output=sum(outputs) / len(outputs) if outputs else 1.0,
            output_p90=late,
            seconds=self.seconds,
            branches=dict(self.branches),
            turns=tuple(self.turns),
            billed_calls=self.billed_calls if self.billed else 0.0,
            planned=self.planned if self.billed else 0.0,
            billed=self.billed,
            billed_cached=self.billed_cached,
        )

    @property
    def newest(self) -> float:
        """Weight of the newest value: all count the same as long as there are few."""
        return max(NEWEST, 1 / self.calls)


class Habits:
    """The habits of all components of all applications."""

    def __init__(self) -> None:
        self._means: dict[tuple[str, str], _Means] = {}
        self._published: dict[tuple[str, str], Habit] = {}
        self._touched: set[tuple[str, str]] = set()

    def recall(self, habits: Mapping[tuple[str, str], Habit]) -> None:
        """Go on from the habits of an earlier time."""
        self._means |= {key: _Means(habit) for key, habit in habits.items()}
        self._published |= habits

    def _of(self, app: str, component: str) -> _Means:
        key = app, component
        self._touched.add(key)
        means = self._means.get(key)
        if means is None:
            means = self._means[key] = _Means()
        means.calls += 1
        return means

    def prompted(self, app: str, component: str, factor: float, cached: int | None) -> None:
        """A prompt had so many tokens for each one planned, and so many that a cache had (None:
        nobody told)."""
        means = self._of(app, component)
        means.prompt += (factor - means.prompt) * means.newest
        if cached is not None:
            means.cached += (cached - means.cached) * means.newest

    def billed(
        self, app: str, component: str, planned: int, prompt_tokens: int, cached_tokens: int
    ) -> None:
        """A prompt, or the beginning of one, was planned to have so many tokens. Its engine charged
        for so many (0 for a beginning: the whole prompt is charged with its end), of which so many
        as cached. Sums and no means: of calls that differ in length, the long ones cost most."""
        means = self._means.setdefault((app, component), _Means())
        means.billed_calls = means.billed_calls * BILLED + bool(prompt_tokens)
        means.planned = means.planned * BILLED + planned
        means.billed = means.billed * BILLED + prompt_tokens
        means.billed_cached = means.billed_cached * BILLED + cached_tokens

    def generated(self, app: str, component: str, factor: float, *, cut: bool = False) -> None:
        """An answer had so many tokens for each one planned. cut: it was withdrawn by then, so it
        would have become longer: as long as those are, on average, that were not over by then."""
        key = app, component
        self._touched.add(key)
        outputs = self._means.setdefault(key, _Means()).outputs
        if cut:
            longer = [output for output in outputs if output > factor]
            factor = sum(longer) / len(longer) if longer else factor
        outputs.append(factor)

    def ran(self, app: str, component: str, seconds: float) -> None:
        """A function took so long."""
        means = self._of(app, component)
        before = seconds if means.seconds is None else means.seconds
        means.seconds = before + (seconds - before) * means.newest

    def decided(self, app: str, component: str, branch: str) -> None:
        """A Condition took this branch."""
        branches = self._of(app, component).branches
        branches[branch] = branches.get(branch, 0) + 1

    def turned(self, app: str, component: str, count: int) -> None:
        """What grows had so many turns (an Each: items)."""
        turns = self._of(app, component).turns
        last = min(count, MOST_TURNS)
        turns += [0] * (last + 1 - len(turns))
        for k in range(last + 1):
            turns[k] += 1
        if count > last:
            turns += [0] * (MOST_TURNS + 2 - len(turns))
            turns[MOST_TURNS + 1] += count - last

    def publish(self) -> dict[tuple[str, str], Habit] | None:
        """All of them, if one has moved by a tenth since they were published last."""
        moved = False
        for key in self._touched:
            habit = self._means[key].habit()
            before = self._published.get(key)
            if before is None or _moved(before, habit):
                self._published[key] = habit
                moved = True
        self._touched.clear()
        return dict(self._published) if moved else None

    def now(self) -> dict[tuple[str, str], Habit]:
        """All of them, as they are by now."""
        return {key: means.habit() for key, means in self._means.items()}


def _moved(before: Habit, now: Habit) -> bool:
    pairs = [
        (before.prompt, now.prompt),
        (before.output, now.output),
        (before.seconds or 0.0, now.seconds or 0.0),
        (before.turns_after(0) or 0.0, now.turns_after(0) or 0.0),
    ]
    if any(abs(a - b) > MOVED * max(a, b, 1e-9) for a, b in pairs):
        return True
    if abs(before.cached - now.cached) > max(FEW_TOKENS, MOVED * max(before.cached, now.cached)):
        return True
    return any(
        abs(share(before.branches, branch) - share(now.branches, branch)) > MOVED
        for branch in now.branches
    )


def share(branches: Mapping[str, int], branch: str) -> float:
    """The part of the decisions that took `branch`."""
    whole = sum(branches.values())
    return branches.get(branch, 0) / whole if whole else 0.0
