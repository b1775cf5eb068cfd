"""The engines that --llm, --embedding and --web-search name."""

from __future__ import annotations

import os
from collections.abc import Sequence

from teola.engine import EngineKind
from teola.errors import InputError
from teola.runtime.engines import DEFAULTS, REGISTRY, EngineConfig
from teola.runtime.pools import presentable


def llm_config(where: Sequence[str]) -> EngineConfig:
    """The LLM engine for `--llm`: servers' URLs, or a folder with a model. Raises InputError."""
    if found := _servers("--llm", "vllm", where):
        return found
    (one,) = where
    if one == "extractive":
        return DEFAULTS["llm"]
    folder = os.path.expanduser(one)
    if os.path.isfile(os.path.join(folder, "config.json")):
        return EngineConfig("transformers", {"model": os.path.realpath(folder)})
    wanted = (
        "give the folder of a Hugging Face model, or the URL of an OpenAI-compatible server, such "
        "as http://localhost:8000/v1"
    )
    if os.path.exists(folder):
        raise InputError(f"--llm {one!r} holds no model (no config.json): {wanted}")
    if "/" in one or one.startswith((".", "~")):
        raise InputError(f"--llm: there is no folder {one!r}: {wanted}")
    raise InputError(f"--llm {one!r} is neither a URL nor a folder: {wanted}")


def embedding_config(where: Sequence[str]) -> EngineConfig:
    """The embedding engine for `--embedding`: servers' URLs, or a sentence-transformers model.

    Raises InputError.
    """
    if found := _servers("--embedding", "openai-embedding", where):
        return found
    return EngineConfig("embedding", {"model": where[0]})


def _servers(option: str, type: str, where: Sequence[str]) -> EngineConfig | None:
    """An engine with an instance for each URL; None if what was given is one thing and no URL."""
    urls = [one for one in where if one.startswith(("http://", "https://"))]
    if len(where) == 1:
        return EngineConfig(type, {"url": urls[0]}) if urls else None
    other = next((one for one in where if one not in urls), None)
    if other is not None:
        raise InputError(
            f"{option} was given {len(where)} times, and {other!r} is no URL: only servers by URL "
            "can be several instances of one engine"
        )
    bare = [url.rstrip("/") for url in urls]
    twice = next((url for url in bare if bare.count(url) > 1), None)
    if twice is not None:
        raise InputError(
            f"{option} {presentable(twice)!r} was given twice: give each server once, which takes "
            "many calls at a time by itself"
        )
    return EngineConfig(type, pool=[{"url": url} for url in urls])


def web_config(where: str) -> EngineConfig:
    """The web search engine for `--web-search`: an engine type's name, the URL of a SearXNG server,
    or a folder of documents. Raises InputError.
    """
    if where.startswith(("http://", "https://")):
        return EngineConfig("searxng", {"url": where})
    if where in REGISTRY.names():
        kind = EngineConfig(where).make("websearch").spec.kind
        if kind is not EngineKind.WEBSEARCH:
            raise InputError(f"--web-search {where!r}: that engine is for {kind.value}")
        return EngineConfig(where)
    folder = os.path.expanduser(where)
    if os.path.isdir(folder):
        return EngineConfig("corpus", {"folder": os.path.realpath(folder)})
    raise InputError(
        f"--web-search {where!r} is none of google, tavily, searxng and corpus, no URL of a "
        "SearXNG server, and no folder of documents"
    )
