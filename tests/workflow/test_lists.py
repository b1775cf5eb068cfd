"""Lists of which nobody knows beforehand how long they are: nothing in them is ever left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from teola import Aggregate, App, Condition, Generate, Rerank, Runtime, WebSearch, component
from teola.engine import EngineKind, EngineResult, Hit, Request
from teola.errors import QueryFailed, TemplateError
from teola.graph import DecodeParams, Op, WebSearchParams
from teola.testing.hash_engines import CountsStarts, HashModel, HashReranker, spec
from teola.workflow.block import UNKNOWN_ITEMS
from tests.planted import catches, edited

NOTES = [f"note number {i}" for i in range(3 * UNKNOWN_ITEMS)]


class Web(CountsStarts):
    """Finds `top_k` pages for each query, which name it."""

    def __init__(self, name: str = "websearch") -> None:
        self.spec = spec(name, EngineKind.WEBSEARCH, {Op.WEB_SEARCH})

    async def execute(self, requests: Sequence[Request]) -> Sequence[EngineResult | Exception]:
        return [{"hits": [self._pages(q, r) for q in r.inputs["queries"]]} for r in requests]

    def _pages(self, query: str, request: Request) -> list[Hit]:
        assert isinstance(request.params, WebSearchParams)
        count = request.params.top_k
        return [Hit(f"{query}/{i}", "web", f"page {i} on {query}", 1.0) for i in range(count)]


class Narrow(HashModel):
    """Says that prompts and answers may have `window` tokens; answers at the utmost length."""

    def __init__(self, window: int | None) -> None:
        super().__init__()
        self.spec = replace(self.spec, window=window)

    def text(self, prompt: str, decode: DecodeParams) -> str:
        return "tok " * decode.max_tokens


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    engines = {"llm": HashModel, "websearch": Web, "rerank": HashReranker}
    with Runtime(engines) as made:
        yield made


def passages(question: str) -> list[str]:
    """As many as the question says."""
    return NOTES[: int(question)]


def asked(runtime: Runtime, template: Any, count: int, **more: Any) -> tuple[str, list[str]]:
    """State of the query, and the prompts that it took."""
    model = runtime.engines("llm")[0]
    assert isinstance(model, HashModel)
    model.prompts.clear()
    app = App("x", template, inputs={"question": "text"}, outputs={"answer": "answer"},
              runtime=runtime)  # fmt: skip
    return app.run(question=str(count), **more).state, list(model.prompts)


def told(prompts: list[str], texts: list[str]) -> list[str]:
    """Those of `texts` that stand in a prompt."""
    lines = {line for prompt in prompts for line in prompt.split("\n")}
    return [text for text in texts if text in lines]


@pytest.mark.parametrize("mode", ["tree", "refine"])
@pytest.mark.parametrize("count", [1, 3, UNKNOWN_ITEMS, UNKNOWN_ITEMS + 1, 3 * UNKNOWN_ITEMS])
@pytest.mark.parametrize("passes", ["all", "none"])
def test_every_item_is_read(runtime: Runtime, mode: str, count: int, passes: str) -> None:
    generate = Generate(mode=mode, inputs={"context": "passages"})
    state, prompts = asked(runtime, component(passages) >> generate, count, passes=passes)
    assert state == "ok"
    assert told(prompts, NOTES) == NOTES[:count]
    calls = min(count, UNKNOWN_ITEMS)
    assert len(prompts) == calls + (mode == "tree" and calls > 1)


@catches(
    "merges-without-bound",
    "one call merges all answers of a tree, however many",
    edited(Generate._tree, "while len(answers) > most:", "while False:"),
)
@pytest.mark.parametrize("passes", ["all", "none"])
def test_a_tree_merges_no_more_answers_at_once_than_it_may(runtime: Runtime, passes: str) -> None:
    """Of 7 answers two times 3, and then those two and the one that is left."""
    generate = Generate(mode="tree", fan_in=3, inputs={"context": "passages"})
    state, prompts = asked(runtime, component(passages) >> generate, 7, passes=passes)
    assert state == "ok"
    merges = [prompt for prompt in prompts if "to be merged into one" in prompt]
    assert len(prompts) - len(merges) == 7
    drafts = [merge.split("to be merged into one:\n")[1].split("\n\n")[:-1] for merge in merges]
    assert list(map(len, drafts)) == [3, 3, 3]


ANSWERS = 24
"""What `max_tokens` lets an answer have."""


def merged(prompt: str) -> int:
    """Answers of a `Narrow` model that a prompt holds."""
    return prompt.split().count("tok") // ANSWERS


@catches(
    "merges-beyond-the-window",
    "a tree merges as many answers as if nobody knew the window",
    edited(Generate._fitting, "if block.window is None:", "if True:"),
)
@catches(
    "merges-as-if-alone",
    "the rest of a merging prompt is taken for nothing",
    edited(Generate._fitting, "block.window - prompt_tokens - answer", "block.window"),
)
@pytest.mark.parametrize("window", [520, 560, 600])
def test_a_tree_merges_as_many_answers_as_fit_the_window(window: int) -> None:
    """Answers of the utmost length, the last one included, fit it with the rest of the prompt."""
    model = Narrow(window)
    with Runtime({"llm": lambda name: model}) as made:
        generate = Generate(mode="tree", max_tokens=ANSWERS, inputs={"context": "passages"})
        app = App(
            "x", component(passages, most=20) >> generate,
            inputs={"question": "text"}, outputs={"answer": "answer"}, runtime=made,
        )  # fmt: skip
        assert app.run(question="20").state == "ok"
        merges = [prompt for prompt in model.prompts if "to be merged into one" in prompt]
        sizes = [len(prompt) // 4 + ANSWERS for prompt in merges]
        assert max(sizes) <= window
        assert len(model.prompts) - len(merges) == 20
        assert 2 <= max(merged(prompt) for prompt in merges) < 20
        assert app.run(question="20", overrides={"generate.fan_in": 20}).state == "ok"
        assert merged(model.prompts[-1]) == 20


@pytest.mark.parametrize(("window", "most"), [(None, 25), (4096, 100)])
def test_a_tree_merges_more_answers_at_once_where_the_window_is_wide(
    window: int | None, most: int
) -> None:
    model = Narrow(window)
    many = component(lambda question: [question] * 100, outputs="passages", most=100)
    with Runtime({"llm": lambda name: model}) as made:
        generate = Generate(mode="tree", max_tokens=ANSWERS, inputs={"context": "passages"})
        app = App(
            "x", many >> generate,
            inputs={"question": "text"}, outputs={"answer": "answer"}, runtime=made,
        )  # fmt: skip
        assert app.run(question="why?").state == "ok"
        assert max(map(merged, model.prompts)) == most


@pytest.mark.parametrize("passes", ["all", "none"])
def test_a_tree_over_one_item_is_one_call(runtime: Runtime, passes: str) -> None:
    one = component(passages, most=1)
    generate = Generate(mode="tree", inputs={"context": "passages"})
    state, prompts = asked(runtime, one >> generate, 1, passes=passes)
    assert state == "ok"
    assert len(prompts) == 1
    assert told(prompts, NOTES) == NOTES[:1]


@pytest.mark.parametrize("config", [{"stop": ("!",)}, {}])
@pytest.mark.parametrize("passes", ["all", "none"])
def test_the_answer_from_one_item_is_the_answer_unless_the_final_one_is_asked_for_otherwise(
    runtime: Runtime, passes: str, config: dict[str, Any]
) -> None:
    generate = Generate(mode="tree", inputs={"context": "passages"}, **config)
    state, prompts = asked(runtime, component(passages) >> generate, 1, passes=passes)
    assert (state, len(prompts)) == ("ok", 2 if config else 1)


def test_of_no_items_there_is_no_answer(runtime: Runtime) -> None:
    generate = Generate(mode="tree", inputs={"context": "passages"})
    assert asked(runtime, component(passages) >> generate, 0) == ("ok", [])


def test_a_list_may_be_as_long_as_it_is_said_to_be(runtime: Runtime) -> None:
    generate = Generate(mode="tree", inputs={"context": "passages"})
    template = component(passages, most=12) >> generate
    state, prompts = asked(runtime, template, 12)
    assert (state, len(prompts)) == ("ok", 13)
    assert told(prompts, NOTES) == NOTES[:12]
    with pytest.raises(QueryFailed) as error:
        asked(runtime, template, 13)
    assert str(error.value) == (
        "component 'passages', tool_call: it returned 13 items, and most=12: raise `most`, or "
        "return fewer"
    )


def test_what_is_found_for_each_of_a_list_is_read(runtime: Runtime) -> None:
    count = 2 * UNKNOWN_ITEMS
    found = component(passages) >> WebSearch(top_k=2, inputs={"queries": "passages"})
    generate = Generate(mode="tree", inputs={"context": "hits"})
    state, prompts = asked(runtime, found >> generate, count)
    pages = [f"page {i} on {note}" for note in NOTES[:count] for i in range(2)]
    assert state == "ok"
    assert sorted(told(prompts, pages)) == sorted(pages)


def test_what_is_kept_of_a_list_is_as_long_as_it_can_be(runtime: Runtime) -> None:
    found = component(passages) >> WebSearch(top_k=2, inputs={"queries": "passages"})
    template = found >> Rerank(top_k=20) >> Generate(mode="tree")
    _, prompts = asked(runtime, template, 2 * UNKNOWN_ITEMS)
    assert len(prompts) == 21


def test_what_is_gathered_from_lists_is_read(runtime: Runtime) -> None:
    @component
    def extra(question: str) -> list[str]:
        return [f"extra {i}" for i in range(UNKNOWN_ITEMS + 2)]

    gather = Aggregate(["passages", "extra"], output="context")
    template = [component(passages), extra] >> gather >> Generate(mode="tree")
    _, prompts = asked(runtime, template, UNKNOWN_ITEMS + 3)
    everything = NOTES[: UNKNOWN_ITEMS + 3] + extra.config.function("")  # type: ignore[attr-defined]
    assert told(prompts, everything) == everything


def test_of_two_branches_the_longer_list_is_planned(runtime: Runtime) -> None:
    short = component(lambda question: NOTES[:2], name="short", outputs="context", most=2)
    long = component(lambda question: NOTES[:6], name="long", outputs="context", most=6)
    for answer, count in ((True, 2), (False, 6)):
        choose = Condition(lambda _, a=answer: a, reads=["question"], then=short, otherwise=long)
        prompts = asked(runtime, choose >> Generate(mode="tree"), 0)[1]
        assert told(prompts, NOTES) == NOTES[:count]


def test_what_is_not_known_to_be_a_list_is_refused_when_it_is_declared() -> None:
    either = component(lambda question: NOTES, name="either", outputs="context")
    for template, told in ((either >> Generate(mode="tree"), "is not known to be one; say so"),
                           (Generate(mode="refine"), "there is none; say so")):  # fmt: skip
        with pytest.raises(TemplateError, match=rf"needs a list as `context`.*{told}.*most=N"):
            App("x", template, inputs={"question": "text"}, outputs={"answer": "answer"})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: component(passages, most=0), "most=0 must be at least 1"),
        (lambda: component(passages, most=2, outputs=["a", "b"]), "for one output that is a list"),
        (lambda: component(lambda xs: xs, name="f", most=2, batched="xs"), "as long as its input"),
        (lambda: component(passages, batched="question"), "it gets some of the items at once, as"),
    ],
)
def test_what_cannot_be_said_of_a_list_is_refused(make: Any, message: str) -> None:
    with pytest.raises(TemplateError, match=message):
        make()


def test_more_than_most_says_so_of_what_is_no_list(runtime: Runtime) -> None:
    wrong = component(lambda question: "one", name="wrong", outputs="context", most=2)
    with pytest.raises(QueryFailed, match="with most=2 it must return a list, not str"):
        asked(runtime, wrong >> Generate(mode="tree"), 1)
