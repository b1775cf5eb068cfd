"""`vllm_worker` with the stand-in for vLLM: no server, and so by another name (tests/tiers.py)."""

import os
import runpy
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
runpy.run_path(os.environ["FAKE_VLLM_WORKER"], run_name="__main__")
