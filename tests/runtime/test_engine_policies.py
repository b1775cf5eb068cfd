"""Policies of engines by configuration: `EngineConfig`, and one name for all."""

from __future__ import annotations

import pytest

from teola.errors import InputError, UnknownName
from teola.policies.batching.critical_path import CriticalPath
from teola.policies.batching.fair import Fair
from teola.policies.batching.fifo import Fifo
from teola.policies.batching.topology import Topology
from teola.runtime.engines import EngineConfig, fair_to_tenants, queue_for, with_policies
from teola.schedule.quota import ApiAccount
from teola.testing.hash_engines import HashEmbedder
from teola_engines.llm import OpenAIServer

SHARED = {"by": "tenant", "inner": "critical_path", "weights": {"a": 2}}


def test_options_reach_the_policy() -> None:
    config = EngineConfig("embedding", batching="fair", batching_options=SHARED)
    policy = queue_for("embedding", [HashEmbedder()], config).line.policy
    assert isinstance(policy, Fair)
    assert isinstance(policy._inner(), CriticalPath)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"weights": {"a": 0}}, InputError, "weight of 'a' must be a number above 0, got 0"),
        ({"wieghts": {"a": 1}}, UnknownName, "did you mean 'weights'"),
    ],
)
def test_wrong_options_are_refused(
    options: dict[str, object], error: type[Exception], message: str
) -> None:
    config = EngineConfig("embedding", batching="fair", batching_options=options)
    with pytest.raises(error, match=message):
        queue_for("embedding", [HashEmbedder()], config)


def test_by_default_the_critical_path_goes_first() -> None:
    queue = queue_for("embedding", [HashEmbedder()], EngineConfig("embedding"))
    assert isinstance(queue.line.policy, CriticalPath)


def test_another_policy_for_all_does_not_get_the_options_of_one() -> None:
    configs = {"embedding": EngineConfig("embedding", batching="fair", batching_options=SHARED)}
    config = with_policies(configs, "topology", None)["embedding"]
    assert isinstance(queue_for("embedding", [HashEmbedder()], config).line.policy, Topology)


@pytest.mark.parametrize("name", [None, "fair"])
def test_the_same_policy_for_all_keeps_them(name: str | None) -> None:
    configs = {"embedding": EngineConfig("embedding", batching="fair", batching_options=SHARED)}
    assert with_policies(configs, name, "round_robin")["embedding"].batching_options == SHARED


def test_tenants_share_every_engine_and_each_engine_keeps_its_own_policy() -> None:
    plain = EngineConfig("embedding", batching="fifo", batching_options={"max_wait_s": 0.5})
    fair = EngineConfig("embedding", batching="fair", batching_options=SHARED)
    found = fair_to_tenants({"plain": plain, "fair": fair}, {"a": 2.0})
    assert found["fair"] is fair
    policy = queue_for("embedding", [HashEmbedder()], found["plain"]).line.policy
    assert isinstance(policy, Fair)
    inner = policy._inner()
    assert isinstance(inner, Fifo)
    assert found["plain"].batching_options["weights"] == {"a": 2.0}
    assert found["plain"].batching_options["inner_options"] == {"max_wait_s": 0.5}


def test_an_engine_that_is_fair_to_tenants_already_gets_the_weights_it_lacks() -> None:
    options = {"by": "tenant", "inner": "fifo"}
    fair = EngineConfig("embedding", batching="fair", batching_options=options)
    both = EngineConfig("embedding", batching="fair")
    found = fair_to_tenants({"fair": fair}, {"a": 2.0})["fair"]
    assert found.batching_options == {**options, "weights": {"a": 2.0}}
    assert fair_to_tenants({"fair": fair, "both": both}, {}) == {"fair": fair, "both": both}


@pytest.mark.parametrize(
    ("options", "weights", "told"),
    [
        ({"by": "app"}, {}, "by application, so tenants have no shares"),
        ({"by": "app", "weights": {"rag": 2}}, {"a": 2.0}, "by application"),
        ({}, {"a": 2.0}, 'tenant_weights say nothing: say by = "tenant"'),
        ({"by": "tenant", "weights": {"b": 3}}, {"a": 2.0}, "'x' has weights of its own"),
    ],
)
def test_an_engine_where_tenants_would_not_have_their_shares_is_refused(
    options: dict[str, object], weights: dict[str, float], told: str
) -> None:
    config = EngineConfig("embedding", batching="fair", batching_options=options)
    with pytest.raises(InputError, match=told):
        fair_to_tenants({"x": config}, weights)


def test_engines_with_one_key_keep_to_what_any_of_them_was_told() -> None:
    accounts: dict[str, ApiAccount] = {}
    for limits in ({}, {"requests_per_minute": 60}, {"tokens_per_minute": 9000}):
        engine = OpenAIServer(url="http://127.0.0.1:9/v1", api_key="k", **limits)
        queue_for("llm", [engine], EngineConfig("openai"), accounts=accounts)
    (account,) = accounts.values()
    assert (account.requests.most, account.tokens.most) == (60, 9000)
