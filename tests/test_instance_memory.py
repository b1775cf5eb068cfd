"""Continuous batching over a block cache: shared prefixes, waiting for blocks, never a deadlock."""

from __future__ import annotations

import random
from collections.abc import Sequence as Items

import pytest

from teola.errors import EngineError
from teola.instance import Step, StepServer, TokenSequence
from teola.kv import BlockCache, make_policy, token_keys
from tests.planted import catches, edited

BLOCK = 4


def server(blocks: int = 16, budget: int = 100, running: int = 8) -> StepServer:
    return StepServer(budget, running, BlockCache(blocks, BLOCK, make_policy("lru")))


def sequence(
    at: StepServer, id: str, ids: Items[int], output: int = 1, *, keep: bool = False
) -> TokenSequence:
    return TokenSequence(id, prompt=len(ids), output=output, keys=token_keys(ids, BLOCK), keep=keep)


def step(at: StepServer) -> Step:
    planned = at.plan()
    assert planned is not None
    at.finish(planned)
    return planned


def drain(at: StepServer) -> list[str]:
    ended: list[str] = []
    while (planned := at.plan()) is not None:
        ended += [str(event.id) for event in at.finish(planned) if event.kind == "end"]
    return ended


def test_a_prefix_that_was_computed_is_not_computed_again() -> None:
    at = server()
    at.add(sequence(at, "a", [*range(8), 50]))
    drain(at)
    at.add(sequence(at, "b", [*range(8), 60, 61]))
    planned = at.plan()
    assert planned is not None
    assert planned.tokens == 2
    assert planned.prefills[0].sequence.cached == 8
    assert planned.prefills[0].sequence.table is not None
    assert planned.prefills[0].sequence.table.found == 2


def test_a_prompt_that_is_wholly_cached_still_computes_its_last_token() -> None:
    at = server()
    for id in "ab":
        at.add(sequence(at, id, range(8)))
        planned = step(at)
    assert planned.tokens == 4
    at.add(sequence(at, "prefix", range(8), output=0))
    assert step(at).tokens == 0


def test_two_that_begin_alike_do_not_compute_the_beginning_twice() -> None:
    at = server()
    at.add(sequence(at, "a", [*range(8), 50], output=3))
    at.add(sequence(at, "b", [*range(8), 60], output=3))
    first, second = step(at), step(at)
    assert [s.id for s, _ in first.prefills] == ["a"]
    assert [s.id for s, _ in second.prefills] == ["b"]
    assert second.tokens == 1


def test_nobody_waits_for_a_step_to_save_little() -> None:
    at = server()
    at.add(sequence(at, "a", [*range(4), *range(50, 60)]))
    at.add(sequence(at, "b", [*range(4), *range(60, 70)]))
    assert step(at).tokens == 28
    at.cache.check()


@pytest.mark.parametrize(("rest", "waits"), [(4, True), (5, False)])
def test_one_waits_where_half_of_it_is_just_being_computed(rest: int, waits: bool) -> None:
    """Of 8 tokens, 4 are."""
    at = server()
    at.add(sequence(at, "a", [*range(4), *range(50, 60)]))
    at.add(sequence(at, "b", [*range(4), *range(60, 60 + rest)]))
    assert [s.id for s, _ in step(at).prefills] == (["a"] if waits else ["a", "b"])


def test_as_much_of_what_is_kept_goes_as_is_needed_the_oldest_first() -> None:
    for tokens, left in ((7, ["y"]), (11, []), (16, [])):
        at = server(blocks=4)
        for id, first in (("x", 10), ("y", 20)):
            at.add(sequence(at, id, range(first, first + 8), output=0, keep=True))
            drain(at)
        assert [*at.kept] == ["x", "y"]
        at.add(sequence(at, "new", range(30, 30 + tokens)))
        assert drain(at) == ["new"]
        assert [*at.kept] == left
        at.cache.check()


def test_what_is_kept_goes_before_anybody_is_preempted_the_oldest_first() -> None:
    at = server(blocks=4)
    for id, first in (("x", 10), ("y", 20)):
        at.add(sequence(at, id, range(first, first + 4), output=0, keep=True))
        drain(at)
    at.add(sequence(at, "new", range(30, 37), output=4))
    assert drain(at) == ["new"]
    assert (at.preemptions, [*at.kept]) == (0, ["y"])


def test_who_came_last_is_preempted_and_waits_before_all_others() -> None:
    """What it found when it was first admitted is not what it finds of its own later."""
    at = server(blocks=6)
    first = sequence(at, "a", range(7), output=14)
    last = sequence(at, "b", range(10, 17), output=8)
    for one in (first, last):
        at.add(one)
    step(at)
    at.add(sequence(at, "c", range(20, 32)))
    while not at.preemptions:
        step(at)
    assert ([*at.decoding], [*at.waiting]) == (["a"], ["b", "c"])
    while "b" in at.waiting:
        step(at)
    assert last.table is not None
    assert last.table.found > 0
    assert last.cached == 0
    assert sorted(drain(at)) == ["b", "c"]
    at.cache.check()


def test_blocks_are_shared_and_all_come_back() -> None:
    at = server()
    for id in "abc":
        at.add(sequence(at, id, [*range(12), ord(id)], output=3))
    step(at)
    step(at)
    assert at.cache.available == 16 - 3 - 3  # three shared, one each for the rest and the answer
    at.abort("b")
    drain(at)
    assert at.cache.available == 16
    at.cache.check()


