"""From what clients and servers noted to a row. Nothing here has a clock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Final

from experiments.edge import plans
from experiments.edge.plans import CASES, Case

KEYS: Final = (
    *("case", "system", "policy", "queries", "ok", "lost", "wrong", "calls", "calls_needed"),
    *("p50_s", "p99_s", "share_of_bad", "quota_used", "seconds"),
)
FOUND_S: Final = 5.0
FOUND_CALLS: Final = 5
"""A bad server is to be found out after so long or so many calls, whichever is later."""
MINUTE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Ended:
    """How a question ended. due, at: seconds after the beginning."""

    tag: str
    due: float
    at: float
    how: str
    text: str

    @property
    def ok(self) -> bool:
        return self.how == "ok"

    @property
    def right(self) -> bool:
        return self.text.strip() == "".join(plans.answer(self.tag))


@dataclass(frozen=True, slots=True)
class Called:
    """A call as its server saw it. drew: of the minute's budget, 0 if it was refused."""

    server: int
    tag: str
    at: float
    status: int
    pieces: int
    left: bool
    drew: int


@dataclass(frozen=True, slots=True)
class Run:
    """One seed of one system in one case."""

    case: Case
    seed: int
    ended: tuple[Ended, ...]
    called: tuple[Called, ...]
    extra: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, case: str, seed: int, client: dict[str, Any], log: Iterable[Sequence[Any]]) -> Run:
        """From what a client and the servers told."""
        ended = tuple(Ended(*one) for one in client["ended"])
        extra = {key: value for key, value in client.items() if key != "ended"}
        return cls(CASES[case], seed, ended, tuple(Called(*one) for one in log), extra)

    @property
    def found_at(self) -> float | None:
        """When the bad server should have been found out; None: it was not called so often."""
        case = self.case
        at_bad = sorted(c.at for c in self.called if c.server == case.bad and c.at >= case.bad_s)
        if len(at_bad) < FOUND_CALLS:
            return None
        return max(case.bad_s + FOUND_S, at_bad[FOUND_CALLS - 1])


def row(system: str, policy: str, runs: Sequence[Run]) -> dict[str, Any]:
    """The row of a system in a case, over its seeds."""
    case = runs[0].case
    ended = [one for run in runs for one in run.ended]
    ok = [one for one in ended if one.ok and one.right]
    calls = [one for run in runs for one in run.called]
    seconds = sorted(one.at - one.due for one in ended if one.ok)
    told = (
        case.name,
        system,
        policy,
        len(ended),
        len(ok),
        sum(map(lost, runs)),
        sum(one.ok and not one.right for one in ended)
        + sum(r.extra.get("rows_wrong", 0) for r in runs),
        len(calls),
        sum(map(needed, runs)),
        rounded(quantile(seconds, 0.5)),
        rounded(quantile(seconds, 0.99)),
        rounded(share_of_bad(runs)),
        rounded(quota_used(runs)),
        rounded(sum(run.extra.get("map_s", whole_s(run)) for run in runs) / len(runs)),
    )
    return dict(zip(KEYS, told, strict=True))


def not_run(case: str, system: str, reason: str) -> dict[str, Any]:
    """The row of a system that could not be measured."""
    row: dict[str, Any] = dict.fromkeys(KEYS)
    return row | {"case": case, "system": system, "policy": f"not run: {reason}"}


def whole_s(run: Run) -> float:
    return max((one.at for one in run.ended), default=0.0)


def lost(run: Run) -> int:
    """Questions that were not answered although a server that serves was there in time."""
    if run.case.kind == "urgent":
        could = plans.met_by_deadlines(run.case, run.seed)
        return sum(one.tag in could and not one.ok for one in run.ended)
    if run.case.kind == "mix":
        return max(0, len(plans.met_in_turn(run.case, run.seed)) - sum(one.ok for one in run.ended))
    return sum(not one.ok for one in run.ended)


def needed(run: Run) -> int:
    """Calls without which there would be no answers: distinct prompts that ended."""
    if run.case.kind == "equal":
        maps = sum(one.ok and "/map/" in one.tag for one in run.ended)
        return len({one.tag for one in run.ended if one.ok and "/map/" not in one.tag}) + 2 * maps
    if run.case.kind == "map":
        tags = {one.tag for one in run.called}
        return len(tags)
    if run.case.kind == "mix":
        ok = {one.tag for one in run.ended if one.ok}
        asked = plans.queries(run.case, run.seed, len(run.ended))
        return sum(len(query.calls) for query in asked if query.tag in ok)
    return len({one.tag for one in run.ended if one.ok})


