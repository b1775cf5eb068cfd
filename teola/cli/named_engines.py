"""The engines that --llm, --embedding and --web-search name."""

from __future__ import annotations

import os
from collections.abc import Sequence

from teola.engine import EngineKind
from teola.errors import InputError
from teola.runtime.engines import ENGINE_TYPES, EngineConfig
from teola.runtime.named_llm import llm_config, servers_config


def embedding_config(where: Sequence[str]) -> EngineConfig:
    """The embedding engine for `--embedding`: servers' URLs, or a sentence-transformers model.

    Raises InputError.
    """
    if config := servers_config("--embedding", "openai-embedding", where):
        return config
    return EngineConfig("embedding", {"model": where[0]})


def web_config(where: str) -> EngineConfig:
    """The web search engine for `--web-search`: an engine type's name, the URL of a SearXNG server,
    or a folder of documents. Raises InputError.
    """
    if where.startswith(("http://", "https://")):
        return EngineConfig("searxng", {"url": where})
    if where in ENGINE_TYPES.names():
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


__all__ = ["embedding_config", "llm_config", "web_config"]
