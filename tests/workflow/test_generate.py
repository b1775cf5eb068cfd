"""What stands where in the prompts of Generate, and what that lets go ahead."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from teola.graph import Graph, Op, Part, Primitive, Prompt, Ref, Role
from teola.passes import optimise
from teola.profile import paper
from teola.runtime.sim import Sim
from teola.runtime.values import Tokens
from teola.schedule.plan import Plan
from teola.workflow.components.history import opening_parts
from teola_apps.advanced_rag import app
from teola_apps.chat_rag import app as chat
from tests.planted import catches, edited


def graph(answer_last: bool) -> Graph:
    config = {"generate": {"answer_last": answer_last}}
    return app.builder.build(app.builder.configure(config), {"chunks": 48})


def roles(p: Primitive) -> list[Role]:
    prompt = p.input("prompt")
    assert isinstance(prompt, Prompt)
    return [part.role for part in prompt.parts if isinstance(part.content, Ref)]


def test_the_answer_so_far_stands_before_the_context_or_behind_it() -> None:
    first, last = (graph(answer_last)["generate.2.prefill"] for answer_last in (False, True))
    assert roles(first) == [Role.QUESTION, Role.ANSWER, Role.CONTEXT]
    assert roles(last) == [Role.QUESTION, Role.CONTEXT, Role.ANSWER]
    for answer_last in (False, True):
        assert roles(graph(answer_last)["generate.1.prefill"]) == [Role.QUESTION, Role.CONTEXT]


def test_the_context_of_a_round_can_go_ahead_of_the_round_before() -> None:
    """Only where the answer comes last: attention is causal."""
    for answer_last in (False, True):
        made = optimise(graph(answer_last), paper("13b"), debug=True).e_graph
        ahead = [
            p for p in made.primitives if p.op is Op.PARTIAL_PREFILLING and Role.CONTEXT in roles(p)
        ]
        assert [p.origin for p in ahead] == (
            ["generate.2.prefill", "generate.3.prefill"] if answer_last else []
        )
        for p in ahead:
            assert not any("decode" in id for id in made.ancestors[p.id] if "generate" in id)


# --- the conversation -----------------------------------------------------------------------


def talking(first: bool) -> Graph:
    config: dict[str, Any] = {"history_first": first}
    configs = chat.builder.configure({"expand": config, "generate": config})
    return chat.builder.build(configs, {"chunks": 48})


def beginnings(graph: Graph) -> list[tuple[Part, ...]]:
    """What the prompts of the expansion and of the first round begin with, up to the history."""
    found = []
    for id in ("expand.prefill", "generate.1.prefill"):
        prompt = graph[id].input("prompt")
        assert isinstance(prompt, Prompt)
        (at,) = [k for k, part in enumerate(prompt.parts) if part.role is Role.HISTORY]
        found.append(prompt.parts[: at + 1])
    return found


@catches(
    "history-behind-instructions",
    "the history stands behind what components are told, whatever they are asked for",
    edited(opening_parts, "if block.config.history_first", "if False"),
)
def test_components_share_a_conversation_that_stands_before_their_instructions() -> None:
    """Only if that is asked for: what a model reads stays the author's choice."""
    expansion, generation = beginnings(talking(first=False))
    assert expansion[0] != generation[0]
    expansion, generation = beginnings(talking(first=True))
    assert expansion == generation
    texts = [
        sorted(part.content for part in p.input("prompt").parts if isinstance(part.content, str))  # type: ignore[union-attr]
        for p in (talking(first)["generate.1.prefill"] for first in (True, False))
    ]
    assert texts[0] == texts[1]


@pytest.mark.parametrize(("gap_s", "part"), [(12.0, 0.98), (4.0, 0.9)])
def test_a_shared_conversation_is_computed_once(gap_s: float, part: float) -> None:
    """On one instance; a new conversation of 1,024 tokens with each query."""
    bed = paper("13b")
    bed = replace(bed, engines={**bed.engines, "llm": replace(bed.engines["llm"], instances=1)})

    def mean_s(first: bool) -> float:
        made = optimise(talking(first), bed)
        sim, plan = Sim(bed), Plan(made.e_graph, bed, made)
        for k in range(12):
            given = {"question": Tokens(16), "history": Tokens(1024), "scope": Tokens(0)}
            sim.submit(plan, {**given, "chunks": [Tokens(256)] * 48}, at=k * gap_s)
        return sum(result.finished - result.admitted for result in sim.run()) / 12

    assert mean_s(True) < part * mean_s(False)
