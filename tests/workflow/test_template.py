"""Templates: what is wired to what, and what is refused when it is declared.

Long because every refusal has its case here.
"""

from __future__ import annotations

from typing import Any

import pytest

from teola import (
    Aggregate,
    Condition,
    Embedding,
    Generate,
    Indexing,
    QueryExpansion,
    Rerank,
    Search,
    component,
)
from teola.errors import InputError, TemplateError, UnknownName
from teola.graph import Aggregation, Graph, Guard, Op
from teola.workflow.build import Builder
from teola.workflow.component import Component, Template
from teola.workflow.kinds import Kind

INPUTS = {"question": Kind.TEXT, "notes": Kind.TEXTS, "documents": Kind.DOCUMENTS}


def builder(template: Any, *outputs: str, inputs: dict[str, Kind] | None = None) -> Builder:
    return Builder("test", template, inputs or INPUTS, {name: name for name in outputs})


def graph(template: Any, *outputs: str, **sizes: int) -> Graph:
    made = builder(template, *outputs)
    found = made.build(made.configure({}), {"notes": 2, "chunks": 3, **sizes})
    found.validate()
    return found


def say(name: str, *reads: str, gives: str | None = None, **more: Any) -> Component:
    """A function component called `name`, which reads `reads`."""
    parameters = ", ".join(f"x{k}" for k in range(len(reads)))
    function: Any = eval(f"lambda {parameters}: ''")
    inputs = {f"x{k}": read for k, read in enumerate(reads)}
    made: Component = component(function, name=name, inputs=inputs, outputs=gives or name, **more)
    return made


# --- chains ---------------------------------------------------------------------------------


def order(template: Template) -> list[tuple[str, str]]:
    return sorted(template.edges)


def test_a_chain_joins_neighbours() -> None:
    template = say("a") >> say("b") >> say("c")
    assert order(template) == [("a", "b"), ("b", "c")]


def test_fan_out_and_fan_in() -> None:
    template = say("a") >> [say("b"), say("c") >> say("d")] >> say("e")
    assert order(template) == [("a", "b"), ("a", "c"), ("b", "e"), ("c", "d"), ("d", "e")]


def test_a_list_may_come_first() -> None:
    template = [say("a"), say("b")] >> say("c")
    assert order(template) == [("a", "c"), ("b", "c")]


def test_a_component_may_stand_in_two_chains() -> None:
    a, b, c = say("a"), say("b"), say("c")
    template = Template.beside([a >> b, a >> c])
    assert order(template) == [("a", "b"), ("a", "c")]
    assert [x.name for x in template.components] == ["a", "b", "c"]


def test_a_cycle_is_refused() -> None:
    a, b = say("a"), say("b")
    with pytest.raises(TemplateError, match=r"the template has a cycle: a >> b >> \.\.\."):
        a >> b >> a


def test_two_components_of_one_name_are_refused() -> None:
    with pytest.raises(
        TemplateError, match=r"two components are called 'a'.*Function\(name=\.\.\.\)"
    ):
        say("a") >> say("a")


@pytest.mark.parametrize("wrong", [3, [], [3]])
def test_only_components_can_be_joined(wrong: Any) -> None:
    with pytest.raises(TemplateError, match="joins components, templates or lists"):
        say("a") >> wrong


@pytest.mark.parametrize(
    ("join", "told"),
    [
        (lambda: Indexing() >> Embedding, r"make one of the class: Embedding\(\)"),
        (lambda: Embedding >> Indexing(), r"make one of the class: Embedding\(\)"),
        (lambda: Indexing() >> [Embedding], r"make one of the class: Embedding\(\)"),
        (lambda: Indexing() >> (lambda x: x), r"wrap a function: component\(lambda \.\.\.\)"),
        (lambda: Indexing() >> builder, r"wrap a function: component\(builder\)"),
        (lambda: Indexing() >> 3, "lists of them, not 3$"),
        (lambda: Condition(bool, reads=["x"], then=Search), r"the class: Search\(\)"),
    ],
)
def test_what_is_no_component_is_told_how_to_become_one(join: Any, told: str) -> None:
    with pytest.raises(TemplateError, match=told):
        join()


# --- names ----------------------------------------------------------------------------------


def test_a_missing_producer_is_refused_with_the_nearest_name() -> None:
    template = QueryExpansion() >> Embedding(inputs={"texts": "querys"})
    with pytest.raises(TemplateError) as error:
        builder(template, "vectors")
    assert str(error.value) == (
        "component 'embed' needs 'querys', which nothing upstream gives; did you mean 'queries'? "
        "(available: chunks, notes, queries, question, scope)"
    )


