"""Several servers on the command line: one engine with an instance for each."""

from __future__ import annotations

from pathlib import Path

import pytest

from teola.cli.given import Engines
from teola.cli.named_engines import embedding_config, llm_config
from teola.cli.options import EmbeddingDtype
from teola.errors import InputError
from teola.runtime.engines import DEFAULTS, EngineConfig
from tests.command_line import CommandLine
from tests.fake_openai import FakeOpenAI

TWO = ["http://one/v1", "http://two/v1"]


@pytest.fixture
def app(tmp_path: Path) -> str:
    file = tmp_path / "app.py"
    file.write_text(
        "from teola import App, Generate\n"
        "own = {'context_required': False, 'temperature': 0.5}  # so that they are two calls\n"
        "draft = Generate('draft', outputs={'answer': 'draft'}, **own)\n"
        "other = Generate('other', outputs={'answer': 'answer'}, **own)\n"
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
        (
            ("profile", "measure", "llm", "--llm", "http://a", "--llm", "http://b"),
            "give --llm once",
        ),
    ],
)
def test_what_cannot_be_one_engine(
    teola: CommandLine, words: tuple[str, ...], told: str, tmp_path: Path
) -> None:
    assert told in teola(*words).refused(2)


def test_options_take_the_place_of_what_a_pool_says() -> None:
    pool = [{"dtype": "bfloat16", "threads": 1}, {"threads": 2}]
    base = {**DEFAULTS, "embedding": EngineConfig("embedding", {"max_batch": 8}, pool=pool)}
    found = Engines(dtype=EmbeddingDtype.FLOAT32).configs(base)["embedding"]
    assert found.options == {"max_batch": 8, "dtype": "float32"}
    assert found.pool == ({"threads": 1}, {"threads": 2})


def test_the_llm_of_the_command_line_is_everybodys() -> None:
    base = {**DEFAULTS, "proxy": DEFAULTS["llm"], "judge": EngineConfig("openai", {"url": "x"})}
    found = Engines(llm=TWO, embedding=TWO).configs(base)
    assert found["llm"] == found["proxy"] == EngineConfig("vllm", pool=[{"url": u} for u in TWO])
    assert found["judge"] == base["judge"]
    assert found["embedding"].instances == 2


def test_several_urls_are_one_engine() -> None:
    urls = ["http://one:8000/v1", "https://two/v1"]
    for found, type in ((llm_config(urls), "vllm"), (embedding_config(urls), "openai-embedding")):
        assert found == EngineConfig(type, pool=[{"url": url} for url in urls])
    assert llm_config(urls[:1]) == EngineConfig("vllm", {"url": urls[0]})
    assert embedding_config(["mini"]) == EngineConfig("embedding", {"model": "mini"})


@pytest.mark.parametrize(
    ("urls", "told"),
    [
        (["http://u:secret@a/v1", "http://u:secret@a/v1/"], "--llm 'http://a/v1' was given twice"),
        (["http://a/v1", "models/mine"], "given 2 times, and 'models/mine' is no URL"),
        (["extractive", "extractive"], "given 2 times, and 'extractive' is no URL"),
    ],
)
def test_what_cannot_be_one_engine_is_refused(urls: list[str], told: str) -> None:
    with pytest.raises(InputError, match=told) as refused:
        llm_config(urls)
    assert "secret" not in str(refused.value)
