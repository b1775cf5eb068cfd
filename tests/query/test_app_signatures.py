"""How an application is asked: parameters that stand once, and names of modules that have moved."""

from __future__ import annotations

import importlib
import inspect

import pytest

from teola import App, Result, engine
from teola.errors import InputError
from teola.query.job import Job
from teola.query.parameters import resume_call, run_call_of
from teola.query.spec import QuerySpec
from tests.query.mail import mail_apps


@pytest.mark.parametrize("name", ["run", "arun", "stream", "astream"])
def test_every_way_to_ask_takes_the_same(name: str) -> None:
    method = getattr(App, name)
    me, *taken = inspect.signature(method).parameters.values()
    assert me.name == "self"
    assert taken == list(inspect.signature(run_call_of).parameters.values())
    assert inspect.iscoroutinefunction(method) == (name == "arun")
    assert method.__doc__


@pytest.mark.parametrize("name", ["resume", "aresume"])
def test_every_way_to_answer_takes_the_same(name: str) -> None:
    _, *taken = inspect.signature(getattr(App, name)).parameters.values()
    assert taken == list(inspect.signature(resume_call).parameters.values())


def test_an_input_may_be_called_anything_that_is_no_parameter() -> None:
    app = mail_apps()["mail"]
    with pytest.raises(InputError, match="topics"):
        app.run(topics="tides")
    with pytest.raises(InputError, match="topics"):
        app.stream({"topics": "tides"})


@pytest.mark.parametrize(
    ("module", "name", "kind"),
    [("job", "Job", Job), ("result", "Result", Result), ("query_spec", "QuerySpec", QuerySpec)],
)
def test_what_has_moved_is_still_found_and_warned_of(module: str, name: str, kind: type) -> None:
    old = importlib.import_module(f"teola.{module}")
    with pytest.warns(DeprecationWarning, match=rf"teola\.{module} is now teola\.query"):
        assert getattr(old, name) is kind
    with pytest.raises(AttributeError):
        old.nothing  # noqa: B018 - asking for it is the test


def test_an_engines_result_is_still_found_by_its_old_name() -> None:
    with pytest.warns(DeprecationWarning, match=r"teola\.engine\.Result is now .*EngineResult"):
        assert engine.Result is engine.EngineResult
    with pytest.raises(AttributeError, match="Reslt"):
        engine.Reslt  # noqa: B018 - asking for it is the test
