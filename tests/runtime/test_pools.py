"""Unequal instances of one engine: each with its own options, limits and profile."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from teola import Runtime
from teola.engine import EngineKind, EngineSpec
from teola.errors import InputError, UnknownName
from teola.graph.ops import DECODES, PREFILLS, Op
from teola.profile import Cost, EngineProfile, Profile, StepTime, to_json
from teola.runtime.engines import EngineConfig, queue_for
from teola.runtime.pools import joint, presentable
from teola.testing.hash_engines import HashModel
from tests.fake_openai import FakeOpenAI
from tests.planted import catches, edited
from tests.runtime.hosts.elsewhere import Embedder
from tests.runtime.pooled import asking, embedding, servers

SLOW = EngineProfile(step=StepTime(prefill_s=1.0), max_batch=256)


# --- a configuration --------------------------------------------------------------------------


def test_there_are_as_many_instances_as_the_pool_has_entries() -> None:
    pool = [{"url": "http://a"}, {"url": "http://b"}]
    config = EngineConfig("vllm", pool=pool)
    assert config.instances == 2
    assert config == EngineConfig("vllm", instances=2, pool=tuple(pool))
    assert replace(config, batching="fifo").instances == 2
    assert EngineConfig("vllm").instances == 1


@catches(
    "pool-entry-ignored",
    "every instance gets the options of the engine only",
    edited(EngineConfig.recipe, "**self.member(name, instance).options", ""),
)
def test_an_entry_goes_over_the_options_of_the_engine() -> None:
    common = {"url": "http://a", "max_sequences": 4}
    config = EngineConfig("openai", common, pool=[{}, {"url": "http://b", "max_batch": 99}])
    first, second = (config.recipe("llm", i).options for i in range(2))
    assert first == {**common, "name": "llm"}
    assert second == {**common, "url": "http://b", "max_batch": 99, "name": "llm"}


@pytest.mark.parametrize(
    ("given", "error", "told"),
    [
        ({"pool": {"url": "http://a"}}, InputError, "a pool is a list of options"),
        ({"pool": "http://a"}, InputError, "a pool is a list of options"),
        ({"pool": ["http://a"]}, InputError, "entry 0 of a pool must be a table"),
        (
            {"pool": [{}, {}], "instances": 3},
            InputError,
            "instances = 3, but a pool with 2 entries: leave `instances` out",
        ),
        (
            {"pool": [{"url": "http://a"}, {"ur": "http://b"}]},
            UnknownName,
            "entry 1 of its pool.*mean 'url'",
        ),
        ({"pool": [{"url": "http://a"}, {}]}, InputError, "entry 1 of its pool needs .* 'url'"),
        ({"pool": [{"url": "http://a", "name": "a"}]}, InputError, "take `name` out"),
        (
            {"pool": [{"url": "http://a", "resources": {"num_gpus": "one"}}]},
            InputError,
            "entry 0 of its pool: resources must be numbers",
        ),
        ({"pool": [{"url": "http://a", "profile": 3}]}, InputError, "profile must be a name"),
        ({"pool": [{"url": "http://a", "profile": "nowhere.json"}]}, UnknownName, "nowhere.json"),
        (
            {"pool": [{"url": "http://a", "profile": {"max_bach": 3}}]},
            InputError,
            "entry 0 of its pool: profile: malformed profile",
        ),
    ],
)
def test_a_bad_pool_is_refused_before_anything_starts(
    given: dict[str, Any], error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        Runtime({"llm": EngineConfig("openai", **given)})


def test_documents_are_in_one_store() -> None:
    pool = [{"dsn": "postgresql://a/x"}, {"dsn": "postgresql://b/x"}]
    with (
        Runtime({"vectorstore": EngineConfig("vectorstore", pool=pool)}) as runtime,
        pytest.raises(InputError, match="'vectorstore' keeps documents, which each instance has"),
    ):
        runtime.engines("vectorstore")


# --- two servers as one engine ----------------------------------------------------------------


def test_both_servers_are_used() -> None:
    with FakeOpenAI(token_delay_s=0.05) as one, FakeOpenAI(token_delay_s=0.05) as two:
        with Runtime({"llm": servers(one, two, max_sequences=1)}) as runtime:
            found = asking(runtime).batch([{"question": f"Why {i}?"} for i in range(4)])
        assert [one.answer for one in found] == ["The answer is forty-two."] * 4  # type: ignore[union-attr]
        assert [len(server.calls) for server in (one, two)] == [2, 2]


def test_engines_like_the_llm_have_its_servers() -> None:
    with FakeOpenAI() as one, FakeOpenAI() as two:
        with Runtime({"llm": servers(one, two)}) as runtime:
            asking(runtime, "judge").run(question="Why?")
            hosts = runtime.live.hosts
            assert [hosts["judge", i] for i in (0, 1)] == [hosts["llm", i] for i in (0, 1)]
        assert len(one.calls) + len(two.calls) == 1


# --- elsewhere --------------------------------------------------------------------------------


@catches(
    "pool-successor",
    "what comes after a death has the options of the first instance",
    edited(Runtime.engines, "config.placed(name, on_ray, i)", "config.placed(name, on_ray)"),
)
def test_each_process_has_its_own_options_also_after_its_death(tmp_path: Path) -> None:
    """Vectors are as long as an instance's options say; the second instance dies once."""
    flag = tmp_path / "died"
    pool = [{"width": 4}, {"width": 6, "flag": str(flag)}]
    common = {"max_batch": 2, "seconds": 0.02}
    with Runtime({"embedding": EngineConfig(Embedder, common, host="process", pool=pool)}) as made:
        app = embedding(made)

        def lengths() -> set[int]:
            found = app.run(texts=[str(i) for i in range(16)], deadline_s=60)
            return set(map(len, found.outputs["vectors"]))

        lengths()
        assert flag.exists()
        limit = time.monotonic() + 30
        while not all(one.up for one in made.live.core.queues["embedding"].instances):
            assert time.monotonic() < limit, "it was not replaced"
            time.sleep(0.05)
        assert lengths() == {4, 6}
        made.start(made.replace("embedding", 1)).result(60)
        assert lengths() == {4, 6}


