"""A real Llama that answers every prompt alike: for what depends on the answer, not on the model.

Its layers compute and add nothing, so that a token's logits follow from the token before it alone.
The answer's pieces are tokens of their own, each of which is followed by the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.common.tiny_model import make_model


def make_scripted_model(folder: Path, pieces: Sequence[str], **shape: Any) -> Path:
    """Write to `folder` a model that answers "".join(pieces), then ends. The pieces must differ
    from one another."""
    import torch
    from tokenizers import AddedToken
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if len(set(pieces)) < len(pieces):
        raise ValueError("the pieces must differ: each is a token, which knows only its follower")
    make_model(folder, **{"hidden": 128, "layers": 2, "heads": 4, "vocabulary": 512, **shape})
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer.add_tokens([AddedToken(piece, normalized=False) for piece in pieces])
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    chain = [*tokenizer.convert_tokens_to_ids(list(pieces)), tokenizer.eos_token_id]
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        known, output = model.get_input_embeddings().weight, model.lm_head.weight
        chance = torch.Generator().manual_seed(0)
        known.normal_(generator=chance)
        known /= known.norm(dim=1, keepdim=True)
        output.zero_()
        others = torch.ones(len(known), dtype=torch.bool)
        others[chain[:-1]] = False
        known[others] = known[chain[-1]].clone()  # whatever ends a prompt is followed alike
        for before, after in zip([chain[-1], *chain], chain, strict=False):
            output[after] += known[before]
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
