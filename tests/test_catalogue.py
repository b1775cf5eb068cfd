"""Which application a name means: of a file the one that it declares, under whatever names."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import teola
from teola.catalogue import REGISTERED, installed, load_app
from teola.errors import InputError, UnknownName

HEAD = """from teola import App, component

@component(outputs="answer")
def say(question: str) -> str:
    return question

def made(name):
    return App(name, say, inputs={"question": "text"}, outputs={"answer": "answer"})

"""


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """What a file leaves behind goes with its test."""
    path, modules = [*sys.path], {*sys.modules}
    yield
    sys.path[:] = path
    for name in {*sys.modules} - modules:
        del sys.modules[name]


def written(folder: Path, text: str, name: str = "mine.py") -> str:
    (folder / name).write_text(HEAD + text)
    return str(folder / name)


@pytest.mark.parametrize(
    ("text", "named", "alone"),
    [
        ("x = made('a')", {"x": "a"}, "a"),
        ("x = made('a'); main = app = x", {"x": "a", "main": "a", "app": "a"}, "a"),
        ("x = made('a'); y = made('b')", {"x": "a", "y": "b"}, None),
        ("x = made('a'); y = made('a')", {"x": "a", "y": "a"}, None),
        ("x = made('a'); y = made('b'); z = x", {"x": "a", "y": "b", "z": "a"}, None),
        ("", {}, None),
    ],
)
def test_a_variable_may_be_left_out_where_one_application_is_declared(
    text: str, named: dict[str, str], alone: str | None, tmp_path: Path
) -> None:
    """As often as it likes: each declared one is another, though it has the same name."""
    file = written(tmp_path, text)
    for variable, name in named.items():
        assert load_app(f"{file}:{variable}").name == name
    if alone is not None:
        assert load_app(file).name == load_app(f"{file}:").name == alone
        return
    listed = ", ".join(sorted(named)) or "none"
    with pytest.raises(InputError, match=rf"VARIABLE \(it declares: {listed}\)"):
        load_app(file)


def test_what_is_no_application_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path, "main, other = made('a'), 3")
    with pytest.raises(UnknownName, match="did you mean 'main'"):
        load_app(f"{file}:mainn")
    with pytest.raises(InputError, match=r"mine.py:other is no teola.App but int"):
        load_app(f"{file}:other")
    with pytest.raises(InputError, match="no such file"):
        load_app(str(tmp_path / "none.py"))
    with pytest.raises(InputError, match="cannot be imported: ZeroDivisionError: division by zero"):
        load_app(written(tmp_path, "1 / 0", "broken.py"))
    assert "teola_file_broken" not in sys.modules


def test_a_file_imports_what_lies_beside_it(tmp_path: Path) -> None:
    (tmp_path / "beside_mine.py").write_text("NAME = 'beside'")
    file = written(tmp_path, "from beside_mine import NAME\nmain = made(NAME)")
    assert load_app(file).name == load_app(file).name == "beside"
    assert sys.path.count(str(tmp_path)) == 1


def test_a_path_may_begin_with_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    written(tmp_path, "x = made('at home')")
    assert load_app("~/mine.py").name == "at home"


def test_what_is_registered_stands_among_what_is_installed_by_name() -> None:
    before = [listing.name for listing in installed()]
    assert before == sorted(before)
    app = load_app(before[-1])
    with teola.register("app", "a-first-one", app), teola.register("app", "zz-last-one", app):
        listings = installed()
    assert [listing.name for listing in listings] == ["a-first-one", *before, "zz-last-one"]
    assert [listings[0].source, listings[-1].source] == [REGISTERED, REGISTERED]
    assert listings[0].app is app
