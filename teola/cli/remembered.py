"""`teola profile show`: what was learned and is kept in a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from teola.cli import options as o

if TYPE_CHECKING:
    from teola.graph import Op
    from teola.habit import Habit
    from teola.learning import EngineTimes
    from teola.profile import Cost
    from teola.runtime.remembering import Memento

SHOW_EXAMPLES = o.examples("teola profile show", "teola profile show learned/ --json")
LEGEND = (
    "prompt, output: tokens for each one planned; p90: the longest tenth of outputs;\n"
    "cached: tokens of a prompt that instances had kept; takes: a function's time"
)


def show(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FOLDER]",
            show_default=False,
            help="As given to --learn; by default where `teola serve` keeps it.",
        ),
    ] = None,
    as_json: o.Json = False,
    debug: o.Debug = False,
) -> int:
    """Show what was learned: times of engines, and what components turned out to do.

    Of each engine, where that was and from how much, what a batch (an LLM's step, a
    prompt) takes; of each component, how long its prompts and outputs are against
    what was planned, and which way a Condition goes.
    """
    from teola.cli.showing import print_json
    from teola.errors import InputError
    from teola.runtime.remembering import default_folder, mementos_in

    if folder is not None and not folder.expanduser().is_dir():
        raise InputError(f"there is no folder {str(folder)!r}: name one that --learn was given")
    where = (folder or default_folder()).expanduser()
    kept = list(mementos_in(where))
    if as_json:
        print_json(_data(where, kept))
    else:
        _print(where, kept)
    return 0


# --- for programs -----------------------------------------------------------------------------


def _data(where: Path, kept: Sequence[Memento]) -> dict[str, Any]:
    engines = [
        {"engine": name, "type": memento.kind, "machine": dict(memento.made_on), **_times(times)}
        for memento in kept
        for name, times in memento.lessons.engines.items()
    ]
    components = [
        {"app": app, "component": component, **habit.to_json(), "odds": _odds(habit)}
        for (app, component), habit in sorted(_habits(kept).items())
    ]
    return {"folder": str(where), "engines": engines, "components": components}


def _times(times: EngineTimes) -> dict[str, Any]:
    from teola.learning.learner import figures

    return {
        "seen": times.seen,
        "unit": _unit(times),
        "costs": {op.value: asdict(cost) for op, cost in _costs(times)},
        "step": asdict(times.step) if times.step else None,
        "seconds": dict(figures(times)),
    }


def _costs(times: EngineTimes) -> list[tuple[Op, Cost]]:
    return sorted(times.costs.items(), key=lambda entry: entry[0].value)


def _unit(times: EngineTimes) -> str:
    return "calls" if times.step else "batches"


def _habits(kept: Sequence[Memento]) -> dict[tuple[str, str], Habit]:
    return {key: habit for memento in kept for key, habit in memento.lessons.habits.items()}


def _odds(habit: Habit) -> dict[str, float]:
    from teola.learning.habits import share

    return {branch: share(habit.branches, branch) for branch in sorted(habit.branches)}


# --- for people -------------------------------------------------------------------------------


def _print(where: Path, kept: Sequence[Memento]) -> None:
    from teola.cli.showing import console

    out = console()
    if not kept:
        out.print(f"nothing was learned in {where} yet", soft_wrap=True)
        return
    for memento in kept:
        for name, times in memento.lessons.engines.items():
            _print_engine(name, memento, times)
    apps: dict[str, dict[str, Habit]] = {}
    for (app, component), habit in sorted(_habits(kept).items()):
        apps.setdefault(app, {})[component] = habit
    for app, components in apps.items():
        _print_components(app, components)
    if apps:
        out.print(LEGEND, style="dim", soft_wrap=True)


def _print_engine(name: str, kept: Memento, times: EngineTimes) -> None:
    from rich.text import Text

    from teola.cli.showing import console, show_table
    from teola.learning.learner import figures

    out = console()
    head = f"  {kept.kind}, learned from {times.seen} {_unit(times)}"
    out.print(Text.assemble((name, "bold"), head), soft_wrap=True)
    out.print(Text(_machine(kept.made_on), style="dim"), soft_wrap=True)
    if times.step is not None:
        show_table(("work", "takes"), [(of, duration(s)) for of, s in figures(times).items()])
    else:
        heads = ("op", "a batch", "an item", "a token", "1 item", "16 items")
        rows = [_row(op, cost, op in times.varied) for op, cost in _costs(times)]
        show_table(heads, rows)
    out.print()


def _row(op: Op, cost: Cost, varied: bool) -> tuple[str, ...]:
    """varied: whether one knows what of its time does not depend on the size."""
    size = cost.item_tokens
    return (
        op.value,
        duration(cost.base_s) if varied else "unknown",
        duration(cost.per_item_s) if cost.per_item_s else "",
        duration(cost.per_token_s) if cost.per_token_s else "",
        *(duration(cost.seconds(items, items * size)) for items in (1, 16)),
    )


def _machine(made_on: Mapping[str, Any]) -> str:
    gpus = made_on.get("gpus", ())
    parts = [
        str(made_on.get("cpu", "")),
        f"{made_on.get('cores')} cores",
        f"{made_on.get('memory_gib')} GiB",
        *(f"{gpus.count(gpu)} x {gpu}" for gpu in dict.fromkeys(gpus)),
    ]
    return ", ".join(filter(None, parts))


def _print_components(app: str, components: Mapping[str, Habit]) -> None:
    from rich.text import Text

    from teola.cli.showing import console, show_table

    out = console()
    out.print(Text(app, style="bold"))
    heads = ("component", "calls", "prompt", "cached", "output", "p90", "takes", "branches")
    show_table(heads, [_habit(name, habit) for name, habit in components.items()])
    out.print()


def _habit(name: str, habit: Habit) -> tuple[str, ...]:
    """Of what grows how many turns (items) it has, of a Condition how it decides, of a function
    how long it takes, of an LLM's all else."""
    odds = ", ".join(f"{branch} {100 * odd:.0f} %" for branch, odd in _odds(habit).items())
    turns = habit.turns_after(0)
    if turns is not None:
        return (name, str(habit.calls), "", "", "", "", "", f"{turns:.3g} turns")
    if odds or habit.seconds is not None:
        takes = "" if habit.seconds is None else duration(habit.seconds)
        return (name, str(habit.calls), "", "", "", "", takes, odds)
    ratios = (f"{habit.prompt:.2f}", f"{habit.cached:.0f}", f"{habit.output:.2f}")
    return (name, str(habit.calls), *ratios, f"{habit.output_p90:.2f}", "", "")


def duration(seconds: float) -> str:
    """Three digits and a unit; whole seconds from a thousand on."""
    rounded = float(f"{seconds:.3g}")
    if rounded >= 1000:
        return f"{seconds:,.0f} s"
    for unit, factor in (("s", 1.0), ("ms", 1e-3)):
        if rounded >= factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs" if seconds else "0"
