"""Sealing: with a key, what a query asks, computes, is asked and gives is encrypted in the journal.

    server.journal_key ──▶ key of a query, by tenant and id ──▶ AES-256-GCM of each value, with the
                                                                place that it belongs to

A value opens in its own place of its own query and nowhere else: one that was moved to another
step, question, query or tenant is refused like one that was made up. Each query has a key of its
own, so random nonces of 96 bits do not run out. Servers that share a journal share the key.

Values in plain, and those of the first form (Fernet, bound to no place), are read as long as the
journal is not `required` to be sealed: until all that lay there has been sealed (resealing.py).
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import os
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from teola.errors import InputError
from teola.extras import needs
from teola.query.journal.lost import JournalUnreadable

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

LEAST_CHARACTERS: Final = 16
MARK: Final = "aead1:"
"""Before a sealed text."""
BYTES_MARK: Final = b"\0teola-aead1\0"
"""Before a sealed piece of a document."""
FIRST_MARK: Final = "fernet:"
"""Before a text that was sealed in the first form."""
DIGEST_MARK: Final = "hmac1:"
NONCE: Final = 12
"""Bytes."""
PART: Final = 2**18
"""Characters that are sealed at once, a MiB at most: one call into C keeps every other thread
waiting."""
AT_ONCE: Final = 2**16
"""Characters that are sealed on the event loop; more is done in a thread."""
OTHER_KEY: Final = (
    "what the journal has of query {id} cannot be opened: it was written with another "
    "server.journal_key, or changed since"
)
UNSEALED: Final = (
    "what the journal has of query {id} cannot be opened: part of it lies there unsealed, in a "
    "journal that is sealed"
)
NO_KEY: Final = "the journal is sealed: this server needs the server.journal_key that sealed it"


class Seal:
    """Makes the seal of each query. key: None leaves values as they are. Raises InputError for a
    key that anybody could guess, and MissingExtra.

    required: whatever is not sealed is refused.
    """

    def __init__(self, key: str | None = None) -> None:
        self.required = False
        self._root: bytes | None = None
        self._first: Fernet | None = None
        if key is None:
            return
        if len(key) < LEAST_CHARACTERS:
            raise InputError(
                f"server.journal_key has {len(key)} characters, and needs {LEAST_CHARACTERS} at "
                "least: make one with `openssl rand -base64 32`"
            )
        with needs("server", "server.journal_key"):
            from cryptography.fernet import Fernet
        first = blake2b(key.encode(), digest_size=32, person=b"teola-journal").digest()
        self._first = Fernet(base64.urlsafe_b64encode(first))
        self._root = blake2b(key.encode(), digest_size=32, person=b"teola-seal").digest()

    @property
    def has_key(self) -> bool:
        """Whether values are sealed."""
        return self._root is not None

    @property
    def key_of_call_ids(self) -> bytes | None:
        """The key with which servers that share it sign the ids of their clients' calls."""
        return None if self._root is None else _derived(self._root, b"teola-call-ids")

    def of(self, tenant: str, query: str) -> QuerySeal:
        """The seal of a query."""
        key = None if self._root is None else _derived(self._root, b"teola-query", tenant, query)
        return QuerySeal(self, key, query)

    def digest(self, tenant: str, digest: str | None) -> str | None:
        """A digest of a request that cannot be compared with guesses of the request."""
        if digest is None or self._root is None:
            return digest
        return DIGEST_MARK + _derived(self._root, b"teola-digest", tenant, digest).hex()

    def note(self, when: str) -> str:
        """What the journal's settings say from `when` on: the holder of the key has sealed it."""
        assert self._root is not None
        return f"{when}:{_derived(self._root, b'teola-note', when).hex()}"

    def wrote(self, note: str) -> bool:
        """Whether a note was made with this key."""
        when, _, _ = note.rpartition(":")
        return self.has_key and hmac.compare_digest(note.encode(), self.note(when).encode())

    def opened_first(self, text: str, query: str) -> str:
        """A text of the first form, or a plain one. Raises JournalUnreadable."""
        if not text.startswith(FIRST_MARK):
            return text
        from cryptography.fernet import InvalidToken

        try:
            if self._first is None:
                raise InvalidToken
            return _text(self._first.decrypt(text.removeprefix(FIRST_MARK)))
        except InvalidToken:
            raise JournalUnreadable(OTHER_KEY.format(id=query)) from None


