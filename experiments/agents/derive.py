"""Makes plans.json: plans for the questions of ParallelQA, whose file has none.

    python -m experiments.agents.derive --data FOLDER

A plan is as many searches as the question has branches, then calculations, then what to say of
them. It is made by rule from the words of the question: which things it names, by how much each of
them changes, and whether it compares, subtracts, divides or adds. Where words leave that open, the
data set's answer decides; a question of which no plan reaches the answer is left out. Questions and
answers themselves are not kept.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, Final

from experiments.agents.facts import FACTS
from experiments.agents.parallelqa import FILE, PLANS, close, evaluated, said

NAMES: Final = {
    **{name.casefold(): name for name in FACTS},
    "congo forest": "Congo Rainforest",
    "borneo forest": "Borneo Rainforest",
    "conga river": "Congo River",
    "ushiku faibutsu": "Ushiku Daibutsu",
    "mississippi river": "Mississippi River",
}
_THING: Final = re.compile("|".join(sorted(map(re.escape, NAMES), key=len, reverse=True)))
_WORDS: Final = {"half": 0.5, "doubl": 2.0, "tripl": 3.0, "quadrupl": 4.0, "by five": 5.0}
_CHANGE: Final = re.compile(
    r"(?P<percent>\d+(?:\.\d+)?)%|(?P<times>\d+(?:\.\d+)?)[ -]times|factor of (?P<factor>\d+)"
    rf"|(?P<word>{'|'.join(_WORDS)})|(?P<fifth>one-fifth)|unchanged"
)
_SENSE: Final = re.compile(
    r"(?P<less>reduc|shr[iua]nk|shallower|decreas|slow|drop|short|less|lower|diminish|contract|los)"
    r"|increas|grow|grew|deepe|expan|exten|taller|rise|rose|enlarg|swell|magnif|faster|boost|higher"
    r"|improv|enhanc|accelerat|elevat|lengthen|stretch|speedier|augment|add"
)
_ENDS: Final = re.compile(r",| and | while ")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.agents.derive")
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER")
    folder = parser.parse_args().data
    asked = json.loads((folder / FILE).read_text(encoding="utf-8"))
    plans = [plan for one in asked if (plan := derived(one)) is not None]
    lines = ",\n".join(json.dumps(plan) for plan in plans)
    PLANS.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    print(f"{len(plans)} plans for {len(asked)} questions")


def derived(asked: dict[str, Any]) -> dict[str, Any] | None:
    """The first plan that reaches the answer, the most literal ones first."""
    text = asked["question"].casefold()
    mentioned = [NAMES[match[0]] for match in _THING.finditer(text)]
    things = list(dict.fromkeys(mentioned))
    if len(things) != asked["branch"]:
        return None
    searches = [f"{name}, {FACTS[name].what}" for name in things]
    for calculations, join in _proposed(text, things, mentioned):
        plan = {
            "id": asked["id"],
            "searches": searches,
            "calculations": calculations,
            "join": join,
        }
        if close(said(plan, evaluated(plan)), asked["answer"]):
            return plan
    return None


def _proposed(
    text: str, things: Sequence[str], mentioned: Sequence[str]
) -> Iterator[tuple[list[str], dict[str, Any]]]:
    changes = [*_CHANGE.finditer(text)]
    if len(changes) == len(things):
        for factors in _factors(text, changes):
            changed = [f"{_read(k)} * {factor:g}" for k, factor in enumerate(factors, 1)]
            yield from _joined(text, things, changed)
    if len(mentioned) % 2 == 0:
        pairs = [
            (things.index(a) + 1, things.index(b) + 1)
            for a, b in zip(mentioned[::2], mentioned[1::2], strict=True)
        ]
        for form in _forms(text):
            calculations = [form.format(a=_read(a), b=_read(b)) for a, b in pairs]
            first = len(things) + 1
            results = ", ".join(_read(first + k) for k in range(len(pairs)))
            if len(pairs) == 1:
                yield calculations, {"value": first}
                continue
            for pick in ("min", "max"):
                last = f"{pick}({results})"
                yield [*calculations, last], {"value": first + len(pairs)}


def _read(number: int) -> str:
    return f"${{{number}.value}}"


def _factors(text: str, changes: Sequence[re.Match[str]]) -> Iterator[list[float]]:
    """By what each thing is multiplied: as the words say, then with one or two of them reversed."""
    less = [_lessens(text, one) for one in changes]
    for count in range(3):
        for flipped in combinations(range(len(changes)), count):
            yield [_factor(one, less[k] != (k in flipped)) for k, one in enumerate(changes)]


def _lessens(text: str, change: re.Match[str]) -> bool:
    """Whether the nearest word, in its part of the sentence if there is one, says that something
    becomes less."""
    begins = max((end.end() for end in _ENDS.finditer(text, 0, change.start())), default=0)
    ends = _ENDS.search(text, change.end())
    words = [*_SENSE.finditer(text, begins, ends.start() if ends else len(text))]
    near = min(
        words or _SENSE.finditer(text),
        key=lambda word: max(change.start() - word.end(), word.start() - change.end()),
        default=None,
    )
    return near is not None and near["less"] is not None


def _factor(change: re.Match[str], less: bool) -> float:
    if change["percent"]:
        part = float(change["percent"]) / 100
        return round(1 - part if less else 1 + part, 4)
    if change["fifth"]:
        return 0.2
    if change["word"]:
        return _WORDS[change["word"]]
    if change["times"] or change["factor"]:
        times = float(change["times"] or change["factor"])
        return round(1 / times, 6) if less else times
    return 1.0


def _joined(
    text: str, things: Sequence[str], changed: list[str]
) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """What is made of the changed figures: one of the things is named, or a figure told."""
    first, count = len(things) + 1, len(things)
    numbers = [*range(first, first + count)]
    for which in ("largest", "smallest"):
        yield changed, {which: numbers, "names": list(things)}
    a, b = _read(first), _read(first + 1)
    listed = ", ".join(map(_read, numbers))
    total = " + ".join(map(_read, numbers))
    forms = {
        "difference": f"max({listed}) - min({listed})",
        "deeper": f"{a} - {b}",
        "ratio": f"max({listed}) / min({listed})",
        "stack": f"max({listed}) / min({listed})",
        "average": f"({total}) / {count}",
        "combined": total,
        "total": total,
    }
    likely = [form for word, form in forms.items() if word in text]
    ends = (f"(max({listed}) + min({listed})) / 2", f"max({listed}) + min({listed})", f"{a} / {b}")
    for form in (*likely, *ends):
        yield [*changed, form], {"value": first + count}


def _forms(text: str) -> tuple[str, ...]:
    ratio = ("{a} / {b}", "max({a}, {b}) / min({a}, {b})")
    return {
        "ratio": ratio,
        "difference": ("abs({a} - {b})",),
        "average": ("({a} + {b}) / 2",),
    }.get(next((w for w in ("ratio", "difference", "average") if w in text), ""), ratio)


if __name__ == "__main__":
    main()
