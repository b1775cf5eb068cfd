"""Options of the command line about engines, put over a configuration or an application's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from teola import Agent, App, Runtime
from teola.cli.given import Engines, at_home, brought
from teola.cli.options import EmbeddingDtype
from teola.config import Configuration
from teola.errors import InputError
from teola.price import Price
from teola.runtime.day_accounts import DayBudget
from teola.runtime.engines import DEFAULTS, EngineConfig
from teola.tools import mcp_tools, tool

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
    chosen: dict[str, Any] = {"batching": "fair", "routing": "round_robin"}
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


def test_length_and_precision_go_to_the_engines_that_have_them() -> None:
    def options(engines: Engines) -> dict[str, Any]:
        found = engines.configs({**DEFAULTS, "judge": EngineConfig("vllm", {"url": URL})})
        return {name: config.options for name, config in found.items() if config.options}

    judge = {"judge": {"url": URL}}
    assert options(Engines()) == judge
    assert options(Engines(dimensions=768)) == {**judge, "vectorstore": {"dimensions": 768}}
    names = ("embedding", "rerank", "llm", "websearch")
    precise = {name: {"dtype": "float32"} for name in names}
    assert options(Engines(dtype=EmbeddingDtype.FLOAT32)) == {**judge, **precise}


def test_settings_of_an_applications_own_runtime_hold_unless_an_option_says_otherwise() -> None:
    prices, budgets = {"llm": Price(1, 2), "m": Price(3, 4)}, {"asks": DayBudget(5)}
    more: dict[str, Any] = {"objectives": {"asks": 3.0}, "slo_scale": 2.0}
    with Runtime(prices=prices, budgets=budgets, profile="paper-7b", **more) as own:
        own.ray = "auto"
        with Engines().runtime(own) as runtime:
            assert (runtime.prices, runtime.budgets) == (prices, budgets)
            assert (runtime.objectives.by_app, runtime.objectives.scale) == ({"asks": 3.0}, 2.0)
            assert runtime.profile is own.profile is not None
            assert runtime.ray == "auto"
        options = Engines(price="5,6", profile="paper-13b", ray="local")
        with options.runtime(own) as runtime:
            told = dict.fromkeys(("llm", "proxy", "judge"), Price.parse("5,6"))
            assert runtime.prices == {"m": Price(3, 4), **told}
            assert runtime.profile is not None
            assert (runtime.profile.name, runtime.ray) == ("paper-13b", True)
    with Engines(ray="auto", learn="off").runtime() as runtime:
        assert (runtime.ray, runtime.learner) == ("auto", None)


def test_a_file_reaches_the_runtime() -> None:
    tables = {
        "server": {"max_queries": 7, "keep_values": "off"},
        "policies": {"slo_scale": 2.0, "profile": "paper-7b"},
        "objectives": {"asks": 3.0},
        "prices": {"m": {"prompt": 1.0, "answer": 2.0}},
        "ray": "auto",
    }
    file = Configuration.model_validate(tables)
    with Engines(learn="off").configured(file, ()) as runtime:
        assert (runtime.max_queries, runtime.keep_values, runtime.ray) == (7, "off", "auto")
        assert (runtime.objectives.by_app, runtime.objectives.scale) == ({"asks": 3.0}, 2.0)
        assert runtime.prices == {"m": Price(1.0, 2.0)}
        assert runtime.profile is not None
        assert runtime.profile.name == "paper-7b"
    with Engines(learn="off", ray="local", profile="paper-13b").configured(file, ()) as runtime:
        assert runtime.ray is True
        assert runtime.profile is not None
        assert runtime.profile.name == "paper-13b"


# --- what applications bring along ----------------------------------------------------------------


def app_of(runtime: Runtime | None, name: str = "asks") -> App:
    made = Agent(["notes"])
    return App(
        name, made, inputs={"question": "text"}, outputs={"answer": "answer"}, runtime=runtime
    )


def test_tools_of_an_applications_own_runtime_are_there() -> None:
    """With the options of a command, and when it is served; a tool of the file goes before them."""

    @tool
    def notes() -> str:
        """Look into the notes."""
        return "none"

    notes_server = mcp_tools(name="notes", command=["notes"])
    with (
        Runtime(tools={"notes": notes}, learn=False) as own,
        Runtime(tools={"notes": notes_server}, learn=False) as other,
    ):
        app, without = app_of(own), app_of(None, "without")
        with at_home(app, Engines()) as runtime:
            assert app.runtime is runtime
            assert runtime.tools["notes"] is notes
        assert (app.runtime, runtime.closed, own.closed) == (own, True, False)
        with Engines(learn="off").configured(Configuration(), [app, without]) as runtime:
            assert runtime.tools["notes"] is notes
        apps = [app, app_of(other, "other")]
        with pytest.raises(InputError, match="'other' and another one bring different tools"):
            Engines(learn="off").configured(Configuration(), apps)
        table = {"notes": {"command": ["notes", "of", "all"]}}
        file = Configuration.model_validate({"tools": table})
        with Engines(learn="off").configured(file, apps) as runtime:
            assert runtime.tools["notes"] not in (notes, notes_server)


def test_what_applications_may_take_and_cost_holds_where_they_are_served() -> None:
    """A file with a budget, an objective, or an engine of that name goes before it."""
    cheap, dear, day = Price(1.0, 2.0), Price(3.0, 4.0), DayBudget(tokens=5)
    with Runtime(
        objectives={"notes": 2.0}, prices={"llm": cheap}, budgets={"notes": day}, learn=False
    ) as own:
        apps = [app_of(own, "notes"), app_of(None, "without")]
        with Engines(learn="off").configured(Configuration(), apps) as runtime:
            assert runtime.objectives.by_app == {"notes": 2.0}
            assert runtime.prices == {"llm": cheap}
            assert runtime.budgets == {"notes": day}
        tables = {
            "objectives": {"notes": 9.0, "without": 8.0},
            "budgets": {"notes": {"tokens_a_day": 7}},
            "engines": {"llm": {"type": "vllm", "options": {"url": URL}}},
        }
        file = Configuration.model_validate(tables)
        with Engines(learn="off").configured(file, apps) as runtime:
            assert runtime.objectives.by_app == {"notes": 9.0, "without": 8.0}
            assert runtime.prices == {}, "of another model"
            assert runtime.budgets == {"notes": DayBudget(tokens=7)}
        with Engines(learn="off", llm=[URL]).configured(Configuration(), apps) as runtime:
            assert runtime.prices == {}, "nor of one that an option names"
        with Engines(learn="off", price="3,4").configured(Configuration(), apps) as runtime:
            assert set(runtime.prices.values()) == {dear}


def test_the_file_decides_where_applications_bring_different_engines() -> None:
    configs = [EngineConfig("vllm", {"url": f"http://{name}/v1"}) for name in ("a", "b", "c")]
    with Runtime({"big": configs[0]}) as one, Runtime({"big": configs[1]}) as two:
        apps = [app_of(one, "one"), app_of(two, "two")]
        with pytest.raises(InputError, match="'two' and another one bring different engines"):
            brought(apps)
        table = {"type": "vllm", "options": {"url": "http://c/v1"}}
        file = Configuration.model_validate({"engines": {"big": table}})
        with Engines(learn="off").configured(file, apps) as runtime:
            assert runtime.configs["big"] == configs[2]


def test_small_models_follow_the_llm_of_the_file_unless_an_application_names_them() -> None:
    vllm, small = EngineConfig("vllm", {"url": URL}), EngineConfig("vllm", {"url": f"{URL}/small"})
    table = {"type": "vllm", "options": {"url": URL}}
    file = Configuration.model_validate({"engines": {"llm": table}})
    with Runtime() as usual, Runtime({"llm": small}) as other, Runtime({"proxy": small}) as own:
        for apps in ([app_of(usual)], [app_of(usual), app_of(other, "other")]):
            with Engines(learn="off").configured(file, apps) as runtime:
                assert runtime.configs["proxy"] == runtime.configs["judge"] == vllm
        with Engines(learn="off").configured(file, [app_of(usual), app_of(own)]) as runtime:
            assert (runtime.configs["proxy"], runtime.configs["judge"]) == (small, vllm)
