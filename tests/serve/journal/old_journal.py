"""A journal as commit e5bedc5 has left it, in plain or sealed in the first form of sealing.

The tables are that commit's, and the values are what its servers wrote: nothing here uses today's
code, so that a change of it cannot change what is tested. Only digests of applications are given,
because they follow the applications.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final, LiteralString
from uuid import uuid4

import psycopg
from cryptography.fernet import Fernet

TABLES: Final[LiteralString] = """
CREATE SCHEMA teola_journal;
CREATE TABLE teola_journal.settings (version int PRIMARY KEY);
CREATE TABLE teola_journal.queries (
    id text PRIMARY KEY,
    tenant text NOT NULL CHECK (tenant <> ''),
    key text,
    digest text,
    app text NOT NULL,
    request text,
    created timestamptz NOT NULL DEFAULT now(),
    deadline timestamptz NOT NULL,
    holder bigint,
    runs int NOT NULL DEFAULT 1,
    deaths int NOT NULL DEFAULT 0,
    cancel boolean NOT NULL DEFAULT false,
    state text NOT NULL DEFAULT 'running',
    ended timestamptz,
    latency_s float8,
    result text,
    problem text,
    UNIQUE (tenant, key),
    CHECK ((state = 'running') = (ended IS NULL)),
    CHECK (ended IS NULL OR holder IS NULL)
);
CREATE INDEX ON teola_journal.queries (tenant, created);
CREATE INDEX ON teola_journal.queries (created) WHERE ended IS NULL;
CREATE INDEX ON teola_journal.queries (ended) WHERE ended IS NOT NULL;
CREATE TABLE teola_journal.files (
    tenant text NOT NULL CHECK (tenant <> ''),
    query text NOT NULL REFERENCES teola_journal.queries ON DELETE CASCADE,
    number int NOT NULL,
    piece int NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (query, number, piece)
);
ALTER TABLE teola_journal.files ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE teola_journal.queries DROP CONSTRAINT queries_check;
ALTER TABLE teola_journal.queries ADD CONSTRAINT queries_ended
    CHECK ((state IN ('running', 'waiting')) = (ended IS NULL));
ALTER TABLE teola_journal.queries ADD left_s float8;
ALTER TABLE teola_journal.queries ADD code text;
CREATE INDEX ON teola_journal.queries (tenant) WHERE state = 'waiting';
CREATE TABLE teola_journal.steps (
    tenant text NOT NULL CHECK (tenant <> ''),
    query text NOT NULL REFERENCES teola_journal.queries ON DELETE CASCADE,
    key text NOT NULL,
    value text,
    PRIMARY KEY (query, key)
);
CREATE TABLE teola_journal.asks (
    tenant text NOT NULL CHECK (tenant <> ''),
    query text NOT NULL REFERENCES teola_journal.queries ON DELETE CASCADE,
    id text NOT NULL,
    asked timestamptz NOT NULL DEFAULT now(),
    told text NOT NULL,
    answer text,
    PRIMARY KEY (query, id)
);
INSERT INTO teola_journal.settings VALUES (1), (2);
"""
SECURITY: Final[LiteralString] = """
ALTER TABLE teola_journal.{table} ENABLE ROW LEVEL SECURITY;
ALTER TABLE teola_journal.{table} FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS tenant ON teola_journal.{table};
CREATE POLICY tenant ON teola_journal.{table}
    USING (tenant = (SELECT current_setting('teola.tenant', true)))
    WITH CHECK (tenant = (SELECT current_setting('teola.tenant', true)));
DROP POLICY IF EXISTS server ON teola_journal.{table};
CREATE POLICY server ON teola_journal.{table}
    USING ((SELECT current_setting('teola.journal', true)) = 'server')
    WITH CHECK ((SELECT current_setting('teola.journal', true)) = 'server');
"""
ROLE: Final[LiteralString] = """
DO $$ BEGIN
    CREATE ROLE teola_journal NOLOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
END $$
"""
GRANT: Final[LiteralString] = """
GRANT teola_journal TO CURRENT_USER;
GRANT USAGE ON SCHEMA teola_journal TO teola_journal;
GRANT SELECT ON teola_journal.settings TO teola_journal;
GRANT SELECT, INSERT, UPDATE, DELETE ON teola_journal.queries, teola_journal.files,
    teola_journal.steps, teola_journal.asks TO teola_journal;
