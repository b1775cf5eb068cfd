"""Documents that a client lists: with their text or bytes, or by URL; never a path of ours.

    {"name": "notes.md", "text": "..."}          as it is
    {"name": "offer.pdf", "data": "JVBERi0..."}  base64: a file within JSON
    {"url": "https://example.org/offer.pdf"}     fetched, where the configuration allows it

What comes as a file is kept in the query's upload folder, like the files of a form.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from starlette.requests import ClientDisconnect
from starlette.types import Message

from teola.app import App
from teola.config import HISTORY_CHARACTERS
from teola.engine import NAME_CHARACTERS, Source, check_metadata
from teola.errors import DeadlineExceeded, InputError
from teola.runtime.documents import MAX_DOCUMENTS
from teola.serve.intake.limits import OWN_CALLS, OwnCallLimits
from teola.serve.intake.uploads import Allowance, Upload, file_label
from teola.serve.streaming import first, gone
from teola.workflow.kinds import Kind

if TYPE_CHECKING:  # it takes a while to import, and few servers fetch
    from teola.serve.intake.fetching import Fetcher

FILES: Final = 100
"""Files of one query within JSON: as many as of a form."""
URLS: Final = 16
"""Documents by URL of one query."""
TOGETHER_BYTES: Final = 64 * 2**20
"""Bytes of them all."""
AT_ONCE: Final = 4
_DECEIVING: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")

Receive = Callable[[], Awaitable[Message]]


@dataclass(frozen=True, slots=True)
class Intake:
    """What clients may send. fetcher: gets documents by URL; None refuses them.
    history_characters: so much of a conversation goes into prompts. own_calls: how long and how
    much is kept of what agents did beside their clients' calls."""

    fetcher: Fetcher | None = None
    history_characters: int = HISTORY_CHARACTERS
    own_calls: OwnCallLimits = OWN_CALLS

    async def documents(
        self,
        app: App,
        inputs: Mapping[str, Any],
        upload: Upload,
        receive: Receive,
        limit_s: float,
    ) -> dict[str, Any]:
        """`inputs` with every document there, in a form that cannot name a file of the server.

        receive: of the request, whose client's leaving ends the fetching. limit_s: seconds for it.
        Raises InputError, DeadlineExceeded, ClientDisconnect.
        """
        fetched = dict(inputs)
        if Kind.DOCUMENTS not in app.inputs.values():
            return fetched
        forms = Counter[str]()
        to_get: dict[str, list[Any]] = {}
        for name, kind in app.inputs.items():
            if kind is Kind.DOCUMENTS and (value := inputs.get(name)) is not None:
                listed = value if isinstance(value, list) else [value]
                if self._to_get(name, listed, forms):
                    to_get[name] = listed
        allowance = Allowance(TOGETHER_BYTES)
        until = asyncio.get_running_loop().time() + limit_s
        for name, listed in to_get.items():
            sources = await first(self._got(listed, upload, allowance, until), gone(receive))
            if sources is None:
                raise ClientDisconnect
            fetched[name] = sources
        return fetched

    def _to_get(self, name: str, listed: Sequence[Any], forms: Counter[str]) -> bool:
        """Whether some documents are not there yet. forms: of the query's documents so far, to
        which it adds these. Raises InputError for what is none."""
        if forms.total() + len(listed) > MAX_DOCUMENTS:
            raise InputError(f"input {name!r}: at most {MAX_DOCUMENTS} documents belong to a query")
        own = Counter(_form(name, document) for document in listed)
        forms += own
        if forms["data"] > FILES:
            raise InputError(f"input {name!r}: at most {FILES} documents of a query are files")
        if forms["url"] > URLS:
            raise InputError(f"input {name!r}: at most {URLS} documents of a query are URLs")
        if own["url"] and self.fetcher is None:
            raise InputError(
                f"input {name!r}: this server fetches no documents by URL (documents_by_url in its "
                "configuration); send the document itself"
            )
        return own["data"] + own["url"] > 0

    async def _got(
        self, listed: Sequence[Any], upload: Upload, allowance: Allowance, until: float
    ) -> list[Any]:
        """All of them, a few at a time; the first that cannot be had ends it. until: on the loop's
        clock."""
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(document: Any) -> Any:
            async with turns:
                return await self._source(document, upload, allowance)

        sources = list(listed)
        missing = [i for i, document in enumerate(listed) if not _is_there(document)]
        tasks = [asyncio.ensure_future(one(listed[i])) for i in missing]
        try:
            async with asyncio.timeout_at(until):
                for i, source in zip(missing, await asyncio.gather(*tasks), strict=True):
                    sources[i] = source
                return sources
        except TimeoutError:
            raise DeadlineExceeded("the deadline passed while documents were fetched") from None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _source(self, document: Any, upload: Upload, allowance: Allowance) -> Any:
        metadata = document.get("metadata") or {}
        if "data" in document:
            path = upload.place(Path(document["name"]).suffix)
            await _decode(document, path)
            return Source(file_label(document["name"]), path=path, metadata=metadata)
        assert self.fetcher is not None
        path = await self.fetcher.fetch(document["url"], upload.place, allowance)
        label = document.get("name") or _label(document["url"])
        return Source(file_label(label), path=path, metadata=metadata)


