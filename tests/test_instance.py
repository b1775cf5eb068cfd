"""StepServer: what an instance works on next. Its blocks: tests/kv/test_step_server.py."""

from __future__ import annotations

import random
import time

import pytest

from teola.errors import EngineError
from teola.instance import Step, StepEvent, StepServer, TokenSequence
from teola.kv import BlockCache, make_policy
from tests.planted import catches, edited


def server(
    budget: int = 100, sequences: int = 4, kv_blocks: int | None = None, block_tokens: int = 16
) -> StepServer:
    cache = BlockCache(kv_blocks, block_tokens, make_policy("lru"))
    return StepServer(budget, sequences, cache)


def planned(s: StepServer) -> Step:
    step = s.plan()
    assert step is not None
    return step


def ids(step: Step) -> list[tuple[object, int]]:
    """Who prefills, and how many tokens."""
    return [(sequence.id, tokens) for sequence, tokens in step.prefills]


def prefill(s: StepServer, *sequences: TokenSequence) -> list[StepEvent]:
    for sequence in sequences:
        s.add(sequence)
    return s.finish(planned(s))


# --- steps ----------------------------------------------------------------------------------


def test_an_idle_server_has_nothing_to_do() -> None:
    assert server().plan() is None


def test_prefills_fill_the_token_budget_and_go_on_in_the_next_step() -> None:
    s = server()
    for k in range(3):
        s.add(TokenSequence(k, prompt=40, output=9))
    step = planned(s)
    assert (ids(step), step.tokens, step.decodes) == ([(0, 40), (1, 40), (2, 20)], 100, 0)
    assert s.finish(step) == [StepEvent(0, "first"), StepEvent(1, "first")]
    step = planned(s)
    assert (ids(step), step.decodes, step.repeat) == ([(2, 20)], 2, 1)


def test_a_prompt_beyond_the_budget_is_prefilled_in_chunks() -> None:
    s = server()
    s.add(TokenSequence("long", prompt=250))
    s.add(TokenSequence("short", prompt=1))
    steps = []
    while (step := s.plan()) is not None:
        steps.append((ids(step), step.pairs))
        s.finish(step)
    before, after = sum(range(1, 101)), sum(range(101, 201))
    assert steps == [
        ([("long", 100)], before),
        ([("long", 100)], after),
        ([("long", 50), ("short", 1)], sum(range(201, 251)) + 1),
    ]


def test_a_long_prompt_is_not_overtaken() -> None:
    s = server(sequences=2)
    s.add(TokenSequence("short", prompt=60))
    s.add(TokenSequence("long", prompt=60))
    s.add(TokenSequence("tiny", prompt=1))
    assert ids(planned(s)) == [("short", 60), ("long", 40)]


def test_sequences_are_bounded() -> None:
    s = server(sequences=2)
    for k in range(3):
        s.add(TokenSequence(k, prompt=1, output=2))
    first = planned(s)
    assert ids(first) == [(0, 1), (1, 1)]
    assert [e.kind for e in s.finish(first)] == ["first", "first"]
    decode = planned(s)
    assert (ids(decode), decode.decodes) == ([], 2)
    assert s.finish(decode) == [StepEvent(0, "end"), StepEvent(1, "end")]
    assert ids(planned(s)) == [(2, 1)]


def test_the_first_token_comes_with_the_prefill() -> None:
    s = server()
    assert prefill(s, TokenSequence("a", prompt=9, output=1)) == [
        StepEvent("a", "first"),
        StepEvent("a", "end"),
    ]
    assert s.plan() is None


def test_a_partial_prefill_generates_nothing() -> None:
    s = server()
    assert prefill(s, TokenSequence("a", prompt=9, output=0)) == [StepEvent("a", "end")]


def test_decoding_goes_on_to_the_nearest_stop() -> None:
    s = server()
    prefill(
        s,
        TokenSequence("a", prompt=1, output=10),
        TokenSequence("b", prompt=1, output=6, marks=(4,)),
    )
    step = planned(s)
    assert step.repeat == 3, "b's mark is at 4 tokens, of which it has one"
    assert s.finish(step, repeats=step.repeat) == [StepEvent("b", "mark", 0)]
    step = planned(s)
    assert step.repeat == 2
    assert s.finish(step, repeats=2) == [StepEvent("b", "end")]
    step = planned(s)
    assert (step.decodes, step.repeat) == (1, 4)
    assert s.finish(step, repeats=4) == [StepEvent("a", "end")]


def test_marks_come_in_order_and_before_the_end() -> None:
    s = server()
    events = prefill(s, TokenSequence("a", prompt=1, output=3, marks=(1, 3, 3)))
    assert events == [StepEvent("a", "first"), StepEvent("a", "mark", 0)]
    assert s.finish(planned(s), repeats=2) == [
        StepEvent("a", "mark", 1),
        StepEvent("a", "mark", 2),
        StepEvent("a", "end"),
    ]


def test_an_interrupted_step_counts_what_was_done() -> None:
    s = server()
    prefill(s, TokenSequence("a", prompt=1, output=10))
    assert planned(s).repeat == 9
    assert s.finish(planned(s), repeats=4) == []
    assert planned(s).repeat == 5


