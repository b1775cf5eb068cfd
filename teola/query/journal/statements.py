"""What is asked of the journal's tables: one statement for each step in the life of a query.

Every statement that a client's request leads to names the tenant, and row-level security would hold
it to that in any case (tables.py).
"""

from __future__ import annotations

from typing import Final, LiteralString

JOURNAL_CHANNEL: Final = "teola_journal"

INSERT: Final[LiteralString] = """
INSERT INTO teola_journal.queries
    (id, tenant, key, digest, app, request, created, deadline, holder, code, seal)
VALUES (%s, %s, %s, %s, %s, %s, to_timestamp(%s), now() + make_interval(secs => %s), %s, %s, %s)
ON CONFLICT (tenant, key) DO NOTHING RETURNING id
"""
PIECE: Final[LiteralString] = """
INSERT INTO teola_journal.files (tenant, query, number, piece, body) VALUES (%s, %s, %s, %s, %b)
"""
PIECES: Final[LiteralString] = """
SELECT number, piece, body FROM teola_journal.files WHERE query = %s ORDER BY number, piece
"""
_ONE: Final[LiteralString] = """
SELECT id, tenant, app, state, extract(epoch FROM created)::float8 AS created, runs, latency_s,
    digest, result, problem, seal
FROM teola_journal.queries WHERE tenant = %s AND
"""
WITH_ID: Final[LiteralString] = _ONE + "id = %s"
WITH_KEY: Final[LiteralString] = _ONE + "key = %s"
LIST: Final[LiteralString] = """
SELECT id, tenant, app, state, extract(epoch FROM q.created)::float8 AS created, runs, latency_s,
    NULL AS digest, NULL AS result, NULL AS problem, seal
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
    SET state = %s, latency_s = %s, result = %s, ended = now(), request = NULL, holder = NULL
    WHERE id = %s AND holder = %s AND ended IS NULL RETURNING id
), files AS (DELETE FROM teola_journal.files WHERE query IN (SELECT id FROM mine)
), steps AS (DELETE FROM teola_journal.steps WHERE query IN (SELECT id FROM mine)
), asks AS (DELETE FROM teola_journal.asks WHERE query IN (SELECT id FROM mine))
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
    SELECT id FROM teola_journal.queries q
    WHERE ended IS NULL
        AND (holder IS NULL OR holder IN (SELECT holder FROM dead) OR id = ANY(%(mine)s))
        AND (app = ANY(%(apps)s) OR cancel OR deadline <= now())
        AND (state = 'running' OR cancel OR deadline <= now())
        AND (code IS NULL OR code = ANY(%(codes)s) OR cancel OR deadline <= now()
            OR NOT EXISTS (SELECT FROM teola_journal.steps WHERE query = q.id))
        AND id <> ALL(%(apart)s) AND (id <> ALL(%(unreadable)s) OR cancel OR deadline <= now())
    ORDER BY created LIMIT %(most)s FOR UPDATE SKIP LOCKED
)
UPDATE teola_journal.queries q
SET holder = %(me)s, runs = runs + 1,
    deaths = deaths + (q.holder IS NOT NULL AND q.holder <> %(me)s)::int
FROM free WHERE q.id = free.id
RETURNING q.id, tenant, app, request, extract(epoch FROM created)::float8 AS created,
    extract(epoch FROM deadline - now())::float8 AS left_s, runs, deaths, cancel, state, code
"""
TAKE_ONE: Final[LiteralString] = """
UPDATE teola_journal.queries q
SET holder = %(me)s, runs = runs + 1,
    deaths = deaths + (q.holder IS NOT NULL AND q.holder <> %(me)s)::int
WHERE id = %(id)s AND tenant = %(tenant)s AND ended IS NULL AND state = 'running'
    AND (holder IS NULL OR holder = %(me)s
        OR holder = ANY(coalesce(%(gone)s::bigint[], ARRAY[holder]))
            AND pg_try_advisory_xact_lock_shared(holder))
RETURNING q.id, tenant, app, request, extract(epoch FROM created)::float8 AS created,
    extract(epoch FROM deadline - now())::float8 AS left_s, runs, deaths, cancel, state, code
"""
FILE: Final[LiteralString] = """
INSERT INTO teola_journal.queries
    (id, tenant, app, request, created, deadline, code, state, left_s, holder, seal)
VALUES (%s, %s, %s, %s, to_timestamp(%s), now() + make_interval(secs => %s), %s, 'waiting', %s, %s,
    %s)
"""
GIVE_UP: Final[LiteralString] = """
WITH mine AS (
    UPDATE teola_journal.queries
    SET state = %s, latency_s = 0, result = %s, ended = now(), request = NULL, holder = NULL
    WHERE id = %s AND tenant = %s AND state = 'waiting'
        AND (holder IS NULL OR holder = %s OR pg_try_advisory_xact_lock_shared(holder))
    RETURNING id
), files AS (DELETE FROM teola_journal.files WHERE query IN (SELECT id FROM mine)
), steps AS (DELETE FROM teola_journal.steps WHERE query IN (SELECT id FROM mine)
), asks AS (DELETE FROM teola_journal.asks WHERE query IN (SELECT id FROM mine))
SELECT pg_notify(%s, id) FROM mine
"""
FILE_STEP: Final[LiteralString] = """
INSERT INTO teola_journal.steps (tenant, query, key, value) VALUES (%s, %s, %s, %s)
"""
FILE_ASK: Final[LiteralString] = """
INSERT INTO teola_journal.asks (tenant, query, id, told) VALUES (%s, %s, %s, %s)
"""
WAITING: Final[LiteralString] = """
SELECT queries.id, asks.id, asks.told FROM teola_journal.queries
JOIN teola_journal.asks ON asks.query = queries.id
WHERE queries.tenant = %s AND app = %s AND ended IS NULL AND answer IS NULL
ORDER BY asked, asks.id
"""
STEP: Final[LiteralString] = """
WITH mine AS (
    SELECT tenant, id FROM teola_journal.queries
    WHERE id = %s AND holder = %s AND ended IS NULL FOR SHARE
), alive AS (
    UPDATE teola_journal.queries SET deaths = 0 WHERE id IN (SELECT id FROM mine) AND deaths > 0
)
INSERT INTO teola_journal.steps (tenant, query, key, value) SELECT tenant, id, %s, %s FROM mine
ON CONFLICT (query, key) DO UPDATE SET value = EXCLUDED.value
"""
GETS_ON: Final[LiteralString] = """
UPDATE teola_journal.queries SET deaths = 0
WHERE id = %s AND holder = %s AND ended IS NULL AND deaths > 0
"""
STEPS: Final[LiteralString] = """
SELECT key, value FROM teola_journal.steps WHERE query = %s
"""
WAIT: Final[LiteralString] = """
UPDATE teola_journal.queries q
SET state = 'waiting', left_s = %s, deadline = now() + make_interval(secs => %s), deaths = 0
WHERE q.id = %s AND holder = %s AND ended IS NULL
    AND NOT EXISTS (SELECT FROM teola_journal.asks a
                    WHERE a.query = q.id AND a.id = ANY(%s) AND answer IS NOT NULL)
"""
ASK: Final[LiteralString] = """
INSERT INTO teola_journal.asks (tenant, query, id, told)
SELECT tenant, id, %s, %s FROM teola_journal.queries
WHERE id = %s AND holder = %s AND ended IS NULL
ON CONFLICT (query, id) DO NOTHING
"""
ASKS: Final[LiteralString] = """
SELECT id, told, answer FROM teola_journal.asks WHERE query = %s ORDER BY asked, id
"""
OPEN: Final[LiteralString] = """
SELECT query, id, told FROM teola_journal.asks
WHERE tenant = %s AND query = ANY(%s) AND answer IS NULL ORDER BY asked, id
"""
ANSWER: Final[LiteralString] = """
WITH given AS (
    UPDATE teola_journal.asks SET answer = %s
    WHERE tenant = %s AND query = %s AND id = %s AND answer IS NULL RETURNING query
)
UPDATE teola_journal.queries
SET state = 'running',
    deadline = CASE WHEN state = 'waiting' THEN now() + make_interval(secs => left_s)
        ELSE deadline END
FROM given WHERE id = given.query AND ended IS NULL
"""
ANSWERED: Final[LiteralString] = """
SELECT asks.query, asks.id, asks.answer FROM teola_journal.asks
WHERE asks.query = ANY(%s) AND asks.answer IS NOT NULL
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
WITH old AS MATERIALIZED (
    SELECT id FROM teola_journal.queries WHERE ended < now() - make_interval(secs => %s)
    ORDER BY ended LIMIT %s FOR UPDATE SKIP LOCKED
)
DELETE FROM teola_journal.queries WHERE id IN (SELECT id FROM old)
"""
"""Looked up once: within the DELETE it may be for each row, and so delete more than that."""
SEALED: Final[LiteralString] = "SELECT max(sealed) FROM teola_journal.settings"
NOTE_SEALED: Final[LiteralString] = """
UPDATE teola_journal.settings SET sealed = %s
"""
BEGIN_SEALING: Final[LiteralString] = """
UPDATE teola_journal.settings SET sealed = %s
WHERE NOT EXISTS (SELECT FROM teola_journal.settings WHERE sealed IS NOT NULL)
"""
TO_SEAL: Final[LiteralString] = """
SELECT id FROM teola_journal.queries WHERE id > %s AND (seal IS NULL OR %s) ORDER BY id LIMIT %s
"""
UNSEALED_QUERY: Final[LiteralString] = """
SELECT tenant, app, code, digest, request, result, problem, seal FROM teola_journal.queries
WHERE id = %s FOR UPDATE SKIP LOCKED
"""
UNSEALED_ASKS: Final[LiteralString] = """
SELECT id, told, answer FROM teola_journal.asks WHERE query = %s FOR UPDATE SKIP LOCKED
"""
IS_THERE: Final[LiteralString] = "SELECT id FROM teola_journal.queries WHERE id = %s"
COUNT_ASKS: Final[LiteralString] = "SELECT count(*) FROM teola_journal.asks WHERE query = %s"
PLACES: Final[LiteralString] = """
SELECT number, piece FROM teola_journal.files WHERE query = %s
"""
ONE_PIECE: Final[LiteralString] = """
SELECT body FROM teola_journal.files WHERE query = %s AND number = %s AND piece = %s
"""
SEAL_QUERY: Final[LiteralString] = """
UPDATE teola_journal.queries SET digest = %s, request = %s, result = %s, problem = %s, seal = %s
WHERE id = %s
"""
SEAL_STEP: Final[LiteralString] = """
UPDATE teola_journal.steps SET value = %s WHERE query = %s AND key = %s
"""
SEAL_ASK: Final[LiteralString] = """
UPDATE teola_journal.asks SET told = %s, answer = %s WHERE query = %s AND id = %s
"""
SEAL_PIECE: Final[LiteralString] = """
UPDATE teola_journal.files SET body = %b WHERE query = %s AND number = %s AND piece = %s
"""
