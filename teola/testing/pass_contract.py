"""check_pass: does a pass keep every answer, and every promise of `verify`, on random templates?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from teola.errors import GraphError
from teola.graph import Graph, Op
from teola.passes import optimise, pipeline
from teola.passes.rewrite import Pass, Rewrite
from teola.profile import Profile, StepTime, default, paper
from teola.registry import Named
from teola.runtime.live.query import Ending
from teola.schedule.plan import Plan, PlanPart
from teola.testing.bench import Bench
from teola.testing.checking import ContractBroken, finished
from teola.testing.hash_engines import hash_engines
from teola.testing.templates import RandomTemplate, random_template, usual_template
from teola.workflow.build import Builder
from teola.workflow.kinds import LISTS

TEMPLATES: Final = 40
ENOUGH_S: Final = 60.0
"""A query on engines that take no time, which has not ended by then, hangs."""

PassesToCheck = Sequence[str | Named[Pass]]


def check_pass(
    step: Pass, *, templates: int = TEMPLATES, seed: int = 0, profile: Profile | None = None
) -> int:
    """Apply a pass to the graphs of random templates, alone and before and after the others, and
    run what comes of it on small engines whose answers are hashes of what they are given.

    Half of the templates have the usual shape (documents are indexed, searched, reranked and
    answered from), the others any. Each is looked at by the profiles of `profiles`, or by `profile`
    alone, whose engines are called embedding, vectorstore, rerank, llm and python. A graph that the
    pass leaves as it is need not run. Returns how many templates have one that it has changed.

    Raises ContractBroken, which names the template: where an answer or the order of
    effects is another than without the pass, where `verify` refuses the graph, where the pass
    decides otherwise the second time, where it raises, and where it has changed no graph at all, so
    that nothing was checked.
    """
    name = getattr(step, "__name__", type(step).__name__)
    checked = _Checked(name, step)
    for k in range(seed, seed + templates):
        where, made = _template(k)
        checked.on(made, [profile] if profile is not None else profiles(), where)
    if not checked.changed:
        raise ContractBroken(
            f"pass {name!r} changed no graph of {templates} templates, so nothing was checked: "
            "give a `profile` where it pays, or more `templates`"
        )
    return checked.changed


def _template(k: int) -> tuple[str, RandomTemplate]:
    """The template number `k`, and how to make it."""
    if k % 2 == 0:
        return f"usual_template({k})", usual_template(k)
    large = k % 4 == 1
    return f"random_template({k}, large={large})", random_template(k, large=large)


class _Checked:
    """A pass, and what it did. changed: templates of which it has changed a graph."""

    def __init__(self, name: str, thing: Pass) -> None:
        self.thing = thing
        self.step: Named[Pass] = Named(name, self._watched)
        self.changed = self._applications = 0

    def _watched(self, graph: Graph, profile: Profile) -> tuple[Graph, list[Rewrite]]:
        returned = self.thing(graph, profile)
        self._applications += not isinstance(returned, tuple) or returned[0] is not graph
        return returned

    def on(self, made: RandomTemplate, known: Sequence[Profile], where: str) -> None:
        """On one template, by each of the profiles."""
        graph = made.builder.build(made.builder.configure({}), made.sizes)
        grows = any(p.op is Op.GROW for p in graph.primitives)
        told: Ending | None = None
        changed = False
        for n, profile in enumerate(known):
            self._check_purity(graph, profile, where)
            for steps in self._orders():
                listed = ", ".join(s if isinstance(s, str) else s.name for s in steps)
                case = f"pass {self.step.name!r}, on {where} with passes {listed!r}"
                try:
                    self._applications = 0
                    optimised = optimise(graph, profile, steps, debug=True)
                    applied = self._applications > 0
                    changed |= applied
                    if not (applied or (grows and not n)):  # it may change the parts alone
                        continue
                    told = told or self._answer(graph, made, profile, [])
                    ending = self._answer(optimised.e_graph, made, profile, steps)
                except GraphError as error:
                    raise ContractBroken(f"{case}: {error}") from error
                if wrong := _difference(told, ending) or made.wrong_effects():
                    raise ContractBroken(f"{case}: {wrong}")
        self.changed += changed

    def _orders(self) -> list[PassesToCheck]:
        others = [step for step in pipeline() if step.thing is not self.thing]
        return [[self.step], [*others, self.step], [self.step, *others]]

    def _check_purity(self, graph: Graph, known: Profile, where: str) -> None:
        case = f"pass {self.step.name!r}, on {where}"
        once, again = (_raised(self.step, graph, known, case) for _ in range(2))
        if once != again:
            raise ContractBroken(f"{case}: called twice, it decides otherwise the second time")

    def _answer(
        self, graph: Graph, made: RandomTemplate, known: Profile, steps: PassesToCheck
    ) -> Ending:
        made.effects.clear()
        return finished(_run(Plan(graph, parts=parts_by(steps, known)), made.inputs))


def _difference(told: Ending, ending: Ending) -> str:
    """What is another than without the pass, if anything."""
    if ending.state is not told.state or (ending.error and not told.error):
        why = f": {ending.error}" if ending.error else ""
        return f"the query ends {ending.state.value} and not {told.state.value}{why}"
    if ending.outputs != told.outputs:
        return f"the answer is {dict(ending.outputs)} and not {dict(told.outputs)}"
    return ""


def _raised(step: Named[Pass], graph: Graph, known: Profile, case: str) -> Any:
    try:
        return step.thing(graph, known)
    except Exception as error:  # a pass may be anybody's
        raise ContractBroken(f"{case}: {type(error).__name__}: {error}") from error


async def _run(plan: Plan, inputs: Mapping[str, Any]) -> Ending:
    async with Bench(hash_engines()) as bench:
        ending = await bench.run(plan, inputs, deadline_s=ENOUGH_S)
        await bench.settle()
        return ending


def profiles() -> list[Profile]:
    """How the engines of the check are seen: they take no time, so that whatever can be cut pays;
    one of each; three of each; those of the paper's testbed, of which two rerank and whose model
    keeps no prefixes."""
    one = profile_of()
    three = {name: replace(engine, instances=3) for name, engine in one.engines.items()}
    slow = paper("13b")
    own = {
        "rerank": replace(slow.engines["rerank"], instances=2),
        "llm": replace(slow.engines["llm"], keeps_prefixes=False),
    }
    slow = replace(slow, engines={**one.engines, **slow.engines, **own})
    return [profile_of(free=True), one, replace(one, engines=three), slow]


def profile_of(block_tokens: int = 4, *, free: bool = False) -> Profile:
    """What the engines of the check declare; of longer KV blocks, fewer pieces of a prompt are
    worth it. free: nothing takes any time, so whatever can be cut is."""
    specs = {name: instances[0].spec for name, instances in hash_engines().items()}
    specs["llm"] = replace(specs["llm"], block_tokens=block_tokens)
    found = default(specs.values())
    if not free:
        return found
    timeless = {n: replace(e, costs={}, step=StepTime()) for n, e in found.engines.items()}
    return replace(found, engines=timeless, dispatch_s=0.0)


def parts_by(steps: PassesToCheck, known: Profile) -> PlanPart:
    """Plans of the parts that graphs grow, by these passes."""

    def planned(body: Builder, sizes: Mapping[str, int]) -> Plan:
        lists = {name: size for name, size in sizes.items() if body.inputs[name] in LISTS}
        before = body.build(body.configure({}), lists)
        return Plan(optimise(before, known, steps, debug=True).e_graph, parts=planned)

    return planned
