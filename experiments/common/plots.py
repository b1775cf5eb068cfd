"""matplotlib as all experiments use it: SVG, and the same report makes the same file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

COLOURS: Final = {
    "teola": "#1b6e5a",
    "llamadist_po": "#c98524",
    "llamadist_to": "#e0b268",
    "llamadist_pc_po": "#3a78b4",
    "llamadist_pc_to": "#8fb6da",
    "llamadist_to_nowait": "#b98f5e",
    "llamadist_pc_to_nowait": "#6c7fa8",
    "llamadist_pc_critical_path": "#b3312c",
}
"""Of the simulated systems; the same in every picture."""

SHADES: Final = (
    "#7fb7a6",
    "#a9cce0",
    "#d9b77a",
    "#b9a3cf",
    "#e3a79a",
    "#c6d48f",
    "#b8bcc4",
    "#8fb6da",
    "#e0d08a",
)
"""For what has no colour of its own."""


def pyplot(name: str) -> Any:
    """matplotlib.pyplot, set up for the picture `name`. Needs the extra `bench`."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = name
    mpl.rcParams["svg.fonttype"] = "none"
    mpl.rcParams["font.size"] = 8
    from matplotlib import pyplot as found

    return found


def rows(name: str, labels: Sequence[str], values: Sequence[float], what: str) -> tuple[Any, Any]:
    """A figure with a bar for each label, the first one at the top, and its axis. what: the values
    are."""
    figure, axis = pyplot(name).subplots(figsize=(7.2, 0.5 + 0.2 * len(labels)))
    axis.barh(labels[::-1], values[::-1], color=COLOURS["teola"])
    axis.set_xlabel(what)
    axis.tick_params(axis="y", labelsize=6)
    return figure, axis


def save(figure: Any, path: Path) -> None:
    """Write a figure as SVG and forget it."""
    from matplotlib import pyplot as found

    for axis in figure.axes:
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    found.close(figure)
