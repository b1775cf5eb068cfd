"""Sealing: what queries have computed and asked is encrypted in the journal, if there is a key.

Authenticated encryption (Fernet: AES-128 in CBC mode and HMAC-SHA256, from the package
`cryptography`), with a key made of `server.journal_key`. Servers that share a journal share it.
"""

from __future__ import annotations

import base64
from hashlib import blake2b
from typing import Final

from teola.errors import InputError
from teola.extras import needs
from teola.journal.lost import OtherKey

LEAST_CHARACTERS: Final = 16
MARK: Final = "fernet:"
"""Before what is sealed."""


class Seal:
    """Closes and opens texts. key: None leaves them as they are. Raises InputError for a key that
    anybody could guess, and MissingExtra."""

    def __init__(self, key: str | None = None) -> None:
        self._fernet = None
        if key is None:
            return
        if len(key) < LEAST_CHARACTERS:
            raise InputError(
                f"server.journal_key has {len(key)} characters, and needs {LEAST_CHARACTERS} at "
                "least: make one with `openssl rand -base64 32`"
            )
        with needs("server", "server.journal_key"):
            from cryptography.fernet import Fernet
        digest = blake2b(key.encode(), digest_size=32, person=b"teola-journal").digest()
        self._fernet = Fernet(base64.urlsafe_b64encode(digest))

    @property
    def sealed(self) -> bool:
        """Whether there is a key."""
        return self._fernet is not None

    def close(self, text: str) -> str:
        """What is written."""
        if self._fernet is None:
            return text
        return MARK + self._fernet.encrypt(text.encode("utf-8", "surrogatepass")).decode()

    def open(self, text: str) -> str:
        """What was written. Raises OtherKey."""
        if not text.startswith(MARK):
            return text
        from cryptography.fernet import InvalidToken

        try:
            if self._fernet is None:
                raise InvalidToken
            return self._fernet.decrypt(text.removeprefix(MARK)).decode("utf-8", "surrogatepass")
        except InvalidToken:
            raise OtherKey("it was written by a server with another server.journal_key") from None
