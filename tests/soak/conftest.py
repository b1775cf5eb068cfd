"""What all of the soak needs."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator

import pytest

from experiments.common.tiny_model import make_model
from tests.soak.server import SERVED, Server, serving
from tests.soak.stopping import DRAIN_S

OWN = ("null", "narrow", "slow", "flood", "scribe", "steady")


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Clients that a test leaves open are gone before another test can be blamed for them."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="module")
def server(servers: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server of everything, on the real default engines and a small random model."""
    folder = tmp_path_factory.mktemp("model")
    make_model(folder, hidden=64, layers=2, heads=2, vocabulary=1024)
    config = folder / "teola.toml"
    config.write_text(f"[server]\ndrain_s = {DRAIN_S}\n")
    own = [f"{SERVED}:{name}" for name in OWN]
    options, given = ("--config", str(config)), {"SOAK_MODEL": str(folder)}
    with serving("naive-rag", *own, store=True, options=options, environment=given) as found:
        yield found
