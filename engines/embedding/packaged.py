"""The packaged MiniLM in plain PyTorch.

sentence-transformers computes the same vectors, but importing it takes several times as long as
importing torch, and nearly everybody who starts Teola waits for this one model (decision 0015).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
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

from .encoder import Tokens, Vector, without_special

MAX_TOKENS: Final = 256
"""Its `max_seq_length`: longer texts were not trained."""
ATTENTION: Final = ("query", "key", "value")
SPECIAL: Final = ("[PAD]", "[CLS]", "[SEP]", "[MASK]")


class PackagedEncoder:
    """An `Encoder`. folder: holds its files. dtype: a name in torch. Raises OSError, KeyError,
    ValueError, RuntimeError or SafetensorError for files that are not those of a BERT."""

    max_tokens = MAX_TOKENS
    asymmetric = False

    def __init__(self, folder: Path, dtype: str, device: str) -> None:
        config = json.loads((folder / "config.json").read_text())
        self.dimensions = int(config["hidden_size"])
        precision = getattr(torch, dtype)
        mapped = load_file(folder / "model.safetensors")  # copied, else queries read from the disk
        weights = {name: one.to(device, precision, copy=True) for name, one in mapped.items()}
        self._bert, self._device = _Bert(weights, config), device
        file = str(folder / "tokenizer.json")
        self.tokenizer, self._padding = Tokenizer.from_file(file), Tokenizer.from_file(file)
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self._padding.enable_truncation(MAX_TOKENS)
        self._padding.enable_padding(pad_id=self.tokenizer.token_to_id("[PAD]"), pad_token="[PAD]")
        self._special = np.array([self.tokenizer.token_to_id(token) for token in SPECIAL])

    def embed(self, texts: Sequence[str], role: str) -> Vector:
        """The mean of the vectors of each text's tokens."""
        _, mask, hidden = self._forward(texts)
        weight = mask[:, :, None].to(hidden.dtype)
        mean = (hidden * weight).sum(1) / weight.sum(1)
        found: Vector = mean.float().cpu().numpy()
        return found

    def embed_tokens(self, texts: Sequence[str]) -> list[Tokens]:
        """Those of all but the special tokens."""
        ids, mask, hidden = self._forward(texts)
        vectors = hidden.float().cpu().numpy()
        every = zip(ids.cpu().numpy(), mask.cpu().numpy(), vectors, strict=True)
        return [without_special(*one, self._special) for one in every]

    def _forward(self, texts: Sequence[str]) -> tuple[Tensor, Tensor, Tensor]:
        """Ids and mask, [texts, longest], and the vectors of tokens, [texts, longest, d]."""
        found = self._padding.encode_batch(list(texts))
        with torch.inference_mode():
            ids = torch.tensor([one.ids for one in found], device=self._device)
            mask = torch.tensor([one.attention_mask for one in found], device=self._device)
            return ids, mask, self._bert(ids, mask)


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

    def __call__(self, ids: Tensor, mask: Tensor) -> Tensor:
        """ids, mask: [texts, longest]; the vectors of tokens, [texts, longest, d]."""
        found = self.norm(embedding(ids, self.words) + self.places[: ids.shape[1]])
        seen = None if bool(mask.all()) else mask[:, None, None, :].bool()
        for layer in self.layers:
            found = layer(found, seen)
        return found


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

    def __call__(self, given: Tensor, seen: Tensor | None) -> Tensor:
        """given: [texts, longest, d]. seen: [texts, 1, 1, longest], where there is a token."""
        three = self.attend(given).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = scaled_dot_product_attention(*three, attn_mask=seen)
        found = self.norm1(given + self.join(attended.transpose(1, 2).flatten(2)))
        return self.norm2(found + self.narrow(gelu(self.widen(found))))
