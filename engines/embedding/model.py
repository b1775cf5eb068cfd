"""Loaded embedding models, one set of weights per process for everybody who needs them.

The embedding engine, the MaxSim reranker and the extractive reader all run the same MiniLM. They
`acquire` it here and `release` it when they close; whoever comes last frees the memory. Forward
passes of one model are serialised: two at a time on the same cores are slower than one after the
other, and the peak of memory is that of one batch.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from teola.errors import EngineError, EngineUnavailable, QueryCancelled

from ..importing import importing
from .weights import identify, locate, quiet

Vector = NDArray[np.float32]
Dtype = Literal["auto", "float32", "bfloat16"]
DTYPES = ("auto", "float32", "bfloat16")
CPU_FORWARD = 4

_Key = tuple[Path, str, str]


@dataclass(frozen=True, slots=True)
class Tokens:
    """One text as the model sees it: ids without special tokens, and a unit vector for each.

    ids: [n]; vectors: [n, dimensions], float32. Cut at the model's `max_tokens`.
    """

    ids: NDArray[np.int64]
    vectors: Vector


NO_TOKENS: Final = Tokens(np.zeros(0, np.int64), np.zeros((0, 0), np.float32))


def _always() -> bool:
    return True


@dataclass(slots=True)
class SharedModel:
    """A loaded sentence-transformers model.

    digest: SHA-256 of its files. asymmetric: it embeds queries and documents differently.
    """

    name: str
    digest: str
    dtype: str
    device: str
    model: Any
    tokenizer: Any
    dimensions: int
    max_tokens: int
    asymmetric: bool
    users: int = 1
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def identity(self) -> str:
        """Changes whenever the vectors would: model, digest of its files, dtype."""
        return f"{self.name}@{self.digest[:16]}:{self.dtype}"

    def encode(self, text: str) -> list[int]:
        """Token ids without special tokens and without truncation."""
        return encode(self.tokenizer, text)

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of many texts at once."""
        clean = [sanitise(text) for text in texts]
        found = self.tokenizer.encode_batch(clean, add_special_tokens=False)
        return [list(one.ids) for one in found]

    def embed(
        self,
        texts: Sequence[str],
        role: str = "document",
        batch: int = 32,
        wanted: Callable[[], bool] = _always,
    ) -> Vector:
        """One unit vector per text, [len(texts), dimensions], float32.

        role: "query" or "document", for models that embed them differently. wanted: asked between
        two forward passes. Raises QueryCancelled once it says no.
        """
        vectors = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        run = self.model.encode_query if role == "query" else self.model.encode_document
        with self._lock:
            for some in self._forwards(texts, batch, wanted):
                raw = run(
                    [sanitise(texts[i]) for i in some],
                    batch_size=batch,
                    show_progress_bar=False,
                    convert_to_tensor=True,
                )
                vectors[some] = raw.float().cpu().numpy()
        return _unit(vectors)

    def _forwards(
        self, texts: Sequence[str], batch: int, wanted: Callable[[], bool]
    ) -> Iterator[list[int]]:
        """Which texts go through the model together, the longest first.

        All are padded to the longest of them, and a processor, unlike a GPU, gains nothing from
        more: 32 chunks and 3 questions took a fifth less time in fours than in one piece.
        """
        size = min(batch, CPU_FORWARD) if self.device == "cpu" else batch
        order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
        for at in range(0, len(order), size):
            if not wanted():
                raise QueryCancelled("nobody waits for the rest of this batch")
            yield order[at : at + size]

    def embed_tokens(
        self, texts: Sequence[str], batch: int = 32, wanted: Callable[[], bool] = _always
    ) -> list[Tokens]:
        """The contextual vector of every token of every text, for late interaction. wanted: as for
        `embed`."""
        found: list[Tokens] = [NO_TOKENS] * len(texts)
        with self._lock:
            tokenizer = self.model.tokenizer
            special = np.array(sorted({*tokenizer.all_special_ids} - {tokenizer.unk_token_id}))
            for some in self._forwards(texts, batch, wanted):
                outputs = self.model.encode(
                    [sanitise(texts[i]) for i in some],
                    batch_size=batch,
                    show_progress_bar=False,
                    output_value=None,
                )
                for i, output in zip(some, outputs, strict=True):
                    found[i] = _tokens(output, special)
        return found


def encode(tokenizer: Any, text: str) -> list[int]:
    """Token ids without special tokens and without truncation."""
    return list(tokenizer.encode(sanitise(text), add_special_tokens=False).ids)


_models: dict[_Key, SharedModel] = {}
_loading = threading.RLock()


