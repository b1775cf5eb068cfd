"""Equal calls are made once, and all who made them are answered, whoever is cancelled meanwhile.

Long because each way in which one of them may leave is a test of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest

from teola import App, Each, Embedding, Generate, Runtime
from teola.engine import Call, Delta, EngineResult, Hit, Request, TextPart, Usage
from teola.errors import DeadlineExceeded, EngineError, QueryCancelled, QueryFailed
from teola.graph.prompt import Role
from teola.query.result import Result
from teola.runtime.live.call import Hearer, LiveCall
from teola.runtime.live.equal_work import EqualWork, _pieces, _prompt_pieces
from teola.runtime.live.kept_answers import KeptAnswers
from teola.runtime.live.live import Live
from teola.runtime.live.query import Token
from teola.runtime.store import Store
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import DeadlineReached, Dispatch
from teola.testing.hash_engines import HashEmbedder, HashModel, vector
from tests.planted import catches, edited
from tests.runtime.live.test_call import live_query
from tests.schedule.plans import call, plan


class Slow(HashModel):
    """Writes three words, the second when `gate` is open; `calls` are those it was asked. fails: of
    the first so many, after their first word."""

    def __init__(self, *, fails: int = 0, open: bool = True, **more: Any) -> None:
        super().__init__(**more)
        self.calls, self.fails = list[Call](), fails
        self.gate, self.begun, self.aborted = asyncio.Event(), asyncio.Event(), 0
        if open:
            self.gate.set()

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        self.calls.append(call)
        number = len(self.calls)
        try:
            yield Delta("one ")
            self.begun.set()
            await self.gate.wait()
            if number <= self.fails:
                raise EngineError("it broke off", retryable=True)
            for word in ("two ", "three"):
                await asyncio.sleep(0)
                yield Delta(word)
            yield Delta("", "stop", Usage(10, 3))
        except (asyncio.CancelledError, GeneratorExit):
            self.aborted += 1
            raise


async def turns(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


def app(runtime: Runtime, **more: Any) -> App:
    said = Generate("say", mode="simple")
    return App(
        "say",
        said,
        inputs={"question": "text"},
        runtime=runtime,
        outputs={"answer": "answer"},
        **more,
    )


def mapped(runtime: Runtime, **more: Any) -> App:
    body = Generate("say", mode="simple", inputs={"question": "topic"}, **more)
    each = Each(body, over="topics", item="topic", gives={"notes": "answer"}, at_once=64)
    return App("map", each, inputs={"topics": "texts"}, outputs={"notes": "notes"}, runtime=runtime)


def test_a_prompt_is_the_same_however_its_pieces_were_computed() -> None:
    """Ahead of it, with it, or as a part of it; and another one where a single piece is."""

    def digested(ahead: int, texts: Sequence[str]) -> list[str | None]:
        parts = [(TextPart(Role.QUESTION, text),) for text in texts]
        last = len(parts) - 1
        sequence = SimpleNamespace(parts=[part for piece in parts[:ahead] for part in piece])
        query: Any = SimpleNamespace(
            run=SimpleNamespace(
                before=lambda i: 0 if ahead else -1, fused={last: tuple(range(ahead, last))}
            ),
            store=SimpleNamespace(values=[{"sequence": sequence}], prompt=parts.__getitem__),
        )
        return list(_prompt_pieces(query, last))

    texts = ["a", "b", "c", "d"]
    whole = [piece for text in texts for piece in (Role.QUESTION.value, text)]
    for ahead in range(len(texts)):
        assert digested(ahead, texts) == whole
        for k in range(len(texts)):
            assert digested(ahead, [*texts[:k], "x", *texts[k + 1 :]]) != whole


@catches(
    "not-across",
    "answers are shared by who did not ask for it",
    edited(EqualWork.of, "scope = answers.scope", "pass"),
)
def test_equal_calls_of_one_query_are_made_once_and_of_several_where_they_share() -> None:
    for shares, made in ((False, 3), (True, 1)):
        model = Slow(open=False)
        with Runtime({"llm": lambda model=model: model}) as runtime:
            asked = app(runtime, shares_answers=shares)

            async def together(asked: App = asked, model: Slow = model) -> list[Result]:
                going = [asyncio.ensure_future(asked.arun(question="why?")) for _ in range(3)]
                await model.begun.wait()
                model.gate.set()
                return await asyncio.gather(*going)

            results = runtime.start(together()).result()
            later = asked.run(question="why?")
            other = asked.run(question="why?", tenant="another")
        assert {r.answer for r in (*results, later, other)} == {"one two three"}
        assert len(model.calls) == (made + 1 if shares else made + 2)
        paid = [r.usage.calls for r in results]
        assert sorted(paid) == ([0, 0, 1] if shares else [1, 1, 1])
        assert sum(r.usage.shared for r in (*results, later)) == (3 if shares else 0)


def test_a_map_of_twenty_rows_with_two_values_is_two_calls() -> None:
    model = Slow()
    with Runtime({"llm": lambda: model}) as runtime:
        result = mapped(runtime).run(topics=["a", "b"] * 10)
        hot = mapped(runtime, temperature=0.5).run(topics=["a"] * 4)
    assert result["notes"] == ["one two three"] * 20
    assert (result.usage.calls, result.usage.shared) == (2, 18)
    assert result.usage.tokens == 26
    assert (hot.usage.calls, hot.usage.shared) == (4, 0)


@catches(
    "kept-not",
    "an answer is forgotten when its call has ended",
    edited(EqualWork.find, "return None if", "return None if True or"),
)
def test_a_map_that_runs_one_after_the_other_is_two_calls_as_well() -> None:
    model = Slow()
    with Runtime({"llm": lambda: model}) as runtime:
        body = Generate("say", mode="simple", inputs={"question": "topic"})
        each = Each(body, over="topics", item="topic", gives={"notes": "answer"}, at_once=1)
        made = App("map", each, inputs={"topics": "texts"}, outputs={"n": "notes"}, runtime=runtime)
        result = made.run(topics=["a", "b"] * 10, most_tokens=900)
    assert result.state == "ok"
    assert (result.usage.calls, len(model.calls)) == (2, 2)


@catches(
    "late-listener",
    "who joins in the middle does not hear what was written before",
    edited(LiveCall._catch_up, "if self._text:", "if False:"),
)
@catches(
    "all-cancelled",
    "the call ends with the query that made it",
    edited(EngineQueue.withdraw, "return out  # it goes on for the others", "pass"),
)
def test_streams_join_in_the_middle_and_outlive_who_made_the_call() -> None:
    model = Slow(open=False)
    with Runtime({"llm": lambda: model}) as runtime:
        asked = app(runtime, shares_answers=True)

        async def heard(into: list[str]) -> Result | None:
            async for event in asked.astream(question="why?"):
                if isinstance(event, Token):
                    into.append(event.text)
                elif isinstance(event, Result):
                    return event
            return None

        async def run() -> tuple[list[str], list[str], Result | None]:
            first, second = list[str](), list[str]()
            one = asyncio.ensure_future(heard(first))
            await model.begun.wait()
            two = asyncio.ensure_future(heard(second))
            await turns(40)
            one.cancel()
            await asyncio.gather(one, return_exceptions=True)
            model.gate.set()
            return first, second, await two

        first, second, result = runtime.start(run()).result()
    assert first == ["one "]
    assert second[0] == "one "
    assert "".join(second) == "one two three"
    assert result is not None
    assert (result.answer, result.usage.calls, result.usage.shared) == ("one two three", 0, 1)
    assert (len(model.calls), model.aborted) == (1, 0)


@catches(
    "leaders-deadline",
    "the deadline of the query that made a call ends it for all",
    edited(Live._call, "replace(call, context=_for_all(call.context))", "call"),
)
def test_who_has_time_left_is_answered_though_the_deadline_of_another_has_come() -> None:
    model = Slow(open=False)
    with Runtime({"llm": lambda: model}) as runtime:
        asked = app(runtime, shares_answers=True)

        async def run() -> tuple[object, Result]:
            one = asyncio.ensure_future(asked.arun(question="why?", deadline_s=100.0))
            await model.begun.wait()
            (first,) = runtime.live.queries
            two = asyncio.ensure_future(asked.arun(question="why?", deadline_s=600.0))
            await turns(20)
            runtime.live._late(first, DeadlineReached())
            (ended,) = await asyncio.gather(one, return_exceptions=True)
            model.gate.set()
            return ended, await two

        first, second = runtime.start(run()).result()
    assert isinstance(first, DeadlineExceeded)
    assert (second.answer, len(model.calls)) == ("one two three", 1)
    assert model.calls[0].context.deadline == inf, "engines end calls whose deadline has come"


@catches(
    "runs-on",
    "a call goes on when the last one has gone",
    edited(EngineQueue.withdraw, "self._abort(last, out)", "pass"),
)
def test_a_call_is_stopped_when_the_last_one_has_gone() -> None:
    model = Slow(open=False)
    with Runtime({"llm": lambda: model}) as runtime:
        asked = app(runtime, shares_answers=True)

        async def run() -> bool:
            going = [asyncio.ensure_future(asked.arun(question="why?")) for _ in range(3)]
            await model.begun.wait()
            for one in going:
                assert model.aborted == 0
                one.cancel()
                await asyncio.gather(one, return_exceptions=True)
            await turns(20)
            return runtime.live.core.queues["llm"].idle

        assert runtime.start(run()).result()
    assert (len(model.calls), model.aborted) == (1, 1)


def test_a_failure_is_tried_again_as_one_and_fails_for_all() -> None:
    for fails, made in ((1, 2), (9, 3)):
        model = Slow(fails=fails)
        with Runtime({"llm": lambda model=model: model}) as runtime:
            asked = app(runtime, shares_answers=True)
            results = asked.batch([{"question": "why?"}] * 4)
        assert len(model.calls) == made
        states = {result.state for result in results}
        assert states == ({"ok"} if fails == 1 else {"failed"})


class Counts(HashEmbedder):
    """Counts the texts of its requests; each batch waits for `gate`."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.texts, self.gate = 0, asyncio.Event()

    async def execute(self, requests: Sequence[Request]) -> Sequence[EngineResult | Exception]:
        await self.gate.wait()
        assert all(request.context.deadline == inf for request in requests)
        self.texts += sum(len(request.inputs["texts"]) for request in requests)
        return [{"vectors": [vector(text) for text in r.inputs["texts"]]} for r in requests]


