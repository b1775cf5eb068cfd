"""What is not installed is named in one line, with the extra that brings it."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from teola.cli.given import Engines
from teola.config import read
from teola.errors import InputError, MissingExtra
from teola.extras import needs
from teola.runtime.engines import DEFAULTS, EngineConfig

SAYS = "engine 'x' needs the extra 'local' (no_such_module is missing): pip install 'teola[local]'"


def test_a_missing_module_is_named_with_its_extra() -> None:
    with pytest.raises(MissingExtra) as caught, needs("local", "engine 'x'"):
        import no_such_module.inside  # type: ignore[import-not-found]  # noqa: F401
    assert str(caught.value) == SAYS
    assert isinstance(caught.value, InputError)
    assert str(copy.copy(caught.value)) == SAYS, "it crosses processes"


def test_what_else_would_help_is_said_too() -> None:
    wanted = needs("local", "engine 'x'", otherwise="give a server")
    with pytest.raises(MissingExtra) as caught, wanted:
        import no_such_module  # noqa: F401
    assert str(caught.value) == f"{SAYS}, or give a server"


def test_a_bug_of_our_own_is_none_of_it() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"teola\.no_such"), needs("local", "engine 'x'"):
        import teola.no_such  # type: ignore[import-not-found]  # noqa: F401
    with pytest.raises(ImportError, match="nothing_like_it"), needs("local", "engine 'x'"):
        from teola.errors import nothing_like_it  # type: ignore[attr-defined]  # noqa: F401


# --- what is used in the place of an extra ------------------------------------------------------


def test_an_embedding_server_by_url() -> None:
    found = Engines(embedding=("http://e/v1",), dimensions=12, dsn="postgresql://d").configs(
        DEFAULTS
    )
    assert found["embedding"] == EngineConfig("openai-embedding", {"url": "http://e/v1"})
    assert found["vectorstore"].options == {"dsn": "postgresql://d", "dimensions": 12}
    found["embedding"].recipe("embedding")


def test_another_model_here() -> None:
    found = Engines(embedding=("my/model",)).configs(DEFAULTS)
    assert found["embedding"] == EngineConfig("embedding", {"model": "my/model"})


def test_an_embedding_server_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "teola.toml"
    file.write_text("""
        [engines.embedding]
        type = "openai-embedding"
        options = { url = "http://e/v1", model = "m", api_key = "${EMBEDDING_KEY}" }
    """)
    monkeypatch.setenv("EMBEDDING_KEY", "secret")
    found = read(file)
    found.check()
    options = {"url": "http://e/v1", "model": "m", "api_key": "secret"}
    assert found.engine_configs()["embedding"].options == options
