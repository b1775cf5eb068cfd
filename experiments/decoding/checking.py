"""Do answers have the tokens that plain transformers gives, in float32?"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Final

from experiments.common.command import Report
from experiments.decoding.asking import ask, text_of
from teola_engines.llm import TransformersModel

LENGTHS: Final = (5, 400)
OUTPUT: Final = 24
AT_ONCE: Final = 20
BLOCKS: Final = 160
"""Too few for all that is asked at once: some are preempted, and prefixes are evicted."""


def check(model: Path, prompts: int, seed: int) -> Report:
    """Each of the prompts, many at once, against the same prompt alone in `generate`."""
    engine = TransformersModel(
        model=model, dtype="float32", chat=False, max_sequences=AT_ONCE, kv_blocks=BLOCKS
    )
    engine.start()
    try:
        chance = random.Random(seed)
        texts = [text_of(engine, chance, chance.randint(*LENGTHS)) for _ in range(prompts)]
        answers = ask(engine, texts, OUTPUT)
    finally:
        engine.close()
    plain = Plain(model, "float32")
    equal = sum(
        plain.answers([text], OUTPUT)[0] == one.text
        for text, one in zip(texts, answers, strict=True)
    )
    return {"prompts": prompts, "equal": equal, "output_tokens": OUTPUT}


class Plain:
    """The model as transformers runs it."""

    def __init__(self, model: Path, dtype: str) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        device = "cuda" if torch.cuda.is_available() else "cpu"
        loaded: Any = AutoModelForCausalLM.from_pretrained(model, dtype=getattr(torch, dtype))
        self._model = loaded.to(device).eval()
        self._tokenizer: Any = AutoTokenizer.from_pretrained(model, padding_side="left")

    def answers(self, texts: list[str], output: int) -> list[str]:
        """All in one batch; `output` tokens of each."""
        import torch

        found = self._tokenizer(texts, return_tensors="pt", padding=True).to(self._model.device)
        with torch.inference_mode():
            tokens = self._model.generate(
                input_ids=found["input_ids"],
                attention_mask=found["attention_mask"],
                min_new_tokens=output,
                max_new_tokens=output,
                do_sample=False,
            )
        fresh = tokens[:, found["input_ids"].shape[1] :]
        return [self._tokenizer.decode(one, skip_special_tokens=True) for one in fresh]
