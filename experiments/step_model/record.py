"""Records a run of a real engine for `python -m experiments.step_model --run`.

    python -m experiments.step_model.record FOLDER [--model FOLDER] [--python PYTHON] [--blocks N]
    python -m experiments.step_model.record FOLDER --engine transformers [--model FOLDER]

Requests with random prompts, of which no two begin alike, come at random: to a vLLM on one core, or
to the engine `transformers` in this process, on a GPU if there is one. `--blocks` leaves the engine
so many KV blocks; without it there is room for all that run at once. The same seed gives the same
requests, so a run with little memory can be predicted from one with enough.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from experiments.step_model.recording import Recording
from teola.errors import TeolaError
from teola_engines.llm.vllm_process import environment, find_python

MODEL: Final = Path(".teola/models/tiny-82m")
RECORDER: Final = Path(__file__).with_name("vllm_recorder.py")
KV_GIB: Final = 1


def recording(given: argparse.Namespace) -> Recording:
    """As the command line says."""
    kwargs: dict[str, Any] = {
        "model": str(given.model.resolve()),
        "dtype": "bfloat16",
        "block_size": 32,
        "max_model_len": 2048,
        "max_num_seqs": given.sequences,
        "max_num_batched_tokens": 1024,
    }
    if given.blocks:
        kwargs["num_gpu_blocks_override"] = given.blocks
    return Recording(
        str(given.folder.resolve()), kwargs, given.requests, given.rate, seed=given.seed
    )


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.step_model.record",
        description="Runs requests on a real engine and records when each was queued, begun and "
        "answered; on a vLLM in processor time, so that other work on the machine hardly matters.",
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the run is written there")
    parser.add_argument("--model", type=Path, default=MODEL, help=f"by default {MODEL}")
    parser.add_argument("--engine", choices=("vllm", "transformers"), default="vllm")
    parser.add_argument("--python", help="of an environment with vLLM; by default .venv-vllm's")
    parser.add_argument("--blocks", type=int, help="KV blocks of 32 tokens; by default plenty")
    parser.add_argument("--requests", type=int, default=Recording.requests)
    parser.add_argument("--rate", type=float, default=Recording.rate, help="requests a second")
    parser.add_argument("--sequences", type=int, default=32, help="that run at once, at most")
    parser.add_argument("--seed", type=int, default=Recording.seed)
    given = parser.parse_args(argv)
    if not given.model.is_dir():
        parser.error(f"there is no model in {given.model}: `make vllm` makes one")
    if given.engine == "transformers":
        from experiments.step_model import local_recorder

        local_recorder.record(recording(given), given.blocks)
    else:
        _record_vllm(given, parser)
    print(f"recorded {given.requests} requests: {given.folder}")


def _record_vllm(given: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    try:
        python = find_python("vLLM", given.python)
    except TeolaError as error:
        parser.error(str(error))
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    env |= environment(str(given.model), KV_GIB, "0")
    env |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "OMP_NUM_THREADS": "1"}
    told = json.dumps(asdict(recording(given)))
    subprocess.run([python, str(RECORDER)], input=told, text=True, env=env, check=True)


if __name__ == "__main__":
    main()
