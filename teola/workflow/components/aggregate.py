"""Aggregate: gather what several components give into one name."""

from __future__ import annotations

from collections.abc import Sequence

from teola.errors import TemplateError
from teola.graph import AggregateParams, Aggregation, Op, Ref
from teola.workflow.block import Block
from teola.workflow.component import Component
from teola.workflow.kinds import Kind

_HIDDEN = (Aggregation.SEVERAL, Aggregation.MERGED, Aggregation.TOP_K, Aggregation.NEW)
MODES = {mode.value: mode for mode in Aggregation if mode not in _HIDDEN}


class Aggregate(Component):
    """Gathers the names `reads` into `output`; parts that are absent at run time are dropped.

    mode: `concat` (lists, in order), `union` (hits without duplicates), `first` or `last` present.
    """

    default_name = "gather"
    lenient = True

    def __init__(
        self, reads: Sequence[str], *, output: str, mode: str = "concat", name: str | None = None
    ) -> None:
        if isinstance(reads, str) or not reads:
            raise TemplateError("Aggregate: reads must be a list of names")
        if mode not in MODES:
            raise TemplateError(f"Aggregate: unknown mode {mode!r} (valid: {', '.join(MODES)})")
        self.needs = dict.fromkeys(reads, Kind.ANY)  # type: ignore[misc]
        self.gives = {"out": Kind.ANY}  # type: ignore[misc]
        super().__init__(name, outputs={"out": output})
        self.mode = MODES[mode]

    def decompose(self, block: Block) -> None:
        feeds = [block.read(port) for port in self.required]
        out = block.add(
            "gather",
            Op.AGGREGATE,
            {"parts": tuple(feed.ref for feed in feeds)},
            ("out",),
            AggregateParams(self.mode),
        )
        if self.mode in (Aggregation.FIRST, Aggregation.LAST):
            items = max((feed.items for feed in feeds if feed.items is not None), default=None)
        else:
            items = sum(feed.items or 1 for feed in feeds)
        block.give("out", Ref(out, "out"), items, open=any(feed.open for feed in feeds))
