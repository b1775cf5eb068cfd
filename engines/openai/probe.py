"""Finding out who answers at a URL: which models it serves, and whether it is a vLLM or Dynamo."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from anyio import connect_tcp, fail_after

from teola.errors import EngineUnavailable, InputError

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAIError

START_LIMIT_S: Final = 7.0
VERSION_LIMIT_S: Final = 2.0
CONNECT_LIMIT_S: Final = 1.0

_CACHING: Final = ("sglang", "llamacpp")
"""Owners that servers with a prefix cache of their own give for their models."""

_OWN_MACHINE: Final = ("vllm", *_CACHING, "library", "organization_owner")
"""Owners that servers on a machine of their user's give for their models. `library` is Ollama,
`organization_owner` LM Studio. A TGI gives the model's own name."""

_DYNAMO: Final = "nvidia"
"""Owner that a Dynamo gives for its models, as some other servers do."""

_HINT: Final = "correct its url, which usually ends in /v1"
_STATUS: Final = {
    401: ("refuses the API key", "set its api_key"),
    403: ("refuses the API key", "set its api_key"),
    404: ("has no /models", _HINT),
}


@dataclass(frozen=True, slots=True)
class Listed:
    """One model as a server lists it. max_tokens: its window; root: the folder it was read from.
    parent: what it adapts, if it is a LoRA."""

    name: str
    owner: str = ""
    root: str = ""
    parent: str = ""
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Served:
    """What a server told about itself."""

    models: tuple[Listed, ...]
    is_vllm: bool = False
    is_dynamo: bool = False

    @property
    def caches_prefixes(self) -> bool:
        """Whether it is of a kind that keeps the KV cache of prompts without being asked to."""
        return self.is_vllm or any(model.owner in _CACHING for model in self.models)

    @property
    def independent(self) -> bool:
        """Whether it is none of the kinds that run on a machine of their user's, so that many
        machines are taken to stand behind it, which its calls do not fill."""
        if not self.models or self.is_vllm or self.is_dynamo:
            return False
        return not any(one.owner in (*_OWN_MACHINE, one.name) for one in self.models)


def api_url(url: str) -> str:
    """Where the API begins; /v1 is added to a bare host. Raises InputError."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError("an LLM server's url must look like http://host:port/v1")
    url = url.rstrip("/")
    return url if parts.path.strip("/") else f"{url}/v1"


def shown(url: str) -> str:
    """The url as messages may show it: without user, password and query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


async def probe(client: AsyncOpenAI, server: str) -> Served:
    """Asks for the models, then who it is. Raises EngineUnavailable, within 10 s."""
    try:
        with fail_after(START_LIMIT_S):
            listed = await _list_models(client, server)
    except TimeoutError:
        raise EngineUnavailable(await _silence(str(client.base_url), server)) from None
    if any(model.owner == _DYNAMO for model in listed) and await _tells_instances(client):
        return Served(tuple(listed), is_dynamo=True)
    is_vllm = any(model.owner == "vllm" for model in listed) or await _tells_version(client)
    return Served(tuple(listed), is_vllm)


async def _silence(url: str, server: str) -> str:
    """What to say of a server that has not answered in time: whether it is there at all."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        with fail_after(CONNECT_LIMIT_S):
            stream = await connect_tcp(str(parts.hostname), port)
            await stream.aclose()
    except (OSError, TimeoutError):
        return f"{server} does not answer within {START_LIMIT_S:g} s: is it running?"
    return (
        f"{server} accepts connections and answers nothing within {START_LIMIT_S:g} s: it hangs, "
        "or still loads its model; see its log, or restart it"
    )


async def _list_models(client: AsyncOpenAI, server: str) -> list[Listed]:
    import httpx
    import openai

    try:
        answer = await client.get("/models", cast_to=httpx.Response)
        return [_read_listed(entry) for entry in json.loads(answer.content)["data"]]
    except openai.OpenAIError as error:
        raise _unavailable(error, server) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise EngineUnavailable(
            f"{server} does not speak the OpenAI API: {_HINT}", retryable=False
        ) from None


def _read_listed(entry: Mapping[str, Any]) -> Listed:
    limit = entry.get("max_model_len")
    owner, root = str(entry.get("owned_by") or ""), str(entry.get("root") or "")
    parent, window = str(entry.get("parent") or ""), limit if type(limit) is int else None
    return Listed(str(entry["id"]), owner, root, parent, window)


def _unavailable(error: OpenAIError, server: str) -> EngineUnavailable:
    import openai

    if not isinstance(error, openai.APIStatusError):
        why = type(error.__cause__ or error).__name__
        return EngineUnavailable(f"{server} cannot be reached ({why}): start it, or {_HINT}")
    status = error.status_code
    what, todo = _STATUS.get(status, ("does not list its models", "see its log"))
    return EngineUnavailable(f"{server} {what} ({status}): {todo}", retryable=status >= 500)


async def _tells_version(client: AsyncOpenAI) -> bool:
    """A vLLM answers GET /version beside its /v1."""
    return isinstance((await _beside(client, "/version")).get("version"), str)


async def _tells_instances(client: AsyncOpenAI) -> bool:
    """A Dynamo answers GET /health beside its /v1, and lists its workers there."""
    return isinstance((await _beside(client, "/health")).get("instances"), list)


async def _beside(client: AsyncOpenAI, path: str) -> Mapping[str, Any]:
    """The JSON object at `path` beside the API; empty if there is none."""
    import httpx
    import openai

    base = str(client.base_url).rstrip("/").removesuffix("/v1")
    try:
        with fail_after(VERSION_LIMIT_S):
            answer = await client.get(base + path, cast_to=httpx.Response)
            found = json.loads(answer.content)
    except (openai.OpenAIError, TimeoutError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
