"""Profiles: times, best batch sizes, JSON there and back, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teola.engine import EngineKind, EngineSpec
from teola.errors import InputError, UnknownName
from teola.graph import Op
from teola.profile import (
    NAMED,
    Cost,
    EngineProfile,
    Profile,
    StepTime,
    default,
    from_json,
    load_profile,
    paper,
    to_json,
)
from tests.planted import catches, edited


def spec(name: str, kind: EngineKind, **more: Any) -> EngineSpec:
    return EngineSpec(name, kind, frozenset(Op), **more)


# --- the paper's table ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "items", "tokens", "seconds"),
    [
        (Op.EMBEDDING, 4, 4 * 256, 0.15),
        (Op.EMBEDDING, 16, 16 * 256, 0.45),
        (Op.RERANKING, 16, 0, 0.498),
        (Op.INGESTION, 48, 0, 0.0068),
        (Op.SEARCHING, 3, 0, 0.009),
        (Op.PREFILLING, 1, 512, 0.5),
        (Op.FULL_PREFILLING, 1, 1024, 0.8),
    ],
)
def test_times_of_the_paper(op: Op, items: int, tokens: int, seconds: float) -> None:
    kinds = {Op.EMBEDDING: "embedding", Op.RERANKING: "rerank"}
    store = "vectorstore" if op in (Op.INGESTION, Op.SEARCHING) else "llm"
    engine = paper("13b").engine(kinds.get(op, store))
    assert engine.seconds(op, items, tokens) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("size", "prefill", "step"),
    [("7b", 0.45, 0.01815), ("13b", 0.5, 0.0217), ("30b", 0.29, 0.0248)],
)
def test_three_sizes(size: str, prefill: float, step: float) -> None:
    llm = paper(size).engine("llm")
    assert llm.seconds(Op.PREFILLING, 1, 512) == pytest.approx(prefill)
    assert llm.seconds(Op.DECODING, 1, 0, out_tokens=10) == pytest.approx(10 * step)


def test_the_search_agent_drafts_and_judges_with_7b_models() -> None:
    profile = paper("30b")
    assert profile.engine("proxy") == profile.engine("judge") == paper("7b").engine("llm")
    assert profile.engine("llm") != profile.engine("proxy")


def test_best_batch_sizes_of_the_paper() -> None:
    assert paper("13b").engine("embedding").max_efficient_batch(Op.EMBEDDING) == 32


def test_work_beyond_a_batch_takes_several() -> None:
    engine = paper("13b").engine("embedding")
    assert engine.seconds(Op.EMBEDDING, 48, 48 * 256) == pytest.approx(2 * 0.05 + 48 * 0.025)


# --- batch sizes ----------------------------------------------------------------------------


def test_doubling_stops_where_it_gains_less_than_five_percent() -> None:
    cost = Cost(base_s=1.0, per_item_s=1.0)
    size = cost.max_efficient(1024)
    gain = (2 * size / cost.seconds(2 * size, 0)) / (size / cost.seconds(size, 0))
    assert gain < 1.05
    half = size // 2
    assert (size / cost.seconds(size, 0)) / (half / cost.seconds(half, 0)) >= 1.05


def test_the_engine_bounds_the_batch() -> None:
    assert Cost(base_s=1.0).max_efficient(24) == 16
    assert Cost(per_item_s=1.0).max_efficient(24) == 1


def test_without_times_the_largest_batch_is_best() -> None:
    assert Cost().max_efficient(24) == 24
    assert EngineProfile(max_batch=24).max_efficient_batch(Op.TOOL_CALL) == 24


def test_what_is_known_is_not_derived() -> None:
    engine = replace(paper("13b").engine("embedding"), max_efficient=7)
    assert engine.max_efficient_batch(Op.EMBEDDING) == 7


# --- steps ----------------------------------------------------------------------------------

STEP = StepTime(0.01, 0.001, 1e-6, 1e-4, 1e-8, prefill_s=0.005)


def test_a_step_takes_what_is_in_it() -> None:
    assert STEP.seconds(4, 1000) == pytest.approx(0.01 + 0.004 + 0.001)
    assert STEP.seconds(0, 0, 100, 5050) == pytest.approx(0.015 + 0.01 + 5.05e-5)
    both = STEP.seconds(4, 1000, 100, 5050)
    assert both == pytest.approx(0.015 + 0.004 + 0.001 + 0.01 + 5.05e-5)
    assert STEP.seconds(0) == 0.0, "nothing to compute"


def test_a_step_for_prompts_alone_may_take_less_and_with_others_it_takes_no_less() -> None:
    quick = replace(STEP, prefill_s=-0.004)
    assert quick.seconds(0, 0, 100) == pytest.approx(0.006 + 0.01)
    assert quick.seconds(4, 0, 100) == pytest.approx(0.01 + 0.004 + 0.01)


def test_a_prompt_has_a_pair_for_each_token_and_those_up_to_it() -> None:
    """The first token attends to itself."""
    for tokens in (1, 2, 100):
        pairs = sum(range(1, tokens + 1))
        assert STEP.prefill(tokens) == pytest.approx(STEP.seconds(0, 0, tokens, pairs), rel=1e-12)


def test_a_step_that_is_just_over_is_the_last_that_has_begun() -> None:
    steps = StepTime(base_s=0.25)
    assert [steps.steps(seconds, 1, 0) for seconds in (0.25, 0.5, 0.75)] == [1, 2, 3]
    growing = StepTime(base_s=0.5, per_context_s=0.5)
    ends = [growing.seconds(1, 1, repeat=k) for k in (1, 2, 3)]
    assert ends == [1.0, 2.5, 4.5]
    assert [growing.steps(end, 1, 1) for end in ends] == [1, 2, 3]


@given(st.integers(1, 50), st.integers(0, 100_000), st.integers(1, 300))
def test_repeated_steps_take_the_sum_of_each(sequences: int, context: int, repeat: int) -> None:
    each = [STEP.seconds(sequences, context + k * sequences) for k in range(repeat)]
    assert STEP.seconds(sequences, context, repeat=repeat) == pytest.approx(sum(each))


@catches(
    "steps-cut-off",
    "the step in which an interruption falls is not counted",
    edited(StepTime.steps, "repeat=steps) < seconds", "repeat=steps) < 0"),
)
def test_steps_that_have_begun_are_counted_from_their_time() -> None:
    for sequences, context, repeat in product((1, 7, 50), (0, 90_000), (1, 2, 40, 3000)):
        until = STEP.seconds(sequences, context, repeat=repeat)
        before = STEP.seconds(sequences, context, repeat=repeat - 1) if repeat > 1 else 0.0
        assert STEP.steps((before + until) / 2, sequences, context) == repeat
        assert STEP.steps(until * (1 - 1e-9), sequences, context) == repeat
    assert STEP.steps(0.0, 3, 10) == 1
    assert StepTime(base_s=0.1).steps(0.25, 3, 10) == 3
    assert StepTime().steps(0.25, 3, 10) == 1


# --- engines by name ------------------------------------------------------------------------


def test_names_fall_back_to_kinds_and_then_to_nothing() -> None:
    profile = paper("13b")
    assert profile.engine("my-llm", EngineKind.LLM) is profile.engine("llm")
    assert profile.engine("my-sql", EngineKind.SQL) == EngineProfile()


def test_a_profile_about_structure_overrules_the_engines() -> None:
    given = spec("embedding", EngineKind.EMBEDDING, max_batch=5)
    engine = paper("13b").for_engines([given]).engine("embedding")
    assert engine.max_efficient_batch(Op.EMBEDDING) == 32


def test_by_default_the_engines_speak_for_themselves() -> None:
    reader = spec("llm", EngineKind.LLM, max_batch=9, prefix_reuse=False, block_tokens=3)
    engine = default([reader]).engine("llm")
    assert (engine.max_batch, engine.prefix_reuse, engine.block_tokens) == (9, False, 3)
    assert not engine.timed
    assert engine.source == "not known yet"
    assert not engine.keeps_prefixes
    assert default([replace(reader, keeps_prefixes=True)]).engine("llm").keeps_prefixes


def test_what_an_older_profile_says_to_reuse_is_kept() -> None:
    written = to_json(paper("13b"))
    for name, engine in written["engines"].items():
        del engine["keeps_prefixes"]
        assert from_json(written).engine(name).keeps_prefixes is engine["prefix_reuse"]


def test_the_window_is_what_the_profile_says_or_else_the_engine() -> None:
    given = spec("llm", EngineKind.LLM, window=4096)
    assert default([given]).engine("llm").window == 4096
    bed = paper("13b")
    assert bed.for_engines([given]).engine("llm").window == 4096
    narrow = replace(bed, engines={"llm": replace(bed.engines["llm"], window=512)})
    assert narrow.for_engines([given]).engine("llm").window == 512


def test_kv_memory_is_what_the_profile_says_or_else_the_engine() -> None:
    given = spec("llm", EngineKind.LLM, block_tokens=32, kv_blocks=100)
    assert default([given]).engine("llm").kv_tokens == 3200
    bed = paper("13b")
    assert bed.for_engines([given]).engine("llm").kv_tokens == 65_536
    silent = replace(bed, engines={"llm": replace(bed.engines["llm"], kv_blocks=None)})
    assert silent.for_engines([given]).engine("llm").kv_blocks == 200, "of 16 tokens"


def test_calls_run_at_once_as_memory_and_places_allow() -> None:
    llm = EngineProfile(max_sequences=32, kv_blocks=100)
    assert llm.calls_at_once(17) == 32
    assert llm.calls_at_once(160) == 10
    assert llm.calls_at_once(161) == 9
    assert llm.calls_at_once(9000) == 1
    assert EngineProfile(max_sequences=32).calls_at_once(10**9) == 32


def test_an_engine_unknown_to_the_profile_speaks_for_itself() -> None:
    given = spec("mine", EngineKind.SQL, max_batch=5)
    assert paper("13b").for_engines([given]).engine("mine").max_batch == 5


# --- JSON -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMED)
def test_json_there_and_back(name: str) -> None:
    profile = load_profile(name)
    again = from_json(json.loads(json.dumps(to_json(profile))))
    assert again == profile


def test_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    engine = EngineProfile({Op.SQL: Cost(0.1, sigma=0.5)}, kv_blocks=7, max_efficient=3)
    slow = EngineProfile({Op.SQL: Cost(0.3)}, step=StepTime(base_s=0.2), max_batch=2)
    pool = replace(engine, instances=3, pool=(engine, slow))
    profile = Profile("mine", {"sql": engine, "pool": pool}, dispatch_s=0.2)
    file.write_text(json.dumps(to_json(profile)))
    assert load_profile(str(file)) == profile
    assert [pool.of(i) for i in range(3)] == [engine, slow, pool]


def test_version_1_is_read_with_the_times_that_it_says() -> None:
    """Two costs of an LLM: 0.2 s and 2 ms a token to prefill, 0.03 s and 1 ms a sequence to decode.
    Context costs nothing."""
    llm = {
        "costs": {"prefilling": {"base_s": 0.2, "per_token_s": 0.002}},
        "decode_step": {"base_s": 0.03, "per_item_s": 0.001},
        "kv_blocks": 9,
    }
    other = {"costs": {"sql": {"base_s": 0.5}}, "decode_step": {}}
    data = {"version": 1, "name": "old", "engines": {"llm": llm, "sql": other}}
    found = from_json(data).engines
    assert found["sql"] == EngineProfile({Op.SQL: Cost(0.5)})
    step = found["llm"].step
    assert found["llm"].kv_blocks == 9
    assert step.seconds(0, 0, 100, 5050) == pytest.approx(0.4)
    assert step.seconds(5, 70_000) == pytest.approx(0.035)
    assert found["llm"].seconds(Op.PREFILLING, 1, 100) == pytest.approx(0.4)
    assert (step.per_context_s, step.per_pair_s) == (0, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 3}, "version 2"),
        ({"version": 1}, "malformed profile"),
        ({"engines": {"e": {"costs": {"prefilling": {}}}}}, "malformed profile .*its step"),
        ({"engines": {"e": {"costs": {"flying": {}}}}}, "malformed profile .*flying"),
        ({"engines": {"e": {"max_bach": 3}}}, "malformed profile .*max_bach"),
        ({"engines": {"e": {"costs": {"sql": {"base": 3}}}}}, "malformed profile .*base"),
        ({"engines": ["e"]}, "malformed profile"),
        ({"engines": {"e": 3}}, "malformed profile"),
        ({"dispatch_s": "soon"}, "malformed profile .*soon"),
    ],
)
def test_malformed_profiles_are_refused(change: dict[str, Any], message: str) -> None:
    data = {**to_json(paper("13b")), **change}
    with pytest.raises(InputError, match=message):
        from_json(data, "mine.json")


def test_what_is_no_profile_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "broken.json"
    file.write_text("{")
    with pytest.raises(InputError, match="is no JSON file"):
        load_profile(str(file))
    file.write_text("[]")
    with pytest.raises(InputError, match="version"):
        load_profile(str(file))
    del_name = {k: v for k, v in to_json(paper("13b")).items() if k != "name"}
    with pytest.raises(InputError, match="malformed profile"):
        from_json(del_name)


def test_an_unknown_profile_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UnknownName, match="did you mean 'paper-13b'"):
        load_profile("paper-14b")
    with pytest.raises(UnknownName, match="LLM size '70b'"):
        paper("70b")