def test_a_producer_that_comes_later_is_named() -> None:
    template = Embedding(inputs={"texts": "queries"}) >> QueryExpansion()
    with pytest.raises(TemplateError, match="'expand' gives it, but does not come before"):
        builder(template, "vectors")


def test_a_producer_beside_is_not_upstream() -> None:
    template = Template.beside([QueryExpansion(), Embedding(inputs={"texts": "queries"})])
    with pytest.raises(TemplateError, match="put it upstream with `>>`"):
        builder(template, "vectors")


def test_an_unused_component_is_refused() -> None:
    template = QueryExpansion() >> Embedding(inputs={"texts": "question"})
    with pytest.raises(TemplateError, match=r"'expand' is unused: no output, .* 'queries'"):
        builder(template, "vectors")


def test_of_a_chain_that_nobody_reads_the_end_is_unused() -> None:
    template = say("a") >> say("b", "a") >> say("c")
    with pytest.raises(TemplateError, match="'b' is unused"):
        builder(template, "c")


def test_a_context_that_is_not_wired_is_told_with_what_to_write() -> None:
    embed = Embedding(inputs={"texts": "question"})
    template = Indexing() >> embed >> Search() >> Generate()
    with pytest.raises(TemplateError) as error:
        builder(template, "answer")
    assert str(error.value) == (
        "component 'search' is unused: no output, and nothing reads 'hits'; to have it read, "
        "write Generate(inputs={'context': 'hits'})"
    )
    written = Generate(inputs={"context": "hits"})
    builder(Indexing() >> embed >> Search() >> written, "answer")


def test_an_input_that_reads_the_query_instead_is_told() -> None:
    template = QueryExpansion() >> Embedding(inputs={"texts": "question"})
    with pytest.raises(TemplateError, match=r"write Embedding\(inputs={'texts': 'queries'}\)"):
        builder(template, "vectors")


def test_an_effect_is_use_enough() -> None:
    made = graph(say("a", effect=True) >> Indexing() >> say("b"), "b")
    assert {"a.call", "b.call"} <= set(made.by_id)


def test_instructions_stand_before_all_else_in_a_prompt() -> None:
    texts = dict.fromkeys(("question", "history", "instructions"), Kind.TEXT)
    made = builder(Generate(), "answer", inputs=texts)
    (prefill,) = [p for p in made.build(made.configure({}), {}).primitives if p.op is Op.PREFILLING]
    prompt: Any = prefill.input("prompt")
    ports = [getattr(part.content, "port", None) for part in prompt.parts]
    assert [port for port in ports if port] == ["instructions", "history", "question"]


def test_a_wrong_kind_is_refused() -> None:
    template = Embedding(inputs={"texts": "question"}) >> Generate(inputs={"question": "vectors"})
    with pytest.raises(TemplateError) as error:
        builder(template, "answer")
    expected = (
        "component 'generate' needs 'vectors' to be text, but component 'embed' gives vectors"
    )
    assert str(error.value) == expected


def test_a_wrong_kind_of_input_is_refused() -> None:
    with pytest.raises(TemplateError, match="needs 'notes' to be text, but the query gives texts"):
        builder(Generate(inputs={"question": "notes"}), "answer")


def test_an_ambiguous_name_is_refused() -> None:
    template = [say("a", gives="x"), say("b", gives="x")] >> say("c", "x")
    with pytest.raises(TemplateError, match=r"'x' is given by 'a' and 'b' at once; rename one"):
        builder(template, "c")


def test_an_unknown_output_is_refused() -> None:
    with pytest.raises(TemplateError, match=r"output 'anwser' .*did you mean 'answer'"):
        builder(Generate(), "anwser")


def test_no_output_is_refused() -> None:
    with pytest.raises(TemplateError, match="declares no outputs"):
        builder(Generate())


def test_the_nearest_producer_wins() -> None:
    template = say("a", gives="x") >> say("b", "x", gives="x") >> say("c", "x")
    found = graph(template, "c")
    assert [r.producer for r in found["c.call"].refs()] == ["b.call"]
    assert [r.producer for r in found["b.call"].refs()] == ["a.call"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: QueryExpansion(inputs={"questoin": "q"}), "unknown input 'questoin'.*'question'"),
        (lambda: QueryExpansion(outputs={"query": "q"}), "unknown output 'query'.*'queries'"),
        (lambda: Generate("two words"), "component name 'two words' must be letters"),
        (lambda: Aggregate("ab", output="x"), "reads must be a list"),
        (lambda: Aggregate([], output="x"), "reads must be a list"),
        (lambda: Aggregate(["a"], output="x", mode="sum"), "unknown mode 'sum'"),
        (lambda: Condition(len, reads="a", then=Generate()), "reads must be a list"),
        (lambda: component(lambda x: x, name="f", batched="y"), "batched='y' must be a parameter"),
        (lambda: component(lambda *x: x, name="f"), "parameter 'x' cannot be given by name"),
        (lambda: component(lambda x, /: x, name="f"), "parameter 'x' cannot be given by name"),
    ],
)
def test_wrong_components_are_refused(make: Any, message: str) -> None:
    with pytest.raises(TemplateError, match=message):
        make()


