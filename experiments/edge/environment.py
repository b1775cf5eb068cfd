"""The environment of the peer `litellm`, with the same `openai` as ours."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Final

from experiments.common import environments

LITELLM: Final = "1.110"


def python() -> Path:
    """Its interpreter; it is made if need be. Raises NotMade."""
    wanted = (f"litellm=={LITELLM}.*", f"openai=={version('openai')}")
    return environments.python("edge", wanted)


def installed() -> str:
    """The version of litellm in it. Raises NotMade."""
    return environments.installed(python(), "litellm")


def variables(root: Path) -> dict[str, str]:
    """The environment's variables of a client: no proxy, nothing fetched, the experiment's code."""
    return environments.variables(root) | {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
