"""Loaded embedding models, one set of weights per process for everybody who needs them.

The embedding engine, the MaxSim reranker and the extractive reader all run the same MiniLM. They
`acquire` it here and `release` it when they close; whoever comes last frees the memory. One thread
does the forward passes of one model: two at a time on the same cores are slower than one after the
other, and every further thread that ever does one keeps some 24 MiB of the allocator's.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from teola.errors import EngineError, EngineUnavailable, QueryCancelled
from teola.extras import needs

from ..importing import importing
from .encoder import NO_TOKENS, EncodedText, Encoder, Vector, unit
from .weights import PACKAGED_SHA256, identify, locate

Dtype = Literal["auto", "float32", "bfloat16"]
DTYPES = ("auto", "float32", "bfloat16")
WINDOW = 10_000
"""Characters that the tokenizer is given at once: it takes memory for each of them."""

_T = TypeVar("_T")
_Key = tuple[Path, str, str]


def _always() -> bool:
    return True


@dataclass(slots=True)
class SharedModel:
    """A loaded model. digest: SHA-256 of its files. The rest: as the encoder has it, which goes
    when the last user has gone."""

    name: str
    digest: str
    dtype: str
    device: str
    encoder: Encoder | None
    tokenizer: Any
    dimensions: int
    max_tokens: int
    asymmetric: bool
    pooling: str
    users: int = 1
    _thread: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="teola-embedding")
    )

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
        """One unit vector per text, [len(texts), dimensions], float32; equal texts are computed
        once.

        role: "query" or "document", for models that embed them differently. wanted: asked between
        two forward passes. Raises QueryCancelled once it says no.
        """
        distinct, places = _distinct(map(self._readable, texts))
        vectors = np.zeros((len(distinct), self.dimensions), dtype=np.float32)

        def run() -> None:
            for some, found in _while(wanted, self._loaded.embed(distinct, role, batch)):
                vectors[some] = found

        if texts:
            self._thread.submit(run).result()
        return unit(vectors)[places]

    def embed_tokens(
        self, texts: Sequence[str], batch: int = 32, wanted: Callable[[], bool] = _always
    ) -> list[EncodedText]:
        """The contextual vector of every token of every text, for late interaction; equal texts
        are computed once. wanted: as for `embed`."""
        distinct, places = _distinct(map(self._readable, texts))
        tokens = [NO_TOKENS] * len(distinct)

        def run() -> None:
            for some, found in _while(wanted, self._loaded.embed_tokens(distinct, batch)):
                for i, one in zip(some, found, strict=True):
                    tokens[i] = one

        if texts:
            self._thread.submit(run).result()
        return [tokens[i] for i in places]

    def _readable(self, text: str) -> str:
        """Of a long text as much as the model reads, without windows that say nothing to it."""
        if len(text) <= WINDOW:
            return sanitise(text)
        pieces, tokens = [], 0
        for piece in windows(text):
            if found := len(self.encode(piece)):
                pieces.append(sanitise(piece))
                tokens += found
            if tokens >= self.max_tokens:
                break
        return "".join(pieces)

    def close(self) -> None:
        """Nothing more is asked of it."""
        self.encoder = None
        self._thread.shutdown(wait=False)

    @property
    def _loaded(self) -> Encoder:
        if self.encoder is None:
            raise EngineError(f"the embedding model {self.name!r} was given back")
        return self.encoder


def _distinct(texts: Iterable[str]) -> tuple[list[str], list[int]]:
    """The texts, each once, and where in them each one is."""
    seen: dict[str, int] = {}
    places = [seen.setdefault(text, len(seen)) for text in texts]
    return list(seen), places


def _while(wanted: Callable[[], bool], passes: Iterator[_T]) -> Iterator[_T]:
    """The passes, each begun only if somebody still waits for it."""
    while wanted():
        try:
            yield next(passes)
        except StopIteration:
            return
    raise QueryCancelled("nobody waits for the rest of this batch")


def encode(tokenizer: Any, text: str) -> list[int]:
    """Token ids without special tokens and without truncation.

    Other threads go on meanwhile: unlike `encode`, the tokenizer's `encode_batch_fast` lets them.
    """
    ids: list[int] = []
    for piece in windows(text):
        (found,) = tokenizer.encode_batch_fast([sanitise(piece)], add_special_tokens=False)
        ids += found.ids
    return ids


def windows(text: str) -> Iterator[str]:
    """`text` in pieces of at most `WINDOW` characters, cut before white space where there is some.
    So they have the same tokens as the whole, but for words that no model knows."""
    start = 0
    while len(text) - start > WINDOW:
        middle, end = start + WINDOW // 2, start + WINDOW
        space = max(text.rfind(" ", middle, end), text.rfind("\n", middle, end))
        yield text[start : space if space > 0 else end]
        start = space if space > 0 else end
    yield text[start:]


_models: dict[_Key, SharedModel] = {}
_loading = threading.RLock()


def acquire(
    model: str | None = None,
    dtype: Dtype = "auto",
    device: str | None = None,
    threads: int | None = None,
    *,
    who: str = "an embedding model",
) -> SharedModel:
    """The model, loaded unless another user has it already; `release` it when done.

    threads: cores that torch may use, a setting of the whole process. who: for messages, the user.
    Raises MissingExtra, and EngineUnavailable, with one line that says what to do, if it cannot be
    loaded.
    """
    if dtype not in DTYPES:
        raise EngineUnavailable(
            f"unknown dtype {dtype!r} (valid: {', '.join(DTYPES)})", retryable=False
        )
    with _loading, needs("local", who):
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
        shared.close()
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
    with importing:
        import torch

    if threads is not None:
        torch.set_num_threads(threads)


def _default_device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _load(folder: Path, dtype: str, device: str) -> SharedModel:
    from safetensors import SafetensorError

    name, digest = identify(folder)
    make = _encoder(digest)
    try:
        encoder = make(folder, dtype, device)
    except (OSError, ValueError, LookupError, RuntimeError, ImportError, SafetensorError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise EngineUnavailable(
            f"cannot load the embedding model in {folder}: {reason}; give a folder with a "
            "sentence-transformers model",
            retryable=False,
        ) from error
    return SharedModel(
        name=name,
        digest=digest,
        dtype=dtype,
        device=device,
        encoder=encoder,
        tokenizer=encoder.tokenizer,
        dimensions=encoder.dimensions,
        max_tokens=encoder.max_tokens,
        asymmetric=encoder.asymmetric,
        pooling=encoder.pooling,
    )


def _encoder(digest: str) -> Callable[[Path, str, str], Encoder]:
    """What computes the model. Raises ImportError."""
    with importing:
        if digest == PACKAGED_SHA256:
            from .packaged import PackagedEncoder

            return PackagedEncoder
        from .any_encoder import AnyEncoder

        return AnyEncoder
