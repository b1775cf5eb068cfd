"""Which model answers: its engine, and a name by which its answers are kept.

An answer is a model's, not a URL's. A model's folder is known by what is in it: its configuration,
and samples of its weights. Behind a URL a server may change its model under the same name, so that
is its name and URL, and it is said once. A model that is an object of this process is known by its
class and the plain values that it has.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Final
from weakref import WeakKeyDictionary

from teola.errors import InputError, UnknownName
from teola.runtime.engines import DEFAULTS, EngineConfig
from teola.runtime.named_llm import llm_config
from teola.runtime.pools import BESIDES, presentable
from teola.runtime.runtime import Runtime

SAMPLES: Final = 64
SAMPLE_BYTES: Final = 65_536
"""Of a file of weights so much is read: nobody waits for 100 GB, and other weights differ in it."""

MOST: Final = 64
"""Values of one object that are looked at."""


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """What answers are kept under. doubt: why they may be another model's one day ("": they will
    not)."""

    name: str
    doubt: str = ""


@contextmanager
def opened_runtime(
    llm: Any, runtime: Runtime | None, needed: bool, others: bool = False
) -> Iterator[Runtime | None]:
    """The runtime that has the language model: the one that is given, or one of its own.

    needed: whether there has to be a model. others: whether there have to be other engines.
    Raises InputError where no model is configured.
    """
    if runtime is not None:
        if llm is not None:
            raise InputError("give llm or runtime, not both: a runtime has its engines")
        yield runtime
    elif llm is not None:
        with Runtime({"llm": config_of(llm)}) as own:
            yield own
    elif needed:
        raise InputError(_none())
    elif others:
        with Runtime() as own:
            yield own
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


def identity_of(runtime: Runtime | None, engine: str | None) -> ModelIdentity:
    """The identity of the model behind an engine; `llm` by default. Raises UnknownName, and
    InputError where no model is configured."""
    name = engine or "llm"
    if runtime is None:
        return ModelIdentity(name)
    config = runtime.configs.get(name)
    if config is None:
        raise UnknownName("model", name, runtime.configs)
    if name == "llm" and config == DEFAULTS["llm"]:
        raise InputError(_none())
    return named_identity(config)


def named_identity(config: Any) -> ModelIdentity:
    """The identity of the model that a configuration is for."""
    if not isinstance(config, EngineConfig):
        config = EngineConfig(config)
    members = [{**config.options, **identity} for identity in config.pool] or [dict(config.options)]
    identities = {_member(config.factory, member) for member in members}
    names = ", ".join(sorted(identity.name for identity in identities))
    return ModelIdentity(
        names, next((identity.doubt for identity in identities if identity.doubt), "")
    )


def _member(factory: Any, options: Mapping[str, Any]) -> ModelIdentity:
    folder = options.get("model")
    if isinstance(folder, str) and (Path(folder) / "config.json").is_file():
        return ModelIdentity(f"{Path(folder).name}:{_digest(Path(folder))}")
    if url := options.get("url"):
        shown = presentable(str(url))
        server = f"{folder or 'the model'} at {shown}"
        return ModelIdentity(
            f"{folder or 'model'} at {shown}",
            f"answers of {server} are kept by its name and URL: if another model is served there "
            "later, delete them first (teola answers delete)",
        )
    kind = factory if isinstance(factory, str) else _called(factory)
    own = {name: value for name, value in options.items() if name not in BESIDES}
    settings = json.dumps([_state(factory), _plain(own)], sort_keys=True)
    return ModelIdentity(f"{kind}:{hashlib.sha256(settings.encode()).hexdigest()[:16]}")


def _called(factory: Any) -> str:
    named = factory if hasattr(factory, "__qualname__") else type(factory)
    return f"{named.__module__}.{named.__qualname__}"


_states: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def _state(factory: Any) -> Any:
    """What tells an object from others of its class, as it was when it was seen first: models
    count their calls."""
    try:
        if factory not in _states:
            _states[factory] = _plain(factory)
        return _states[factory]
    except TypeError:  # nothing can refer to it weakly
        return _plain(factory)


def _plain(value: Any, depth: int = 3) -> Any:
    """Texts, numbers, code and what is made of them, as JSON has it; of the rest only the class:
    other processes make other objects of it."""
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if depth == 0:
        return type(value).__qualname__
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(part, depth - 1) for key, part in islice(value.items(), MOST)}
    if isinstance(value, (list, tuple)):
        return [_plain(part, depth - 1) for part in value[:MOST]]
    if isinstance(value, (set, frozenset)):
        return sorted(json.dumps(_plain(part, depth - 1), sort_keys=True) for part in value)[:MOST]
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if _filled(cell)]
        inner = [*cells, *(value.__defaults__ or ())]
        return [value.__qualname__, _code(value.__code__), [_plain(v, depth - 1) for v in inner]]
    if isinstance(value, type):
        return _called(value)
    return [_called(value), _plain(getattr(value, "__dict__", {}), depth - 1)]


def _filled(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def _code(code: CodeType) -> list[Any]:
    constants = [
        _code(v)
        if isinstance(v, CodeType)
        else sorted(map(repr, v))  # in another order in each process
        if isinstance(v, frozenset)
        else repr(v)
        for v in code.co_consts
    ]
    return [code.co_code.hex(), list(code.co_names), constants]


def _digest(folder: Path) -> str:
    """Of a model's folder: its configuration, and names, sizes and samples of its files."""
    digest = hashlib.sha256((folder / "config.json").read_bytes())
    for path in sorted(folder.iterdir()):
        if not path.is_file():
            continue
        size = path.stat().st_size
        digest.update(f"{path.name}:{size}".encode())
        step = max(SAMPLE_BYTES, size // SAMPLES)
        with path.open("rb") as file:
            for at in range(0, size, step):
                file.seek(at)
                digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()[:16]
