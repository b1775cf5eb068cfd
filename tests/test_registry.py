"""Things by name: the built-in ones, and those that an installed package offers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import teola
from teola import Search
from teola.errors import InputError, UnknownName
from teola.kv import make_policy
from teola.policies import batching, routing
from teola.policies.batching import Fifo
from teola.workflow import components
from tests.recording import work

OFFERED = """
from teola.policies.batching.fifo import Fifo

class Mine(Fifo):
    def __init__(self, pace_s: float = 0.0) -> None:
        super().__init__(max_wait_s=pace_s)
"""
POINTS = """
[teola.policies]
batching.mine = offered_here:Mine
routing.mine = teola.policies.routing.round_robin:RoundRobin
eviction.mine = teola.kv.policies.lru:Lru
routing.broken = offered_here:Mine
routing.round_robin = offered_here:Mine

[teola.components]
mine = teola.workflow.components:Search
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package that offers a policy of each kind and a component, all called `mine`."""
    (tmp_path / "offered_here.py").write_text(OFFERED)
    info = tmp_path / "offered_here-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: offered-here\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("package")
def test_a_package_s_policy_is_found_by_its_kind_and_name() -> None:
    policy = batching.make("mine", pace_s=2.0)
    policy.add(work(0), 0.0)
    assert policy.wake_at(0.0) == 2.0
    assert type(routing.make("mine")) is type(routing.make("round_robin"))
    assert type(make_policy("mine")) is type(make_policy("lru"))
    assert type(components.named("mine")) is Search


@pytest.mark.usefixtures("package")
def test_what_is_no_policy_is_refused_when_it_is_made() -> None:
    with pytest.raises(
        InputError,
        match=r"'broken': Mine lacks the methods attach, order, place, why, free, observe",
    ):
        routing.make("broken")


@pytest.mark.usefixtures("package")
def test_it_is_listed_where_a_name_is_unknown() -> None:
    with pytest.raises(UnknownName, match=r"'mien'.*mine"):
        batching.make("mien")
    with pytest.raises(UnknownName, match=r"batching policy 'mine'.*pace_s"):
        batching.make("mine", pase_s=1.0)


def test_without_it_the_name_is_unknown() -> None:
    with pytest.raises(UnknownName, match="'mine'"):
        batching.make("mine")


@pytest.mark.usefixtures("package")
def test_what_is_built_in_stays_and_has_its_name_once() -> None:
    names = routing.REGISTRY.names()
    assert names.count("round_robin") == 1
    assert type(routing.make("round_robin")).__name__ == "RoundRobin"
    others = names[len(routing.REGISTRY.built_in) :]
    assert others == ["broken", "mine"]


def test_a_factory_may_take_any_option() -> None:
    def many(**options: Any) -> Fifo:
        return Fifo(**options)

    with teola.register("batching", "many", many):
        policy = batching.make("many", max_wait_s=3.0)
    policy.add(work(0), 0.0)
    assert policy.wake_at(0.0) == 3.0


def test_what_is_registered_cannot_be_changed_by_looking() -> None:
    with teola.register("batching", "many", Fifo):
        batching.REGISTRY.registered().clear()
        assert batching.REGISTRY.find("many") is Fifo