def test_decodings_go_on_beside_a_prefill() -> None:
    s = server()
    prefill(s, TokenSequence("a", prompt=7, output=4))
    s.add(TokenSequence("b", prompt=150, output=2))
    step = planned(s)
    assert (ids(step), step.decodes, step.repeat, step.context) == ([("b", 100)], 1, 1, 8)
    assert s.finish(step) == []
    step = planned(s)
    assert (ids(step), step.decodes, step.repeat, step.context) == ([("b", 50)], 1, 1, 9)
    assert s.finish(step) == [StepEvent("b", "first")]
    step = planned(s)
    assert (step.decodes, step.repeat, step.context) == (2, 1, 10 + 151)
    assert s.finish(step) == [StepEvent("a", "end"), StepEvent("b", "end")]
    assert s.plan() is None


@catches(
    "context-of-the-gone",
    "what a sequence that ended attended to still counts",
    edited(StepServer._leave, "self._offset -= sequence.offset", "pass"),
)
@pytest.mark.parametrize("seed", range(10))
def test_the_clock_agrees_with_counting_every_sequence(seed: int) -> None:
    """Context, stops and lengths, against sequences that are looked at one by one."""
    chance = random.Random(seed)
    s = server(budget=30, sequences=5, kv_blocks=90, block_tokens=4)  # which fit in any case
    lengths: dict[object, list[int]] = {}  # prompt, output, generated
    for turn in range(300):
        if chance.random() < 0.3:
            made = TokenSequence(turn, chance.randrange(1, 50), chance.randrange(1, 20))
            s.add(made)
            lengths[turn] = [made.prompt, made.output, 0]
        if lengths and chance.random() < 0.05:
            gone = chance.choice([*lengths])
            assert s.abort(gone)
            del lengths[gone]
        step = s.plan()
        if step is None:
            assert not lengths
            continue
        decoding = {id: of for id, of in lengths.items() if of[2]}
        assert step.decodes == len(decoding)
        assert step.context == sum(prompt + done for prompt, _, done in decoding.values())
        rest = [output - done for _, output, done in decoding.values()]
        assert step.repeat == (1 if step.prefills else min(rest))
        repeats = chance.randint(1, step.repeat)
        for of in decoding.values():
            of[2] += repeats
        for sequence, tokens in step.prefills:
            if sequence.computed + tokens == sequence.prompt:
                lengths[sequence.id][2] = 1
        ended = {e.id for e in s.finish(step, repeats=repeats) if e.kind == "end"}
        assert ended == {id for id, of in lengths.items() if of[1] == of[2]}
        lengths = {id: of for id, of in lengths.items() if id not in ended}


def test_kv_blocks_bound_what_is_admitted() -> None:
    s = server(kv_blocks=4, block_tokens=10)
    s.add(TokenSequence("a", prompt=21, output=5))  # 3 blocks
    s.add(TokenSequence("b", prompt=15, output=5))  # 2 blocks
    first = planned(s)
    assert ids(first) == [("a", 21)]
    assert s.cache.available == 1
    s.finish(first)
    assert ids(planned(s)) == []
    s.finish(planned(s), repeats=4)
    assert s.cache.available == 4
    assert ids(planned(s)) == [("b", 15)]


def test_a_sequence_beyond_all_blocks_is_refused() -> None:
    s = server(kv_blocks=2, block_tokens=10)
    with pytest.raises(EngineError, match="need 9 KV blocks and there are 2"):
        s.add(TokenSequence("huge", prompt=90, output=1))
    assert s.plan() is None


def test_an_abort_frees_what_was_held() -> None:
    s = server(kv_blocks=4, block_tokens=10)
    prefill(s, TokenSequence("a", prompt=30, output=10))
    s.add(TokenSequence("b", prompt=30, output=10))
    assert s.abort("a")
    assert s.cache.available == 4
    assert ids(planned(s)) == [("b", 30)]
    assert not s.abort("a")


def test_what_waits_can_be_aborted() -> None:
    s = server()
    s.add(TokenSequence("a", prompt=1))
    assert s.abort("a")
    assert s.plan() is None


def test_an_abort_during_a_step_leaves_no_event() -> None:
    s = server()
    s.add(TokenSequence("a", prompt=1))
    s.add(TokenSequence("b", prompt=1))
    step = planned(s)
    s.abort("a")
    assert {e.id for e in s.finish(step)} == {"b"}


def test_steps_take_no_longer_however_many_sequences_decode() -> None:
    """A thousand arrivals beside many decodings, or beside few."""

    def seconds(running: int) -> float:
        s = server(budget=1 << 20, sequences=1 << 20, block_tokens=1 << 20)
        prefill(s, *(TokenSequence(k, prompt=1, output=10**6) for k in range(running)))
        began = time.perf_counter()
        for k in range(1000):
            s.add(TokenSequence(("new", k), prompt=1, output=1))
            step = planned(s)
            s.finish(step)
            s.finish(planned(s), repeats=2)
        return time.perf_counter() - began

    assert min(seconds(20_000) for _ in range(3)) < 4 * min(seconds(10) for _ in range(3))
