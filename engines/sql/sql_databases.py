"""Databases by name, as one engine: `database` of a request says which one.

    "harbour"          one of the configuration, [databases.harbour]
    "secret:HARBOUR"   the environment's variable HARBOUR has a path or a DSN ╮ only where
    "./harbour.db"     a file of SQLite or DuckDB                             ╯ paths are open

A server closes paths: whoever could name one to it would read any file and reach any host.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Any, Final

from teola.engine import EngineKind, EngineResult, EngineSpec, Request, TextVectors
from teola.errors import LONGEST_NAME, EngineError, EngineUnavailable, InputError
from teola.graph.ops import Op

from .sql_database import SqlDatabase

MOST_OPENED: Final = 16
"""Databases by path that are remembered; the one that was asked longest ago is forgotten."""
AGAIN_S: Final = 5.0
"""After which a database that could not be opened is tried again."""
SECRET: Final = "secret:"
SERVERS: Final = ("postgresql:", "postgres:")

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Opened:
    """A database, once it has been started. lock: held while it starts. failed: why it could not be
    started, until `again_at`."""

    database: SqlDatabase
    lock: threading.Lock = field(default_factory=threading.Lock)
    started: bool = False
    failed: str = ""
    again_at: float = 0.0

    def check(self) -> None:
        """Raises EngineUnavailable while it is known that it cannot be started."""
        if monotonic() < self.again_at:
            raise EngineUnavailable(self.failed, retryable=False)


class SqlDatabases:
    """Databases by name, by path or by secret.

    named: options of SqlDatabase by name, as [databases.NAME] has them. paths: whether a request
    may name a file or a secret besides. data_dir: where values are indexed. options: of databases
    that have no name, such as `rows`.
    """

    def __init__(
        self,
        name: str = "databases",
        *,
        named: Mapping[str, Mapping[str, Any]] | None = None,
        paths: bool = True,
        data_dir: str | Path | None = None,
        options: Mapping[str, Any] | None = None,
        concurrency: int = 16,
    ) -> None:
        self._spec = EngineSpec(
            name=name,
            kind=EngineKind.SQL,
            ops=frozenset({Op.SQL}),
            max_batch=1,
            concurrency=concurrency,
            description="databases that are only read",
        )
        self._paths, self._data_dir, self._options = paths, data_dir, dict(options or {})
        self._named = {
            called: _Opened(self._made(called, **given)) for called, given in (named or {}).items()
        }
        self._others: OrderedDict[str, _Opened] = OrderedDict()
        self._vectors: TextVectors | None = None
        self._lock = threading.Lock()

    @property
    def spec(self) -> EngineSpec:
        return self._spec

    def find_by_meaning(self, vectors: TextVectors) -> None:
        """See `FindsByMeaning`."""
        self._vectors = vectors
        for opened in self._named.values():
            opened.database.find_by_meaning(vectors)

    def start(self) -> None:
        """Open the databases of the configuration. One that cannot be reached is tried again when
        it is asked for. Raises InputError for what is configured wrongly, such as hints that do
        not fit."""
        for called, opened in self._named.items():
            try:
                self._started(opened)
            except EngineUnavailable as error:
                log.warning("database %s is not there yet: %s", called, error)

    def close(self) -> None:
        """Close all of them."""
        with self._lock:
            opened = [*self._named.values(), *self._others.values()]
            self._others.clear()
        for one in opened:
            with one.lock:
                one.database.close()
                one.started = False

    def execute(self, requests: Sequence[Request]) -> list[EngineResult | Exception]:
        """As SqlDatabase does, of the database that each request names."""
        return [self._executed(request) for request in requests]

    def _executed(self, request: Request) -> EngineResult | Exception:
        try:
            opened = self._of(request.inputs.get("database"), request.context.tenant)
            hints = self._hints(request.inputs.get("hints"), request.context.tenant)
            self._started(opened)
        except InputError as error:
            return EngineError(str(error))
        except EngineError as error:
            return error
        inputs = {key: v for key, v in request.inputs.items() if key not in ("database", "hints")}
        if hints is not None:
            inputs["hints"] = hints
        keep = inputs.pop("keep", None)
        (result,) = opened.database.execute([request._replace(inputs=inputs)])
        if keep is True and isinstance(result, dict) and "error" not in result["result"]:
            opened.database.note_kept(request.context.tenant)
            result["result"]["collection"] = opened.database.collection
        return result

    # --- which one --------------------------------------------------------------------------------

    def _of(self, asked: Any, tenant: str) -> _Opened:
        """The database that a request means. Raises InputError."""
        mine = {name: one for name, one in self._named.items() if one.database.open_to(tenant)}
        if asked is None or not str(asked).strip():
            if len(mine) == 1:
                return next(iter(mine.values()))
            raise InputError(
                f"say which database is meant: {_listed(mine)}"
                if mine
                else "there is no database: give one as `database`"
                if self._paths
                else "no database is configured for you: [databases.NAME] in the configuration"
            )
        text = str(asked)
        if text in mine:
            return mine[text]
        if not self._paths or text in self._named:
            near = get_close_matches(text[:LONGEST_NAME], mine, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            told = "of that address" if "://" in text else repr(text[:LONGEST_NAME])
            raise InputError(
                f"there is no database {told} for you{hint} (there are: {_listed(mine)})"
            )
        if text.startswith(SERVERS):
            raise InputError(
                "a DSN may hold a password: set it as a variable of the environment and give its "
                "name, secret:NAME"
            )
        return self._unnamed(text)

    def _unnamed(self, text: str) -> _Opened:
        if text.startswith(SECRET):
            secret = text.removeprefix(SECRET)
            # By its value too: a variable may be set anew.
            value = os.environ.get(secret, "")
            key, called, given = f"{text} {value}", f"secret {secret}", {"secret": secret}
        else:
            key = str(Path(text).expanduser().absolute())
            called, given = _called(key), {"path": key}
        with self._lock:
            opened = self._others.get(key)
            if opened is None:
                options: Any = {**self._options, **given}
                database = self._made(called, **options)
                if self._vectors is not None:
                    database.find_by_meaning(self._vectors)
                opened = self._others[key] = _Opened(database)
            self._others.move_to_end(key)
            gone = []
            while len(self._others) > MOST_OPENED:
                gone.append(self._others.popitem(last=False)[1])
        for one in gone:
            with one.lock:
                one.database.close()
        return opened

    def _hints(self, asked: Any, tenant: str) -> str | Path | None:
        """The file of hints that a request means: a database's of the configuration, or a path.
        Raises InputError."""
        if asked is None or not str(asked).strip():
            return None
        text = str(asked)
        named = self._named.get(text)
        if named is not None and named.database.open_to(tenant):
            if named.database.hints_file is None:
                raise InputError(f"the database {text!r} has no hints in the configuration")
            return named.database.hints_file
        if not self._paths or named is not None:
            raise InputError(
                f"there are no hints {text[:LONGEST_NAME]!r} for you: name a database of the "
                "configuration that has some"
            )
        return text

    def _made(self, called: str, **given: Any) -> SqlDatabase:
        return SqlDatabase(called, **{"data_dir": self._data_dir, **given})

    def _started(self, opened: _Opened) -> None:
        """Open it, unless it is. Raises EngineUnavailable and InputError. Whoever asks after
        AGAIN_S tries again; until then nobody waits for a server that does not answer."""
        if opened.started:
            return
        opened.check()
        with opened.lock:
            if opened.started:
                return
            opened.check()
            try:
                opened.database.start()
            except EngineUnavailable as error:
                opened.failed, opened.again_at = str(error), monotonic() + AGAIN_S
                raise
            opened.started = True


def _listed(mine: Mapping[str, object]) -> str:
    return ", ".join(sorted(mine)) or "none"


def _called(path: str) -> str:
    """A file's name, with a mark by which two of one name differ."""
    return f"{Path(path).name[:LONGEST_NAME]} {sha256(path.encode()).hexdigest()[:8]}"
