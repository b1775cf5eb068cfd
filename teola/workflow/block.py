"""Block: where a component puts its primitives, and what it reads from those before it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from math import inf
from typing import Any, Final, Protocol

from teola.errors import InputError, TemplateError
from teola.graph import Op, Primitive, Ref, Value
from teola.graph.ops import CONTROL, Params


@dataclass(frozen=True, slots=True)
class Feed:
    """Data with what is planned about it: `items` is None for a single value. open: a list that
    may turn out longer than planned."""

    ref: Ref
    items: int | None = None
    open: bool = False

    def item(self, i: int) -> Ref:
        """Item `i`; the last one that is planned stands for all that come after it, if any may."""
        last = self.open and i + 1 >= (self.items or 1)
        return Ref(self.ref.producer, self.ref.port, (i, None if last else i + 1))


UNKNOWN_ITEMS: Final = 8
"""Items that are planned for a list of which nobody says how long it may be."""


class Owner(Protocol):
    """A component, as far as its primitives are made by it; see there."""

    name: str
    engine: str
    batchable: bool
    splittable: bool
    optional: bool
    required: dict[str, str]
    extra: dict[str, str]
    outputs: dict[str, str]


class Block:
    """Where one component puts its primitives. config: the component's, for this query. window:
    tokens of a prompt and its answer together, of the component's engine (None: not known)."""

    def __init__(
        self,
        owner: Owner,
        config: Any,
        feeds: Mapping[str, Feed],
        room: float = inf,
        window: int | None = None,
    ) -> None:
        self.config, self._owner, self._feeds = config, owner, feeds
        self._room, self.window = room, window
        self.primitives: list[Primitive] = []
        self.given: dict[str, Feed] = {}

    def declares(self, port: str) -> bool:
        """Whether the component has an input of this name."""
        return port in self._owner.required or port in self._owner.extra

    def read(self, port: str) -> Feed:
        """The data behind a required input. Raises TemplateError for one that may be absent."""
        feed = self._feeds.get(port)
        if feed is None:
            self._check_input(port)
            raise self._wrong(
                f"it reads {port!r}, which may be absent: use block.may_read({port!r})"
            )
        return feed

    def may_read(self, port: str) -> Feed | None:
        """The data behind an optional input, if the template provides it. Raises TemplateError for
        one that is not declared."""
        feed = self._feeds.get(port)
        if feed is None:
            self._check_input(port)
        return feed

    def add(
        self,
        key: str,
        op: Op,
        inputs: Mapping[str, Value],
        outputs: tuple[str, ...],
        params: Params,
        *,
        items: int | None = None,
        planned: int = 1,
        splittable: bool = False,
        engine: str | None = None,
    ) -> str:
        """Add a primitive called `<component>.<key>`; items: planned length of its item input.
        planned: of one that has none, the length of the list that it grows over.

        Raises InputError if the graph becomes larger than it may, TemplateError if no engine is
        named that would run it.
        """
        if len(self.primitives) >= self._room:
            raise too_many_primitives()
        control = op in CONTROL
        if not (control or engine or self._owner.engine):
            raise self._no_engine(key, op)
        primitive = Primitive(
            id=f"{self._owner.name}.{key}",
            op=op,
            component=self._owner.name,
            engine="" if control else engine or self._owner.engine,
            inputs=tuple(inputs.items()),
            outputs=outputs,
            params=params,
            items=planned if items is None else items,
            batchable=items is not None and self._owner.batchable,
            splittable=splittable and self._owner.splittable,
            optional=self._owner.optional,
        )
        self.primitives.append(primitive)
        return primitive.id

    def give(self, port: str, ref: Ref, items: int | None = None, *, open: bool = False) -> None:
        """Say that output `port` is `ref`, planned to hold `items` items (None: one value). open:
        it may hold more. Raises TemplateError for an output that is not declared."""
        if port not in self._owner.outputs:
            raise self._wrong(_undeclared("gives", port, self._owner.outputs, "`gives`"))
        self.given[port] = Feed(ref, items, open)

    def check(self) -> None:
        """Raise TemplateError if the component has not given all that it declares."""
        for port in self._owner.outputs:
            if port not in self.given:
                raise self._wrong(
                    f"it declares the output {port!r} in `gives`, but its `decompose` never calls "
                    f"block.give({port!r}, ...)"
                )

    def _check_input(self, port: str) -> None:
        if not self.declares(port):
            declared = [*self._owner.required, *self._owner.extra]
            raise self._wrong(_undeclared("reads", port, declared, "`needs` or `may_use`"))

    def _no_engine(self, key: str, op: Op) -> TemplateError:
        owner = type(self._owner).__name__
        return self._wrong(
            f'no engine is to run its {op.value} {key!r}; declare `default_engine = "..."` in '
            f'{owner} (functions run at "python"), or give {owner}(engine=...)'
        )

    def _wrong(self, what: str) -> TemplateError:
        """The error for a slip in the component's class."""
        return TemplateError(
            f"component {self._owner.name!r} ({type(self._owner).__name__}): {what}"
        )


def _undeclared(does: str, port: str, declared: Collection[str], where: str) -> str:
    """The message for a component that reads or gives a name that it does not declare."""
    near = get_close_matches(port, declared, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    listed = ", ".join(sorted(declared)) or "nothing"
    return f"it {does} {port!r}, which it does not declare in {where}{hint} (declared: {listed})"


def too_many_primitives() -> InputError:
    """The error for a graph that is not built, because it has too many primitives."""
    return InputError(
        "this query's graph has more primitives than are allowed (max_primitives); ask for fewer "
        "results or expansions, or give fewer items"
    )
