"""The LLM engine that a URL, several, or a model's folder name."""

from __future__ import annotations

import os
from collections.abc import Sequence

from teola.errors import InputError
from teola.runtime.engines import DEFAULTS, EngineConfig
from teola.runtime.pools import presentable


def llm_config(where: Sequence[str], option: str = "--llm") -> EngineConfig:
    """The LLM engine for servers' URLs, or a folder with a model. option: what errors call it.
    Raises InputError."""
    if served := servers_config(option, "vllm", where):
        return served
    (named,) = where
    if named == "extractive":
        return DEFAULTS["llm"]
    folder = os.path.expanduser(named)
    if os.path.isfile(os.path.join(folder, "config.json")):
        return EngineConfig("transformers", {"model": os.path.realpath(folder)})
    wanted = (
        "give the folder of a Hugging Face model, or the URL of an OpenAI-compatible server, such "
        "as http://localhost:8000/v1"
    )
    if os.path.exists(folder):
        raise InputError(f"{option} {named!r} holds no model (no config.json): {wanted}")
    if "/" in named or named.startswith((".", "~")):
        raise InputError(f"{option}: there is no folder {named!r}: {wanted}")
    raise InputError(f"{option} {named!r} is neither a URL nor a folder: {wanted}")


def servers_config(option: str, type: str, where: Sequence[str]) -> EngineConfig | None:
    """An engine with an instance for each URL; None if what was given is one thing and no URL."""
    urls = [place for place in where if place.startswith(("http://", "https://"))]
    if len(where) == 1:
        return EngineConfig(type, {"url": urls[0]}) if urls else None
    no_url = next((place for place in where if place not in urls), None)
    if no_url is not None:
        raise InputError(
            f"{option} was given {len(where)} times, and {no_url!r} is no URL: only servers by URL "
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
