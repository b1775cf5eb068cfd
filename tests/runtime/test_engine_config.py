"""Configurations of engines, without any that runs: bounds, names, prices, and what is shared."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from teola.engine import Engine, EngineKind, EngineSpec
from teola.errors import EngineUnavailable, InputError
from teola.graph import Op
from teola.price import Price
from teola.runtime.engines import (
    DEFAULTS,
    EngineConfig,
    fair_to_tenants,
    merged,
    with_policies,
)
from teola.runtime.likeness import Likeness, check_alike, likeness
from teola.runtime.pools import joint
from teola.testing.hash_engines import HashModel

LLM = EngineSpec("llm", EngineKind.LLM, frozenset({Op.PREFILLING, Op.DECODING}))
URL = "http://one/v1"


def servers(*pool: dict[str, Any], **more: Any) -> EngineConfig:
    return EngineConfig("vllm", pool=pool, **more)


# --- bounds -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "allowed", "refused"),
    [
        ("overdue", [1, 1.0, 8.5], [0.99, 0, -1, float("inf"), float("nan"), "8", True]),
        ("overdue_s", [0.1, 5], [0.09, 0, float("inf"), "5", True]),
    ],
)
def test_when_a_first_token_is_overdue_is_a_number(
    option: str, allowed: list[Any], refused: list[Any]
) -> None:
    for value in (None, *allowed):
        assert getattr(EngineConfig("vllm", **{option: value}), option) == value
    for value in refused:
        with pytest.raises(InputError, match=f"^{option} must be a number from"):
            EngineConfig("vllm", **{option: value})


def test_calls_run_twice_on_another_instance_as_a_part_of_all() -> None:
    for share in (0.01, 1, 1.0):
        assert EngineConfig("vllm", instances=2, hedge=share).hedge == share
    for wrong in (0, 1.01, -0.1, True, "1", float("nan")):
        with pytest.raises(InputError, match="hedge must be a part of all calls"):
            EngineConfig("vllm", instances=2, hedge=wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="hedge needs another instance"):
        EngineConfig("vllm", hedge=0.1)


def test_a_pool_has_an_entry_for_each_instance() -> None:
    two = ({"url": "a"}, {"url": "b"})
    assert servers(*two).instances == servers(*two, instances=2).instances == 2
    assert EngineConfig("vllm").instances == 1
    with pytest.raises(InputError, match="instances = 3, but a pool with 2 entries"):
        servers(*two, instances=3)
    with pytest.raises(InputError, match="an engine needs at least one instance, got 0"):
        EngineConfig("vllm", instances=0)


# --- names and prices -------------------------------------------------------------------------


def test_instances_are_named_by_what_they_are_and_equal_ones_numbered() -> None:
    """A server is its URL and model, whatever else is said of it."""
    one, two = {"url": URL, "model": "m"}, {"url": URL, "model": "n"}
    first, second = servers(one, two).instance_names("llm")
    assert first != second
    assert servers(two, {**one, "api_key": "k"}).instance_names("llm") == [second, first]
    assert servers({**one, "max_batch": 7}, two).instance_names("llm") == [first, second]
    assert servers({"url": "http://two/v1", "model": "m"}).instance_names("llm") != [first]
    same = EngineConfig(HashModel, {"max_batch": 4}, instances=3).instance_names("llm")
    assert same == [same[0], f"{same[0]}-1", f"{same[0]}-2"]
    assert EngineConfig(HashModel, {"max_batch": 5}).instance_names("llm") != same[:1]
    keys = [EngineConfig(HashModel, {"salt_key": key}).instance_names("llm") for key in "ab"]
    assert keys[0] == keys[1]


def test_an_instances_price_is_its_own_else_its_models_else_the_engines() -> None:
    own, model, other, engine = (Price(float(k)) for k in range(1, 5))
    config = EngineConfig(
        "vllm",
        {"url": URL, "model": "m"},
        pool=[{"price": own}, {}, {"model": "n"}, {"model": "unknown"}],
    )
    known = {"m": model, "n": other, "llm": engine}
    assert config.prices("llm", known) == [own, model, other, engine]
    assert config.prices("llm", {"m": model}) == [own, model, None, None]
    assert EngineConfig("vllm", {"url": URL}).prices("llm", known) == [engine]


@pytest.mark.parametrize(
    ("pool", "names"),
    [
        ([], False),
        ([{"model": "m"}, {"model": "n"}], True),
        ([{"model": "m"}, {"url": URL}], False),
    ],
)
def test_a_pool_names_models_where_each_entry_does(pool: list[Any], names: bool) -> None:
    assert EngineConfig("vllm", pool=pool).names_models is names


@pytest.mark.parametrize(
    ("config", "elsewhere"),
    [
        (EngineConfig("vllm"), True),
        (EngineConfig("vectorstore"), False),
        (EngineConfig("vectorstore", {"dsn": "host=h"}), True),
        (EngineConfig("vectorstore", pool=[{}, {"dsn": "host=h"}]), True),
        (EngineConfig(HashModel), False),
        (EngineConfig(lambda **options: HashModel(), pool=[{"url": URL}]), True),
    ],
)
def test_an_engine_is_elsewhere_that_has_a_url_or_a_database_server(
    config: EngineConfig, elsewhere: bool
) -> None:
    assert config.elsewhere is elsewhere


# --- all engines ------------------------------------------------------------------------------


def test_small_models_are_like_the_llm_unless_they_are_configured() -> None:
    own, llm = EngineConfig("vllm", {"url": URL}), EngineConfig(HashModel)
    found = merged({"llm": llm, "judge": own, "mine": "extractive"})
    assert (found["llm"], found["proxy"], found["judge"]) == (llm, llm, own)
    assert found["mine"] == EngineConfig("extractive")
    assert found["rerank"] is DEFAULTS["rerank"]
    assert merged({})["proxy"] is DEFAULTS["llm"]


def test_options_stay_with_the_policy_that_they_were_for() -> None:
    options: dict[str, Any] = {
        "batching": "fifo",
        "batching_options": {"max_wait_s": 0.5},
        "routing": "workload_balanced",
        "routing_options": {"alpha": 0.5},
    }
    made = {"llm": EngineConfig(HashModel, **options)}
    assert with_policies(made, None, None) == made
    assert with_policies(made, "fifo", "workload_balanced") == made
    batching = with_policies(made, "topology", None)["llm"]
    assert (batching.batching, batching.batching_options) == ("topology", {})
    assert (batching.routing, batching.routing_options) == ("workload_balanced", {"alpha": 0.5})
    routing = with_policies(made, None, "round_robin")["llm"]
    assert (routing.routing, routing.routing_options) == ("round_robin", {})
    assert (routing.batching, routing.batching_options) == ("fifo", {"max_wait_s": 0.5})


def test_without_weights_of_tenants_those_of_an_engine_stay() -> None:
    own: dict[str, Any] = {"by": "tenant", "weights": {"b": 3.0}}
    config = {"x": EngineConfig("embedding", batching="fair", batching_options=own)}
    assert fair_to_tenants(config, {}) == config
    assert fair_to_tenants(config, {"b": 3.0}) == config


# --- several instances as one -----------------------------------------------------------------


def test_an_engine_is_as_its_weakest_instance() -> None:
    strong = replace(
        LLM, max_batch=8, max_sequences=8, concurrency=4, full_text=True, notice="",
        prefix_reuse=True, keeps_prefixes=True,
    )  # fmt: skip
    weak: dict[str, Any]
    for name, value in (("max_batch", 2), ("max_sequences", 3), ("concurrency", 1)):
        weak = {name: value}
        specs = [strong, replace(strong, **weak)]
        assert getattr(joint(specs), name) == value
        assert getattr(joint(specs[::-1]), name) == value
    for name in ("full_text", "prefix_reuse", "keeps_prefixes"):
        weak = {name: False}
        specs = [strong, replace(strong, **weak)]
        assert not getattr(joint(specs), name)
        assert not getattr(joint(specs[::-1]), name)
        assert getattr(joint([strong, strong]), name)
    told = [replace(strong, notice=notice) for notice in ("", "one", "two")]
    assert joint(told).notice == "one"
    assert joint(told[:1]).notice == ""


class Made:
    """An engine that tells what it is given."""

    def __init__(self, spec: EngineSpec, **more: Any) -> None:
        self.spec = spec
        self.__dict__ |= more

    async def start(self) -> None: ...

    async def close(self) -> None: ...


def engine(spec: EngineSpec, **more: Any) -> Engine:
    return cast("Engine", Made(spec, **more))


def test_what_an_instance_tells_of_itself_depends_on_its_kind() -> None:
    ops = frozenset({"prefilling", "decoding"})
    keeps = replace(LLM, block_tokens=32, prefix_reuse=True)
    assert likeness(engine(keeps, model="m")) == Likeness(EngineKind.LLM, ops, "m", block_tokens=32)
    assert likeness(engine(replace(keeps, prefix_reuse=False))) == Likeness(EngineKind.LLM, ops)
    words = {"encode": lambda text: [1, 2], "count_tokens": len}
    cut = likeness(engine(LLM, **words))
    assert cut.tokenizer is not None
    assert likeness(engine(LLM, encode=lambda text: [1, 3], count_tokens=len)) != cut
    assert likeness(engine(LLM, **words, estimates=False)) == cut
    assert likeness(engine(LLM, **words, estimates=True)).tokenizer is None
    reading = SimpleNamespace(tokenizer="t", template="c")
    read = likeness(engine(LLM, **words, reading=reading))
    assert (read.tokenizer, read.template) == ("t", "c")
    embedder = EngineSpec("e", EngineKind.EMBEDDING, frozenset({Op.EMBEDDING}))
    found = likeness(engine(embedder, identity="me", dimensions=8))
    assert found == Likeness(EngineKind.EMBEDDING, frozenset({"embedding"}), "me", dimensions=8)
    assert likeness(engine(embedder, identity="", dimensions=0)) == Likeness(
        EngineKind.EMBEDDING, frozenset({"embedding"})
    )
    other = EngineSpec("s", EngineKind.RERANK, frozenset({Op.RERANKING}))
    assert likeness(engine(other, model="m")) == Likeness(
        EngineKind.RERANK, frozenset({"reranking"})
    )


async def test_instances_that_take_the_same_texts_have_one_kind_and_the_same_operations() -> None:
    one, two = engine(LLM, model="m"), engine(LLM, model="n")
    await check_alike("llm", [one, two], named=False, by_text=True)
    with pytest.raises(EngineUnavailable, match="have different models"):
        await check_alike("llm", [one, two], named=False)
    await check_alike("llm", [one, two], named=True)
    fewer = engine(replace(LLM, ops=frozenset({Op.PREFILLING})))
    with pytest.raises(EngineUnavailable, match="have different operations: give both the same"):
        await check_alike("llm", [one, fewer], named=False, by_text=True)
    kind = engine(EngineSpec("r", EngineKind.RERANK, LLM.ops))
    with pytest.raises(EngineUnavailable, match="have different kinds: give both the same"):
        await check_alike("llm", [one, kind], named=False, by_text=True)
