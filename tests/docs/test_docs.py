"""Every Python block and every `teola` command in the documentation runs; every link holds.

The blocks of one page run in order, in one namespace and one folder. A block marked `file=NAME` is
saved under that name, importable; a `pyproject.toml` among them is as good as installed. Commands
behind a `$` run in this process, against the real engines and a database for these tests alone.
"""

from __future__ import annotations

import re
import runpy
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from teola.cli import call
from teola.runtime import default_runtime as runtimes
from teola_engines.vectorstore import embedded
from tests.docs.blocks import PAGES, ROOT, Block, anchors, blocks, links

RUNNABLE = [
    page
    for page in PAGES
    if any(b.language == "python" or list(b.commands()) for b in blocks(page))
    and page.name != "tables.md"  # test_tables_page.py runs it, beside a model's server
]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture(scope="module")
def database(servers: None) -> Iterator[Path]:
    """A data directory for all pages, in the place of the user's own; the default runtime's end."""
    folder = Path(tempfile.mkdtemp(prefix="teola-docs-"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedded, "default_data_dir", lambda: folder)
        patch.setattr(runtimes, "_default", None)
        yield folder
        runtimes.default_runtime().close()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def project(database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder of a user's: current, importable, with this README and some pages in it: as
    many as are read and embedded within seconds."""
    (tmp_path / "docs").mkdir()
    for page in ("architecture.md", "testing.md"):
        (tmp_path / "docs" / page).symlink_to(ROOT / "docs" / page)
    (tmp_path / "README.md").symlink_to(ROOT / "README.md")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    known = set(sys.modules)
    yield tmp_path
    for module in set(sys.modules) - known:
        if str(getattr(sys.modules[module], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[module]


@pytest.mark.parametrize("page", RUNNABLE, ids=name)
def test_code_and_commands_run(page: Path, project: Path) -> None:
    for block in blocks(page):
        if block.file:
            save(block, project)
    namespace: dict[str, Any] = {"__name__": "__docs__"}
    for block in blocks(page):
        if block.language == "python" and not block.file:
            padded = "\n" * block.line + block.text
            exec(compile(padded, name(page), "exec"), namespace)
        for command in block.commands():
            assert call(command) == 0, f"{name(page)}, line {block.line}: teola {command}"


def save(block: Block, project: Path) -> None:
    """Write a block to its file; entry points of a pyproject.toml take effect."""
    path = project / block.file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(block.text, encoding="utf-8")
    if block.file != "pyproject.toml":
        return
    declared = tomllib.loads(block.text)["project"]
    info = project / f"{declared['name'].replace('-', '_')}-{declared['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {declared['name']}\nVersion: {declared['version']}\n"
    )
    lines = []
    for group, points in declared["entry-points"].items():
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name(page)}: {link}"
        if anchor:
            assert anchor in anchors(target), f"{name(page)}: no heading for {link}"


def test_every_page_is_reached_from_the_index() -> None:
    listed = {(ROOT / "docs" / link).resolve() for link in links(ROOT / "docs" / "README.md")}
    top = set((ROOT / "docs").glob("*.md")) - {ROOT / "docs" / "README.md"}
    assert top <= listed, f"missing in docs/README.md: {sorted(map(name, top - listed))}"


def test_every_decision_is_listed() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = {(folder / link).resolve() for link in links(folder / "README.md")}
    assert set(folder.glob("[0-9]*.md")) <= listed


def test_the_pictures_of_graphs_are_those_of_today() -> None:
    """Else `python docs/images/make.py` draws them anew; the README's words are by hand."""
    made = runpy.run_path(str(ROOT / "docs" / "images" / "make.py"))
    readme = (ROOT / "README.md").read_text()
    for kind, graph in made["graphs"]().items():
        kept = (ROOT / "docs" / "images" / f"{kind}.svg").read_text()
        assert made["svg"](graph, made["TITLES"][kind]) == kept, kind
        assert f"[{kind} of advanced RAG: {len(graph)} primitives" in readme