def embedding(runtime: Runtime) -> App:
    vectors = {"vectors": "vectors"}
    return App("embed", Embedding(), inputs={"texts": "texts"}, outputs=vectors, runtime=runtime)


def test_equal_texts_are_embedded_once_whoever_asks() -> None:
    engine = Counts(max_batch=1)
    with Runtime({"embedding": lambda: engine}) as runtime:
        embeds = embedding(runtime)

        async def run() -> list[Result]:
            asked = [("why?", "default")] * 4 + [("how?", "default"), ("why?", "another")]
            going = [
                asyncio.ensure_future(embeds.arun(texts=[q], tenant=tenant)) for q, tenant in asked
            ]
            await turns(30)
            going[0].cancel()
            going[1].cancel()
            await turns(10)
            engine.gate.set()
            done = await asyncio.gather(*going, return_exceptions=True)
            assert isinstance(done[0], (asyncio.CancelledError, QueryCancelled))
            return [one for one in done[2:] if isinstance(one, Result)]

        results = runtime.start(run()).result()
    assert [result.state for result in results] == ["ok"] * 4
    given = [vector(text) for text in ("why?", "why?", "how?", "why?")]
    assert [result["vectors"] for result in results] == [[one] for one in given]
    assert engine.texts == 3


@catches(
    "too-large-for-one",
    "a follower has what it may not hold",
    edited(Live._outcome_for_all, "self._fails_alone(follower_query, i, own_outcome, now)", "pass"),
)
def test_what_is_too_much_for_one_fails_that_one_alone() -> None:
    engine = Counts(max_batch=1)
    with Runtime({"embedding": lambda: engine}) as runtime:
        embeds = embedding(runtime)

        async def run() -> list[Result | BaseException]:
            going = [asyncio.ensure_future(embeds.arun(texts=["why?"])) for _ in range(3)]
            await turns(30)
            list(runtime.live.queries.values())[1].tally.bytes = -1
            engine.gate.set()
            return await asyncio.gather(*going, return_exceptions=True)

        first, second, third = runtime.start(run()).result()
    assert isinstance(first, Result)
    assert isinstance(second, QueryFailed)
    assert isinstance(third, Result)
    assert first["vectors"] == third["vectors"] == [vector("why?")]
    assert engine.texts == 1


