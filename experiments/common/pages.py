"""docs/benchmarks.md: every experiment writes its own section, between marks, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from textwrap import fill
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.table import Table

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
PAGE: Final = DOCS / "benchmarks.md"
ORDER: Final = (
    "real_engines",
    "end_to_end",
    "motivation",
    "ablation_graph",
    "ablation_scheduling",
    "shorter_path",
    "breakdown",
    "sensitivity",
    "fidelity",
    "explained",
    "scale",
    "routing",
    "live_routing",
    "agents_at_scale",
    "cliffs",
    "hexgen",
    "agents",
    "eviction",
    "serving",
    "doors",
    "edge",
    "retrieval",
    "indexing",
    "tables",
    "sembench",
    "tables_peers",
    "tables_peers",
)
"""Where a section goes that is not there yet; those that are not listed come last."""
BUSY: Final = 2.0
"""Load for each core above which a section says that its machine was busy. An experiment that keeps
all cores at work has 1."""
HEAD: Final = """# Benchmarks

What was measured, on which machine, and how to measure it again. Each section is written by its
experiment from the JSON of a run, which is kept beside it as `report.json`.
"""


def begin(name: str) -> str:
    """The mark before a section."""
    return f"<!-- {name}: made by python -m experiments.{name}, do not edit -->"


def end(name: str) -> str:
    """The mark behind it."""
    return f"<!-- {name}: end -->"


def picture(name: str) -> Path:
    """Where the picture of an experiment is, seen from the page."""
    return Path(f"images/{name}.svg")


def prose(*sentences: str) -> str:
    """A paragraph, wrapped."""
    return fill(" ".join(sentences), 100, break_on_hyphens=False, break_long_words=False)


def called(name: str, about: Mapping[str, Any], *options: str) -> str:
    """The command that made a report. about: what the report says of itself. options: by which it
    is more or less than by itself."""
    quick = ("--quick",) if about.get("quick") else ()
    return f"`{' '.join(('python -m experiments.' + name, *quick, *options))}`"


def foot(name: str, machine: Mapping[str, Any], *also: str) -> str:
    """The end of a section: the machine, how busy it was, what `also` has to be known of the run,
    and where more stands. machine: as `teola.runtime.machine` describes it."""
    told = (machine["cpu"], f"load {machine['load_1min']} at the end", *also)
    foot = [f"{', '.join(told)}."]
    if machine["load_1min"] > BUSY * machine["cores"]:
        foot.append(
            f"Far more wanted to run than its {machine['cores']} cores could: seconds are longer "
            "than they need be, and deadlines may have been missed for that."
        )
    return "\n".join([*foot, f"[More](../experiments/{name}/README.md)."])


def plural(count: int, one: str) -> str:
    """So many of them."""
    return f"{count:,} {one}{'' if count == 1 else 's'}"


def write(name: str, section: str, page: Path = PAGE) -> None:
    """Put the section into the page, in place of the one that is there; the rest stays."""
    text = page.read_text(encoding="utf-8") if page.exists() else HEAD
    body = f"{begin(name)}\n{section}\n{end(name)}"
    if begin(name) in text:
        before, _, rest = text.partition(begin(name))
        _, _, after = rest.partition(end(name))
    else:
        at = min((text.index(begin(n)) for n in _later(name) if begin(n) in text), default=None)
        before, after = (text, "") if at is None else (text[:at], text[at:])
    parts = [part for part in (before.rstrip(), body, after.strip()) if part]
    page.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _later(name: str) -> tuple[str, ...]:
    return ORDER[ORDER.index(name) + 1 :] if name in ORDER else ()


def terminal(
    title: str | None, head: Iterable[Any], lines: Iterable[Iterable[Any]], left: int = 0
) -> Table:
    """A table for the terminal: `left` columns of words, which are not broken, and then numbers."""
    found = Table(title=title, box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for i, name in enumerate(head):
        words = i < left
        least = max(map(len, str(name).split()), default=0)
        found.add_column(
            str(name), justify="left" if words else "right", no_wrap=words, min_width=least
        )
    for line in lines:
        found.add_row(*map(str, line))
    return found


def table(head: Iterable[Any], rows: Iterable[Iterable[Any]]) -> str:
    """A Markdown table."""
    names = tuple(map(str, head))
    lines = [names, tuple("---" for _ in names), *(tuple(map(str, row)) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