# --- the engine as a whole --------------------------------------------------------------------


UNEQUAL = EngineConfig(
    HashModel, {"max_batch": 512}, pool=[{"max_batch": 1024}, {"max_sequences": 4}]
)


def test_passes_go_by_the_weakest_instance() -> None:
    with Runtime({"llm": UNEQUAL}) as runtime:
        spec = runtime.spec("llm")
    assert (spec.max_batch, spec.max_sequences) == (512, 4)


@catches(
    "profiles-unknown",
    "the queue is not told what profiles its instances have",
    edited(Runtime._queue, "own, self.learner,", "None, self.learner,"),
)
def test_routing_knows_the_limits_and_the_profile_of_each_instance() -> None:
    pool = [{"max_batch": 1024}, {"max_sequences": 4, "profile": SLOW}]
    config = EngineConfig(HashModel, {"max_batch": 512}, pool=pool)
    with Runtime({"llm": config}) as runtime:
        asking(runtime).run(question="Why?")
        view = runtime.live.core.queues["llm"].placing.routing.view
        expected = runtime.profile_for(["llm"]).engines["llm"]
    assert [(one.max_batch, one.max_sequences) for one in view.limits] == [(1024, 8), (512, 4)]
    assert list(view.profiles) == [expected.of(0), SLOW]
    assert not view.profiles[0].timed, "it knows only what it was told"