class QuerySeal:
    """Closes and opens the values of one query. place: the column or row that a value stands in,
    such as `step/KEY`. key: None leaves values as they are."""

    def __init__(self, seal: Seal, key: bytes | None, query: str) -> None:
        self._seal, self._query, self._cipher = seal, query, None
        if key is not None:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            self._cipher = AESGCM(key)

    def close(self, place: str, text: str) -> str:
        """What is written. Raises JournalUnreadable where a key is missing."""
        if self._cipher is None:
            self._may_be_plain()
            return text
        parts = [text[at : at + PART] for at in range(0, len(text), PART)] or [""]
        last = len(parts) - 1
        sealed = (
            self._encrypt(_part(place, i, i == last), part.encode("utf-8", "surrogatepass"))
            for i, part in enumerate(parts)
        )
        return MARK + ".".join(base64.b64encode(part).decode() for part in sealed)

    def open(self, place: str, text: str) -> str:
        """What was written in this place. Raises JournalUnreadable."""
        if not text.startswith(MARK):
            if self._seal.required:
                raise JournalUnreadable(UNSEALED.format(id=self._query))
            return self._seal.opened_first(text, self._query)
        parts = text[len(MARK) :].split(".")
        last = len(parts) - 1
        try:
            opened = [
                self._decrypt(_part(place, i, i == last), base64.b64decode(part, validate=True))
                for i, part in enumerate(parts)
            ]
        except ValueError:  # no base64
            raise self._other_key() from None
        return "".join(map(_text, opened))

    async def closed(self, place: str, text: str) -> str:
        """`close`, off the event loop where it takes long."""
        if len(text) <= AT_ONCE:
            return self.close(place, text)
        return await asyncio.to_thread(self.close, place, text)

    async def opened(self, place: str, text: str) -> str:
        """`open`, off the event loop where it takes long."""
        if len(text) <= AT_ONCE:
            return self.open(place, text)
        return await asyncio.to_thread(self.open, place, text)

    def close_piece(self, place: str, body: bytes) -> bytes:
        """What is written of a document, a MiB at most. Raises JournalUnreadable where a key is
        missing."""
        if self._cipher is None:
            self._may_be_plain()
            return body
        return BYTES_MARK + self._encrypt(place, body)

    def open_piece(self, place: str, body: bytes) -> bytes:
        """What was written of a document in this place. Raises JournalUnreadable."""
        if not body.startswith(BYTES_MARK):
            if self._seal.required:
                raise JournalUnreadable(UNSEALED.format(id=self._query))
            return body
        return self._decrypt(place, body[len(BYTES_MARK) :])

    def _may_be_plain(self) -> None:
        if self._seal.required:
            raise JournalUnreadable(NO_KEY)

    def _encrypt(self, place: str, body: bytes) -> bytes:
        assert self._cipher is not None
        nonce = os.urandom(NONCE)
        return nonce + self._cipher.encrypt(nonce, body, place.encode("utf-8", "surrogatepass"))

    def _decrypt(self, place: str, body: bytes) -> bytes:
        from cryptography.exceptions import InvalidTag

        if self._cipher is None:
            raise self._other_key()
        try:
            place_bytes = place.encode("utf-8", "surrogatepass")
            return self._cipher.decrypt(body[:NONCE], body[NONCE:], place_bytes)
        except (InvalidTag, ValueError):  # ValueError: it is too short
            raise self._other_key() from None

    def _other_key(self) -> JournalUnreadable:
        return JournalUnreadable(OTHER_KEY.format(id=self._query))


def request_place(app: str, code: str | None) -> str:
    """Where a request stands: in a query of this application, and of this version of it."""
    return "\0".join(("request", app, code or ""))


def _part(place: str, number: int, last: bool) -> str:
    """The place of a part of a text, of which none can be left out."""
    return f"{place}\0{number}{'.' if last else ''}"


def _derived(root: bytes, purpose: bytes, *names: str) -> bytes:
    """A key, or a code that proves the knowledge of one. Names are told apart by their lengths."""
    encoded = [name.encode("utf-8", "surrogatepass") for name in names]
    whole = b"".join(len(name).to_bytes(8, "big") + name for name in encoded)
    return blake2b(whole, key=root, digest_size=32, person=purpose).digest()


def _text(body: bytes) -> str:
    return body.decode("utf-8", "surrogatepass")