# --- parameters -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Search(top_k=0), r"search\.top_k: .* greater than or equal to 1 \(got 0\)"),
        (lambda: QueryExpansion(n="many"), r"expand\.n: .*integer"),
        (lambda: Rerank(topk=3), "unknown parameter 'topk' in component 'rerank'.*'top_k'"),
        (lambda: component(len, output="x"), "unknown option 'output'.*did you mean 'outputs'"),
        (lambda: component(each="x")(len), r"unknown option 'each' in component\(len\).*batched"),
        (lambda: Generate(mode="tre"), r"generate\.mode: .*'simple', 'tree' or 'refine'"),
    ],
)
def test_wrong_parameters_are_refused(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_every_parameter_can_be_overridden() -> None:
    made = builder(QueryExpansion(n=2) >> Embedding(inputs={"texts": "queries"}), "vectors")
    configs = made.configure({"expand": {"n": 5}, "embed": {"role": "document"}})
    found = made.build(configs, {})
    params: Any = found["expand.decode"].params
    assert params.items == 5
    assert found["embed.embed"].items == 5
    assert found["embed.embed"].params.role == "document"  # type: ignore[union-attr]
    again: Any = made.build(made.configure({}), {})["expand.decode"].params
    assert again.items == 2, "an override is for one query"


def test_an_override_keeps_the_other_parameters() -> None:
    made = builder(QueryExpansion(n=2, max_tokens=9), "queries")
    params: Any = made.build(made.configure({"expand": {"n": 3}}), {})["expand.decode"].params
    assert (params.items, params.max_tokens) == (3, 9)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"expnd": {"n": 3}}, "unknown component 'expnd'.*did you mean 'expand'"),
        ({"expand": {"m": 3}}, "unknown parameter 'm'"),
        ({"expand": {"n": 17}}, "expand.n: .*less than or equal to 16"),
    ],
)
def test_wrong_overrides_are_refused(overrides: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        builder(QueryExpansion(), "queries").configure(overrides)


def test_an_unknown_name_is_a_lookup_error_too() -> None:
    with pytest.raises(LookupError) as error:
        builder(QueryExpansion(), "queries").configure({"x": {}})
    assert isinstance(error.value, UnknownName)


# --- conditions -----------------------------------------------------------------------------


def guards(found: Graph, id: str) -> tuple[Guard, ...]:
    return found[id].guards


def test_branches_are_guarded_and_joined_afterwards() -> None:
    choice = Condition(
        bool,
        reads=["question"],
        then=say("a", "question", gives="x"),
        otherwise=say("b", "question", gives="x"),
    )
    found = graph(choice >> say("c", "x"), "c")
    assert guards(found, "a.call") == (Guard("condition.test", "then"),)
    assert guards(found, "b.call") == (Guard("condition.test", "otherwise"),)
    assert guards(found, "c.call") == ()
    join = found["c.x0"]
    assert {r.producer for r in join.refs()} == {"a.call", "b.call"}
    assert join.params.mode is Aggregation.FIRST  # type: ignore[union-attr]


def test_a_name_of_one_branch_falls_back_to_what_was_before() -> None:
    choice = Condition(bool, reads=["question"], then=say("a", "question", gives="question"))
    found = graph(choice >> say("b", "question"), "b")
    assert [str(r) for r in found["b.x0"].refs()] == ["a.call.question", "query.question"]


def test_inside_a_branch_its_own_names_are_certain() -> None:
    inner = say("a", "question", gives="question") >> say("b", "question")
    found = graph(Condition(bool, reads=["question"], then=inner), "b")
    assert [str(r) for r in found["b.call"].refs()] == ["a.call.question"]


def test_conditions_nest() -> None:
    inner = Condition(bool, reads=["question"], then=say("a"), otherwise=say("b"), name="inner")
    outer = Condition(bool, reads=["question"], then=inner, name="outer")
    found = graph(outer, "a", "b")
    assert guards(found, "inner.test") == (Guard("outer.test", "then"),)
    assert set(guards(found, "b.call")) == {
        Guard("outer.test", "then"),
        Guard("inner.test", "otherwise"),
    }


def test_what_follows_a_lone_branch_follows_the_condition_too() -> None:
    choice = Condition(bool, reads=["question"], then=say("a"))
    found = graph(choice >> say("b"), "a", "b")
    assert set(found.parents["b.call"]) == {"a.call", "condition.test"}
    assert guards(found, "b.call") == ()


def test_both_branches_may_not_give_what_two_others_give_at_once() -> None:
    choice = Condition(
        bool, reads=["question"], then=Template.beside([say("a", gives="x"), say("b", gives="x")])
    )
    with pytest.raises(TemplateError, match="'a' and 'b' at once"):
        builder(choice >> say("c", "x"), "c")


# --- effects --------------------------------------------------------------------------------


def effects(found: Graph, id: str) -> set[str]:
    return {order.producer for order in found[id].after if order.effect}


def test_a_search_follows_every_ingestion_before_it() -> None:
    template = Indexing() >> Embedding(inputs={"texts": "question"}) >> Search()
    found = graph(template, "hits")
    assert effects(found, "search.search") == {"index.ingest"}
    assert effects(found, "embed.embed") == set()


def test_a_search_in_another_store_does_not() -> None:
    template = (
        Indexing(store="mine") >> Embedding(inputs={"texts": "question"}) >> Search(engine="other")
    )
    assert effects(graph(template, "hits"), "search.search") == set()


def test_effects_keep_their_order_over_any_distance() -> None:
    template = say("a", effect=True) >> say("b") >> say("c") >> say("d", effect=True)
    found = graph(template, "b", "c", "d")
    assert effects(found, "d.call") == {"a.call", "b.call", "c.call"}
    assert effects(found, "c.call") == {"a.call"}


def test_without_effects_the_order_is_the_templates_only() -> None:
    found = graph(say("a") >> say("b"), "a", "b")
    assert effects(found, "b.call") == set()
    assert found.parents["b.call"] == ("a.call",)


# --- functions ------------------------------------------------------------------------------


def test_parameters_are_inputs_and_defaults_make_them_optional() -> None:
    def answer(question: str, notes: list[str], tone: str = "dry") -> str:
        return f"{question}{notes}{tone}"

    found = graph(component(answer), "answer")["answer.call"]
    assert [name for name, _ in found.inputs] == ["question", "notes"]
    assert found.params.optional == ("tone",)  # type: ignore[union-attr]
    assert found.outputs == ("answer",)


def test_annotations_are_kinds() -> None:
    def answer(question: list[str]) -> str:
        return question[0]

    made = component(answer)
    assert made.needs == {"question": Kind.TEXTS}
    assert made.gives == {"answer": Kind.TEXT}


def test_several_outputs() -> None:
    made = component(lambda question: {}, name="f", outputs=["a", "b"])
    assert graph(made, "a", "b")["f.call"].outputs == ("a", "b")


def test_batched_makes_a_function_batchable() -> None:
    @component(batched="notes", outputs="long")
    def longer(notes: list[str]) -> list[str]:
        return [note * 2 for note in notes]

    found = graph(longer, "long")["longer.call"]
    assert found.batchable
    assert found.items == 2
    assert [name for name, _ in found.item_refs()] == ["notes"]


def test_an_effect_is_never_pure() -> None:
    pure = graph(say("a", pure=True), "a")["a.call"].params
    effect = graph(say("a", pure=True, effect=True), "a")["a.call"].params
    assert (pure.pure, effect.pure) == (True, False)  # type: ignore[union-attr]


# --- decomposition --------------------------------------------------------------------------


def test_refine_is_a_chain_and_tree_is_a_tree() -> None:
    refine = graph(Generate(mode="refine", inputs={"context": "notes"}), "answer")
    assert refine.depth["generate.1.prefill"] == 4
    tree = graph(Generate(mode="tree", inputs={"context": "notes"}), "answer")
    assert tree.depth["generate.1.prefill"] == tree.depth["generate.2.prefill"] == 5
    assert tree.depth["generate.merge.decode"] == 1


def test_a_mode_that_needs_a_list_says_so() -> None:
    with pytest.raises(TemplateError, match="mode 'tree' needs a list as `context`"):
        graph(Generate(mode="tree", inputs={"context": "question"}), "answer")


def test_an_empty_list_is_planned_as_a_call_that_will_be_skipped() -> None:
    found = graph(Generate(mode="refine", inputs={"context": "notes"}), "answer", notes=0)
    assert [p.op for p in found.primitives] == [Op.PREFILLING, Op.DECODING]
