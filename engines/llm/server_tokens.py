"""The tokenizer of a model that a server holds: by its own routes, or by the same file read here.

vLLM (and newer SGLang) tokenise at /tokenize and /detokenize. Where the model's folder can be read
from here and its tokenizer.json agrees with the server, texts are tokenised in this process
instead: that saves a request for each part, and only so can the marks of a chat template be kept
from being read out of a document.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Final

from anyio import fail_after

from teola.engine import Reading, TextPart
from teola.errors import EngineError

from ..openai.connection import Connection
from .tokens import Encode, PromptTokens

ROUTE_LIMIT_S: Final = 10.0
CACHED_TEXTS: Final = 1024

_WORDS: Final = "Two words."
_SAMPLES: Final = ("a", "Two words.\n\n", "  naïve 東京 🦉 x=1;", "\t{ }")


class NoTokenizer(EngineError):
    """The server does not tokenise as it must for prompts to be sent as ids."""


class Routes:
    """A server's /tokenize and /detokenize, called from worker threads."""

    def __init__(self, connection: Connection, model: str) -> None:
        self._connection, self._model = connection, model
        self._loop = asyncio.get_running_loop()

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Token ids of `text`; special: with what the model wants around a text. NoTokenizer."""
        return self._ids({"prompt": text, "add_special_tokens": special}) if text else []

    def chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Ids of the rendered messages. Raises NoTokenizer, ValueError (the template refuses)."""
        return self._ids({"messages": list(messages), "add_generation_prompt": True})

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`, special tokens included. Raises NoTokenizer."""
        text = self._post("/detokenize", {"tokens": list(ids)}).get("prompt")
        if not isinstance(text, str):
            raise NoTokenizer("/detokenize answers in another form")
        return text

    def _ids(self, body: dict[str, Any]) -> list[int]:
        ids = self._post("/tokenize", body).get("tokens")
        if not isinstance(ids, list) or not all(type(i) is int for i in ids):
            raise NoTokenizer("/tokenize answers in another form")
        return ids

    def _post(self, route: str, body: dict[str, Any]) -> dict[str, Any]:
        call = self._request(self._connection.beside(route), {"model": self._model, **body})
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()

    async def _request(self, url: str, body: dict[str, Any]) -> dict[str, Any]:
        import httpx
        import openai

        try:
            with fail_after(ROUTE_LIMIT_S):
                answer = await self._connection.client.post(url, body=body, cast_to=httpx.Response)
            found = json.loads(answer.content)
        except openai.BadRequestError:
            raise ValueError(f"{url} refuses the text") from None
        except (openai.APIStatusError, json.JSONDecodeError, TimeoutError) as error:
            raise NoTokenizer(f"{url} does not tokenise ({type(error).__name__})") from None
        return found if isinstance(found, dict) else {}


class ServerTokens:
    """`PromptTokens` of a served model; `connect` makes it.

    Ids are computed off the event loop where that means asking the server.
    """

    def __init__(self, routes: Routes, root: str, api: str) -> None:
        """Blocks while it asks. Raises NoTokenizer."""
        self._known: dict[str, tuple[int, ...]] = {}
        self._kept = Lock()
        """Held by the worker thread that changes what is known."""
        self._routes = routes
        bos = _bos(routes)
        self._local = _local(root, routes)
        encode, plain = self._local or (self._ask, None)
        chats = api != "completions" and self._chats(required=api == "chat")
        self._prompts = PromptTokens(encode, bos, self._render if chats else None, plain)

    @property
    def splittable(self) -> bool:
        """Whether a prefix of the parts has ids of its own."""
        return self._prompts.splittable

    @property
    def reading(self) -> Reading:
        """As that of `PromptTokens`."""
        return self._prompts.reading

    async def ids(
        self, parts: Sequence[TextPart], *, complete: bool, after: Sequence[TextPart] = ()
    ) -> list[int]:
        """As `PromptTokens.ids`. Raises NoTokenizer if the server no longer tokenises."""
        if self._local:
            return self._prompts.ids(parts, complete=complete, after=after)
        return await asyncio.to_thread(self.compute, parts, complete=complete, after=after)

    def compute(
        self, parts: Sequence[TextPart], *, complete: bool, after: Sequence[TextPart] = ()
    ) -> list[int]:
        """As `ids`, for worker threads: it may wait for the server, which the event loop asks."""
        return self._prompts.ids(parts, complete=complete, after=after)

    def count(self, text: str) -> int | None:
        """Tokens of `text`, if that is known at once."""
        if self._local:
            return len(self._local[1](text))
        known = self._known.get(text)
        return None if known is None else len(known)

    def _ask(self, text: str) -> list[int]:
        """Ids from the server, kept for the texts used last."""
        ids = self._known.get(text)
        if ids is None:
            ids = tuple(self._routes.encode(text))
        with self._kept:
            self._known.pop(text, None)
            self._known[text] = ids
            if len(self._known) > CACHED_TEXTS:
                del self._known[next(iter(self._known))]
        return list(ids)

    def _chats(self, *, required: bool) -> bool:
        try:
            self._routes.chat([{"role": "user", "content": "a"}])
        except ValueError:
            if required:
                raise NoTokenizer("there is no chat template") from None
            return False
        return True

    def _render(self, messages: list[dict[str, str]]) -> str:
        return self._routes.decode(self._routes.chat(messages))


async def connect(connection: Connection, model: str, root: str, api: str) -> ServerTokens:
    """The tokenizer of `model`; root: the folder it was read from, as the server says.

    api: "chat", "completions" (no template), or "auto". Raises NoTokenizer.
    """
    return await asyncio.to_thread(ServerTokens, Routes(connection, model), root, api)


def _bos(routes: Routes) -> tuple[int, ...]:
    """What the model wants before a text, once it is certain that the routes do as they should."""
    try:
        bare, dressed = routes.encode(_WORDS), routes.encode(_WORDS, special=True)
        faithful = bool(bare) and routes.decode(bare).strip() == _WORDS
    except ValueError:
        raise NoTokenizer("/tokenize refuses a text") from None
    if not faithful:
        raise NoTokenizer("/tokenize and /detokenize do not agree")
    if dressed[len(dressed) - len(bare) :] != bare:
        raise NoTokenizer("the model wants something after its texts")
    return tuple(dressed[: len(dressed) - len(bare)])


def _local(root: str, routes: Routes) -> tuple[Encode, Encode] | None:
    """Encodes with and without regard to special tokens, if the model's folder is here."""
    file = Path(root) / "tokenizer.json"
    if not root or not file.is_file():
        return None
    from tokenizers import Tokenizer

    aware, plain = Tokenizer.from_file(str(file)), Tokenizer.from_file(str(file))
    plain.encode_special_tokens = True

    def encode(text: str, tokenizer: Any = aware) -> list[int]:
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    if any(encode(text) != routes.encode(text) for text in _SAMPLES):
        return None
    return encode, lambda text: encode(text, plain)
