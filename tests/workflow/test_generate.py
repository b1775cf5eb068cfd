"""What stands where in the prompts of Generate, and what that lets go ahead."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from teola import Generate
from teola.errors import InputError
from teola.graph import (
    AggregateParams,
    Aggregation,
    DecodeParams,
    Graph,
    Op,
    Part,
    Primitive,
    Prompt,
    Ref,
    Role,
)
from teola.passes import optimise
from teola.profile import paper
from teola.runtime.sim import Sim
from teola.runtime.values import Tokens
from teola.schedule.plan import Plan
from teola.workflow.block import Block, Feed
from teola.workflow.components.history import opening_parts
from teola_apps.advanced_rag import app
from teola_apps.chat_rag import app as chat
from tests.planted import catches, edited
from tests.workflow.test_components import ONE, block_of


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


# --- the calls of a mode ----------------------------------------------------------------------


def decodes(count: int, **config: Any) -> dict[str, DecodeParams]:
    """The calls over so many pieces of context, by their keys."""
    block = block_of(Generate(**config), context=Feed(Ref("query", "context"), count))
    found = {p.id: p.params for p in block.primitives if p.op is Op.DECODING}
    return {
        id.removeprefix("generate.").removesuffix("decode"): params
        for id, params in found.items()
        if isinstance(params, DecodeParams)
    }


@pytest.mark.parametrize(
    ("count", "merges"),
    [
        (1, []),
        (2, ["merge."]),
        (3, ["merge."]),
        (4, ["merge.1.1.", "merge.1.2.", "merge."]),
        (6, ["merge.1.1.", "merge.1.2.", "merge."]),
        (7, ["merge.1.1.", "merge.1.2.", "merge."]),
        (9, ["merge.1.1.", "merge.1.2.", "merge.1.3.", "merge."]),
        (10, [f"merge.1.{k}." for k in (1, 2, 3)] + ["merge.2.1.", "merge.2.2.", "merge."]),
    ],
)
def test_a_tree_has_as_many_levels_as_it_needs(count: int, merges: list[str]) -> None:
    """At most three answers are merged at once, in groups that are nearly as large. A group of one
    is that answer: of 7 there are 3, 3 and 1."""
    calls = [*decodes(count, mode="tree", fan_in=3)]
    assert calls == [*(f"{k + 1}." for k in range(count)), *merges]


@pytest.mark.parametrize(
    ("mode", "final"),
    [("simple", {""}), ("tree", {"merge."}), ("refine", {"1.", "2.", "3."})],
)
def test_only_what_may_be_the_answer_is_bounded_as_one(mode: str, final: set[str]) -> None:
    """All calls have the same length, temperature and seed."""
    options: dict[str, Any] = {"max_tokens": 9, "temperature": 0.5, "seed": 7, "ignore_eos": True}
    for key, params in decodes(3, mode=mode, stop=("END",), keep_thoughts=True, **options).items():
        assert {name: getattr(params, name) for name in options} == options
        assert params.stop == (("END",) if key in final else ())
        assert params.keep_thoughts is (key in final)
        assert params.schema is None
    schema = {"type": "object"}
    for key, params in decodes(3, mode=mode, json_schema=schema, keep_thoughts=True).items():
        assert params.schema == ('{"type": "object"}' if key in final else None)
        assert not params.keep_thoughts, "an answer that is JSON has none"


@pytest.mark.parametrize(
    ("options", "plain"),
    [({}, True), ({"stop": ("x",)}, False), ({"json_schema": {}}, True),
     ({"json_schema": {"type": "object"}}, False), ({"keep_thoughts": True}, False)],
)  # fmt: skip
def test_an_answer_from_one_piece_alone_stands_unless_it_was_asked_for_otherwise(
    options: dict[str, Any], plain: bool
) -> None:
    """Of several pieces that turn out to be one."""
    block = block_of(Generate(mode="tree", **options), context=Feed(Ref("query", "context"), 2))
    modes = [p.params.mode for p in block.primitives if isinstance(p.params, AggregateParams)]
    several = [Aggregation.SEVERAL, Aggregation.MERGED]
    assert modes == (several if plain else [Aggregation.CONCAT])


def test_a_schema_that_nests_too_deeply_is_told() -> None:
    with pytest.raises(InputError, match=r"generate\.json_schema: .*it nests too deeply"):
        Generate(json_schema='{"a":' * 100_000)


def test_two_answers_are_merged_however_narrow_the_window_is() -> None:
    generate = Generate(mode="tree")
    context = Feed(Ref("query", "context"), 4)
    block = Block(generate, generate.config, {"question": ONE, "context": context}, window=1)
    generate.decompose(block)
    merges = [p.id for p in block.primitives if p.op is Op.DECODING and "merge" in p.id]
    assert [id.removeprefix("generate.") for id in merges] == [
        "merge.1.1.decode",
        "merge.1.2.decode",
        "merge.decode",
    ]


@pytest.mark.parametrize("required", [True, False])
def test_one_call_may_do_without_its_context(required: bool) -> None:
    block = block_of(Generate(context_required=required), context=Feed(Ref("query", "context")))
    prompt = block.primitives[0].input("prompt")
    assert isinstance(prompt, Prompt)
    (part,) = [part for part in prompt.parts if part.role is Role.CONTEXT]
    assert part.required is required
