"""What goes into the journal and comes out of it: queries as they were asked, are known, ended."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from teola.engine import Source
from teola.errors import InputError, TeolaError
from teola.plain_json import SPACED, json_of
from teola.query.application import Application
from teola.query.journal.lost import UNREADABLE, UNREADABLE_CODE, JournalUnreadable
from teola.query.result import Failure, Result
from teola.workflow.kinds import Kind

FAILURE: Final = "failure"
"""Beside a result in the journal: what its error is."""
_KINDS: Final = {"cancelled": "QueryCancelled", "deadline": "DeadlineExceeded"}
"""Errors of rows that do not say it, by the state that they ended in."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A query to be accepted. request: JSON of what to run. created: seconds since 1970. code:
    digest of the application. files: its documents. key, digest: the client's name for it, and of
    what it asks, if it gave one."""

    id: str
    tenant: str
    app: str
    request: str
    created: float
    deadline_s: float
    code: str = ""
    files: Sequence[Path] = ()
    key: str | None = None
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class Kept:
    """What clients may know of a query. created: seconds since 1970. result: JSON of it, with what
    its error is (`Failure`). problem: in rows that older servers have written, JSON of what clients
    are told of that. seal: shows with which key the row is sealed. unreadable: it cannot be
    opened."""

    id: str
    tenant: str
    app: str
    state: str
    created: float
    runs: int
    latency_s: float | None
    digest: str | None
    result: str | None
    problem: str | None
    seal: str | None = None
    unreadable: bool = False

    @property
    def ended(self) -> bool:
        return self.state not in ("running", "waiting")

    def summary(self) -> dict[str, Any]:
        """Its line in a list of queries, like Entry.summary."""
        line: dict[str, Any] = {
            "query_id": self.id,
            "app": self.app,
            "mode": "background",
            "state": self.state,
            "created": round(self.created, 3),
        }
        if self.unreadable:
            line["code"] = UNREADABLE_CODE
        if self.latency_s is not None:
            return {**line, "latency_s": self.latency_s}
        return line if self.ended else {**line, "running_s": round(time.time() - self.created, 3)}

    def shown(self) -> dict[str, Any]:
        """With its result, once there is one. Raises JournalUnreadable."""
        result = self._whole()
        result.pop(FAILURE, None)
        return {**self.summary(), "result": result} if result else self.summary()

    def ending(self) -> Result:
        """How it ended, its error as far as it can be told again. Raises JournalUnreadable."""
        whole = self._whole()
        error: TeolaError | None = None
        if self.state not in ("ok", "partial"):
            message = str(whole.get("error", f"query {self.id} ended {self.state}"))
            kind = {"kind": _KINDS.get(self.state, "QueryFailed")}
            error = Failure(**whole.get(FAILURE, kind)).error(message)
        return Result(
            self.app,
            self.id,
            self.state,
            whole.get("outputs", {}),
            self.latency_s or 0.0,
            missing=tuple(whole.get("missing", ())),
            error=error,
            reasons=whole.get("reasons", {}),
            notices=tuple(whole.get("notices", ())),
        )

    def _whole(self) -> dict[str, Any]:
        if self.unreadable:
            raise JournalUnreadable(UNREADABLE.format(id=self.id))
        if not self.result:
            return {}
        try:
            result: dict[str, Any] = json.loads(self.result)
        except (ValueError, RecursionError):
            raise JournalUnreadable(UNREADABLE.format(id=self.id)) from None
        return result


@dataclass(frozen=True, slots=True)
class Taken:
    """A query that is this server's to run from now on. left_s: until its deadline. code: digest of
    the application that accepted it."""

    id: str
    tenant: str
    app: str
    request: str | None
    created: float
    left_s: float
    runs: int
    deaths: int
    cancel: bool
    state: str = "running"
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """How a query of the tenant's ended. result: JSON."""

    id: str
    state: str
    latency_s: float
    result: str
    tenant: str = ""


def ended(result: Result, tenant: str) -> Ended:
    """The row that says how a query of the tenant's ended."""
    values = result.to_json()
    if result.error is not None:
        values[FAILURE] = Failure.of(result.error).to_json()
    text = json_of(values, SPACED)
    return Ended(result.query_id, result.state, round(result.latency_s, 6), text, tenant)