class Gated(HashModel):
    """Each call waits for its own gate, and ends in the turn of the loop that opens it."""

    def __init__(self) -> None:
        super().__init__()
        self.gates: list[asyncio.Event] = []

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        self.gates.append(gate := asyncio.Event())
        yield Delta("one ")
        await gate.wait()
        yield Delta("two three", "stop", Usage(10, 3))


@catches(
    "speaks-to-the-gone",
    "a part that was stopped hears what is written for others",
    edited(Hearer.token, " or self.query.run.state is not None", ""),
)
def test_a_query_that_has_left_hears_nothing_more() -> None:
    model = Slow(open=False)
    with Runtime({"llm": lambda: model}) as runtime:
        asked = app(runtime)

        async def run() -> list[str]:
            heard = list[str]()

            async def hears() -> None:
                async for event in asked.astream(question="why?"):
                    if isinstance(event, Token):
                        heard.append(event.text)

            going = asyncio.ensure_future(hears())
            await model.begun.wait()
            (query,) = runtime.live.queries.values()
            (head,) = (i for i, members in enumerate(query.plan.members) if members)
            lives = runtime.live._lives._replace(post=lambda event: None)
            call = LiveCall(Dispatch("llm", 0, 9, ()), query, head, lives)
            call.join(query, head, lives)
            (hearer,) = call._hearers
            hearer.query = SimpleNamespace(run=query.run, tell=heard.append)  # type: ignore
            hearer.token("now ")
            hearer.query = SimpleNamespace(  # type: ignore
                run=SimpleNamespace(state="stopped"), tell=heard.append
            )
            hearer.token("later ")
            going.cancel()
            await asyncio.gather(going, return_exceptions=True)
            return heard

        heard = runtime.start(run()).result()
    assert "now " in heard
    assert "later " not in heard


