"""Options of the command line about engines, put over a configuration or an application's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from teola.cli.given import Engines
from teola.config import Configuration
from teola.runtime.engines import DEFAULTS, EngineConfig

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


@pytest.mark.parametrize(
    ("engines", "place"),
    [
        (Engines(dsn="postgresql://h/x"), {"dsn": "postgresql://h/x"}),
        (Engines(data_dir=Path("there")), {"data_dir": Path("there")}),
    ],
)
def test_another_place_for_the_data_leaves_the_store_as_it_is(
    engines: Engines, place: dict[str, Any]
) -> None:
    """Length of its vectors, policies and number: but neither place of the file is left."""
    options = {"data_dir": "here", "dimensions": 768}
    table = {"type": "vectorstore", "options": options, "instances": 2, "batching": "fair"}
    found = engines.configs(configured(engines={"vectorstore": table}))
    wanted = {"dimensions": 768, **place}
    assert found["vectorstore"] == EngineConfig("vectorstore", wanted, 2, batching="fair")
    assert found["websearch"].options == place, "it keeps its index there, too"
    found = engines.configs({**DEFAULTS, "vectorstore": EngineConfig("mine", batching="fair")})
    assert found["vectorstore"] == EngineConfig("vectorstore", place, batching="fair")