class Body(BaseModel):
    """A request as the journal keeps it, to run it again. key: name of the API key that pays for
    it, if that is bounded."""

    model_config = ConfigDict(extra="forbid")

    inputs: dict[str, Any]
    overrides: dict[str, Any] = {}
    passes: str | None = None
    session: str | None = None
    finish_by_s: float | None = None
    most_tokens: int | None = None
    most_cost: float | None = None
    key: str | None = None

    @property
    def bounds(self) -> dict[str, Any]:
        """What the query may take, by the names that QuerySpec has for it."""
        return {"most_tokens": self.most_tokens, "most_cost": self.most_cost}

    def paid_by(self, key: str | None) -> Self:
        """The request, for which a key pays (None: none that is bounded)."""
        return self.model_copy(update={"key": key})

    @classmethod
    def read(cls, text: str) -> Self:
        """A request out of its row. Raises InputError that names the first thing wrong."""
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"the request in the journal is not JSON: {error}") from None
        try:
            return cls.model_validate(value)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise InputError(f"{where + ': ' if where else ''}{first['msg']}") from None

    def packed(self) -> tuple[str, list[Path]]:
        """The request as JSON, and the files that its documents lie in. Raises InputError."""
        files: list[Path] = []

        def item(value: Any) -> Any:
            if not isinstance(value, Source):
                return value
            described: dict[str, Any] = {"name": value.name, "metadata": dict(value.metadata)}
            if value.path is None:
                return {**described, "text": value.text}
            files.append(value.path)
            described |= {"origin": value.origin} if value.origin is not None else {}
            described |= {"replace": True} if value.replace else {}
            return {**described, "file": len(files) - 1, "suffix": value.path.suffix}

        inputs = {
            name: [item(element) for element in value] if isinstance(value, list) else item(value)
            for name, value in self.inputs.items()
        }
        whole = {"inputs": inputs, "overrides": self.overrides, "passes": self.passes}
        for name in ("session", "most_tokens", "most_cost", "finish_by_s", "key"):
            if (value := getattr(self, name)) is not None:  # else it is as before there were any
                whole[name] = value
        try:
            return json.dumps(whole, sort_keys=True, default=_no_json), files
        except InputError:
            raise
        except (TypeError, ValueError, RecursionError) as error:  # such as keys that are no texts
            raise InputError(f"an input cannot be kept in the journal: {error}") from None

    def unpacked(
        self, app: Application, place: Callable[[str], Path]
    ) -> tuple[dict[str, Any], list[Path]]:
        """The inputs, with documents in the place of what stands for them, and the files that these
        must be written into, in order. place: a new path for a suffix. Raises InputError."""
        inputs, paths = dict(self.inputs), dict[int, Path]()

        def item(value: Any) -> Any:
            if not isinstance(value, dict) or "text" in value or "file" not in value:
                return value
            path = paths[int(value["file"])] = place(str(value.get("suffix", "")))
            return Source(
                str(value.get("name")),
                path=path,
                metadata=value.get("metadata") or {},
                origin=value.get("origin"),
                replace=value.get("replace") is True,
            )

        for name, kind in app.inputs.items():
            value = inputs.get(name)
            if kind is Kind.DOCUMENTS and value is not None:
                inputs[name] = [
                    item(element) for element in (value if isinstance(value, list) else [value])
                ]
        if sorted(paths) != list(range(len(paths))):
            raise InputError("its documents are not numbered from 0")
        return inputs, [paths[n] for n in range(len(paths))]


def _no_json(value: Any) -> NoReturn:
    raise InputError(
        f"an input is {type(value).__name__}, which the journal cannot keep: give texts, numbers, "
        "lists or mappings"
    )


def digest_of(request: str, files: Sequence[Path]) -> str:
    """Digest of a request, without its deadline. Reads the files; run it in a thread."""
    whole = hashlib.sha256(request.encode())
    for path in files:
        with path.open("rb") as file:
            whole.update(hashlib.file_digest(file, "sha256").digest())
    return whole.hexdigest()
