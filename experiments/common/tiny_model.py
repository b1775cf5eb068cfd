"""Makes a small random Llama: real compute, meaningless text, no download.

    python -m experiments.common.tiny_model FOLDER [--hidden 768] [--layers 12] [--chat-template]

The defaults give 83 M parameters. The tokenizer is a byte-level BPE trained on Python's own
language reference, which every interpreter carries, so the same seed gives the same model wherever
the same Python runs. The folder loads in transformers and in vLLM.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import LlamaConfig

BOS, EOS, PAD, TURN, END = SPECIAL = ("<s>", "</s>", "<pad>", "<|im_start|>", "<|im_end|>")
MAX_POSITIONS = 8192
CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    f"{TURN}{{{{ message['role'] }}}}\n{{{{ message['content'] }}}}{END}\n"
    "{% endfor %}"
    f"{{% if add_generation_prompt %}}{TURN}assistant\n{{% endif %}}"
)


def make_model(
    folder: Path | str,
    *,
    hidden: int = 768,
    layers: int = 12,
    heads: int = 12,
    vocabulary: int = 8192,
    positions: int = MAX_POSITIONS,
    kv_heads: int | None = None,
    intermediate: int | None = None,
    dtype: str = "float32",
    device: str = "cpu",
    seed: int = 0,
    chat_template: bool = False,
) -> Path:
    """Write the model (safetensors) and its tokenizer to `folder`; returns the folder.

    hidden must be a multiple of 2 * heads (rotary embeddings), vocabulary above 300. positions:
    most tokens of a prompt with its answer. kv_heads, intermediate: by default `heads` and twice
    `hidden`. dtype: of the weights in the file. device: where they are drawn; another one draws
    other weights. The weights are larger than a trainer would begin with, so that every token
    depends on the whole prompt.
    """
    import torch
    from transformers import LlamaForCausalLM

    if hidden % (2 * heads) or vocabulary <= 300:
        raise ValueError("hidden must be a multiple of 2 * heads, and vocabulary above 300")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer(vocabulary, positions, chat_template)
    config = _config(tokenizer, hidden, layers, heads, vocabulary, positions)
    config.num_key_value_heads = kv_heads or heads
    config.intermediate_size = intermediate or 2 * hidden
    with torch.random.fork_rng(), torch.device(device):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    model.to(getattr(torch, dtype)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _config(
    tokenizer: Any, hidden: int, layers: int, heads: int, vocabulary: int, positions: int
) -> LlamaConfig:
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        max_position_embeddings=positions,
        initializer_range=hidden**-0.5,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )


def _tokenizer(vocabulary: int, positions: int, chat_template: bool) -> Any:
    """A fast tokenizer, as transformers saves it; it puts BOS before a text by default."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(_texts(), trainer)
    bpe.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A $B", special_tokens=[(BOS, bpe.token_to_id(BOS))]
    )
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=bpe,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=PAD,
        additional_special_tokens=[TURN, END],
        chat_template=CHAT_TEMPLATE if chat_template else None,
        model_max_length=positions,
        clean_up_tokenization_spaces=False,
    )


def _texts() -> Iterator[str]:
    """Half a megabyte of English with some code in it."""
    from pydoc_data.topics import topics

    for name in sorted(topics):
        yield from topics[name].splitlines(keepends=True)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Make a small random Llama.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--chat-template", action="store_true")
    print(make_model(**vars(parser.parse_args(argv))))


if __name__ == "__main__":
    main()
