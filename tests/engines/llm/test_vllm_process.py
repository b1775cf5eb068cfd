"""Where a vLLM of our own runs: its environment, and the Python that has it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from teola.errors import MissingExtra
from teola_engines.llm import vllm_process

FAKE = Path(__file__).parents[2] / "fake_vllm"


def test_what_a_vllm_reads_from_its_environment(tmp_path: Path) -> None:
    common = {
        "PYTHONSAFEPATH": "1",
        "VLLM_CPU_KVCACHE_SPACE": "2",
        "VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
    }
    assert vllm_process.environment("an/id", 2, None) == common
    assert vllm_process.environment(str(tmp_path), 2, "0") == {
        **common,
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "0",
    }


def test_the_python_that_has_vllm_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, checkout = tmp_path / "here", tmp_path / "checkout"
    for folder in (here, checkout):
        (folder / ".venv-vllm" / "bin").mkdir(parents=True)
        (folder / ".venv-vllm" / "bin" / "python").touch()
    (tmp_path / "vllm").mkdir()
    monkeypatch.syspath_prepend(tmp_path)  # a folder of that name is none
    monkeypatch.chdir(here)
    monkeypatch.setattr(vllm_process, "PROJECT", checkout)
    with pytest.raises(MissingExtra) as caught:
        vllm_process.find_python("big", None)
    assert str(caught.value).startswith("engine 'big' ")
    assert str(caught.value).endswith(
        "run `make vllm`, or name the Python of an environment that has it (option python)"
    )
    (checkout / "pyproject.toml").touch()
    assert vllm_process.find_python("big", None) == str(checkout / ".venv-vllm/bin/python")
    (here / "pyproject.toml").touch()
    assert vllm_process.find_python("big", None) == str(here / ".venv-vllm/bin/python")
    (here / ".venv-vllm/bin/python").unlink()
    assert vllm_process.find_python("big", None) == str(checkout / ".venv-vllm/bin/python")
    monkeypatch.syspath_prepend(FAKE)
    assert vllm_process.find_python("big", None) == sys.executable
    assert vllm_process.find_python("big", sys.executable) == sys.executable
