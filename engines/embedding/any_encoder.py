"""Any embedding model that sentence-transformers can load."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from .encoder import EncodedText, Vector, without_special
from .packing import PADDED_ON_CPU, by_length
from .weights import quiet


class AnyEncoder:
    """An `Encoder`. folder: holds its files. dtype: a name in torch. Raises OSError, ValueError,
    LookupError, RuntimeError, ImportError or SafetensorError for what it cannot load."""

    def __init__(self, folder: Path, dtype: str, device: str) -> None:
        with quiet():
            self._model = SentenceTransformer(
                str(folder),
                device=device,
                local_files_only=True,
                model_kwargs={"dtype": getattr(torch, dtype)},
            )
        self._device = device
        tokenizer: Any = self._model.tokenizer
        self.tokenizer = _counting(tokenizer)
        self._special = np.array(sorted({*tokenizer.all_special_ids} - {tokenizer.unk_token_id}))
        self.dimensions = int(self._model.get_embedding_dimension() or 0)
        self.max_tokens = int(min(self._model.max_seq_length or 512, 1 << 20))
        self.asymmetric = any(self._model.prompts.values())
        self.pooling = _pooling(self._model)
        self._model.eval()
        for one in self._model.parameters():
            one.sum()  # else, mapped, they would be read from the disk one by one by queries

    def embed(
        self, texts: Sequence[str], role: str, batch: int
    ) -> Iterator[tuple[list[int], Vector]]:
        """As the model's own modules make it."""
        run = self._model.encode_query if role == "query" else self._model.encode_document
        for some in self._passes(texts, batch):
            raw: Any = run(
                [texts[i] for i in some],
                batch_size=len(some),
                show_progress_bar=False,
                convert_to_tensor=True,
            )
            yield some, raw.float().cpu().numpy()

    def embed_tokens(
        self, texts: Sequence[str], batch: int
    ) -> Iterator[tuple[list[int], list[EncodedText]]]:
        """Those of all but the special tokens."""
        for some in self._passes(texts, batch):
            outputs: Any = self._model.encode(
                [texts[i] for i in some],
                batch_size=len(some),
                show_progress_bar=False,
                output_value=None,
            )
            yield some, [self._tokens(output) for output in outputs]

    def _passes(self, texts: Sequence[str], batch: int) -> Iterator[list[int]]:
        size = min(batch, PADDED_ON_CPU) if self._device == "cpu" else batch
        return by_length(texts, size)

    def _tokens(self, output: dict[str, Any]) -> EncodedText:
        seen = output["attention_mask"].cpu().numpy() == 1
        ids = output["input_ids"].cpu().numpy()[seen]
        vectors = output["token_embeddings"].float().cpu().numpy()[seen]
        return without_special(ids, vectors, self._special)


def _pooling(model: SentenceTransformer) -> str:
    modes = (getattr(module, "pooling_mode", None) for module in model)
    mode = next(filter(None, modes), "")
    return mode if isinstance(mode, str) else "+".join(mode)


def _counting(tokenizer: Any) -> Any:
    """A copy of the fast tokenizer that never truncates or pads.

    A copy, because switching truncation on the shared one while another thread encodes with it
    raises "Already borrowed".
    """
    from tokenizers import Tokenizer

    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ValueError("its tokenizer has no fast (Rust) version")
    copy = Tokenizer.from_str(backend.to_str())
    copy.no_truncation()
    copy.no_padding()
    return copy
