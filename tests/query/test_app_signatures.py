"""How an application is asked: parameters that stand once, and names of modules that have moved."""

from __future__ import annotations

import inspect

import pytest

from teola import App
from teola.errors import InputError
from teola.query.parameters import resume_call, run_call
from tests.query.mail import mail_apps


@pytest.mark.parametrize("name", ["run", "arun", "stream", "astream"])
def test_every_way_to_ask_takes_the_same(name: str) -> None:
    method = getattr(App, name)
    me, *taken = inspect.signature(method).parameters.values()
    assert me.name == "self"
    assert taken == list(inspect.signature(run_call).parameters.values())
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
