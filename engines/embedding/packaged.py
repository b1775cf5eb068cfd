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
from torch import Tensor, nn
from torch.nn import functional

from .encoder import Tokens, Vector, without_special

MAX_TOKENS: Final = 256
"""Its `max_seq_length`: longer texts were not trained."""
SPECIAL: Final = ("[PAD]", "[CLS]", "[SEP]", "[MASK]")


class PackagedEncoder:
    """An `Encoder`. folder: holds its files. dtype: a name in torch. Raises OSError, KeyError,
    ValueError, RuntimeError or SafetensorError for files that are not those of a BERT."""

    max_tokens = MAX_TOKENS
    asymmetric = False

    def __init__(self, folder: Path, dtype: str, device: str) -> None:
        config = json.loads((folder / "config.json").read_text())
        self.dimensions = int(config["hidden_size"])
        with torch.device("meta"):  # weights are not made up first
            self._net = _Bert(config)
        weights = _renamed(load_file(folder / "model.safetensors"), config["num_hidden_layers"])
        self._net.load_state_dict(weights, assign=True)
        self._net.to(device, getattr(torch, dtype)).eval().requires_grad_(False)
        for one in self._net.parameters():
            one.sum()  # else, mapped, they would be read from the disk one by one by queries
        self._device = device
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

    @torch.inference_mode()
    def _forward(self, texts: Sequence[str]) -> tuple[Tensor, Tensor, Tensor]:
        """Ids and mask, [texts, longest], and the vectors of tokens, [texts, longest, d]."""
        found = self._padding.encode_batch(list(texts))
        ids = torch.tensor([one.ids for one in found], device=self._device)
        mask = torch.tensor([one.attention_mask for one in found], device=self._device)
        return ids, mask, self._net(ids, mask)


class _Bert(nn.Module):
    """Devlin et al., NAACL 2019, section 3: the encoder of Vaswani et al. (NeurIPS 2017) over the
    sums of what stands for a token, its place and its segment (always the first)."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        width = config["hidden_size"]
        self.words = nn.Embedding(config["vocab_size"], width)
        self.places = nn.Embedding(config["max_position_embeddings"], width)
        self.segments = nn.Embedding(config["type_vocab_size"], width)
        self.norm = nn.LayerNorm(width, config["layer_norm_eps"])
        self.layers = nn.ModuleList(_Layer(config) for _ in range(config["num_hidden_layers"]))

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """ids, mask: [texts, longest]; the vectors of tokens, [texts, longest, width]."""
        where = self.places.weight[: ids.shape[1]] + self.segments.weight[0]
        found: Tensor = self.norm(self.words(ids) + where)
        seen = None if bool(mask.all()) else mask[:, None, None, :].bool()
        for layer in self.layers:
            found = layer(found, seen)
        return found


class _Layer(nn.Module):
    """Attention and two dense layers with GELU, each normalised after what it adds. (PyTorch's own
    TransformerEncoderLayer is this too, but on a CPU it writes all attention weights to memory.)"""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        width, wide = config["hidden_size"], config["intermediate_size"]
        self.heads = config["num_attention_heads"]
        self.attend, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm1 = nn.LayerNorm(width, config["layer_norm_eps"])
        self.widen, self.narrow = nn.Linear(width, wide), nn.Linear(wide, width)
        self.norm2 = nn.LayerNorm(width, config["layer_norm_eps"])

    def forward(self, given: Tensor, seen: Tensor | None) -> Tensor:
        """given: [texts, longest, width]. seen: [texts, 1, 1, longest], where there is a token."""
        three = self.attend(given).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(*three, attn_mask=seen)
        found = self.norm1(given + self.join(attended.transpose(1, 2).flatten(2)))
        last: Tensor = self.norm2(found + self.narrow(functional.gelu(self.widen(found))))
        return last


def _renamed(weights: Mapping[str, Tensor], layers: int) -> dict[str, Tensor]:
    """From the names of transformers' BertModel to those here."""
    found = {
        "words.weight": weights["embeddings.word_embeddings.weight"],
        "places.weight": weights["embeddings.position_embeddings.weight"],
        "segments.weight": weights["embeddings.token_type_embeddings.weight"],
    }
    for kind in ("weight", "bias"):
        found[f"norm.{kind}"] = weights[f"embeddings.LayerNorm.{kind}"]
        for i in range(layers):
            here, there = f"layers.{i}", f"encoder.layer.{i}"
            three = [weights[f"{there}.attention.self.{n}.{kind}"] for n in _ATTENTION]
            found[f"{here}.attend.{kind}"] = torch.cat(three)
            for ours, theirs in _LAYER.items():
                found[f"{here}.{ours}.{kind}"] = weights[f"{there}.{theirs}.{kind}"]
    return found


_ATTENTION: Final = ("query", "key", "value")
_LAYER: Final = {
    "join": "attention.output.dense",
    "norm1": "attention.output.LayerNorm",
    "widen": "intermediate.dense",
    "narrow": "output.dense",
    "norm2": "output.LayerNorm",
}
