"""API keys: who asks, and what for. Kept in a file as digests, so that nobody can read them there.

A key is 256 random bits, so one round of SHA-256 is enough: there is nothing to guess. The file is
read again when it has changed; a key that was revoked ends with the next request. Who changes it
holds its folder's lock, so that of two changes at the same time none is lost.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from teola.errors import InputError, UnknownName
from teola.policies.ledger import BudgetAccount
from teola.query.spec import QuerySpec
from teola.runtime.day_accounts import DayAccounts, DayBudget
from teola.serve.access.neighbours import REFUSAL, from_here
from teola.serve.problems import Problem, answer

PREFIX: Final = "teola_"
SCOPES: Final = ("query", "metrics")
OPEN: Final = frozenset({"/", "/healthz", "/readyz", "/ui"})
"""Paths for which no key is needed, beside the page's own files."""
PAGE: Final = "/ui/"
_CARRY: Final = frozenset({b"authorization", b"x-api-key"})
"""Headers that a key may come in."""
LOOK_EVERY_S: Final = 1.0
DEFAULT_TENANT: Final = "default"
ACCOUNTS: Final = "teola.accounts"
"""In a request's scope: what its key may take in a day, if that is bounded."""
PAYING: Final = "teola.paying_key"
"""In a request's scope: the name of such a key."""


@dataclass(frozen=True, slots=True)
class Key:
    """What is kept of a key. digest: SHA-256, hexadecimal. created: seconds since 1970.
    tokens_a_day, cost_a_day: that its queries may take (None: there is no bound)."""

    name: str
    tenant: str
    digest: str
    scopes: tuple[str, ...] = ("query",)
    created: float = 0.0
    tokens_a_day: int | None = None
    cost_a_day: float | None = None

    @property
    def budget(self) -> DayBudget | None:
        """What its queries may take in a day."""
        bounded = self.tokens_a_day is not None or self.cost_a_day is not None
        return DayBudget(self.tokens_a_day, self.cost_a_day) if bounded else None


class KeyFile:
    """The keys of a server. Raises InputError where the file is not one."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[Key]:
        """All keys; none if there is no file yet."""
        try:
            data = json.loads(self.path.read_text(encoding="utf-8"))
            return [Key(**{**key, "scopes": tuple(key["scopes"])}) for key in data["keys"]]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise InputError(f"cannot read the keys in {self.path}: {error.strerror}") from None
        except (ValueError, TypeError, KeyError):
            raise InputError(f"{self.path} is no file of keys; name another") from None

    def create(
        self,
        name: str,
        tenant: str,
        scopes: Iterable[str] = ("query",),
        *,
        tokens_a_day: int | None = None,
        cost_a_day: float | None = None,
    ) -> str:
        """Add a key; the key itself, which is nowhere else. Raises InputError, UnknownName."""
        DayBudget(tokens_a_day, cost_a_day)
        chosen_scopes = tuple(dict.fromkeys(scopes))
        for scope in chosen_scopes:
            if scope not in SCOPES:
                raise UnknownName("scope", scope, SCOPES)
        for what, text in (("name", name), ("tenant", tenant)):
            if not text.strip() or not text.isprintable() or len(text) > 64:
                raise InputError(f"a key's {what} has 1 to 64 printable characters, not {text!r}")
        secret = PREFIX + secrets.token_urlsafe(32)
        with self._changing() as (file, keys):
            if any(key.name == name for key in keys):
                raise InputError(
                    f"there is a key called {name!r} already; revoke it or name another"
                )
            created = round(time.time(), 3)
            key = Key(
                name, tenant, digest(secret), chosen_scopes, created, tokens_a_day, cost_a_day
            )
            _write(file, [*keys, key])
        return secret

    def revoke(self, name: str) -> None:
        """Take a key away. Raises UnknownName."""
        with self._changing() as (file, keys):
            if all(key.name != name for key in keys):
                raise UnknownName("key", name, [key.name for key in keys])
            _write(file, [key for key in keys if key.name != name])

    @contextmanager
    def _changing(self) -> Iterator[tuple[Path, list[Key]]]:
        """The file itself, wherever links lead to, and its keys, while nobody else changes it."""
        try:
            file = self.path.resolve()
            file.parent.mkdir(parents=True, exist_ok=True)
            folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(folder, fcntl.LOCK_EX)
                yield file, self.read()
            finally:
                os.close(folder)
        except (OSError, RuntimeError) as error:  # the latter where links lead in a circle
            reason = getattr(error, "strerror", None) or "its links lead in a circle"
            raise InputError(f"cannot write the keys to {self.path}: {reason}") from None


def _write(file: Path, keys: Iterable[Key]) -> None:
    """Write the file at once or not at all. Nobody else may read it."""
    kept = [{k: v for k, v in asdict(key).items() if v is not None} for key in keys]
    text = json.dumps({"keys": kept}, indent=1) + "\n"
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=".keys-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            out.write(text)
        os.replace(name, file)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


def digest(secret: str) -> str:
    """Digest of a key's secret, which is kept in its place."""
    return hashlib.sha256(secret.encode()).hexdigest()


