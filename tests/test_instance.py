"""BatchServer and StepServer: what an instance works on next."""

from __future__ import annotations

from teola.instance import BatchServer, Step, StepEvent, StepServer, TokenSequence


def server(
    budget: int = 100, sequences: int = 4, kv_blocks: int | None = None, block_tokens: int = 16
) -> StepServer:
    return StepServer(budget, sequences, kv_blocks, block_tokens)


def planned(s: StepServer) -> Step:
    step = s.plan()
    assert step is not None
    return step


def ids(step: Step) -> tuple[list[object], list[object]]:
    return [q.id for q in step.prefills], [q.id for q in step.decodes]


def prefill(s: StepServer, *sequences: TokenSequence) -> list[StepEvent]:
    for sequence in sequences:
        s.add(sequence)
    return s.finish(planned(s))


# --- batches --------------------------------------------------------------------------------


def test_batches_run_one_after_the_other() -> None:
    batches = BatchServer()
    assert batches.finish(2.0, now=1.0) == 3.0
    assert batches.finish(2.0, now=1.5) == 5.0
    assert batches.finish(2.0, now=9.0) == 11.0


def test_batches_run_side_by_side_up_to_the_concurrency() -> None:
    batches = BatchServer(concurrency=2)
    assert [batches.finish(2.0, now=0.0) for _ in range(3)] == [2.0, 2.0, 4.0]


# --- steps ----------------------------------------------------------------------------------


def test_an_idle_server_has_nothing_to_do() -> None:
    assert server().plan() is None


def test_prefills_fill_the_token_budget() -> None:
    s = server()
    for k in range(3):
        s.add(TokenSequence(k, prompt=40))
    step = planned(s)
    assert ids(step) == ([0, 1], [])
    assert step.tokens == 80
    assert ids(planned(s)) == ([2], [])


def test_a_prompt_beyond_the_budget_is_prefilled_alone() -> None:
    s = server()
    s.add(TokenSequence("long", prompt=500))
    s.add(TokenSequence("short", prompt=1))
    assert ids(planned(s)) == (["long"], [])
    assert ids(planned(s)) == (["short"], [])


def test_a_long_prompt_is_not_overtaken() -> None:
    s = server()
    s.add(TokenSequence("short", prompt=60))
    s.add(TokenSequence("long", prompt=60))
    s.add(TokenSequence("tiny", prompt=1))
    assert ids(planned(s)) == (["short"], [])


def test_sequences_are_bounded() -> None:
    s = server(sequences=2)
    for k in range(3):
        s.add(TokenSequence(k, prompt=1, output=2))
    first = planned(s)
    assert ids(first) == ([0, 1], [])
    assert [e.kind for e in s.finish(first)] == ["first", "first"]
    decode = planned(s)
    assert ids(decode) == ([], [0, 1])
    assert s.finish(decode) == [StepEvent(0, "end"), StepEvent(1, "end")]
    assert ids(planned(s)) == ([2], [])


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
    assert s.finish(step, step.repeat) == [StepEvent("b", "mark", 0)]
    step = planned(s)
    assert step.repeat == 2
    assert s.finish(step, 2) == [StepEvent("b", "end")]
    step = planned(s)
    assert (ids(step)[1], step.repeat) == (["a"], 4)
    assert s.finish(step, 4) == [StepEvent("a", "end")]


def test_marks_come_in_order_and_before_the_end() -> None:
    s = server()
    events = prefill(s, TokenSequence("a", prompt=1, output=3, marks=(1, 3, 3)))
    assert events == [StepEvent("a", "first"), StepEvent("a", "mark", 0)]
    assert s.finish(planned(s), 2) == [
        StepEvent("a", "mark", 1),
        StepEvent("a", "mark", 2),
        StepEvent("a", "end"),
    ]


def test_an_interrupted_step_counts_what_was_done() -> None:
    s = server()
    prefill(s, TokenSequence("a", prompt=1, output=10))
    assert planned(s).repeat == 9
    assert s.finish(planned(s), 4) == []
    assert planned(s).repeat == 5


def test_a_new_prefill_goes_before_the_next_decoding() -> None:
    s = server()
    prefill(s, TokenSequence("a", prompt=1, output=10))
    s.add(TokenSequence("b", prompt=1))
    assert ids(planned(s)) == (["b"], [])


def test_kv_blocks_bound_what_is_admitted() -> None:
    s = server(kv_blocks=4, block_tokens=10)
    s.add(TokenSequence("a", prompt=15, output=5, cached=1))  # 21 tokens: 3 blocks
    s.add(TokenSequence("b", prompt=15, output=5))  # 2 blocks
    first = planned(s)
    assert ids(first) == (["a"], [])
    assert s.free_blocks == 1
    s.finish(first)
    assert ids(planned(s)) == ([], ["a"])
    s.finish(planned(s), 4)
    assert s.free_blocks == 4
    assert ids(planned(s)) == (["b"], [])


def test_a_sequence_beyond_all_blocks_runs_alone() -> None:
    s = server(kv_blocks=2, block_tokens=10)
    s.add(TokenSequence("huge", prompt=90, output=1))
    step = planned(s)
    assert ids(step) == (["huge"], [])
    s.finish(step)
    assert s.free_blocks == 2


def test_an_abort_frees_what_was_held() -> None:
    s = server(kv_blocks=4, block_tokens=10)
    prefill(s, TokenSequence("a", prompt=30, output=10))
    s.add(TokenSequence("b", prompt=30, output=10))
    assert s.abort("a")
    assert s.free_blocks == 4
    assert ids(planned(s)) == (["b"], [])
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
