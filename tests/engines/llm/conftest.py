"""What the tests of language models share."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.common.tiny_model import make_model


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