def acquire(
    model: str | None = None,
    dtype: Dtype = "auto",
    device: str | None = None,
    threads: int | None = None,
) -> SharedModel:
    """The model, loaded unless another user has it already; `release` it when done.

    threads: cores that torch may use, a setting of the whole process. Raises EngineUnavailable,
    with one line that says what to do, if it cannot be loaded.
    """
    if dtype not in DTYPES:
        raise EngineUnavailable(
            f"unknown dtype {dtype!r} (valid: {', '.join(DTYPES)})", retryable=False
        )
    with _loading:
        _import_torch(threads)
        where = device or _default_device()
        folder = locate(model)
        key = (folder, best_dtype(where) if dtype == "auto" else dtype, where)
        if key in _models:
            _models[key].users += 1
        else:
            _models[key] = _load(*key)
        return _models[key]


def release(shared: SharedModel) -> None:
    """Give the model back; the last user's release frees it."""
    with _loading:
        shared.users -= 1
        if shared.users > 0:
            return
        for key in [key for key, held in _models.items() if held is shared]:
            del _models[key]
        shared.model = None
    gc.collect()


@contextmanager
def borrowed(model: str | None = None, dtype: Dtype = "auto") -> Iterator[SharedModel]:
    """`acquire` and `release` around a block."""
    shared = acquire(model, dtype)
    try:
        yield shared
    finally:
        release(shared)


def loaded(shared: SharedModel | None, engine: str) -> SharedModel:
    """`shared`, or an EngineError that says that the engine was not started."""
    if shared is None:
        raise EngineError(f"engine {engine!r} is not started; call start() first")
    return shared


def best_dtype(device: str) -> str:
    """bfloat16 where the device computes it natively (AVX512-BF16, AMX, newer GPUs)."""
    import torch

    if device.startswith("cuda"):
        fast = torch.cuda.get_device_capability(device)[0] >= 8
    else:
        flags = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
        fast = any(getattr(torch.cpu, flag, bool)() for flag in flags)
    return "bfloat16" if fast else "float32"


def sanitise(text: str) -> str:
    """`text` with lone surrogates, which no tokenizer accepts, replaced."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _import_torch(threads: int | None) -> None:
    try:
        with importing:
            import sentence_transformers  # noqa: F401
            import torch
    except ImportError as error:
        raise EngineUnavailable(
            f"torch and sentence-transformers are needed ({error}); pip install teola",
            retryable=False,
        ) from error
    if threads is not None:
        torch.set_num_threads(threads)


def _default_device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _load(folder: Path, dtype: str, device: str) -> SharedModel:
    import torch
    from safetensors import SafetensorError
    from sentence_transformers import SentenceTransformer

    name, digest = identify(folder)
    try:
        with quiet():
            model = SentenceTransformer(
                str(folder),
                device=device,
                local_files_only=True,
                model_kwargs={"dtype": getattr(torch, dtype)},
            )
        tokenizer = _counting_tokenizer(model.tokenizer)
    except (OSError, ValueError, LookupError, RuntimeError, ImportError, SafetensorError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise EngineUnavailable(
            f"cannot load the embedding model in {folder}: {reason}; give a folder with a "
            "sentence-transformers model",
            retryable=False,
        ) from error
    model.eval()
    _bring_in(model)
    return SharedModel(
        name=name,
        digest=digest,
        dtype=dtype,
        device=device,
        model=model,
        tokenizer=tokenizer,
        dimensions=int(model.get_embedding_dimension() or 0),
        max_tokens=int(min(model.max_seq_length or 512, 1 << 20)),
        asymmetric=any(model.prompts.values()),
    )


def _bring_in(model: Any) -> None:
    """Read every weight once. In float32 they are a mapped file, and the row of a word would be
    read from the disk by the first query that has it: slower, and memory would seem to grow."""
    for weights in model.parameters():
        weights.sum()


def _counting_tokenizer(tokenizer: Any) -> Any:
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


def _unit(raw: NDArray[Any]) -> Vector:
    """Rows scaled to length 1 in float32; a row of zeros stays zero."""
    vectors = raw.astype(np.float32)
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    unit: Vector = vectors / np.maximum(norms, np.float32(1e-12))
    return unit


def _tokens(output: dict[str, Any], special: NDArray[np.int64]) -> Tokens:
    ids = output["input_ids"].cpu().numpy()
    keep = (output["attention_mask"].cpu().numpy() == 1) & ~np.isin(ids, special)
    vectors = output["token_embeddings"].float().cpu().numpy()
    return Tokens(ids[keep], _unit(vectors[keep]))
