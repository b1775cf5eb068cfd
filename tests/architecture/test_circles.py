"""No two modules need each other, not even for a type checker or inside a function; nor do two
folders."""

from __future__ import annotations

import pytest

from experiments.house.imports import INSTALLED, circles, folder_circles, sources_of
from tests.architecture.tree import ROOT


def test_imports_have_no_circles() -> None:
    sources = sources_of(ROOT, *INSTALLED, "experiments")
    assert {"teola", "teola_engines.llm", "teola_apps.naive_rag", "experiments"} <= sources.keys()
    assert circles(sources) == []


def test_folders_have_no_circles() -> None:
    """Files of `teola/serve` and of folders in it need each other both ways, which this does not
    look at."""
    assert folder_circles(sources_of(ROOT, *INSTALLED)) == []


def test_a_circle_of_folders_is_found() -> None:
    sources = {
        "x": ("x", ""),
        "x.a": ("x.a", ""),
        "x.a.one": ("x.a", "import x.b.two"),
        "x.a.other": ("x.a", ""),
        "x.b": ("x.b", ""),
        "x.b.two": ("x.b", ""),
        "x.b.three": ("x.b", "import x.a.other\nimport x.shared"),
        "x.shared": ("x", "import x.b.two"),
    }
    assert circles(sources) == []
    assert folder_circles(sources) == [("x.a", "x.b")]


@pytest.mark.parametrize(
    "line",
    [
        "import x.b",
        "import x.b as b",
        "from x import b",
        "from x.b import Name",
        "from . import b",
        "from .b import Name",
        "from ..x import b",
        "def f():\n    from x.b import Name",
        "if TYPE_CHECKING:\n    from x.b import Name",
    ],
)
def test_every_form_of_import_is_seen(line: str) -> None:
    sources = {"x": ("x", ""), "x.a": ("x", line), "x.b": ("x", "import x.a")}
    if line.startswith("from .."):
        sources = {f"y.{name}": (f"y.{package}", text) for name, (package, text) in sources.items()}
        sources["y.x.b"] = ("y.x", "import y.x.a")
        assert circles(sources) == [("y.x.a", "y.x.b")]
    else:
        assert circles(sources) == [("x.a", "x.b")]


def test_a_line_is_no_circle() -> None:
    assert circles({"a": ("", "import b"), "b": ("", "import c"), "c": ("", "import os")}) == []
