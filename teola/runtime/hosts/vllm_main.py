"""Runs vLLM's server in this process, started as a file by ModelServer in vLLM's own environment.

    python vllm_main.py CORES BOUND ARGUMENTS...

CORES: such as 0-3,6, where all of it runs; empty: anywhere. BOUND: not empty if the server is to
end with the process that started it. The processes that vLLM spawns import this file first: that is
how they get tiles, too.
"""

from __future__ import annotations

import ctypes
import os
import platform
import runpy
import signal
import sys

PR_SET_PDEATHSIG = 1
SYS_ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA = 158, 0x1023, 18  # of Linux on x86_64


def allow_tiles() -> None:
    """Ask the kernel for the tiles (AMX) that vLLM computes attention in bfloat16 with. vLLM does
    not ask, and its workers die of an illegal instruction at their first prompt."""
    if sys.platform == "linux" and platform.machine() == "x86_64":
        ctypes.CDLL(None).syscall(SYS_ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)


def main(cores: str, bound: str, *arguments: str) -> None:
    if bound and sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if cores and sys.platform == "linux":
        spans = [span.split("-") for span in cores.split(",")]
        os.sched_setaffinity(0, {c for s in spans for c in range(int(s[0]), int(s[-1]) + 1)})
    del sys.path[0]  # this folder, whose files have names of others
    sys.argv = ["vllm", *arguments]
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__")


allow_tiles()
if __name__ == "__main__":
    main(*sys.argv[1:])