def share_of_bad(runs: Sequence[Run]) -> float | None:
    """Part of the calls that went to the bad server once it should have been found out."""
    if runs[0].case.bad is None or runs[0].case.name == "flaps":
        return None
    bad = later = 0
    for run in runs:
        if (found := run.found_at) is None:
            found = run.case.bad_s + FOUND_S
            later += sum(one.at > found for one in run.called)
            continue
        later += sum(one.at > found for one in run.called)
        bad += sum(one.at > found and one.server == run.case.bad for one in run.called)
    return bad / later if later else None


def quota_used(runs: Sequence[Run]) -> float | None:
    """Part of a minute's budget that was used, over whole minutes in which something waited."""
    case = runs[0].case
    most = case.requests or case.tokens
    if most is None:
        return None
    shares = []
    for run in runs:
        taken = sorted((one.at, one.drew) for one in run.called if one.drew)
        if not taken:
            continue
        begun, last = taken[0][0], taken[-1][0]
        for k in range(int((last - begun) // MINUTE_S)):
            since = begun + k * MINUTE_S
            shares.append(sum(d for at, d in taken if since <= at < since + MINUTE_S) / most)
    return sum(shares) / len(shares) if shares else None


def refused_share(runs: Sequence[Run]) -> float | None:
    """Part of the calls that were refused, of those that came once headers had been seen."""
    calls = refused = 0
    for run in runs:
        first = min((one.at for one in run.called if one.drew), default=None)
        if first is None:
            continue
        later = [one for one in run.called if one.at > first + 2 * run.case.call_s]
        calls += len(later)
        refused += sum(one.status == 429 for one in later)
    return refused / calls if calls else None


def cheapest_share(runs: Sequence[Run]) -> float | None:
    """Part of the calls that were answered which the cheapest server answered."""
    prices = runs[0].case.prices
    answered = [one for run in runs for one in run.called if one.status == 200]
    cheapest = prices.index(min(prices))
    return sum(one.server == cheapest for one in answered) / len(answered) if answered else None


def straggler(runs: Sequence[Run]) -> dict[str, float | None]:
    """p99 before one of the servers became slow, and once it should have been found out."""
    before, after = [], []
    for run in runs:
        bad_s = run.case.bad_s
        found = run.found_at or bad_s + FOUND_S
        before += [one.at - one.due for one in run.ended if one.ok and one.at < bad_s]
        after += [one.at - one.due for one in run.ended if one.ok and one.due > found]
    p99 = [quantile(sorted(seconds), 0.99) for seconds in (before, after)]
    return {"without_p99_s": rounded(p99[0]), "with_p99_s": rounded(p99[1])}


def map_and_chat(runs: Sequence[Run]) -> dict[str, float | None]:
    """p99 of the chat alone and beside the map, seconds of the map alone and beside the chat."""
    alone = sorted(one[2] - one[1] for run in runs for one in run.extra["alone"])
    beside = sorted(one.at - one.due for run in runs for one in run.ended if one.ok)
    count = len(runs)
    return {
        "chat_alone_p99_s": rounded(quantile(alone, 0.99)),
        "chat_p99_s": rounded(quantile(beside, 0.99)),
        "map_alone_s": rounded(sum(run.extra["map_alone_s"] for run in runs) / count),
        "map_s": rounded(sum(run.extra["map_s"] for run in runs) / count),
    }


def urgent(runs: Sequence[Run]) -> dict[str, float | None]:
    """Deadlines that were met, of those that the earliest deadline first meets."""
    could = [plans.met_by_deadlines(run.case, run.seed) for run in runs]
    met = sum(
        one.ok and one.tag in tags
        for run, tags in zip(runs, could, strict=True)
        for one in run.ended
    )
    return {"could_be_met": sum(map(len, could)), "met": met}


def mix(runs: Sequence[Run]) -> dict[str, float | None]:
    """Queries answered in time, of all that came, a second while they came; of those, how many are
    where the first that came goes first, simulated with the true times."""
    seconds = sum(max(one.due for one in run.ended) for run in runs)
    in_turn = sum(len(plans.met_in_turn(run.case, run.seed)) for run in runs)
    ok = sum(one.ok and one.right for run in runs for one in run.ended)
    return {"goodput": rounded(ok / seconds), "in_turn": rounded(in_turn / seconds)}


def quantile(values: Sequence[float], part: float) -> float | None:
    """The smallest of the values that so large a part of them does not exceed; values: sorted."""
    if not values:
        return None
    return values[max(0, ceil(part * len(values)) - 1)]


def rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