"""
FAR: Final = "2100-01-01"
DEAD: Final = 4711
"""Token of a server that has died."""
IDEMPOTENCY_KEY: Final = "order 66"
DOCUMENT: Final = "It rains." * 200_000
"""So it lies there in two pieces."""
PIECE: Final = 2**20


class OldJournal:
    """Writes one into the database `dsn`. codes: digests of the applications `mail` and `read`.
    key: its servers' journal_key."""

    def __init__(self, dsn: str, codes: Mapping[str, str], key: str | None = None) -> None:
        self._codes, self._fernet = codes, None
        if key is not None:
            digest = hashlib.blake2b(key.encode(), digest_size=32, person=b"teola-journal").digest()
            self._fernet = Fernet(base64.urlsafe_b64encode(digest))
        with psycopg.connect(dsn, autocommit=True) as self._connection:
            self._connection.execute(TABLES)
            for table in ("queries", "files", "steps", "asks"):
                self._connection.execute(SECURITY.replace("{table}", table))
            self._connection.execute(ROLE)
            self._connection.execute(GRANT)
            self.waiting = self._waiting()
            self.answered = self._waiting(answer='"yes"')
            self.documents = self._documents()
            self.accepted = self._accepted()
            self.ended = self._ended()

    def _waiting(self, answer: str | None = None) -> str:
        """A query that waits for people; with an answer, one that nobody has taken since."""
        id = self._query("mail", {"question": "tides"}, state="running" if answer else "waiting")
        self._step(id, "draft.call", '{"gives": {"draft": "About tides."}}')
        self._ask(id, "ask.ask", "ask", "Send?\nAbout tides.", answer)
        return id

    def _documents(self) -> str:
        """A query that waits for people before it reads its document."""
        document = {"name": "rain.txt", "metadata": {}, "file": 0, "suffix": ".txt"}
        id = self._query("read", {"documents": [document]}, state="waiting")
        body = DOCUMENT.encode()
        for piece, at in enumerate(range(0, len(body), PIECE)):
            values = ("default", id, 0, piece, body[at : at + PIECE])
            self._connection.execute(
                "INSERT INTO teola_journal.files VALUES (%s, %s, %s, %s, %b)", values
            )
        self._ask(id, "ask.ask", "ask", "Read?", None)
        return id

    def _accepted(self) -> str:
        """A query that was accepted with a key, and not begun before its server died."""
        request = json.dumps({"inputs": {"question": "winds"}, "overrides": {}, "passes": None})
        return self._query(
            "mail",
            {"question": "winds"},
            holder=DEAD,
            key=hashlib.sha256(IDEMPOTENCY_KEY.encode()).hexdigest(),
            digest=hashlib.sha256(f"mail\n{request}".encode()).hexdigest(),
        )

    def _ended(self) -> str:
        result = {"app": "mail", "state": "ok", "outputs": {"answer": "old"}, "latency_s": 0.1}
        return self._query(
            "mail",
            None,
            state="ok",
            ended="now",
            left_s=None,
            latency_s=0.1,
            result=json.dumps(result),
        )

    def _query(self, app: str, inputs: dict[str, Any] | None, **columns: Any) -> str:
        id = uuid4().hex
        row = {"id": id, "tenant": "default", "app": app, "deadline": FAR, "left_s": 100.0}
        row |= {"code": self._codes[app], **columns}
        if inputs is not None:
            row["request"] = json.dumps({"inputs": inputs, "overrides": {}, "passes": None})
        names, places = ", ".join(row), ", ".join(["%s"] * len(row))
        self._connection.execute(
            f"INSERT INTO teola_journal.queries ({names}) VALUES ({places})", [*row.values()]
        )
        return id

    def _step(self, id: str, key: str, value: str) -> None:
        self._connection.execute(
            "INSERT INTO teola_journal.steps VALUES ('default', %s, %s, %s)",
            (id, key, self._sealed(value)),
        )

    def _ask(self, id: str, ask: str, component: str, question: str, answer: str | None) -> None:
        schema = {"enum": ["yes", "no"]}
        told = {"ask": ask, "kind": "ask", "component": component, "question": question}
        text = json.dumps({**told, "schema": schema})
        sealed = None if answer is None else self._sealed(answer)
        self._connection.execute(
            "INSERT INTO teola_journal.asks (tenant, query, id, told, answer)"
            " VALUES ('default', %s, %s, %s, %s)",
            (id, ask, self._sealed(text), sealed),
        )

    def _sealed(self, text: str) -> str:
        """As that commit has it: steps, questions and answers are sealed, and nothing else."""
        if self._fernet is None:
            return text
        return f"fernet:{self._fernet.encrypt(text.encode()).decode()}"
