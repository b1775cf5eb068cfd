"""What was to be reached, and whether it was."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from experiments.edge.measure import STRAGGLER, SYSTEMS

CALLS: Final = 1.2
QUOTA: Final = 0.95
REFUSED: Final = 0.05
SHARE: Final = 0.05
SLOWER: Final = 1.3
BEHIND: Final = 1.05
BEHIND_S: Final = 0.02
CHEAPEST: Final = 0.6
URGENT: Final = 0.99
CHAT: Final = 2.0
MAP: Final = 1.1


class Goal(NamedTuple):
    """text: what was to be. seen: what was seen. held: whether that is it."""

    text: str
    seen: str
    held: bool


def goals(report: dict[str, Any]) -> list[Goal]:
    """Those of the cases that were measured."""
    rows = [row for row in report["rows"] if row["queries"]]
    ours = [row for row in rows if row["system"] == SYSTEMS[0]]
    if not ours:
        return []
    found = [_lost(ours), _calls(ours), *_budgets(report, ours), *_bad(ours)]
    more = report["more"]
    for policy in STRAGGLER:
        if told := more.get("one_20x_slow", {}).get(f"teola/{policy}"):
            found += _straggler(policy, told)
    if told := more.get("two_providers", {}).get("teola/least_loaded"):
        share = told["cheapest"]
        text = f"answers of the cheaper provider: at least {CHEAPEST:.0%}"
        found.append(Goal(text, f"{share:.1%}", share >= CHEAPEST))
    if told := more.get("urgent", {}).get("teola/least_loaded"):
        share = told["met"] / told["could_be_met"]
        found.append(Goal("deadlines met, of those that could be", f"{share:.1%}", share >= URGENT))
    for policy, told in more.get("map_beside_chat", {}).items():
        if policy.startswith("teola/"):
            found += _map(policy.removeprefix("teola/"), told)
    for case in ("overload_1_2x", "overload_2x"):
        if told := more.get(case):
            found += _overload(case, told)
    found += [
        Goal(
            "equal questions: calls",
            f"{row['calls']} of {row['calls_needed']}",
            row["calls"] <= row["calls_needed"],
        )
        for row in ours
        if row["case"] == "equal"
    ]
    return found + _peers(rows)


def _lost(ours: list[dict[str, Any]]) -> Goal:
    ours = [row for row in ours if row["policy"] != "fifo"]
    queries, lost, wrong = (sum(row[key] for row in ours) for key in ("queries", "lost", "wrong"))
    seen = f"{lost} and {wrong} of {queries:,}"
    return Goal("queries lost and answers wrong: none", seen, not lost + wrong)


def _calls(ours: list[dict[str, Any]]) -> Goal:
    aside = ("equal", "overload_1_2x", "overload_2x")  # calls of what is late are lost there
    counted = [row for row in ours if row["calls_needed"] and row["case"] not in aside]
    worst = max(counted, key=lambda row: row["calls"] / row["calls_needed"], default=None)
    if worst is None:
        return Goal(f"calls: at most {CALLS:g} times those needed", "", True)
    factor = worst["calls"] / worst["calls_needed"]
    seen = f"{factor:.2f} in `{worst['case']}`, else less"
    return Goal(f"calls: at most {CALLS:g} times those needed", seen, factor <= CALLS)


def _budgets(report: dict[str, Any], ours: list[dict[str, Any]]) -> list[Goal]:
    found = []
    for row in ours:
        if row["quota_used"] is not None:
            used = row["quota_used"]
            found.append(
                Goal(f"`{row['case']}`: at least {QUOTA:.0%} used", f"{used:.1%}", used >= QUOTA)
            )
            told = report["more"][row["case"]][f"teola/{row['policy']}"]["refused"]
            text = f"`{row['case']}`: at most one call in 20 refused"
            shown = "nobody counted" if told is None else f"{told:.1%}"
            found.append(Goal(text, shown, told is not None and told <= REFUSED))
    return found


def _bad(ours: list[dict[str, Any]]) -> list[Goal]:
    return [
        Goal(
            f"`{row['case']}` ({row['policy']}): under {SHARE:.0%} at the bad server",
            f"{row['share_of_bad']:.1%}",
            row["share_of_bad"] < SHARE,
        )
        for row in ours
        if row["share_of_bad"] is not None
    ]


def _straggler(policy: str, told: dict[str, Any]) -> list[Goal]:
    before, after = told["without_p99_s"], told["with_p99_s"]
    if before is None or after is None:
        return []
    text = f"p99 with one straggler of four ({policy}): at most {SLOWER:g} times"
    return [Goal(text, f"{after / before:.2f}", after <= SLOWER * before)]


def _map(policy: str, told: dict[str, Any]) -> list[Goal]:
    chat = told["chat_p99_s"] / told["chat_alone_p99_s"]
    rows = told["map_s"] / told["map_alone_s"]
    return [
        Goal(
            f"chat beside a map ({policy}): p99 at most {CHAT:g} times", f"{chat:.2f}", chat <= CHAT
        ),
        Goal(f"map beside a chat ({policy}): at most 10 % longer", f"{rows:.2f}", rows <= MAP),
    ]


def _overload(case: str, told: dict[str, Any]) -> list[Goal]:
    ours, others = told.get("teola/least_loaded"), told.get("teola/fifo")
    if ours is None or others is None:
        return []
    text = f"`{case}`: as many answered in time a second as by `fifo`"
    seen = f"{ours['goodput']:.2f}, {others['goodput']:.2f}"
    return [Goal(text, seen, ours["goodput"] >= others["goodput"])]


def _peers(rows: list[dict[str, Any]]) -> list[Goal]:
    """Never behind a peer: of our rows of a case, the first one's policy is the default."""
    behind = []
    for case in dict.fromkeys(row["case"] for row in rows):
        mine = next((r for r in rows if r["case"] == case and r["system"] == SYSTEMS[0]), None)
        for peer in (r for r in rows if r["case"] == case and r["system"] != SYSTEMS[0]):
            if mine is None:
                continue
            if peer["ok"] > mine["ok"]:
                behind.append(f"`{case}`: {mine['ok']} ok, {peer['system']} {peer['ok']}")
            elif peer["ok"] == mine["ok"] > 0 and mine["p99_s"] > max(
                BEHIND * peer["p99_s"], peer["p99_s"] + BEHIND_S
            ):
                behind.append(
                    f"`{case}`: p99 {mine['p99_s']:.2f} s, {peer['system']} {peer['p99_s']:.2f} s"
                )
    text = "never behind a peer in answers, nor in p99 where both answer all"
    return [Goal(text, "; ".join(behind) or "nowhere", not behind)]