@catches(
    "cache-size-lost",
    "routing is not told how much a server's cache holds",
    edited(
        queue_for,
        "Limits.of(engine.spec, engine.spec.kind)",
        "Limits.of(replace(engine.spec, kv_blocks=None), engine.spec.kind)",
    ),
)
def test_a_server_s_cache_is_as_large_as_it_says() -> None:
    """For routing, which is to forget what must have been evicted."""
    with FakeOpenAI(tokenizes=True) as one, FakeOpenAI(tokenizes=True) as two:
        config = servers(one, two)
        with Runtime({"llm": config}) as runtime:
            runtime.start(runtime.ensure(["llm"])).result()
            engines = runtime.engines("llm")
            limits = [one.limits for one in queue_for("llm", engines, config).instances]
            assert {one.kv_blocks for one in limits} == {100}
            assert runtime.spec("llm").kv_blocks == 100


def test_of_unequal_caches_the_smallest_counts_and_none_if_one_is_unknown() -> None:
    spec = EngineSpec("llm", EngineKind.LLM, PREFILLS | DECODES, kv_blocks=100)
    assert joint([spec, replace(spec, kv_blocks=50)]).kv_blocks == 50
    assert joint([spec, replace(spec, kv_blocks=None)]).kv_blocks is None
    assert joint([replace(spec, window=9), replace(spec, window=7)]).window == 7


def test_prefixes_pay_only_where_they_pay_on_every_instance() -> None:
    spec = EngineSpec(
        "llm", EngineKind.LLM, PREFILLS | DECODES, prefix_reuse=True, keeps_prefixes=True
    )
    assert joint([spec, spec]).prefix_reuse
    assert joint([spec, spec]).keeps_prefixes
    assert not joint([spec, replace(spec, keeps_prefixes=False)]).keeps_prefixes
    assert not joint([spec, replace(spec, prefix_reuse=False)]).prefix_reuse


def test_the_profile_knows_each_instance() -> None:
    with Runtime({"llm": UNEQUAL}) as runtime:
        found = runtime.profile_for(["llm"]).engines["llm"]
    assert (found.instances, found.max_batch) == (2, 512)
    assert [found.of(i).max_batch for i in range(2)] == [1024, 512]
    assert [found.of(i).max_sequences for i in range(2)] == [8, 4]


def inline() -> Mapping[str, Any]:
    entry: Mapping[str, Any] = to_json(Profile("", {"llm": SLOW}))["engines"]["llm"]
    return entry


@pytest.mark.parametrize("form", ["inline", "file", "object"])
def test_an_instance_may_have_a_profile_of_its_own(form: str, tmp_path: Path) -> None:
    file = tmp_path / "slow.json"
    file.write_text(json.dumps(to_json(Profile("slow", {"llm": SLOW}))))
    given = {"inline": inline(), "file": str(file), "object": SLOW}[form]
    config = EngineConfig(HashModel, pool=[{}, {"profile": given}])
    with Runtime({"llm": config}, profile="paper-7b") as runtime:
        found = runtime.profile_for(["llm"]).engines["llm"]
    assert found.of(1) == SLOW
    assert found.of(0).cost(Op.PREFILLING) == found.cost(Op.PREFILLING) != Cost()


def test_a_profile_of_other_engines_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text(json.dumps(to_json(Profile("other", {"rerank": SLOW}))))
    config = EngineConfig(HashModel, pool=[{"profile": str(file)}, {}])
    with Runtime({"llm": config}) as runtime:
        told = "entry 0 of its pool: profile 'other' knows neither 'llm' nor the kind 'llm'"
        with pytest.raises(InputError, match=told):
            runtime.profile_for(["llm"])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("m at http://u:p@h:1/v1?k=s#f", "m at http://h:1/v1"),
        ("postgresql://me:pw@db/x and http://a/", "postgresql://db/x and http://a/"),
        ("plain text, 3 words", "plain text, 3 words"),
        ("http://[broken", "http://..."),
    ],
)
def test_urls_are_shown_without_secrets(text: str, shown: str) -> None:
    assert presentable(text) == shown
