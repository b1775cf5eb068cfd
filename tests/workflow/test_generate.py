"""What stands where in the prompts of Generate, and what that lets go ahead."""

from __future__ import annotations

from teola.graph import Graph, Op, Primitive, Prompt, Ref, Role
from teola.passes import optimise
from teola.profile import paper
from teola_apps.advanced_rag import app


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
