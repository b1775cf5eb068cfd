"""Explanation: what the optimiser did to a query and why, with estimated and measured times."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from textwrap import wrap
from typing import Any, Final, Self

from teola.errors import UnknownName
from teola.explain_parts import grown
from teola.graph import Graph, Op, Primitive, render
from teola.passes import Optimised
from teola.passes.estimate import seconds
from teola.passes.timetable import timetable
from teola.policies.reason import ONLY_ONE
from teola.profile import Profile
from teola.result import Result
from teola.runtime.observe.placements import Placement, placements
from teola.runtime.observe.recorded import Recorded

UNKNOWN: Final = (
    "   (learned from the first queries; --profile paper-13b borrows those of a testbed)"
)
COLUMNS: Final = 80
"""Width of sentences."""


@dataclass(frozen=True)
class Explanation:
    """p-graph and e-graph of one query under a profile; `result` if it was run as well, as that
    e-graph."""

    app: str
    optimised: Optimised
    profile: Profile
    result: Result | None = None

    @classmethod
    def of_run(cls, profile: Profile, result: Result) -> Self:
        """Of a query that was run, with the graphs that ran."""
        plan = result.trace.plan if result.trace else None
        optimised = plan.optimised if plan else None
        assert optimised is not None
        return cls(result.app, optimised, profile, result)

    def to_json(self) -> dict[str, Any]:
        """{"app", "profile", "times", "p_graph", "e_graph", "rewrites", "critical_path_s",
        "grows"}, and "measured" if it was run. times: where those of each engine come from; as long
        as one of them is not known, neither is a critical path (null). grows: components that add
        parts while they run; how many is not known before, so there is no critical path either."""
        before, after = self.optimised.p_graph, self.optimised.e_graph
        found: dict[str, Any] = {
            "app": self.app,
            "profile": self.profile.name,
            "times": self._sources(),
            "p_graph": render.to_json(before),
            "e_graph": render.to_json(after),
            "rewrites": [
                {
                    "pass": r.pass_name,
                    "primitive": r.primitive,
                    "applied": r.applied,
                    "reason": r.reason,
                }
                for r in self.optimised.rewrites
            ],
            "critical_path_s": {
                "p_graph": self._length_s(before),
                "e_graph": self._length_s(after),
            },
            "grows": self._grows(),
        }
        if self.result is not None:
            found["measured"] = self._measured_json()
        return found

    def render(self, form: str = "text") -> str:
        """The explanation as `text`, or the e-graph as `mermaid` or `dot`. Raises UnknownName."""
        if form == "text":
            return self.text()
        if form not in render.FORMS:
            raise UnknownName("format", form, [*render.FORMS, "json"])
        return render.render(self.optimised.e_graph, form)

    def text(self) -> str:
        """Everything for a terminal."""
        before, after = self.optimised.p_graph, self.optimised.e_graph
        path = timetable(after, self.profile).path if self._length_s(after) is not None else []
        lines = [
            f"{self.app} under profile {self.profile.name}",
            "",
            f"p-graph: {len(before)} primitives, critical path {self._length(before)}",
            render.to_text(before, self._estimates(before, [])),
            "",
            f"e-graph: {len(after)} primitives, critical path {self._length(after)}",
            render.to_text(after, self._columns(after, path)),
            "",
            "where the times come from",
            *(f"   {name}: {source}" for name, source in self._sources().items()),
            *([] if self._all_known(after) else [UNKNOWN]),
            "",
            "what the passes did",
            *self._decisions(),
        ]
        if parts := self._parts():
            lines += ["", "parts: what it grew", *parts]
        if self.result is not None:
            lines += self._destinations()
            told = f"measured: {self.result.latency_s:.3f} s, state {self.result.state}"
            lines += ["", f"{told} (* critical path)"]
        return "\n".join(lines)

    def _parts(self) -> list[str]:
        """What it grew: parts, and queries inside; of many that are alike only some."""
        trace = self.result.trace if self.result else None
        if trace is None or not trace.inner or trace.finished is None:
            return []
        return grown(trace)

    def _columns(self, graph: Graph, path: list[str]) -> dict[str, dict[str, str]]:
        """Of the e-graph; the critical path is the measured one if it was run."""
        trace = self.result.trace if self.result else None
        if trace is None:
            return self._estimates(graph, path)
        measured, states = self._measured(), {s.primitive: s.state for s in trace.spans}
        critical = self._critical()
        queued, ran = dict[str, str](), dict[str, str]()
        for id in graph.order:
            if id in measured:
                queued[id] = f"{measured[id][0]:.4f}"
                ran[id] = f"{measured[id][1]:.4f}{'*' if id in critical else ' '}"
            else:
                queued[id], ran[id] = "-", f"{states.get(id, 'not run')} "
        return {**self._estimates(graph, []), "queued s": queued, "ran s": ran}

    def _sources(self) -> dict[str, str]:
        """Engine -> where its times come from."""
        names = {p.engine for p in self.optimised.e_graph.primitives if p.engine}
        told = {name: self.profile.engine(name).source for name in sorted(names)}
        return {name: source or f"profile {self.profile.name}" for name, source in told.items()}

    def _known(self, p: Primitive) -> bool:
        """Whether one knows how long it takes; a function counts as nothing until it was seen."""
        return not p.engine or p.op is Op.TOOL_CALL or self.profile.engine(p.engine).timed

    def _all_known(self, graph: Graph) -> bool:
        return all(map(self._known, graph.primitives))

    def _grows(self) -> list[str]:
        """Components that add parts while they run."""
        grown = (p.component for p in self.optimised.e_graph.primitives if p.op is Op.GROW)
        return list(dict.fromkeys(grown))

    def _length_s(self, graph: Graph) -> float | None:
        if self._grows() or not self._all_known(graph):
            return None
        return timetable(graph, self.profile).length_s

    def _length(self, graph: Graph) -> str:
        if grows := self._grows():
            return f"not known before it runs: {', '.join(grows)} adds to it"
        length = self._length_s(graph)
        return "not known yet" if length is None else f"{length:.3f} s (estimate)"

    def _estimates(self, graph: Graph, path: list[str]) -> dict[str, dict[str, str]]:
        estimate = {
            p.id: f"{seconds(graph, p, self.profile):.3f}{'*' if p.id in path else ' '}"
            if self._known(p)
            else "? "
            for p in graph.primitives
        }
        return {"est. s": estimate}

    def _decisions(self) -> list[str]:
        lines = []
        for rewrite in self.optimised.rewrites:
            mark = "+" if rewrite.applied else "-"
            lines.append(f" {mark} {rewrite.pass_name}: {rewrite.primitive}: {rewrite.reason}")
        return lines

    def _placements(self) -> list[Placement]:
        trace = self.result.trace if self.result else None
        return placements(trace) if trace is not None else []

    def _destinations(self) -> list[str]:
        """Where LLM calls went, if any could have gone elsewhere, or was held."""
        placed = self._placements()
        if all(one.why == ONLY_ONE for one in placed):
            return []
        return ["", "where LLM calls went, and why", *(x for one in placed for x in _told(one))]

    def _measured(self) -> dict[str, tuple[float, float]]:
        """Primitive -> seconds queued before its first slice ran, and until its last was done."""
        if self.result is None or self.result.trace is None:
            return {}
        spans = defaultdict(list)
        for span in self.result.trace.spans:
            if span.state == "done":
                spans[span.primitive].append(span)
        return {
            id: (
                min(s.start for s in of) - min(s.queued for s in of),
                max(s.end for s in of) - min(s.start for s in of),
            )
            for id, of in spans.items()
        }

    def _critical(self) -> list[str]:
        """Primitives that the measured latency went along, in order."""
        if self.result is None or self.result.trace is None:
            return []
        spans = Recorded.of(self.result.trace).critical_path()
        return list(
            dict.fromkeys(s.primitive for s in sorted(spans, key=lambda s: (s.start, s.end)))
        )

    def _measured_json(self) -> dict[str, Any]:
        assert self.result is not None
        return {
            "latency_s": self.result.latency_s,
            "state": self.result.state,
            "primitives": {
                id: {"queued_s": queued, "ran_s": ran}
                for id, (queued, ran) in self._measured().items()
            },
            "critical_path": self._critical(),
            "calls": [one.to_json() for one in self._placements()],
            "spans": [asdict(s) for s in self.result.trace.spans] if self.result.trace else [],
        }

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        mermaid = render.render(self.optimised.e_graph, "mermaid")
        return {"text/plain": self.text(), "text/markdown": f"```mermaid\n{mermaid}\n```"}

    def __str__(self) -> str:
        return self.text()


def _told(placed: Placement) -> Iterator[str]:
    """Of one try of a call: what it found, and below, why it went there."""
    usage, found = placed.usage, ""
    if usage is not None and usage.prompt_tokens:
        found = f", found {usage.cached_tokens:,} of {usage.prompt_tokens:,} tokens"
    yield f"   {placed.primitive}: {placed.engine} {placed.instance}{found}"
    yield from wrap(placed.why, COLUMNS, initial_indent=" " * 6, subsequent_indent=" " * 6)
