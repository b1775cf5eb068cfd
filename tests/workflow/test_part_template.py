"""Templates of parts: what they read from upstream, and for whom they are built once."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import pytest

from teola import Generate, component
from teola.graph import Ref
from teola.workflow.block import Feed
from teola.workflow.kinds import Kind
from teola.workflow.part_template import PartTemplate, _common

LIST, TEXT = Feed(Ref("docs", "out"), 4), Feed(Ref("docs", "out"))


class Upstream:
    """What there is, by name."""

    def __init__(self, feeds: Mapping[str, Feed]) -> None:
        self._feeds = feeds

    def may_read(self, port: str) -> Feed | None:
        return self._feeds.get(port)


@component(outputs="read", pure=True)
def read(more: list[str]) -> str:
    return "".join(more)


def template() -> PartTemplate:
    body = read >> Generate(inputs={"context": "docs", "history": "read"})
    return PartTemplate("owner", body, ("question",), ("answer",))


def test_a_body_is_built_once_for_each_way_in_which_it_is_given_what_it_reads() -> None:
    """Lists or single texts, and what is there at all; once for those that are alike."""
    made = template()
    assert (made.needs["more"], made.may_use["docs"]) == (Kind.TEXTS, Kind.ANY)
    single = {"more": Kind.TEXT, "docs": Kind.ANY}
    ways: list[dict[str, Feed]] = []
    for docs, more in product((LIST, TEXT, None), (LIST, TEXT)):
        ways.append({"more": more, **({} if docs is None else {"docs": docs})})
    builders = [made.builder(Upstream(feeds)) for feeds in ways]
    assert len({id(one) for one in builders}) == len(ways)
    again = [made.builder(Upstream({**feeds, "unread": LIST})) for feeds in reversed(ways)]
    assert again[::-1] == builders
    for feeds, builder in zip(ways, builders, strict=True):
        expected = {k: Kind.TEXTS if feed is LIST else single[k] for k, feed in feeds.items()}
        assert builder.inputs == {"question": Kind.TEXT, **expected}


def test_a_part_is_planned_once_for_each_application() -> None:
    """Its graph has the name of the one that asks: estimates go by what that has learned."""
    builder = template().builder(Upstream({"more": LIST}))
    names = ("one", "two", "three")
    planned = {name: builder.planned(name) for name in names}
    for name in (*reversed(names), *names):
        assert builder.planned(name) is planned[name]
        assert planned[name].name == name


@pytest.mark.parametrize(
    ("kinds", "common"),
    [
        ((), Kind.ANY),
        ((Kind.ANY,), Kind.ANY),
        ((Kind.ANY, Kind.TEXT), Kind.TEXT),
        ((Kind.TEXTS, Kind.ANY, Kind.TEXTS), Kind.TEXTS),
        ((Kind.TEXTS, Kind.TEXT), Kind.TEXT),
        ((Kind.TEXT, Kind.ANY, Kind.TEXTS), Kind.TEXT),
        ((Kind.TEXTS, Kind.TEXTS, Kind.HITS), Kind.HITS),
    ],
)
def test_the_kind_of_what_several_read_is_the_narrowest(
    kinds: tuple[Kind, ...], common: Kind
) -> None:
    assert _common(kinds) is common