def _form(name: str, document: Any) -> str:
    """text, data, url, or file if it is there already. Raises InputError for anything else."""
    if isinstance(document, Source):
        return "file"
    fields = document if isinstance(document, dict) else {}
    forms = [key for key in ("text", "data", "url") if isinstance(fields.get(key), str)]
    unnamed = "url" in forms and fields.get("name") is None
    if not forms or not (unnamed or isinstance(fields.get("name"), str)):
        raise InputError(
            f'input {name!r}: a document is {{"name": "...", "text": "..."}} here, or with "data" '
            '(base64) in place of "text", or {"url": "https://..."}; send files as '
            "multipart/form-data"
        )
    if len({"text", "data", "url"} & fields.keys()) > 1:
        raise InputError(f'input {name!r}: a document has one of "text", "data" and "url"')
    _check_label(name, {**fields, "name": "a URL"} if unnamed else fields)
    return forms[0]


def _check_label(name: str, document: Mapping[str, Any]) -> None:
    """Raise InputError for a document whose name or metadata nobody could show or store."""
    metadata = document.get("metadata")
    check_label(f"input {name!r}: a document's name", document["name"])
    if metadata is not None and not isinstance(metadata, dict):
        raise InputError(f"input {name!r}: a document's metadata is an object, if there is any")
    check_metadata(metadata or {})


def check_label(what: str, label: str) -> None:
    """Raise InputError for a name that nobody could show. what: whose it is."""
    if not label.strip() or len(label) > NAME_CHARACTERS or _DECEIVING.search(label):
        raise InputError(
            f"{what} has 1 to {NAME_CHARACTERS} characters, no line breaks, and none that turn the "
            "direction of writing"
        )


def _is_there(document: Any) -> bool:
    return isinstance(document, Source) or "text" in document


async def _decode(document: Mapping[str, Any], path: Path) -> None:
    """Write its bytes to `path`, in a thread. Cancelled, it ends once nothing is written any more,
    so that whoever deletes the file afterwards has deleted it."""
    writing = asyncio.ensure_future(asyncio.to_thread(_write, document, path))
    try:
        await asyncio.shield(writing)
    finally:
        while not writing.done():
            with suppress(asyncio.CancelledError):  # again: the first one goes on afterwards
                await asyncio.wait((writing,))


def _write(document: Mapping[str, Any], path: Path) -> None:
    try:
        data = base64.b64decode(document["data"], validate=True)
    except (binascii.Error, ValueError):
        label = f"document {file_label(document['name'])!r}"
        raise InputError(f'{label}: "data" is not base64 of its bytes; encode them') from None
    path.write_bytes(data)


def _label(url: str) -> str:
    """What to call what lies at `url`: the end of its path, else its host."""
    parts = urlsplit(url)
    return unquote(parts.path).rstrip("/").rpartition("/")[2] or parts.hostname or "document"
