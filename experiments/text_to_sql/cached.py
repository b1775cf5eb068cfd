"""How much of its prompts text-to-sql finds in the prefix cache of a real vLLM.

    python -m experiments.text_to_sql.cached [--questions N] [--json]

The model is small and random, so what it writes is no SQL: every candidate is repaired once and
then given up, and nothing is said about answers. The counts are vLLM's own. It needs `make vllm`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from experiments.common.tiny_model import make_model
from experiments.text_to_sql import demo
from teola import EngineConfig
from teola.runtime.hosts.model_server import ModelServer, ServerOptions
from teola.runtime.observe.trace import Trace, scopes
from teola.testing import running
from teola_apps.text_to_sql import app
from teola_engines.llm import VLLMServer

KINDS: Final = ("first candidate", "second candidate", "repair", "answer")
ASKED: Final = (
    "Which boat stayed for the most nights in {}?",
    "What was paid in all for berth {}?",
    "How many boats longer than {} metres come from each port?",
    "Which kinds of boat were here on {} days or more?",
)


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser("experiments.text_to_sql.cached", description=__doc__)
    parser.add_argument("--questions", type=int, default=8, help="asked one after another")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    options = parser.parse_args(argv)
    rows = measure(options.questions)
    if options.json:
        print(json.dumps({"rows": rows}, indent=1))
    else:
        for row in rows:
            print(
                "{kind:16}  {calls:3} calls  {prompt_tokens:7,} tokens  {share:.1%}".format(**row)
            )
    return 0


def measure(questions: int) -> list[dict[str, Any]]:
    """A row a kind of call: calls, prompt tokens, cached ones, and the share of these."""
    counts = {kind: [0, 0, 0] for kind in KINDS}
    with tempfile.TemporaryDirectory(prefix="teola-cached-") as name:
        folder = Path(name)
        database = str(demo.make(folder / "harbour.db"))
        shape = {"hidden": 128, "layers": 3, "heads": 4, "vocabulary": 2048}
        tiny = make_model(folder / "tiny", chat_template=True, **shape)
        server = ServerOptions(str(tiny), port=0, dtype="float32", kv_gib=1)
        with ModelServer(server) as model:
            llm = EngineConfig(VLLMServer, {"url": model.url})
            values = EngineConfig("sql-databases", {"data_dir": str(folder / "values")})
            with running(app, {"llm": llm, "databases": values}, debug=False):
                for k in range(questions):
                    question = ASKED[k % len(ASKED)].format(k + 2)
                    result = app.run(question=question, database=database)
                    assert result.trace is not None
                    for kind, prompt, cached in calls(result.trace):
                        counts[kind][0] += 1
                        counts[kind][1] += prompt
                        counts[kind][2] += cached
    return [
        {
            "kind": kind,
            "calls": asked,
            "prompt_tokens": prompt,
            "cached_tokens": cached,
            "share": round(cached / prompt, 4),
        }
        for kind, (asked, prompt, cached) in counts.items()
        if prompt
    ]


def calls(trace: Trace) -> Iterator[tuple[str, int, int]]:
    """Kind, prompt tokens and cached ones of each call of the LLM."""
    for scope in scopes(trace):
        candidate, _, turn = scope.path.partition("/turn/")
        for usage in scope.trace.calls.values():
            if not turn:
                kind = "answer"
            elif turn != "1":
                kind = "repair"
            else:
                kind = "first candidate" if candidate == "candidate_1" else "second candidate"
            yield kind, usage.prompt_tokens, usage.cached_tokens


if __name__ == "__main__":
    sys.exit(main())
