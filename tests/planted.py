"""Planted bugs, each beside the test that catches it.

    @catches("tenant-lost", "the queue is not told the tenant", edited(Core._ask, "a", "b"))
    def test_two_tenants_share_an_engine() -> None: ...

Such a test runs as it stands (`[sound]`), and once more with each of its bugs planted, when it has
to fail: a bug that it does not notice fails it. `make bugs` runs them all, and the simulation's own
(tests/under_faults/bugs.py).
"""

from __future__ import annotations

import ast
import inspect
import pkgutil
import textwrap
from collections.abc import Callable, Generator
from types import CodeType, FunctionType, MethodType
from typing import Any, NamedTuple

import pytest

Plant = Callable[[pytest.MonkeyPatch], None]


class Bug(NamedTuple):
    """about: what is wrong. plant: changes the code until the test has ended."""

    about: str
    plant: Plant


def catches(name: str, about: str, *plants: Plant) -> pytest.MarkDecorator:
    """The test fails when these changes are made, which are one bug."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        for one in plants:
            one(patch)

    return pytest.mark.planted(name, Bug(about, plant))


def edited(where: Any, old: str, new: str) -> Plant:
    """A careless edit of a function's source. `old` has to occur there exactly once, so that a bug
    whose place has changed fails loudly. where: the function, or `module:name`."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        found = pkgutil.resolve_name(where) if isinstance(where, str) else where
        function: FunctionType = found.__func__ if isinstance(found, MethodType) else found
        source = textwrap.dedent(inspect.getsource(function))
        count = source.count(old)
        assert count == 1, f"{old!r} occurs {count} times in {function.__qualname__}"
        patch.setattr(function, "__code__", _compiled(function, source.replace(old, new)))

    return plant


def _compiled(function: FunctionType, source: str) -> CodeType:
    """The code of `function` if this were its source."""
    (node,) = ast.parse(source).body
    assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    node.decorator_list = []
    future = ast.parse("from __future__ import annotations").body
    module = ast.Module([*future, node], [])
    found = dict(function.__globals__)
    exec(compile(module, f"<planted in {function.__qualname__}>", "exec"), found)
    code: CodeType = found[function.__name__].__code__
    assert code.co_freevars == function.__code__.co_freevars, "a closure cannot be edited"
    return code


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One case as it stands, one for each bug."""
    bugs = dict(mark.args for mark in metafunc.definition.iter_markers("planted") if mark.args)
    if bugs:
        metafunc.fixturenames.append("planted")
        metafunc.parametrize("planted", [None, *bugs.values()], ids=["sound", *bugs])


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """With a bug planted, failing is what is asked for."""
    bug = getattr(getattr(pyfuncitem, "callspec", None), "params", {}).get("planted")
    if bug is None:
        return (yield)
    with pytest.MonkeyPatch.context() as patch:
        bug.plant(patch)
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - whatever a bug breaks
            print(f"it was noticed that {bug.about}: {type(error).__name__}: {error}")
            return True
    pytest.fail(f"nobody noticed that {bug.about}")