def test_a_sequence_waits_until_blocks_are_free() -> None:
    at = server(blocks=4)
    at.add(sequence(at, "a", range(9), output=4))
    at.add(sequence(at, "b", range(50, 58), output=4))
    assert [s.id for s, _ in step(at).prefills] == ["a"]
    assert not step(at).prefills
    assert drain(at) == ["a", "b"]


def test_one_that_can_never_fit_is_refused() -> None:
    at = server(blocks=2)
    with pytest.raises(EngineError, match="need 3 KV blocks and there are 2"):
        at.add(sequence(at, "a", range(8), output=2))
    at.add(sequence(at, "b", range(8), output=1))  # what is generated last is not computed
    assert drain(at) == ["b"]


def test_what_is_kept_cannot_be_evicted_until_nothing_else_helps() -> None:
    at = server(blocks=5)
    at.add(sequence(at, "prefix", range(9), output=0, keep=True))
    drain(at)
    assert at.cache.available == 3
    at.add(sequence(at, "other", range(50, 60), output=2))
    drain(at)
    assert at.cache.match(token_keys(range(8), BLOCK)) == 2
    at.add(sequence(at, "large", range(60, 74), output=2))
    assert drain(at) == ["large"]
    assert not at.kept
    at.release("prefix")
    at.cache.check()


def test_a_kept_prefix_is_released_once() -> None:
    at = server()
    at.add(sequence(at, "prefix", range(9), output=0, keep=True))
    drain(at)
    at.release("prefix")
    at.release("prefix")
    assert at.cache.available == 16
    at.cache.check()


def conversation(at: StepServer, id: str, ids: Items[int], said: Items[int]) -> TokenSequence:
    """A prompt to which the model answers what is `said`."""
    made = sequence(at, id, ids, len(said))
    made.grown = lambda tokens: token_keys([*ids, *said][:tokens], BLOCK)
    return made


@catches(
    "answers-forgotten",
    "generated blocks are not committed",
    edited(StepServer._free, "tokens // cache.block_tokens > len(sequence.keys)", "False"),
)
def test_the_second_turn_of_a_conversation_finds_prompt_and_answer_of_the_first() -> None:
    at = server()
    first, said = [*range(6)], [*range(20, 27)]
    at.add(conversation(at, "a", first, said))
    drain(at)
    at.add(conversation(at, "b", [*first, *said, *range(40, 44)], [1]))
    planned = at.plan()
    assert planned is not None
    assert planned.prefills[0].sequence.cached == 12, "12 of 13 tokens: the last was never fed"
    at.cache.check()


@pytest.mark.parametrize(("said", "found"), [(3, 1), (4, 2), (7, 2), (8, 3)])
def test_the_token_that_was_generated_last_cannot_be_found(said: int, found: int) -> None:
    """Nothing was computed from it. The prompt has 5 tokens, a block 4."""
    at, answer = server(), range(50, 50 + said)
    at.add(conversation(at, "a", range(5), answer))
    drain(at)
    assert at.cache.match(token_keys([*range(5), *answer, 99, 99, 99], BLOCK)) == found


def test_what_an_aborted_sequence_has_generated_can_be_found() -> None:
    at = server()
    first, said = [*range(6)], [*range(20, 27)]
    at.add(conversation(at, "a", first, said))
    step(at)
    planned = at.plan()
    assert planned is not None
    at.finish(planned, repeats=3)
    assert at.abort("a")
    assert at.cache.match(token_keys([*first, *said], BLOCK)) == 2, "6 + 4 tokens, 9 of them fed"
    at.cache.check()


def test_blocks_can_be_found_as_soon_as_their_chunk_is_computed() -> None:
    at = server(budget=10)
    at.add(sequence(at, "a", range(30)))
    step(at)
    assert at.cache.match(token_keys(range(30), BLOCK)) == 2
    step(at)
    assert at.cache.match(token_keys(range(30), BLOCK)) == 5


@pytest.mark.parametrize("seed", range(20))
def test_random_histories_end_with_every_sequence_answered_and_every_block_free(seed: int) -> None:
    chance = random.Random(seed)
    at = server(blocks=12, budget=20, running=3)
    waiting, ended = set[str](), list[str]()
    for turn in range(200):
        if chance.random() < 0.5:
            ids = [chance.randrange(2) for _ in range(chance.randrange(1, 30))]
            output = chance.randrange(0, 10)
            at.add(sequence(at, str(turn), ids, output, keep=not output))
            waiting.add(str(turn))
        if chance.random() < 0.1 and waiting:
            id = chance.choice(sorted(waiting))
            assert at.abort(id)
            waiting.remove(id)
        if chance.random() < 0.3 and at.kept:
            at.release(chance.choice(list(at.kept)))
        planned = at.plan()
        assert planned is not None or not waiting
        if planned is not None:
            ended += [str(e.id) for e in at.finish(planned) if e.kind == "end"]
            waiting -= set(ended)
        at.cache.check()
    drain(at)
    assert not at.running
    for id in list(at.kept):
        at.release(id)
    assert at.cache.available == 12
    at.cache.check()