@catches(
    "kept-empty",
    "an empty answer is everybody's for ten minutes",
    edited(EqualWork.keep, "end not in KEPT_ENDS", "False"),
)
def test_an_answer_that_is_empty_or_refused_is_not_kept() -> None:
    equal, kept = EqualWork(), KeptAnswers()
    query: Any = SimpleNamespace(terms=SimpleNamespace(shares_s=0.0, answers=kept))
    for end in ("", "length", "empty", "refusal"):
        equal.keep(query, end.encode(), "text", end, 0.0)
    assert [kept.find(end, 0.0) is not None for end in (b"", b"length", b"empty", b"refusal")] == [
        True, True, False, False,
    ]  # fmt: skip


def test_what_applications_share_is_kept_for_as_long_as_they_say_and_apart_from_a_querys_own() -> (
    None
):
    equal, kept = EqualWork(), KeptAnswers()
    shares: Any = SimpleNamespace(terms=SimpleNamespace(shares_s=5.0, answers=kept))
    alone: Any = SimpleNamespace(terms=SimpleNamespace(shares_s=0.0, answers=kept))
    nobody: Any = SimpleNamespace(terms=SimpleNamespace(shares_s=0.0, answers=None))
    for query in (shares, alone, nobody):
        equal.keep(query, b"same", f"text {query is shares}", "length", 100.0)
    found = [equal.find(shares, b"same", now) for now in (100.0, 104.9, 105.0)]
    assert found == [("text True", "length")] * 2 + [None]
    assert equal.find(alone, b"same", 1e9) == ("text False", "length")
    assert equal.find(nobody, b"same", 0.0) is None
    assert len(equal.shared) == 0, "it was dropped when it was too old"


