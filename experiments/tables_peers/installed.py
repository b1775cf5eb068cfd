"""Which systems there are, and where each is installed: ours and plain asyncio here, the others in
environments of their own."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, NamedTuple

from experiments.common import environments
from experiments.common.environments import NotMade

OURS: Final = "teola"
ASYNCIO: Final = "asyncio"
NO_WHEEL: Final = "--only-binary=polar-llama"
"""There its source would be built, which takes Rust's tools and its registry."""


class Peer(NamedTuple):
    """package: whose version is told. wanted: what pip is given. least: version of its Python."""

    package: str
    wanted: tuple[str, ...]
    least: tuple[int, int] = (3, 0)


def _torch() -> tuple[str, ...]:
    """The torch that is here, if any: what pip would choose may be gigabytes for GPUs."""
    try:
        return (f"torch=={version('torch')}",)
    except PackageNotFoundError:
        return ()


PEERS: Final = {
    "daft": Peer("daft", ("daft[openai]==0.7.26",)),
    "docetl": Peer("docetl", ("docetl==0.3.0",)),
    "lotus": Peer("lotus-ai", ("lotus-ai==1.2.4", *_torch())),
    # Its metadata say Python 3.10, but it imports a name of `typing` that came with 3.12.
    "palimpzest": Peer("palimpzest", ("palimpzest==0.9.0",), least=(3, 12)),
    "polar_llama": Peer("polar-llama", (NO_WHEEL, "polar-llama==0.9.1")),
    "ray_data": Peer("ray", ("ray[data]==2.60.0", "aiohttp", "pydantic")),
}
SYSTEMS: Final = (OURS, ASYNCIO, *PEERS)


class Installed(NamedTuple):
    """version: or why there is none. python: of its environment, or None."""

    version: str
    python: Path | None


def find(system: str) -> Installed:
    """A system where it is installed; its environment is made if need be."""
    if system == OURS:
        return Installed(version("teola"), Path(sys.executable))
    if system == ASYNCIO:
        return Installed(f"openai {version('openai')}", Path(sys.executable))
    peer = PEERS[system]
    try:
        python = environments.python(f"tables_peers-{system}", peer.wanted, peer.least)
    except NotMade as error:
        return Installed(f"not installed: {error}", None)
    return Installed(environments.installed(python, peer.package), python)
