"""What is asked of the journal's tables: one statement for each step in the life of a query.

Every statement that a client's request leads to names the tenant, and row-level security would hold
it to that in any case (tables.py).
"""

from __future__ import annotations

from typing import Final, LiteralString

CHANNEL: Final = "teola_journal"

INSERT: Final[LiteralString] = """
INSERT INTO teola_journal.queries
    (id, tenant, key, digest, app, request, created, deadline, holder)
VALUES (%s, %s, %s, %s, %s, %s, to_timestamp(%s), now() + make_interval(secs => %s), %s)
ON CONFLICT (tenant, key) DO NOTHING RETURNING id
"""
PIECE: Final[LiteralString] = """
INSERT INTO teola_journal.files (tenant, query, number, piece, body) VALUES (%s, %s, %s, %s, %b)
"""
PIECES: Final[LiteralString] = """
SELECT number, body FROM teola_journal.files WHERE query = %s ORDER BY number, piece
"""
_ONE: Final[LiteralString] = """
SELECT id, tenant, app, state, extract(epoch FROM created)::float8 AS created, runs, latency_s,
    digest, result, problem
FROM teola_journal.queries WHERE tenant = %s AND
"""
WITH_ID: Final[LiteralString] = _ONE + "id = %s"
WITH_KEY: Final[LiteralString] = _ONE + "key = %s"
LIST: Final[LiteralString] = """
SELECT id, tenant, app, state, extract(epoch FROM q.created)::float8 AS created, runs, latency_s,
    NULL AS digest, NULL AS result, NULL AS problem
FROM teola_journal.queries q
WHERE tenant = %s AND id <> ALL(%s)
    AND app = coalesce(%s::text, app) AND state = coalesce(%s::text, state)
ORDER BY q.created DESC LIMIT %s
"""
CANCEL: Final[LiteralString] = """
UPDATE teola_journal.queries SET cancel = true WHERE tenant = %s AND id = %s AND ended IS NULL
"""
NOTIFY: Final[LiteralString] = "SELECT pg_notify(%s, %s)"
END: Final[LiteralString] = """
WITH mine AS (
    UPDATE teola_journal.queries
    SET state = %s, latency_s = %s, result = %s, problem = %s, ended = now(), request = NULL,
        holder = NULL
    WHERE id = %s AND holder = %s AND ended IS NULL RETURNING id
), gone AS (DELETE FROM teola_journal.files WHERE query IN (SELECT id FROM mine))
SELECT pg_notify(%s, id) FROM mine
"""
HELD: Final[LiteralString] = """
SELECT id, cancel FROM teola_journal.queries WHERE holder = %s AND ended IS NULL
"""
GONE: Final[LiteralString] = """
WITH known AS MATERIALIZED (
    SELECT DISTINCT holder FROM teola_journal.queries WHERE ended IS NULL AND holder <> %s
)
SELECT holder FROM known
WHERE pg_postmaster_start_time() < now() - make_interval(secs => %s)
    AND pg_try_advisory_xact_lock_shared(holder)
"""
TAKE: Final[LiteralString] = """
WITH dead AS MATERIALIZED (
    SELECT holder FROM unnest(%(gone)s::bigint[]) AS known (holder)
    WHERE pg_try_advisory_xact_lock_shared(holder)
), free AS (
    SELECT id FROM teola_journal.queries
    WHERE ended IS NULL
        AND (holder IS NULL OR holder IN (SELECT holder FROM dead) OR id = ANY(%(mine)s))
        AND (app = ANY(%(apps)s) OR cancel OR deadline <= now())
        AND id <> ALL(%(apart)s)
    ORDER BY created LIMIT %(most)s FOR UPDATE SKIP LOCKED
)
UPDATE teola_journal.queries q
SET holder = %(me)s, runs = runs + 1,
    deaths = deaths + (q.holder IS NOT NULL AND q.holder <> %(me)s)::int
FROM free WHERE q.id = free.id
RETURNING q.id, tenant, app, request, extract(epoch FROM created)::float8 AS created,
    extract(epoch FROM deadline - now())::float8 AS left_s, runs, deaths, cancel
"""
ALIVE: Final[LiteralString] = """
UPDATE teola_journal.queries SET deaths = greatest(deaths - 1, 0)
WHERE id = ANY(%s) AND holder <> %s AND ended IS NULL
"""
GIVE_BACK: Final[LiteralString] = """
WITH given AS (
    UPDATE teola_journal.queries SET holder = NULL
    WHERE holder = %s AND ended IS NULL AND id <> ALL(%s) RETURNING id
)
SELECT pg_notify(%s, %s) FROM (SELECT count(*) AS n FROM given) AS counted WHERE n > 0
"""
RELEASE: Final[LiteralString] = """
UPDATE teola_journal.queries SET holder = NULL, runs = runs - 1
WHERE id = %s AND holder = %s AND ended IS NULL
"""
FORGET: Final[LiteralString] = """
DELETE FROM teola_journal.queries WHERE id IN (
    SELECT id FROM teola_journal.queries WHERE ended < now() - make_interval(secs => %s)
    ORDER BY ended LIMIT %s FOR UPDATE SKIP LOCKED
)
"""
