"""Which model answers: its engine, and a name by which its answers are kept.

An answer is a model's, not a URL's. A model's folder is known by what is in it. Behind a URL a
server may change its model under the same name, so that is its name and URL, and it is said once.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from teola.errors import InputError, UnknownName
from teola.runtime.engines import DEFAULTS, EngineConfig
from teola.runtime.named_llm import llm_config
from teola.runtime.observe.noting import note
from teola.runtime.runtime import Runtime

log = logging.getLogger(__name__)
_told: set[str] = set()


@contextmanager
def opened_runtime(llm: Any, runtime: Runtime | None, needed: bool) -> Iterator[Runtime | None]:
    """The runtime that has the language model: the one that is given, or one of its own.

    Raises InputError where no model is configured.
    """
    if runtime is not None:
        if llm is not None:
            raise InputError("give llm or runtime, not both: a runtime has its engines")
        if runtime.configs["llm"] == DEFAULTS["llm"]:
            raise InputError(_none())
        yield runtime
    elif llm is not None:
        with Runtime({"llm": config_of(llm)}) as own:
            yield own
    elif needed:
        raise InputError(_none())
    else:
        yield None


def _none() -> str:
    return (
        "no language model is configured: give llm=URL (--llm URL), such as "
        "http://localhost:8000/v1, or the folder of a Hugging Face model"
    )


def config_of(llm: Any) -> Any:
    """An engine for what was given: a URL or several, a folder, a configuration, a class."""
    if isinstance(llm, str):
        return llm_config([llm], "llm")
    if isinstance(llm, Sequence):
        return llm_config(list(llm), "llm")
    return llm


def identity_of(runtime: Runtime | None, engine: str | None) -> str:
    """The identity of the model behind an engine; `llm` by default. Raises UnknownName."""
    name = engine or "llm"
    if runtime is None:
        return name
    config = runtime.configs.get(name)
    if config is None:
        raise UnknownName("model", name, runtime.configs)
    return named_identity(name, config)


def named_identity(engine: str | None, config: Any) -> str:
    """The identity of the model that a configuration is for."""
    if not isinstance(config, EngineConfig):
        config = EngineConfig(config)
    return _identity(engine or "llm", config)


def _identity(name: str, config: EngineConfig) -> str:
    options: dict[str, Any] = dict(config.options)
    folder = options.get("model")
    if isinstance(folder, str) and (Path(folder) / "config.json").is_file():
        return f"{Path(folder).name}:{_digest(Path(folder))}"
    urls = sorted(str(one.get("url")) for one in [options, *config.pool] if one.get("url"))
    if not urls:
        made = config.factory
        kind = made if isinstance(made, str) else getattr(made, "__qualname__", type(made).__name__)
        said = json.dumps([kind, options], sort_keys=True, default=repr)
        return f"{kind}:{hashlib.sha256(said.encode()).hexdigest()[:16]}"
    where = f"{options.get('model') or 'model'} at {', '.join(urls)}"
    if where not in _told:
        _told.add(where)
        told = (
            "answers of %(where)s are kept by its name and URL: if another model is served there "
            "later, delete them first (teola answers delete)"
        )
        note(log, logging.INFO, "answers_by_url", told, where=where)
    return where


def _digest(folder: Path) -> str:
    """Of a model's folder: its configuration, and names and sizes of its files."""
    digest = hashlib.sha256((folder / "config.json").read_bytes())
    for path in sorted(folder.iterdir()):
        if path.is_file():
            digest.update(f"{path.name}:{path.stat().st_size}".encode())
    return digest.hexdigest()[:16]
