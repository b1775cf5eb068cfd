"""Several servers on the command line: one engine with an instance for each."""

from __future__ import annotations

from pathlib import Path

import pytest

from teola.cli.given import Engines
from teola.cli.options import Dtype
from teola.runtime.engines import DEFAULTS, EngineConfig
from tests.command_line import CommandLine
from tests.fake_openai import FakeOpenAI

TWO = ["http://one/v1", "http://two/v1"]


@pytest.fixture
def app(tmp_path: Path) -> str:
    file = tmp_path / "app.py"
    file.write_text(
        "from teola import App, Generate\n"
        "draft = Generate('draft', outputs={'answer': 'draft'}, context_required=False)\n"
        "other = Generate('other', outputs={'answer': 'answer'}, context_required=False)\n"
        "app = App('app', draft >> other, inputs={'question': 'text'},\n"
        "          outputs={'draft': 'draft', 'answer': 'answer'})\n"
    )
    return f"{file}:app"


def test_a_server_for_each_option(teola: CommandLine, app: str) -> None:
    words = ("run", app, "-i", "question=Why?", "--json")
    with FakeOpenAI("said", token_delay_s=0.05) as one, FakeOpenAI("said") as two:
        ended = teola(*words, "--llm", one.url, "--llm", two.url)
        assert (ended.code, ended.json["outputs"]["answer"]) == (0, "said")
        assert [len(server.calls) for server in (one, two)] == [1, 1]


def test_servers_of_different_models_are_told(teola: CommandLine, app: str) -> None:
    words = ("run", app, "-i", "question=Why?")
    with FakeOpenAI() as one, FakeOpenAI(model="other") as two:
        line = teola(*words, "--llm", one.url, "--llm", two.url).refused(1)
    assert f"instance 0 (fake-model at {one.url}) and instance 1 (other at {two.url})" in line
    assert "otherwise they are two engines" in line


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("run", "naive-rag", "--llm", "http://a", "--llm", "http://a/"), "was given twice"),
        (("run", "naive-rag", "--llm", "http://a", "--llm", "m"), "'m' is no URL: only servers"),
        (("serve", "naive-rag", "--llm", "http://a", "--llm", "http://a"), "was given twice"),
        (("profile", "llm", "--llm", "http://a", "--llm", "http://b"), "give --llm once"),
    ],
)
def test_what_cannot_be_one_engine(
    teola: CommandLine, words: tuple[str, ...], told: str, tmp_path: Path
) -> None:
    assert told in teola(*words).refused(2)


def test_options_take_the_place_of_what_a_pool_says() -> None:
    pool = [{"dtype": "bfloat16", "threads": 1}, {"threads": 2}]
    base = {**DEFAULTS, "embedding": EngineConfig("embedding", {"max_batch": 8}, pool=pool)}
    found = Engines(dtype=Dtype.FLOAT32).configs(base)["embedding"]
    assert found.options == {"max_batch": 8, "dtype": "float32"}
    assert found.pool == ({"threads": 1}, {"threads": 2})


def test_the_llm_of_the_command_line_is_everybodys() -> None:
    base = {**DEFAULTS, "proxy": DEFAULTS["llm"], "judge": EngineConfig("openai", {"url": "x"})}
    found = Engines(llm=TWO, embedding=TWO).configs(base)
    assert found["llm"] == found["proxy"] == EngineConfig("vllm", pool=[{"url": u} for u in TWO])
    assert found["judge"] == base["judge"]
    assert found["embedding"].instances == 2
