"""The document loader: files and inline texts to chunks, with everything unreadable refused."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Literal, get_args

from teola.engine import EngineKind, EngineSpec, Fingerprint, Passages, Source, Splitting
from teola.errors import DocumentError, UnknownName
from teola.extras import needs

from . import files
from .files import Format
from .markdown import sections
from .places import NOWHERE
from .plain_splitting import pieces as pieces_plainly
from .sandbox import Parsed, ParsingLimits, parse, rehearse
from .splitting import Tokenize
from .splitting import pieces as pieces_by_llama_index

_PIPELINE = 5
"""To be raised when this package reads or splits anything differently."""

Splitter = Literal["llama-index", "plain"]
SPLITTERS = get_args(Splitter)


class FileLoader:
    """Reads text, Markdown, HTML, PDF, CSV, notebooks, mails, books and office files; splits them.

    max_bytes: largest file. limits: what the process that parses a file may take. keep_hidden: also
    texts that a reader does not see (HTML's `hidden`, `display: none` and `noscript`).
    splitter: `llama-index`, which needs the extra `local`, or `plain`; None is `plain` for an
    embedding engine that only estimates tokens, as those by URL do, else `llama-index`. So chunks
    depend on what is configured, never on what is installed. Raises UnknownName.
    """

    def __init__(
        self,
        name: str = "documents",
        max_bytes: int = 50_000_000,
        limits: ParsingLimits | None = None,
        splitter: Splitter | None = None,
        keep_hidden: bool = False,
    ) -> None:
        if splitter is not None and splitter not in SPLITTERS:
            raise UnknownName("splitter", splitter, SPLITTERS, f"engine {name!r}")
        self._spec = EngineSpec(
            name=name,
            kind=EngineKind.DOCUMENTS,
            ops=frozenset(),
            concurrency=3,
            description="text, HTML, PDF, office files and more, split into sentences",
        )
        self._max_bytes, self._limits = max_bytes, limits or ParsingLimits()
        self._splitter, self._keep_hidden = splitter, keep_hidden

    @property
    def spec(self) -> EngineSpec:
        return self._spec

    def start(self) -> None:
        """Nothing to do: what is heavy is imported with the first document."""

    async def warm(self) -> None:
        """Start the parser's process once. Splitting is warmed by whoever splits something."""
        await rehearse()

    def close(self) -> None:
        """Nothing to do: the loader keeps nothing open."""

    def pipeline(self, splitting: Splitting) -> str:
        """See Loader. Raises MissingExtra."""
        own = self._splits_plainly(splitting)
        parts = ("pypdf",) if own else ("llama-index-core", "nltk", "pypdf")
        with needs("local", f"engine {self._spec.name!r}", otherwise='splitter="plain"'):
            read = " ".join(f"{part}-{version(part)}" for part in parts)
        how = f"files-{_PIPELINE}{'+hidden' if self._keep_hidden else ''}"
        return f"{how} {read}/{splitting.chunk_size}/{splitting.overlap}"

    def fingerprint(self, source: Source) -> Fingerprint:
        """SHA-256, size and format. Raises DocumentError (missing, too large, no document)."""
        with _as_given(source):
            if source.path is not None:
                files.check(source.path, self._max_bytes)
            return files.fingerprint(source, self._max_bytes)

    async def split(
        self, source: Source, splitting: Splitting, encode: Callable[[str], list[int]]
    ) -> Passages:
        """The chunks' texts, at most `splitting.chunk_size` tokens of `encode` each, and their
        places: pages, slides and sheets of files that have them, else sections where headings are
        marked (not in plain text, notebooks and mails).

        Cancelling it ends the parsing process and the splitting. Raises DocumentError and
        MissingExtra.
        """
        cancelled = threading.Event()
        try:
            with _as_given(source):
                parsed = await self._parsed(source)
            return await asyncio.to_thread(self._passages, parsed, splitting, encode, cancelled)
        finally:
            cancelled.set()

    def _passages(
        self, parsed: Parsed, splitting: Splitting, encode: Tokenize, cancelled: threading.Event
    ) -> Passages:
        cut = pieces_plainly if self._splits_plainly(splitting) else pieces_by_llama_index
        pieces = cut(parsed.text, splitting, encode, cancelled)
        places = parsed.places.of((piece.start, piece.end) for piece in pieces)
        return Passages((piece.text for piece in pieces), parsed.hidden, places)

    def _splits_plainly(self, splitting: Splitting) -> bool:
        return splitting.estimated if self._splitter is None else self._splitter == "plain"

    def _text(self, source: Source) -> Parsed:
        """The text of a source that needs no parser: a text file, or inline text."""
        if source.path is None:
            text = files.inline_text(source, self._max_bytes)
        else:
            text = files.read_text(source.path, self._max_bytes)
        return Parsed(text, places=sections(text) if files.is_markdown(source) else NOWHERE)

    async def _parsed(self, source: Source) -> Parsed:
        path = source.path
        if path is None:
            return await asyncio.to_thread(self._text, source)
        files.check(path, self._max_bytes)
        kind = files.format_of(path)
        if kind is Format.TEXT:
            return await asyncio.to_thread(self._text, source)
        parsed = await parse(path, kind, self._limits, self._keep_hidden)
        if kind is Format.PDF and not parsed.text.strip():
            raise files.refusal(
                path, "the PDF has no text, only images; run text recognition (OCR) on it first"
            )
        await asyncio.to_thread(files.usable, str(path), parsed.text)
        return parsed


@contextmanager
def _as_given(source: Source) -> Iterator[None]:
    """Make errors name a file as its user did, if it is stored under another name (an upload
    is)."""
    try:
        yield
    except DocumentError as error:
        path = source.path
        if path is None or path.name == Path(source.name).name:
            raise
        raise DocumentError(str(error).replace(str(path), source.name)) from error.__cause__


__all__ = ["DocumentError", "FileLoader", "ParsingLimits"]
