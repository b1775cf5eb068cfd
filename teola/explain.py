"""Explanation: what the optimiser did to a query and why, with estimated and measured times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from textwrap import wrap
from typing import Any, Final, Self

from teola.errors import UnknownName
from teola.explain_measured import MeasuredGraph
from teola.explain_parts import grown
from teola.graph import Graph, Op, Primitive, render
from teola.graph.graph_table import to_text
from teola.graph.ops import PREFILLS
from teola.passes import Optimised
from teola.passes.estimate import call_tokens, seconds, timed
from teola.passes.expense import Expenses, PriceOf, expenses
from teola.passes.origins import origins
from teola.passes.timetable import timetable
from teola.policies.reason import ONLY_ONE
from teola.price import Price
from teola.profile import Profile
from teola.query.result import Result
from teola.runtime.observe.placements import Placement, placements
from teola.runtime.observe.recorded import Recorded

UNKNOWN: Final = (
    "   (learned from the first queries; --profile paper-13b borrows those of a testbed)"
)
NOT_KNOWN: Final = "not known yet"
NO_PRICE: Final = "not known (a model has no price)"
MEASURED: Final = "not known before; measured in this run"
COLUMNS: Final = 80
"""Width of reasons, at most."""
HANGING: Final = " " * 5


def unpriced(engine: str) -> Price | None:
    """For explanations without prices: none is known."""
    return None


@dataclass(frozen=True)
class Explanation:
    """p-graph and e-graph of one query under a profile; `result` if it was run as well, as that
    e-graph. price_of: of the models of its engines."""

    app: str
    optimised: Optimised
    profile: Profile
    result: Result | None = None
    price_of: PriceOf = unpriced

    @classmethod
    def of_run(cls, profile: Profile, result: Result, price_of: PriceOf = unpriced) -> Self:
        """The explanation of a query that was run, with the graphs that ran."""
        plan = result.trace.plan if result.trace else None
        optimised = plan.optimised if plan else None
        assert optimised is not None
        return cls(result.app, optimised, profile, result, price_of)

    @property
    def expenses(self) -> Expenses:
        """Tokens and cost of its calls of LLMs, parts included: low, expected, high."""
        return expenses(self.optimised.e_graph, self.profile, self.price_of)

    def to_json(self) -> dict[str, Any]:
        """{"app", "profile", "times", "p_graph", "e_graph", "rewrites", "critical_path_s",
        "grows", "memory", "expenses"}, and "measured" if it was run. times: where those of each
        engine come from; as long as one of them is not known, neither is a critical path (null).
        memory: of LLMs whose KV memory is known, {"kv_tokens", "call_tokens", "calls_at_once"} of
        an instance, for calls like the longest here. grows:
        components that add parts while they run, which count as often as they are expected to.
        expenses: {"low", "expected", "high"}, each {"prompt_tokens", "cached_tokens",
        "completion_tokens", "calls", "cost"} (cost: null where a price is not known)."""
        before, after = self.optimised.p_graph, self.optimised.e_graph
        values: dict[str, Any] = {
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
            "memory": self._memory(),
            "expenses": self.expenses.to_json(),
        }
        if self.result is not None:
            values["measured"] = self._measured_json()
        return values

    def render(self, form: str = "text", width: int | None = None) -> str:
        """The explanation as `text` (width: see there), or the e-graph as `mermaid` or `dot`.
        Raises UnknownName."""
        if form == "text":
            return self.text(width)
        if form not in render.FORMS:
            raise UnknownName("format", form, [*render.FORMS, "json"])
        return render.render(self.optimised.e_graph, form)

    def text(self, width: int | None = None) -> str:
        """Everything for a terminal. width: characters that a line may have; None: as many as it
        needs."""
        before, after = self.optimised.p_graph, self.optimised.e_graph
        blocks = [
            self._folded([f"{self.app} under profile {self.profile.name}"], width),
            [*self._folded([self._head("p-graph", before)], width), self._p_table(width)],
            [*self._folded([self._head("e-graph", after)], width), self._e_table(width)],
            self._folded(["where the times come from", *self._source_lines()], width),
            self._folded(self._memory_lines(), width),
            self._folded(self._expense_lines(), width),
            self._folded(["what the passes did", *self._decisions()], width),
        ]
        if parts := self._parts(width):
            blocks.append(["parts: what it grew", *parts])
        if self.result is not None:
            blocks.append(self._folded(self._destinations(), width))
            summary = f"measured: {self.result.latency_s:.3f} s, state {self.result.state}"
            blocks.append([f"{summary} (* critical path)"])
        return "\n\n".join("\n".join(block) for block in blocks if block)

    @staticmethod
    def _folded(lines: list[str], width: int | None) -> list[str]:
        """Sentences, each in as many lines as it needs."""
        if width is None:
            return lines
        return [piece for line in lines for piece in _wrapped(line, width)]

    def _head(self, name: str, graph: Graph) -> str:
        length = self._length(graph)
        if self.result is not None and length == NOT_KNOWN:
            return f"{name}: {len(graph)} primitives"
        return f"{name}: {len(graph)} primitives, critical path {length}"

    def _p_table(self, width: int | None) -> str:
        graph = self.optimised.p_graph
        if (times := self._times()) is None:
            return to_text(graph, self._estimates(graph, []), width=width)
        after = self.optimised.e_graph
        origin = origins(graph, after)
        busy = times.of_origins(origin, graph)
        ran = {id: f"{busy[id]:.4f} " if id in busy else "- " for id in graph.order}
        columns = {**self._estimates(graph, []), "ran s": ran}
        items = times.items_of(origin, graph, after)
        return to_text(graph, columns, width=width, items=items)

    def _e_table(self, width: int | None) -> str:
        """The table of the e-graph. Its critical path is the measured one if the query was run."""
        graph = self.optimised.e_graph
        if (times := self._times()) is None:
            timed = self._length_s(graph) is not None
            path = timetable(graph, self.profile).path if timed else []
            return to_text(graph, self._estimates(graph, path), width=width)
        critical, queued, ran = self._critical(), dict[str, str](), dict[str, str]()
        for id in graph.order:
            if id in times.ran:
                queued[id] = f"{times.queued[id]:.4f}"
                ran[id] = f"{times.ran[id]:.4f}{'*' if id in critical else ' '}"
            else:
                queued[id], ran[id] = "-", f"{times.states.get(id, 'not run')} "
        columns = {**self._estimates(graph, []), "queued s": queued, "ran s": ran}
        return to_text(graph, columns, width=width, items=times.items)

    def _parts(self, width: int | None) -> list[str]:
        """Lines on parts and inner queries that the query grew; of many that are alike only
        some."""
        trace = self.result.trace if self.result else None
        if trace is None or not trace.inner or trace.finished is None:
            return []
        return grown(trace, width)

    def _times(self) -> MeasuredGraph | None:
        """What was measured, if it was run."""
        trace = self.result.trace if self.result else None
        return MeasuredGraph.of(trace, self.optimised.e_graph) if trace is not None else None

    def _expense_lines(self) -> list[str]:
        """What its calls of LLMs take, if it makes any."""
        expenses = self.expenses
        if not expenses.high.calls:
            return []
        lines = ["tokens and cost of calls of LLMs: low, expected, high"]
        for what in ("prompt", "cached", "answer"):
            amounts = (f"{getattr(expense, what):,.0f}" for expense in expenses)
            lines.append(f"   {what} tokens: {', '.join(amounts)}")
        costs = (
            NO_PRICE if expense.cost is None else f"{expense.cost:.6g}" for expense in expenses
        )
        lines.append(f"   cost: {', '.join(dict.fromkeys(costs))}")
        if self.result is not None:
            usage = self.result.usage
            cost = "" if usage.cost is None else f", cost {usage.cost:.6g}"
            lines.append(
                f"   measured: {usage.prompt_tokens:,} prompt tokens, {usage.cached_tokens:,} of "
                f"them cached, {usage.completion_tokens:,} answer tokens{cost}"
            )
        return lines

    def _source_lines(self) -> list[str]:
        engines = self._sources().items()
        if self.result is not None:
            timed = {name: self.profile.engine(name).timed for name, _ in engines}
            return [f"   {name}: {source if timed[name] else MEASURED}" for name, source in engines]
        lines = [f"   {name}: {source}" for name, source in engines]
        return lines if self._all_known(self.optimised.e_graph) else [*lines, UNKNOWN]

    def _sources(self) -> dict[str, str]:
        """Engine -> where its times come from."""
        names = {p.engine for p in self.optimised.e_graph.primitives if p.engine}
        sources = {name: self.profile.engine(name).source for name in sorted(names)}
        return {name: source or f"profile {self.profile.name}" for name, source in sources.items()}

    def _memory(self) -> dict[str, dict[str, int]]:
        """By LLM: what the KV memory of an instance holds, and the longest call takes of it."""
        graph, found = self.optimised.e_graph, dict[str, dict[str, int]]()
        for p in graph.primitives:
            engine = self.profile.engine(p.engine) if p.op in PREFILLS else None
            if engine is None or engine.kv_tokens is None:
                continue
            tokens, longest = call_tokens(graph, p), found.get(p.engine, {}).get("call_tokens", 0)
            if tokens >= longest:
                found[p.engine] = {
                    "kv_tokens": engine.kv_tokens,
                    "call_tokens": tokens,
                    "calls_at_once": engine.calls_at_once(tokens),
                }
        return dict(sorted(found.items()))

    def _memory_lines(self) -> list[str]:
        found = self._memory()
        if not found:
            return []
        lines = ["memory of LLMs, and calls that an instance runs at once"]
        for name, memory in found.items():
            held, tokens = memory["kv_tokens"], memory["call_tokens"]
            told = f"   {name}: {held:,} tokens of KV, {memory['calls_at_once']:,} calls like the "
            lines.append(f"{told}longest here ({tokens:,} tokens)")
            if tokens > held:
                lines[-1] += ", which does not fit: it will be refused"
        return lines

    def _known(self, p: Primitive) -> bool:
        """Whether it is known how long the primitive takes. A function counts as nothing until it
        was seen."""
        return not p.engine or p.op is Op.TOOL_CALL or self.profile.engine(p.engine).timed

    def _all_known(self, graph: Graph) -> bool:
        return all(map(self._known, graph.primitives))

    def _grows(self) -> list[str]:
        """Components that add parts while they run."""
        grown = (p.component for p in self.optimised.e_graph.primitives if p.op is Op.GROW)
        return list(dict.fromkeys(grown))

    def _length_s(self, graph: Graph) -> float | None:
        if not self._all_known(graph) or not timed(graph, self.profile):
            return None
        return timetable(graph, self.profile).length_s

    def _length(self, graph: Graph) -> str:
        length = self._length_s(graph)
        if length is None:
            return NOT_KNOWN
        grows = self._grows()
        about = f", with what {', '.join(grows)} is expected to add" if grows else ""
        return f"{length:.3f} s (estimate{about})"

    def _estimates(self, graph: Graph, path: list[str]) -> dict[str, dict[str, str]]:
        """Columns of estimates. They stay empty for a query that ran before anything was known."""
        if self.result is not None and not any(
            self._known(p) for p in graph.primitives if p.engine
        ):
            return {}
        unknown = "? " if self.result is None else "- "
        estimate = {
            p.id: f"{seconds(graph, p, self.profile):.3f}{'*' if p.id in path else ' '}"
            if self._known(p)
            else unknown
            for p in graph.primitives
        }
        return {"est. s": estimate}

    def _decisions(self) -> list[str]:
        """Lines on the rewrites: one for each that was applied, one for all that a pass declined
        for the same reason."""
        by_reason: dict[tuple[str, str, str], list[str]] = {}
        for k, rewrite in enumerate(self.optimised.rewrites):
            apart = str(k) if rewrite.applied else ""
            alike = by_reason.setdefault((rewrite.pass_name, apart, rewrite.reason), [])
            alike.append(rewrite.primitive)
        lines = []
        for (name, applied, reason), (first, *rest) in by_reason.items():
            more = f" and {len(rest)} more" if rest else ""
            lines.append(f" {'+' if applied else '-'} {name}: {first}{more}: {reason}")
        return lines

    def _placements(self) -> list[Placement]:
        trace = self.result.trace if self.result else None
        return placements(trace) if trace is not None else []

    def _destinations(self) -> list[str]:
        """Where LLM calls went and why, if any could have gone elsewhere, or was held."""
        placed = self._placements()
        if all(placement.why == ONLY_ONE for placement in placed):
            return []
        return [
            "where LLM calls went, and why",
            *(x for placement in placed for x in _told(placement)),
        ]

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
        times = self._times()
        ran = times.ran if times is not None else {}
        queued = times.queued if times is not None else {}
        return {
            "latency_s": self.result.latency_s,
            "state": self.result.state,
            "primitives": {
                id: {"queued_s": queued[id], "ran_s": seconds} for id, seconds in ran.items()
            },
            "critical_path": self._critical(),
            "calls": [placement.to_json() for placement in self._placements()],
            "spans": [asdict(s) for s in self.result.trace.spans] if self.result.trace else [],
        }

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        mermaid = render.render(self.optimised.e_graph, "mermaid")
        return {"text/plain": self.text(), "text/markdown": f"```mermaid\n{mermaid}\n```"}

    def __str__(self) -> str:
        return self.text()


def _told(placed: Placement) -> Iterator[str]:
    """Lines on one try of a call: how much of its prompt was cached, and below, why it went
    there."""
    usage, cached = placed.usage, ""
    if usage is not None and usage.prompt_tokens:
        cached = f", found {usage.cached_tokens:,} of {usage.prompt_tokens:,} tokens"
    yield f"   {placed.primitive}: {placed.engine} {placed.instance}{cached}"
    yield from wrap(placed.why, COLUMNS, initial_indent=" " * 6, subsequent_indent=" " * 6)


def _wrapped(line: str, width: int) -> list[str]:
    return wrap(
        line, width, subsequent_indent=HANGING, break_long_words=False, break_on_hyphens=False
    )
