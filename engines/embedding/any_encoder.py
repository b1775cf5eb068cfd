"""Any embedding model that sentence-transformers can load."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from .encoder import Tokens, Vector, without_special
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
        tokenizer: Any = self._model.tokenizer
        self.tokenizer = _counting(tokenizer)
        self._special = np.array(sorted({*tokenizer.all_special_ids} - {tokenizer.unk_token_id}))
        self.dimensions = int(self._model.get_embedding_dimension() or 0)
        self.max_tokens = int(min(self._model.max_seq_length or 512, 1 << 20))
        self.asymmetric = any(self._model.prompts.values())
        self._model.eval()
        for one in self._model.parameters():
            one.sum()  # else, mapped, they would be read from the disk one by one by queries

    def embed(self, texts: Sequence[str], role: str) -> Vector:
        """As the model's own modules make it."""
        run = self._model.encode_query if role == "query" else self._model.encode_document
        raw: Any = run(
            list(texts), batch_size=len(texts), show_progress_bar=False, convert_to_tensor=True
        )
        found: Vector = raw.float().cpu().numpy()
        return found

    def embed_tokens(self, texts: Sequence[str]) -> list[Tokens]:
        """Those of all but the special tokens."""
        outputs: Any = self._model.encode(
            list(texts), batch_size=len(texts), show_progress_bar=False, output_value=None
        )
        return [self._tokens(output) for output in outputs]

    def _tokens(self, output: dict[str, Any]) -> Tokens:
        ids, mask = output["input_ids"].cpu().numpy(), output["attention_mask"].cpu().numpy()
        vectors = output["token_embeddings"].float().cpu().numpy()
        return without_special(ids, mask, vectors, self._special)


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
