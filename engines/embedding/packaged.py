"""The packaged MiniLM in plain PyTorch.

sentence-transformers computes the same vectors, but importing it takes several times as long as
importing torch, and nearly everybody who starts Teola waits for this one model (decision 0015).
Nor does it pad: the tokens of the texts of a pass stand one after the other, and only attention
tells the texts apart (decision 0017).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn.functional import (
    embedding,
    gelu,
    layer_norm,
    linear,
    scaled_dot_product_attention,
)

from .encoder import EncodedText, Vector, without_special
from .packing import packed, room_of

MAX_TOKENS: Final = 256
"""Its `max_seq_length`: longer texts were not trained."""
ATTENTION: Final = ("query", "key", "value")
SPECIAL: Final = ("[PAD]", "[CLS]", "[SEP]", "[MASK]")

_Run = tuple[int, int]
"""Texts of equal length side by side: tokens of each, and how many they are."""


class PackagedEncoder:
    """An `Encoder`. folder: holds its files. dtype: a name in torch. Raises OSError, KeyError,
    ValueError, RuntimeError or SafetensorError for files that are not those of a BERT."""

    max_tokens = MAX_TOKENS
    asymmetric = False
    pooling = "mean"

    def __init__(self, folder: Path, dtype: str, device: str) -> None:
        config = json.loads((folder / "config.json").read_text())
        self.dimensions = int(config["hidden_size"])
        precision = getattr(torch, dtype)
        mapped = load_file(folder / "model.safetensors")  # copied, else queries read from the disk
        weights = {name: one.to(device, precision, copy=True) for name, one in mapped.items()}
        self._bert, self._room = _Bert(weights, config), room_of(device, dtype)
        file = str(folder / "tokenizer.json")
        self.tokenizer, self._cutting = Tokenizer.from_file(file), Tokenizer.from_file(file)
        for one in (self.tokenizer, self._cutting):
            one.no_padding()
        self.tokenizer.no_truncation()
        self._cutting.enable_truncation(MAX_TOKENS)
        self._special = np.array([self.tokenizer.token_to_id(token) for token in SPECIAL])

    def embed(
        self, texts: Sequence[str], role: str, batch: int
    ) -> Iterator[tuple[list[int], Vector]]:
        """The mean of the vectors of each text's tokens."""
        for some, _, hidden in self._passes(texts, batch):
            means = [one.float().mean(1) for one in hidden]
            yield some, torch.cat(means).cpu().numpy()

    def embed_tokens(
        self, texts: Sequence[str], batch: int
    ) -> Iterator[tuple[list[int], list[EncodedText]]]:
        """Those of all but the special tokens."""
        for some, ids, hidden in self._passes(texts, batch):
            vectors = (one for same in hidden for one in same.float().cpu().numpy())
            each = zip(ids, vectors, strict=True)
            yield some, [without_special(np.array(a), b, self._special) for a, b in each]

    def _passes(
        self, texts: Sequence[str], batch: int
    ) -> Iterator[tuple[list[int], list[list[int]], list[Tensor]]]:
        """Of each pass: which texts, their ids, and the vectors of their tokens, the texts of
        equal length together, [texts, tokens, d]."""
        ids = self._ids(texts)
        for some in packed([len(one) for one in ids], batch, self._room):
            chosen = [ids[i] for i in some]
            yield some, chosen, self._bert(chosen)

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids with the special ones, cut at `MAX_TOKENS`."""
        return [one.ids for one in self._cutting.encode_batch(list(texts))]


class _Dense:
    """y = x W' + b of the weights so called."""

    def __init__(self, weights: Mapping[str, Tensor], *names: str) -> None:
        self.weight = torch.cat([weights[f"{name}.weight"] for name in names])
        self.bias = torch.cat([weights[f"{name}.bias"] for name in names])

    def __call__(self, given: Tensor) -> Tensor:
        return linear(given, self.weight, self.bias)


class _Norm:
    """Layer normalisation with the weights so called."""

    def __init__(self, weights: Mapping[str, Tensor], name: str, eps: float) -> None:
        self.weight, self.bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
        self.eps = eps

    def __call__(self, given: Tensor) -> Tensor:
        return layer_norm(given, given.shape[-1:], self.weight, self.bias, self.eps)


class _Bert:
    """Devlin et al., NAACL 2019, section 3: the encoder of Vaswani et al. (NeurIPS 2017) over the
    sums of what stands for a token, its place and its segment (always the first)."""

    def __init__(self, weights: Mapping[str, Tensor], config: Mapping[str, Any]) -> None:
        self.words = weights["embeddings.word_embeddings.weight"]
        segments = weights["embeddings.token_type_embeddings.weight"]
        self.places = weights["embeddings.position_embeddings.weight"] + segments[0]
        self.norm = _Norm(weights, "embeddings.LayerNorm", config["layer_norm_eps"])
        self.layers = [_Layer(weights, config, i) for i in range(config["num_hidden_layers"])]

    @torch.inference_mode()
    def __call__(self, texts: Sequence[Sequence[int]]) -> list[Tensor]:
        """texts: their ids, those of equal length side by side. The vectors of tokens, of all texts
        of one length together, [texts, tokens, d]."""
        device = self.words.device
        runs = [(n, len(list(same))) for n, same in groupby(map(len, texts))]
        ids = torch.tensor([one for text in texts for one in text], device=device)
        places = torch.tensor([i for text in texts for i in range(len(text))], device=device)
        found = self.norm(embedding(ids, self.words) + embedding(places, self.places))
        for layer in self.layers:
            found = layer(found, runs)
        return [
            one.view(count, n, -1)
            for one, (n, count) in zip(found.split_with_sizes(_rows(runs)), runs, strict=True)
        ]


class _Layer:
    """Attention and two dense layers with GELU, each normalised after what it adds."""

    def __init__(self, weights: Mapping[str, Tensor], config: Mapping[str, Any], i: int) -> None:
        at, eps = f"encoder.layer.{i}", config["layer_norm_eps"]
        self.heads = config["num_attention_heads"]
        self.attend = _Dense(weights, *(f"{at}.attention.self.{n}" for n in ATTENTION))
        self.join = _Dense(weights, f"{at}.attention.output.dense")
        self.norm1 = _Norm(weights, f"{at}.attention.output.LayerNorm", eps)
        self.widen = _Dense(weights, f"{at}.intermediate.dense")
        self.narrow = _Dense(weights, f"{at}.output.dense")
        self.norm2 = _Norm(weights, f"{at}.output.LayerNorm", eps)

    def __call__(self, given: Tensor, runs: Sequence[_Run]) -> Tensor:
        """given: the tokens of all texts, [tokens, d]."""
        three = self.attend(given).split_with_sizes(_rows(runs))
        attended = [self._attended(one, run) for one, run in zip(three, runs, strict=True)]
        found = self.norm1(given + self.join(torch.cat(attended)))
        return self.norm2(found + self.narrow(gelu(self.widen(found))))

    def _attended(self, three: Tensor, run: _Run) -> Tensor:
        """What the tokens of each text see in that text. three: [tokens, 3 d]."""
        n, count = run
        each = three.view(count, n, len(ATTENTION), self.heads, -1).permute(2, 0, 3, 1, 4)
        return scaled_dot_product_attention(*each).transpose(1, 2).reshape(count * n, -1)


def _rows(runs: Sequence[_Run]) -> list[int]:
    return [n * count for n, count in runs]
