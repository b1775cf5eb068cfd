"""What the tests of language models share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from experiments.common.tiny_model import make_model
from teola.errors import MissingExtra
from teola_engines.llm.vllm_process import find_python


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama, small enough to be quick, without a chat template."""
    folder = tmp_path_factory.mktemp("model")
    return make_model(folder, hidden=64, layers=2, heads=2, vocabulary=1024)


@pytest.fixture(scope="session")
def chat_model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with a chat template."""
    folder = tmp_path_factory.mktemp("chat-model")
    return make_model(folder, hidden=64, layers=2, heads=2, vocabulary=1024, chat_template=True)


@pytest.fixture(scope="session")
def python() -> str:
    """An interpreter with vLLM: a user may lack it, continuous integration may not."""
    try:
        return find_python("llm", None)
    except MissingExtra as missing:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(missing))
