"""What `explain` counts where the model runs: tokens of its own, and whole blocks of its cache."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from teola import Runtime, tables
from teola.engine import Call, EngineKind, EngineSpec, Keys
from teola.graph.ops import DECODES, PREFILLS
from teola.runtime.engines import EngineConfig
from teola.tables import table_estimates
from tests.planted import catches, edited


class Words:
    """A model whose tokens are words. It is never asked."""

    block_tokens = 1

    def __init__(self) -> None:
        self.spec = EngineSpec("llm", EngineKind.LLM, frozenset(PREFILLS | DECODES))

    def start(self) -> None: ...

    def close(self) -> None: ...

    async def prefill(self, call: Call) -> Any:
        raise NotImplementedError

    def generate(self, call: Call) -> Any:
        raise NotImplementedError

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def keys(self, call: Call, *, complete: bool = True) -> Keys:
        words = " ".join(part.text for part in call.parts).split()
        return Keys(len(words), tuple(words))


@catches(
    "instruction-as-values",
    "an instruction is taken to have as many characters a token as values have",
    edited(
        table_estimates._Estimator._estimate,
        "size.instruction * others",
        "length / size.characters * others",
    ),
)
def test_tokens_are_the_models_where_it_runs_and_else_characters_over_four() -> None:
    rows = [(f"aaaaaaaaa bbbbbbbbb {k % 4}", f"ccccccccc {k}") for k in range(40)]
    source = pa.table({"a": [a for a, _ in rows], "b": [b for _, b in rows]})
    query = tables.sql("SELECT LLM('I o u w y', a, b) FROM t", {"t": source}, answers=False)
    model = Words()
    with Runtime({"llm": EngineConfig(lambda: model)}, learn=False) as runtime:
        before = query.explain(runtime=runtime).stages[0]
        runtime.start(runtime.ensure(["llm"])).result()
        counted = query.explain(runtime=runtime).stages[0]
        model.block_tokens = 5
        in_blocks = query.explain(runtime=runtime).stages[0]
    # 5 words of the instruction, then `a:` and three words, then `b:` and two.
    assert counted.prompt_tokens == 40 * 12
    found = 39 * 5 + 36 * 4
    assert abs(counted.cached_tokens / found - 1) < 0.05
    assert counted.cached_tokens - in_blocks.cached_tokens == 39 * 2
    characters = sum(len(f"\na: {a}\nb: {b}") for a, b in rows) + 40 * len("I o u w y")
    assert before.prompt_tokens == round(characters / 4)
