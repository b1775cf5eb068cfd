"""Options of the command line about engines, put over a configuration or an application's own."""

from __future__ import annotations

from typing import Any

import pytest

from teola.cli.given import Engines
from teola.config import Configuration
from teola.runtime.engines import EngineConfig

URL = "http://one/v1"


def configured(**tables: Any) -> dict[str, EngineConfig]:
    """The engines of a configuration file."""
    return Configuration.model_validate(tables).engine_configs()


@pytest.mark.parametrize(
    ("engines", "name", "factory"),
    [
        (Engines(llm=[URL]), "llm", "vllm"),
        (Engines(embedding=[URL]), "embedding", "openai-embedding"),
        (Engines(web_search=URL), "websearch", "searxng"),
    ],
)
def test_an_engine_that_an_option_names_has_the_policies_of_the_file(
    engines: Engines, name: str, factory: str
) -> None:
    chosen = {"batching": "fair", "routing": "round_robin"}
    found = engines.configs(configured(policies=chosen))[name]
    assert found == EngineConfig(factory, {"url": URL}, **chosen)
    own = {"type": "extractive", "batching": "paced", "batching_options": {"queue_s": 2.0}}
    if name == "llm":
        found = engines.configs(configured(engines={"llm": own}, policies=chosen))["llm"]
        assert (found.batching, found.batching_options) == ("paced", {"queue_s": 2.0})
        assert (found.factory, found.routing) == (factory, "round_robin")