class KeyGuard:
    """ASGI middleware that lets in who has a key, and says whose it is: `scope["tenant"]`."""

    def __init__(
        self,
        app: ASGIApp,
        keys: KeyFile | None,
        refused: Callable[[Problem, Scope], None] = lambda problem, scope: None,
    ) -> None:
        self._app, self._keys, self._refused = app, keys, refused
        self._known: dict[str, Key] = {}
        self._days = DayAccounts()
        self._seen: tuple[int, int] | None = None
        self._looked = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN or scope["path"].startswith(PAGE):
            await self._app(scope, receive, send)
            return
        if self._keys is None:
            scope["tenant"] = DEFAULT_TENANT
            app: ASGIApp = self._app
            if not from_here(scope["headers"]):
                problem = Problem(403, "forbidden", REFUSAL)
                self._refused(problem, scope)
                app = answer(scope["path"], problem)
            await app(scope, receive, send)
            return
        key = self.key(scope["headers"])
        needed_scope = "metrics" if scope["path"] == "/metrics" else "query"
        if key is None:
            message = "one API key is needed: Authorization: Bearer teola_..."
            problem = Problem(401, "unauthenticated", message)
            headers = {"www-authenticate": "Bearer"}
        elif needed_scope not in key.scopes:
            problem = Problem(403, "forbidden", f"this key lacks the scope {needed_scope!r}")
            headers = {}
        else:
            scope["tenant"] = key.tenant
            if (budget := key.budget) is not None:
                scope[ACCOUNTS], scope[PAYING] = (self._account(key.name, budget),), key.name
            await self._app(scope, receive, send)
            return
        self._refused(problem, scope)
        await answer(scope["path"], problem, headers)(scope, receive, send)

    def key(self, headers: Iterable[tuple[bytes, bytes]]) -> Key | None:
        """The key that a request carries, if it is one of ours and the only one."""
        carried = [(name, value) for name, value in headers if name in _CARRY]
        by_name = dict(carried)
        if len(by_name) < len(carried):
            return None  # a proxy before us may have looked at another of them
        kind, _, secret = by_name.get(b"authorization", b"").decode("latin-1").partition(" ")
        if kind.lower() != "bearer":
            secret = by_name.get(b"x-api-key", b"").decode("latin-1")
        mine = digest(secret.strip())
        match = self._current().get(mine)
        return match if match and hmac.compare_digest(match.digest, mine) else None

    def accounts_of(self, name: str) -> tuple[BudgetAccount, ...]:
        """What the key of this name may take in a day; none if it is gone, or not bounded."""
        budgets = (key.budget for key in self._current().values() if key.name == name)
        budget = next(budgets, None)
        return () if budget is None else (self._account(name, budget),)

    def _account(self, name: str, budget: DayBudget) -> BudgetAccount:
        return self._days.account(f"key {name!r} today", budget)

    def _current(self) -> dict[str, Key]:
        """The keys, read again if their file has changed."""
        now = time.monotonic()
        if self._keys is None or now - self._looked < LOOK_EVERY_S:
            return self._known
        self._looked = now
        seen = _version(self._keys.path)
        if seen != self._seen:
            try:
                self._known = {key.digest: key for key in self._keys.read()}
            except InputError:
                self._known = {}  # what cannot be read lets nobody in
            self._seen = seen
        return self._known


def paid_by(request: HTTPConnection, spec: QuerySpec) -> QuerySpec:
    """The query, whose calls the key of its request pays, too."""
    accounts = request.scope.get(ACCOUNTS, ())
    return replace(spec, accounts=accounts) if accounts else spec


def _version(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino


def listed(key: Key) -> dict[str, Any]:
    """A key as people are shown it, without the digest."""
    return {name: value for name, value in asdict(key).items() if name != "digest"}
