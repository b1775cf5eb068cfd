"""The LLM that a URL, several of them, or a folder names."""

from __future__ import annotations

from pathlib import Path

import pytest

from teola.errors import InputError
from teola.runtime.engines import DEFAULTS, EngineConfig
from teola.runtime.named_llm import llm_config, servers_config

ONE, TWO = "http://one:8000/v1", "https://two/v1"


def test_a_server_is_one_engine_and_several_are_its_instances() -> None:
    assert llm_config([ONE]) == EngineConfig("vllm", {"url": ONE})
    both = EngineConfig("vllm", pool=[{"url": ONE}, {"url": TWO}])
    assert llm_config([ONE, TWO]) == both
    assert servers_config("--embedding", "openai-embedding", [TWO]) == EngineConfig(
        "openai-embedding", {"url": TWO}
    )
    assert servers_config("--llm", "vllm", ["models/tiny"]) is None
    assert servers_config("--llm", "vllm", ["ftp://one"]) is None


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ([ONE, "models/tiny"], "--llm was given 2 times, and 'models/tiny' is no URL: only"),
        (["a", ONE, "b"], "--llm was given 3 times, and 'a' is no URL: only"),
        ([ONE, TWO, f"{ONE}/"], f"--llm '{ONE}' was given twice: give each server once"),
        (
            ["http://me:secret@one/v1", "http://me:secret@one/v1"],
            "--llm 'http://one/v1' was given twice",
        ),
    ],
)
def test_what_cannot_be_instances_of_one_engine_is_refused(where: list[str], told: str) -> None:
    with pytest.raises(InputError) as raised:
        llm_config(where)
    assert str(raised.value).startswith(told)
    assert "secret" not in str(raised.value)


def test_a_folder_is_a_model_that_runs_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the program stands later."""
    (folder := tmp_path / "tiny").mkdir()
    (folder / "config.json").write_text("{}")
    (tmp_path / "link").symlink_to(folder)
    made = EngineConfig("transformers", {"model": str(folder)})
    assert llm_config([str(folder)]) == llm_config([str(tmp_path / "link")]) == made
    monkeypatch.chdir(tmp_path)
    assert llm_config(["tiny"]) == llm_config(["./tiny/"]) == made
    monkeypatch.setenv("HOME", str(tmp_path))
    assert llm_config(["~/tiny"]) == made
    assert llm_config(["extractive"]) is DEFAULTS["llm"]
    (tmp_path / "empty").mkdir()
    for named, told in (
        ("empty", "--llm 'empty' holds no model (no config.json): give the folder"),
        ("no/such", "--llm: there is no folder 'no/such': give the folder"),
        ("./no", "--llm: there is no folder './no': give the folder"),
        ("~/no", "--llm: there is no folder '~/no': give the folder"),
        ("gpt", "--llm 'gpt' is neither a URL nor a folder: give the folder"),
    ):
        with pytest.raises(InputError) as raised:
            llm_config([named])
        assert str(raised.value).startswith(told)
    with pytest.raises(InputError, match=r"^--judge 'gpt'"):
        llm_config(["gpt"], "--judge")
