"""Where a vLLM is installed."""

from __future__ import annotations

import os

import pytest

from teola.errors import MissingExtra
from teola_engines.llm.vllm_process import find_python


@pytest.fixture(scope="session")
def python() -> str:
    """An interpreter with vLLM: a user may lack it, continuous integration may not."""
    try:
        return find_python("llm", None)
    except MissingExtra as missing:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(missing))