@catches(
    "missed-the-end",
    "who joins when all has been written is told nothing",
    edited(Live.joined, "call.join(query, i, self._at_once)", "call.join(query, i, self._lives)"),
)
@catches(
    "missed-the-batch",
    "who joins when a batch has come back has no values",
    edited(Live.joined, "== command.leader", "== ()"),
)
def test_who_joins_what_has_just_ended_is_answered() -> None:
    """A query's second step becomes ready, equal to another query's, about when that ends."""
    first = Generate("first", mode="simple", outputs={"answer": "draft"})
    second = Generate("say", mode="simple", inputs={"question": "draft"})
    ran = list[tuple[str, str]]()
    for then, port in ((second, "answer"), (Embedding(inputs={"texts": "draft"}), "vectors")):
        for later in range(6):
            model, engine = Gated(), Counts(max_batch=1)
            made: Any = {"llm": lambda m=model: m, "embedding": lambda e=engine: e}
            with Runtime(made, learn=False) as runtime:
                more: Any = {"runtime": runtime, "outputs": {"out": port}, "shares_answers": True}
                more["shares_answers_s"] = 1e-9  # nothing is found that was kept
                chain = App("chain", first >> then, inputs={"question": "text"}, **more)
                alone = App("alone", then, inputs={"draft": "text"}, **more)

                async def run(
                    chain: App = chain,
                    alone: App = alone,
                    model: Gated = model,
                    engine: Counts = engine,
                    later: int = later,
                ) -> list[Result]:
                    going = [asyncio.ensure_future(chain.arun(question="why?", deadline_s=2))]
                    while not model.gates:
                        await asyncio.sleep(0)
                    going.append(asyncio.ensure_future(alone.arun(draft="one two three")))
                    await turns(20)
                    model.gates[0].set()
                    await turns(later)
                    for gate in [*model.gates[1:], engine.gate]:
                        gate.set()
                    await turns(20)
                    for gate in model.gates:
                        gate.set()
                    return await asyncio.gather(*going)

                chained, other = runtime.start(run()).result()
                live = runtime.live
                assert not live._joinable, "nothing is kept of what is over"
                assert not live._landed
            assert chained.state == "ok"
            assert chained["out"] == other["out"]
            assert chained.trace is not None
            assert other.trace is not None
            spans = [*chained.trace.spans, *other.trace.spans]
            assert {span.state for span in spans} <= {"done", "shared"}
            ran += [(span.primitive, span.state) for span in spans]
    shared = {primitive for primitive, state in ran if state == "shared"}
    assert shared == {"embed.embed", "say.prefill", "say.decode"}


def test_what_a_component_does_to_a_shared_value_is_its_own() -> None:
    with (
        pytest.raises(QueryFailed, match="it broke off"),
        Runtime({"llm": lambda: Slow(fails=9)}) as runtime,
    ):
        mapped(runtime).run(topics=["a", "a"])


def test_inputs_are_equal_only_if_their_kinds_are() -> None:
    """What is not known by its value is equal to nothing."""
    hits = [Hit("a", document, "text", 0.5) for document in "de"]
    lists: list[Any] = [["1"], ["1", "1"], [["1"], "1"], [["1", "1"]], [1], hits, hits[::-1], []]
    values = [None, False, 0, 0.0, True, 1, 1.0, "", "1", "None", *hits, *lists]
    digested = [tuple(_pieces({"x": value})) for value in values]
    assert len(set(digested)) == len(values)
    assert not any(None in pieces for pieces in digested)
    for unknown in (object(), b"1", {"a": 1}, [1, object()]):
        assert None in tuple(_pieces({"x": unknown})), unknown


@pytest.mark.parametrize("own_s", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("length", [0, 1, 1000, 10**6 - 8, 10**6 - 7, 10**6])
def test_a_digest_is_made_of_what_is_worth_it(length: int, own_s: float) -> None:
    """A hundredth of the time that its work is expected to take pays for it, of a call with its
    decodings; own_s: the share of that which its prompt takes. Where nothing is known, a million
    characters are the most. The role of the text has eight of them."""
    head, text = 0, "x" * length
    characters = len(Role.QUESTION.value) + length

    def digest(seconds: float) -> bytes | None:
        made = plan(*call("m"))
        shares = own_s, 1.0 - own_s
        made.specs = [
            replace(spec, estimate=spec.estimate._replace(takes_s=share * seconds))
            for spec, share in zip(made.specs, shares, strict=True)
        ]
        query, _ = live_query(made)
        query.store = Store(made, {"question": text, "notes": ""})
        query.terms = replace(query.terms, answers=KeptAnswers("q"))
        return EqualWork().of(query, head)

    pays_s = (6e-6 + 2e-9 * characters) / 0.01
    assert digest(1.001 * pays_s) is not None
    assert digest(0.999 * pays_s) is None
    assert digest(100.0) is not None
    assert (digest(0.0) is not None) == (characters <= 1_000_000)
    assert digest(100.0) == digest(200.0)
