"""The search agent as users run it: offline, with model servers, with services, refused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from teola import EngineConfig, Runtime
from teola.cli.named_engines import web_config
from teola.errors import DeadlineExceeded, InputError, QueryFailed
from teola.explain import Explanation
from teola.graph import Op
from teola.passes import PIPELINE
from teola.profile import paper
from teola.runtime.engines import DEFAULTS, merged
from teola_apps.search_agent import app
from tests.command_line import CommandLine
from tests.fake_openai import FakeOpenAI
from tests.fake_search import (
    KEY,
    SEARXNG_NO_JSON,
    TAVILY_BAD_KEY,
    TAVILY_PLAN_LIMIT,
    FakeSearch,
    Hang,
    Reply,
    Result,
)
from tests.forgetful import forgetful

QUESTION = "Who keeps the lamp of the lighthouse?"
STATEMENT = "looked after by Mara Quist"
LAMP = Result("https://harbour.example/lamp", "The lamp", "Mara Quist keeps the lamp.")
DRAFT, FOUND, KNOWN = "The keeper, I think.", "Mara Quist.", "From memory: the keeper."


@contextmanager
def at(runtime: Runtime) -> Iterator[None]:
    before, app.runtime = app.runtime, runtime
    try:
        yield
    finally:
        app.runtime = before


class World:
    """A runtime with three model servers and a search service, all small and local."""

    def __init__(self, verdict: str, service: FakeSearch, **web: Any) -> None:
        self.proxy = FakeOpenAI(DRAFT)
        self.judge = FakeOpenAI(verdict)
        self.core = FakeOpenAI(self._core)
        self.service = service
        self.web = {"url": service.url, "api_key": KEY, **web}

    @staticmethod
    def _core(messages: list[dict[str, str]]) -> str:
        return FOUND if "Context:" in messages[-1]["content"] else KNOWN

    @contextmanager
    def running(self) -> Iterator[World]:
        with self.proxy, self.judge, self.core, self.service:
            engines = {
                "llm": EngineConfig("openai", {"url": self.core.url}),
                "proxy": EngineConfig("openai", {"url": self.proxy.url}),
                "judge": EngineConfig("openai", {"url": self.judge.url}),
                "websearch": EngineConfig("tavily", self.web),
            }
            with Runtime(engines) as runtime, at(runtime):
                yield self

    def prompts(self, server: FakeOpenAI) -> list[str]:
        """What a server was asked to answer, without the prefixes that were computed ahead."""
        asked = [seen.body for seen in server.requests if seen.body.get("messages")]
        return [
            "".join(message["content"] for message in body["messages"])
            for body in asked
            if body["max_tokens"] > 1
        ]


# --- offline ----------------------------------------------------------------------------------


def test_offline_it_searches_the_corpus_and_quotes(runtime: Runtime, harbour: Path) -> None:
    with at(runtime):
        result = app.run(question=QUESTION)
    assert result.state == "ok"
    assert STATEMENT in result.answer
    assert result["sources"][0].id == (harbour / "lighthouse.md").as_uri()


def test_a_batch_of_questions(runtime: Runtime) -> None:
    asked = [QUESTION, "When was the Kittiwake built?", "By what is herring sold?"]
    with at(runtime):
        results = app.batch([{"question": one} for one in asked])
    told = ("Mara Quist", "1931", "cran")
    assert all(word in r.answer for word, r in zip(told, results, strict=True))


@pytest.mark.parametrize("passes", ["none", *PIPELINE, "all"])
def test_each_pass_leaves_the_answer_as_it_is(runtime: Runtime, passes: str) -> None:
    with at(runtime):
        result = app.run(question=QUESTION, passes=passes)
    assert STATEMENT in result.answer
    assert len(result["sources"]) == 1


# --- both branches ----------------------------------------------------------------------------


@pytest.mark.parametrize("verdict", ["Yes.", "Perhaps"])
@pytest.mark.parametrize("passes", ["all", "none"])
def test_a_draft_that_will_not_do_is_searched_for(verdict: str, passes: str) -> None:
    with World(verdict, FakeSearch("tavily", [LAMP])).running() as world:
        result = app.run(question=QUESTION, passes=passes)
        (draft,), (judged,) = world.prompts(world.proxy), world.prompts(world.judge)
        (asked,) = world.prompts(world.core)
    assert (result.answer, world.service.queries) == (FOUND, [QUESTION])
    assert [hit.id for hit in result["sources"]] == [LAMP.url]
    assert QUESTION in draft
    assert f"Question: {QUESTION}\n\nDraft: {DRAFT}" in judged
    assert f"Question: {QUESTION}\n\nContext:\n{LAMP.text}" in asked
    assert {seen.body["max_tokens"] for seen in world.judge.requests if seen.body} <= {1, 4}


@pytest.mark.parametrize("passes", ["all", "none"])
def test_a_draft_that_will_do_is_answered_without_a_search(passes: str) -> None:
    with World("No.", FakeSearch("tavily", [LAMP])).running() as world:
        result = app.run(question=QUESTION, passes=passes)
        (asked,) = world.prompts(world.core)
    assert (result.state, result.answer, result["sources"]) == ("ok", KNOWN, None)
    assert world.service.seen == []
    assert "Context:" not in asked


def test_only_what_the_chosen_branch_needs_is_streamed() -> None:
    with World("Yes.", FakeSearch("tavily", [LAMP])).running():
        events = list(app.stream(question=QUESTION))
    text = "".join(event.text for event in events if hasattr(event, "text"))
    assert text.strip() == FOUND


def test_an_empty_search_still_gets_an_answer() -> None:
    with World("Yes.", FakeSearch("tavily")).running() as world:
        result = app.run(question=QUESTION)
        (asked,) = world.prompts(world.core)
    assert (result.answer, result["sources"]) == (FOUND, [])
    assert "Context:\n\n\nAnswer" in asked


def _ahead(plan: Explanation) -> set[str]:
    graph = plan.optimised.e_graph
    return {p.id for p in graph.primitives if p.op is Op.PARTIAL_PREFILLING}


def test_prefixes_are_computed_while_the_draft_is_written() -> None:
    """On servers that can compute a prefix ahead, what is known of the prompts goes ahead; not that
    of the branch without a search, which is not expected. On those that keep it anyway nothing."""
    with World("Yes.", FakeSearch("tavily", [LAMP])).running():
        kept = app.explain(question=QUESTION, profile="paper-13b")
        plan = app.explain(question=QUESTION, profile=forgetful(paper("13b")))
    assert _ahead(kept) == set()
    assert _ahead(plan) == {"judge.prefill.ahead1", "generate.prefill.ahead1"}
    text = plan.render("text")
    for told in ("web_search", "condition", "judge.decide (guard)", "websearch"):
        assert told in text
    assert "judge.decide" in plan.render("mermaid")


def test_each_model_may_be_another_engine_or_none() -> None:
    found = merged({"llm": "openai", "judge": EngineConfig("transformers")})
    assert found["proxy"] == found["llm"] == EngineConfig("openai")
    assert found["judge"] == EngineConfig("transformers")
    assert merged({})["judge"] == DEFAULTS["llm"]
    assert merged({})["websearch"].factory == "corpus"


# --- what goes wrong --------------------------------------------------------------------------


def failed(service: FakeSearch, **options: Any) -> str:
    with World("Yes.", service, **options).running(), pytest.raises(QueryFailed) as caught:
        app.run(question=QUESTION)
    message = str(caught.value)
    assert "\n" not in message
    assert KEY not in message
    return message


def scripted(*replies: Any) -> FakeSearch:
    service = FakeSearch("tavily", [LAMP])
    service.script(*replies)
    return service


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (TAVILY_BAD_KEY, "refuses the API key (401): check TAVILY_API_KEY"),
        (TAVILY_PLAN_LIMIT, "refuses more searches (432)"),
        (Reply(200, b"<html>"), "no JSON object"),
    ],
)
def test_a_refusal_is_told_and_not_repeated(reply: Reply, told: str) -> None:
    service = scripted(reply)
    message = failed(service)
    assert told in message
    assert "search" in message
    assert len(service.seen) == 1


def test_a_service_in_trouble_is_asked_once_more() -> None:
    service = scripted(Reply(500))
    with World("Yes.", service).running():
        assert app.run(question=QUESTION).answer == FOUND
    assert len(service.seen) == 2
    service = scripted(Reply(500), Reply(500))
    assert "failed (500)" in failed(service)
    assert len(service.seen) == 2


def test_silence_ends_with_the_deadline() -> None:
    with World("Yes.", scripted(Hang())).running():
        began = time.monotonic()
        with pytest.raises(DeadlineExceeded):
            app.run(question=QUESTION, deadline_s=1.5)
        assert time.monotonic() - began < 10


async def test_cancelling_the_query_cancels_the_search() -> None:
    with World("Yes.", scripted(Hang())).running() as world:
        running = asyncio.ensure_future(app.arun(question=QUESTION))
        assert await asyncio.to_thread(world.service.arrived.wait, 20)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert (await app.arun(question=QUESTION)).answer == FOUND


def test_a_search_that_is_not_wanted_after_all_is_undone() -> None:
    service = scripted(Hang())
    with World("No.", service).running() as world:
        guess = {"judge.speculate": True}
        result = app.run(question=QUESTION, overrides=guess, deadline_s=20)
    assert (result.answer, result["sources"]) == (KNOWN, None)
    assert world.prompts(world.core)[0].count("Context:") == 0


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "needs the input 'question'"),
        ({"question": " "}, "input 'question' is empty"),
        ({"question": 7}, "input 'question' must be a text"),
        ({"question": "Why?", "documents": "x.md"}, "unknown input 'documents'"),
    ],
)
def test_wrong_inputs(given: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        app.run(given)


# --- the command line -------------------------------------------------------------------------


def test_run_prints_answer_and_addresses(teola: CommandLine, harbour: Path) -> None:
    line = ("run", "search-agent", "-i", f"question={QUESTION}", "--web-search", str(harbour))
    ended = teola(*line)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.index(STATEMENT) < ended.out.index("Sources") < ended.out.index("The lightho")
    assert (harbour / "lighthouse.md").as_uri() in ended.out
    found = teola(*line, "--json").json
    (source,) = found["outputs"]["sources"]
    assert source["metadata"]["url"] == (harbour / "lighthouse.md").as_uri()


def test_run_without_a_search_shows_no_sources(teola: CommandLine) -> None:
    def answer(messages: list[dict[str, str]]) -> str:
        return "No" if "Is a search needed?" in messages[-1]["content"] else KNOWN

    with FakeOpenAI(answer) as server, FakeSearch("searxng", [LAMP]) as service:
        servers = ("--llm", server.url, "--web-search", service.url)
        ended = teola("run", "search-agent", "-i", f"question={QUESTION}", *servers)
        assert (ended.code, ended.err) == (0, "")
        assert ended.out.splitlines()[0] == KNOWN
        assert "ources" not in ended.out
        assert service.seen == []
        service.script(SEARXNG_NO_JSON)
        server._answer = lambda messages: "Yes"
        line = teola("run", "search-agent", "-i", f"question={QUESTION}", *servers)
        assert "gives no JSON (403)" in line.refused(1)


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("gogle", "--web-search 'gogle' is none of google, tavily, searxng and corpus, no URL"),
        ("./nowhere", "and no folder of documents"),
        ("extractive", "--web-search 'extractive': that engine is for llm"),
    ],
)
def test_a_place_that_cannot_be_searched(teola: CommandLine, where: str, told: str) -> None:
    ended = teola("run", "search-agent", "-i", f"question={QUESTION}", "--web-search", where)
    assert told in ended.refused(2)


def test_a_missing_key_is_told_before_anything_runs(
    teola: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TAVILY_API_KEY", raising=False)
    ended = teola("run", "search-agent", "-i", f"question={QUESTION}", "--web-search", "tavily")
    assert "set TAVILY_API_KEY" in ended.refused(1)


def test_where_to_search_may_be_a_name_a_url_or_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert web_config("google") == EngineConfig("google")
    assert web_config("https://s.example") == EngineConfig("searxng", {"url": "https://s.example"})
    monkeypatch.setenv("HOME", str(tmp_path.parent))
    folder = EngineConfig("corpus", {"folder": str(tmp_path)})
    assert web_config(str(tmp_path)) == web_config(f"~/{tmp_path.name}") == folder


@pytest.mark.slow
def test_with_nothing_configured_it_searches_pythons_reference(data_dir: Path) -> None:
    corpus = EngineConfig("corpus", {"data_dir": data_dir})
    with Runtime({"websearch": corpus}) as runtime, at(runtime):
        result = app.run(question="What does the nonlocal statement do?")
    assert result["sources"][0].id == "pydoc:nonlocal"
    assert "previously bound variables" in result.answer
