"""Honest but unusual statements on the same database: all of them have to run.

Long because it is a list of them.
"""

from __future__ import annotations

from typing import Final

ALL: Final = (
    "SELECT * FROM berths",
    "SELECT b.* FROM berths b WHERE b.depth > 2",
    "SELECT boat, depth FROM berths ORDER BY depth DESC LIMIT 3 OFFSET 1",
    "SELECT DISTINCT kind FROM berths",
    "SELECT count(*), count(DISTINCT kind), avg(depth), min(boat), max(boat), sum(id) FROM berths",
    "SELECT kind, count(*) AS n FROM berths GROUP BY kind HAVING count(*) > 1 ORDER BY n DESC",
    "SELECT boat FROM berths WHERE boat LIKE 'K%' OR boat NOT LIKE '%e%'",
    "SELECT boat FROM berths WHERE depth BETWEEN 1 AND 5 AND kind IN ('quay', 'buoy')",
    "SELECT CASE kind WHEN 'quay' THEN 1 ELSE 0 END AS at_quay FROM berths",
    "SELECT CASE WHEN depth IS NULL THEN 'unknown' ELSE 'known' END FROM berths",
    "SELECT b.boat, v.fee FROM berths b JOIN visits v ON v.berth_id = b.id",
    "SELECT b.boat, v.fee FROM berths b LEFT JOIN visits v ON v.berth_id = b.id AND v.fee > 10",
    "SELECT a.boat, b.boat FROM berths a, berths b WHERE a.id < b.id",
    "SELECT a.boat FROM berths a CROSS JOIN visits v",
    "SELECT boat FROM berths WHERE id IN (SELECT berth_id FROM visits)",
    "SELECT boat FROM berths b WHERE EXISTS (SELECT 1 FROM visits v WHERE v.berth_id = b.id)",
    "SELECT boat FROM berths b WHERE NOT EXISTS (SELECT 1 FROM visits v WHERE v.berth_id = b.id)",
    "SELECT boat, (SELECT count(*) FROM visits v WHERE v.berth_id = b.id) AS n FROM berths b",
    "SELECT boat FROM berths WHERE depth = (SELECT max(depth) FROM berths)",
    "SELECT x.n FROM (SELECT count(*) AS n FROM visits GROUP BY berth_id) AS x",
    "WITH big AS (SELECT * FROM berths WHERE depth > 3) SELECT boat FROM big",
    "WITH a AS (SELECT id FROM berths), b AS (SELECT id FROM a) SELECT count(*) FROM b",
    "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 12) SELECT i "
    "FROM n",
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION SELECT i * 2 FROM n WHERE i < 99) SELECT sum(i) FROM n",
    "SELECT id FROM berths UNION SELECT berth_id FROM visits ORDER BY id",
    "SELECT id FROM berths EXCEPT SELECT berth_id FROM visits",
    "SELECT id FROM berths INTERSECT SELECT berth_id FROM visits",
    "SELECT boat, row_number() OVER (PARTITION BY kind ORDER BY depth) FROM berths",
    "SELECT boat, rank() OVER w, dense_rank() OVER w FROM berths WINDOW w AS (ORDER BY depth)",
    "SELECT fee, sum(fee) OVER (ORDER BY id ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) FROM visits",
    "SELECT fee, lag(fee, 1, 0) OVER (ORDER BY id), lead(fee) OVER (ORDER BY id) FROM visits",
    "SELECT first_value(boat) OVER (ORDER BY id), ntile(4) OVER (ORDER BY id) FROM berths",
    "SELECT avg(fee) OVER (PARTITION BY berth_id) FROM visits",
    "SELECT percent_rank() OVER (ORDER BY fee), cume_dist() OVER (ORDER BY fee) FROM visits",
    "SELECT boat || ' (' || kind || ')' FROM berths",
    "SELECT upper(boat), lower(boat), length(boat), trim(boat) FROM berths",
    "SELECT replace(boat, 'e', 'E'), substr(boat, 1, 3) FROM berths",
    "SELECT coalesce(kind, 'none'), nullif(kind, 'quay') FROM berths",
    "SELECT round(depth, 1), abs(-depth) FROM berths",
    "SELECT CAST(depth AS INTEGER), CAST(id AS TEXT) FROM berths",
    "SELECT sum(fee) FILTER (WHERE fee > 10) FROM visits",
    "SELECT count(*) FILTER (WHERE kind = 'quay') AS quays, count(*) AS n FROM berths",
    "SELECT 1 + 2 * 3 - 4 / 2 % 3",
    "SELECT -depth, +depth, NOT (depth > 3) FROM berths",
    "SELECT id & 1, id | 2, id << 1, ~id FROM berths",
    "VALUES (1, 'a'), (2, 'b')",
    "SELECT * FROM (VALUES (1, 'a'), (2, 'b')) AS v",
    'SELECT "select", "from", "order" FROM "table"',
    'SELECT t."select" FROM "table" AS t',
    "SELECT body FROM notes WHERE body LIKE '%DROP TABLE salaries; --%'",
    "SELECT 'DELETE FROM berths; SELECT * FROM salaries' AS said",
    "SELECT 'pg_sleep(10)' || ' union select * from secrets' FROM berths",
    "SELECT boat FROM berths WHERE boat <> 'it''s; DROP TABLE x'",
    'SELECT body AS "delete", id AS "drop" FROM notes',
    "/* DROP TABLE berths */ SELECT 1 -- ; DELETE",
    "SELECT count(*) FROM visits WHERE fee > (SELECT avg(fee) FROM visits)",
    "SELECT kind, max(depth) - min(depth) AS span FROM berths GROUP BY 1 ORDER BY 2 DESC",
    "SELECT kind FROM berths GROUP BY kind ORDER BY count(*) DESC, kind",
    "SELECT b.kind, sum(v.fee) FROM berths b JOIN visits v ON b.id = v.berth_id GROUP BY b.kind",
    "SELECT boat FROM berths WHERE (depth, id) > (1, 1)",
    "SELECT boat FROM berths WHERE kind IS NOT NULL AND depth IS NOT NULL",
    "SELECT boat, depth FROM berths ORDER BY depth NULLS LAST, boat ASC",
    "SELECT * FROM paid",
    "SELECT p.boat, p.paid FROM paid p JOIN berths b USING (boat)",
    "SELECT v.id FROM visits v JOIN berths b ON b.id = v.berth_id JOIN notes n ON n.id = v.id",
    "SELECT sum(CASE WHEN fee > 10 THEN 1 ELSE 0 END) * 100.0 / count(*) FROM visits",
    "SELECT x.boat FROM (SELECT boat, depth FROM berths ORDER BY depth LIMIT 2) x ORDER BY x.boat",
    "SELECT a.n + b.n FROM (SELECT count(*) n FROM berths) a, (SELECT count(*) n FROM visits) b",
    "SELECT exp(1), ln(2), sqrt(16), power(2, 3), sign(-2)",
    "SELECT current_date, current_timestamp",
    "SELECT boat AS \"lo_import('/etc/passwd')\" FROM berths",
    "SELECT 'C''est /* pas */ -- un commentaire' AS s, boat FROM berths",
    'SELECT boat AS "\u65e5\u672c", kind AS "na\xefve \U0001f600" FROM berths WHERE boat '
    "<> '\xdcn\xefc\xf6d\xe9 \U0001f6a4'",
    "select Boat, DEPTH from Berths where KIND = 'quay'",
    "SELECT\n\tboat\r\n,\n\n\tdepth\nFROM\n\tberths\n;",
    "SELECT boat FROM berths;",
    "SELECT b.boat FROM berths AS b INNER JOIN visits AS v ON (b.id = v.berth_id AND "
    "(v.fee > 1 OR v.fee IS NULL)) GROUP BY b.boat HAVING count(*) >= 1 ORDER BY "
    "count(*) DESC, 1",
    "SELECT boat FROM berths b1 WHERE depth = (SELECT max(depth) FROM berths b2 WHERE "
    "b2.kind = b1.kind)",
    "WITH a AS (SELECT 1 AS x), b AS (SELECT x + 1 AS y FROM a), c AS (SELECT y * 2 AS z "
    "FROM b) SELECT z FROM c, a",
    "SELECT CASE kind WHEN 'quay' THEN CASE WHEN depth > 3 THEN 'd' ELSE 's' END ELSE "
    "NULL END FROM berths",
    "SELECT count(*) FROM berths WHERE boat NOT LIKE '%!%%' ESCAPE '!'",
    "SELECT id, NULL, TRUE, FALSE, 1.5e-3 FROM berths WHERE NOT (id IN (1, 2) OR id "
    "BETWEEN 3 AND 4)",
    "SELECT a.boat, b.boat FROM berths a, berths b WHERE a.id < b.id AND a.kind = b.kind",
    "SELECT (SELECT count(*) FROM visits v WHERE v.berth_id = b.id) AS n FROM berths b "
    "ORDER BY n DESC",
    "SELECT kind, boat, sum(depth) OVER (PARTITION BY kind ORDER BY boat ROWS BETWEEN "
    "UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) FROM berths",
    "SELECT nth_value(boat, 2) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 "
    "FOLLOWING EXCLUDE CURRENT ROW) FROM berths",
    "SELECT b.id FROM berths b LEFT JOIN (visits v JOIN notes n ON n.id = v.id) ON "
    "v.berth_id = b.id",
    "SELECT b.id FROM berths b FULL OUTER JOIN visits v ON v.berth_id = b.id",
    "SELECT b.id FROM berths b RIGHT JOIN visits v ON v.berth_id = b.id",
    "SELECT * FROM berths b CROSS JOIN (SELECT 1 AS one) x LIMIT 2",
    "SELECT boat FROM berths WHERE EXISTS (SELECT * FROM visits WHERE visits.berth_id = "
    "berths.id AND EXISTS (SELECT 1 FROM notes WHERE notes.id = visits.id))",
    "SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 EXCEPT SELECT 2",
    "WITH x(a, b) AS (VALUES (1, 'p'), (2, 'q')) SELECT a, b FROM x",
    'SELECT \'select\' AS "from", \'from\' AS "where" FROM "table"',
    "SELECT max(id), min(id) FROM berths GROUP BY kind HAVING max(id) > min(id)",
    "SELECT 9223372036854775807, -9223372036854775807, 0.1 + 0.2",
    "SELECT boat AS salaries, kind AS secrets FROM berths",
    "WITH salaries AS (SELECT 1 AS pay) SELECT pay FROM salaries",
    "SELECT * FROM (SELECT boat AS pay FROM berths) AS salaries",
    "SELECT id FROM berths --\u2028 UNION SELECT pay FROM salaries",
    "SELECT 'x'' FROM berths UNION SELECT pay FROM salaries WHERE ''1'='1'",
    "SELECT boat FROM berths WHERE boat IN ('DROP TABLE x', '; DELETE FROM y', "
    "'pg_sleep(1)', '/* x */', 'COPY t TO ''f''')",
    "SELECT ((((((((((((((((1))))))))))))))))",
    "SELECT boat FROM berths WHERE ((id = 1 OR (id = 2 AND (depth > 1 OR (depth < 9 AND "
    "(kind = 'quay' OR NOT (kind = 'buoy')))))))",
    "SELECT a.x FROM (SELECT b.x FROM (SELECT c.x FROM (SELECT d.x FROM (SELECT id AS x FROM "
    "berths) d) c) b) a",
    'SELECT boat AS "a b", depth AS "user", kind AS "limit" FROM berths ORDER BY "a b", "user"',
    'WITH "my part" AS (SELECT * FROM berths) SELECT "my part".boat FROM "my part"',
    "WITH RECURSIVE months(m) AS (SELECT 1 UNION ALL SELECT m + 1 FROM months WHERE m < 12) "
    "SELECT m, (SELECT count(*) FROM visits WHERE berth_id = m) FROM months",
    "SELECT 'it''s \"quoted\" \\ back', '%_%', '--', '/*', ';' , ''",
    "SELECT boat FROM berths WHERE kind = 'quay' UNION ALL SELECT boat FROM berths WHERE "
    "kind <> 'quay' ORDER BY boat LIMIT 3",
    "SELECT t.kind, t.n, 100.0 * t.n / sum(t.n) OVER () AS pct FROM (SELECT kind, count(*) "
    "AS n FROM berths GROUP BY kind) t",
)
OF_SQLITE: Final = (
    "SELECT date('now'), datetime('now', '-1 day'), time('now'), julianday('now')",
    "SELECT strftime('%Y-%m', arrived), count(*) FROM berths GROUP BY 1",
    "SELECT date(arrived, 'start of month', '+1 month', '-1 day') FROM berths",
    "SELECT unixepoch('2026-01-01')",
    "SELECT boat FROM berths WHERE boat GLOB 'K*'",
    'SELECT boat FROM berths WHERE kind = "quay"',
    "SELECT ifnull(kind, 'x'), iif(depth > 3, 'deep', 'flat') FROM berths",
    "SELECT group_concat(boat, ', ') FROM berths",
    "SELECT group_concat(DISTINCT kind) FROM berths",
    "SELECT total(fee), min(fee, 3), max(fee, 4) FROM visits",
    "SELECT instr(boat, 'e'), substr(boat, -3), hex(boat), quote(boat), unicode(boat) FROM berths",
    "SELECT ltrim(boat, 'K'), rtrim(boat), char(65, 66) FROM berths",
    "SELECT printf('%05.2f %s %-10s|', depth, boat, kind) FROM berths",
    "SELECT format('%,d', 1234567)",
    "SELECT typeof(depth), typeof(NULL) FROM berths",
    "SELECT json_extract(data, '$.crew'), data ->> '$.crew', data -> 'crew' FROM notes",
    "SELECT n.id, j.key, j.value FROM notes n, json_each(n.data) j",
    "SELECT notes.id, json_each.key, json_each.value FROM notes, json_each(notes.data)",
    "SELECT json_tree.fullkey FROM notes, json_tree(notes.data) WHERE json_tree.atom NOT NULL",
    "SELECT j.fullkey FROM notes n JOIN json_tree(n.data) j",
    "SELECT json_group_array(boat), json_group_object(boat, depth) FROM berths",
    "SELECT json_object('a', 1, 'b', json_array(1, 2)), json_valid('{}')",
    "SELECT rowid, boat FROM berths WHERE rowid = 1",
    "SELECT boat FROM main.berths",
    "SELECT [boat], `kind` FROM [berths]",
    "SELECT boat FROM berths LIMIT 4 - (SELECT count(*) FROM berths) % 2 OFFSET 1",
    "SELECT boat FROM berths LIMIT 1, 2",
    "SELECT boat COLLATE NOCASE FROM berths ORDER BY boat COLLATE NOCASE",
    "SELECT depth IS 2.5, depth IS NOT 2.5 FROM berths",
    "SELECT x'0aff', 1e3, .5, 0x10",
    "SELECT random() IS NOT NULL, abs(random()) % 10 >= 0",
    "SELECT zeroblob(10), length(randomblob(16))",
    "WITH RECURSIVE d(x) AS (SELECT date('2026-01-01') UNION ALL SELECT date(x, '+1 day') FROM d "
    "WHERE x < '2026-01-31') SELECT x, strftime('%w', x) FROM d",
    "SELECT boat, depth FROM berths WHERE kind == 'quay' AND depth != 3",
    "SELECT max(depth), boat FROM berths",
    "SELECT ceil(2.1), floor(2.9), mod(7, 3), pi(), trunc(2.7)",
    "SELECT sum(depth) OVER (ORDER BY id GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM berths",
    "SELECT date(arrived, 'weekday 1'), strftime('%s', arrived), strftime('%W %j %H:%M', "
    "'now') FROM berths",
    "SELECT arrived FROM berths WHERE arrived BETWEEN date('now', '-10 years') AND "
    "date('now', '+10 years')",
    "SELECT json_set('{}', '$.a', 1), json_patch('{}', '{\"b\":2}'), "
    "json_remove('{\"a\":1}', '$.a'), json_type('[]')",
    "SELECT value FROM json_each('[1, 2, 3]') WHERE value > 1",
    "SELECT id, boat FROM berths WHERE (id, boat) IN (SELECT id, boat FROM berths)",
    "SELECT (id, boat) = (1, 'Petrel') FROM berths",
    "SELECT boat FROM berths ORDER BY depth DESC NULLS FIRST LIMIT -1 OFFSET 2",
    "SELECT CAST('12abc' AS INTEGER), '5' + 5, 7 / 2, 7 / 2.0",
    "SELECT likely(1), coalesce(NULL, NULL, 3)",
    "SELECT datetime(1700000000, 'unixepoch', 'localtime'), date('2026-01-31', '+1 month')",
    "SELECT boat IS NOT DISTINCT FROM 'x' FROM berths",
    "SELECT count(*) FROM berths NOT INDEXED WHERE kind = 'quay'",
    "SELECT boat, date(arrived, '+' || id || ' days') FROM berths",
    "SELECT strftime('%Y', arrived) || '-Q' || ((CAST(strftime('%m', arrived) AS INTEGER) + "
    "2) / 3) AS quarter FROM berths",
    "SELECT julianday(v.moored) - julianday(b.arrived) FROM berths b JOIN visits v ON "
    "v.berth_id = b.id",
    "SELECT CAST((julianday('now') - julianday(arrived)) / 365.25 AS INT) FROM berths",
    "SELECT data ->> '$.crew[#-1]', json_extract(data, '$.name', '$.crew[1]') FROM notes",
    "SELECT * FROM berths WHERE +id = 1 AND boat IS NOT NULL",
    "SELECT boat FROM berths WHERE boat NOT GLOB '*[0-9]*' AND boat NOTNULL",
    "SELECT boat FROM berths WHERE kind ISNULL OR boat LIKE 'k%' ESCAPE '\\'",
    "SELECT max(x), min(x) FROM (SELECT 1 AS x UNION SELECT 2) WHERE x",
    "SELECT id, sum(depth) OVER (ORDER BY id RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING "
    "EXCLUDE TIES) FROM berths",
    "SELECT id, group_concat(boat, '>') OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND "
    "CURRENT ROW EXCLUDE GROUP) FROM berths",
    "SELECT substring(boat, 2, 3) FROM berths",
    "SELECT x.boat AS 'a name' FROM berths x",
    'SELECT boat "the boat", depth [the depth], kind `the kind` FROM berths',
    "SELECT * FROM berths ORDER BY random() LIMIT 2",
    "SELECT CASE WHEN 1 THEN 'x' END, CASE boat WHEN 'Tern' THEN 1 WHEN 'Skua' THEN 2 END "
    "FROM berths",
    "SELECT NOT EXISTS(SELECT 1 FROM berths WHERE id > 100)",
    "SELECT (SELECT boat FROM berths ORDER BY id LIMIT 1) AS first, (SELECT boat FROM berths "
    "ORDER BY id DESC LIMIT 1) AS last",
    "WITH RECURSIVE fib(a, b) AS (VALUES (0, 1) UNION ALL SELECT b, a + b FROM fib WHERE b < "
    "1000) SELECT a FROM fib",
    "WITH RECURSIVE split(w, rest) AS (SELECT '', body || ' ' FROM notes UNION ALL SELECT "
    "substr(rest, 1, instr(rest, ' ') - 1), substr(rest, instr(rest, ' ') + 1) FROM split "
    "WHERE rest <> '') SELECT w, count(*) FROM split WHERE w <> '' GROUP BY w ORDER BY 2 "
    "DESC LIMIT 5",
    "WITH c AS NOT MATERIALIZED (SELECT 1 AS x) SELECT x FROM c",
    "SELECT kind, count(*) c FROM berths GROUP BY kind HAVING c > 1",
    "SELECT DISTINCT date(moored) FROM visits ORDER BY 1 DESC LIMIT 5",
    "SELECT moored, time(moored), strftime('%H', moored) hour FROM visits WHERE "
    "strftime('%w', moored) IN ('0', '6')",
    "SELECT unicode('\u00e9'), upper('\u00e9'), hex('\U0001f600'), "
    "length('\U0001f600\U0001f469\u200d\U0001f469\u200d\U0001f467')",
    'SELECT boat AS "\U0001f600", depth AS "a \'quoted\' name" FROM berths',
    "SELECT 'a' < 'b', 'a' <> 'b', NULL IS NULL, 1 IS TRUE, 0 IS NOT TRUE",
    "SELECT x'41' || 'b', CAST(x'4142' AS TEXT)",
    "SELECT sum(fee) * 1.0 / (SELECT sum(fee) FROM visits) AS share, berth_id FROM visits "
    "GROUP BY berth_id",
    "SELECT round(avg(fee), 2), sqrt(avg(fee * fee) - avg(fee) * avg(fee)) FROM visits",
    "SELECT acos(0.5), atan2(1, 2), cos(0), sin(0), tan(0), radians(180), log(100), "
    "log10(100), log2(8), ln(2)",
    "SELECT min(depth) FILTER (WHERE kind = 'quay') OVER () FROM berths",
    "SELECT * FROM berths b1 LEFT JOIN berths b2 ON b1.id = b2.id - 1 WHERE b2.id IS NULL",
    "SELECT * FROM (berths JOIN visits ON berths.id = visits.berth_id)",
    "SELECT * FROM visits v NATURAL LEFT JOIN (SELECT id AS berth_id, boat FROM berths)",
    "SELECT b.*, v.fee FROM berths b INNER JOIN visits v ON b.id = v.berth_id AND v.fee "
    "BETWEEN 3 AND 8 ORDER BY v.fee DESC, b.boat COLLATE NOCASE ASC NULLS LAST",
    "SELECT row_number() OVER win, sum(fee) OVER (win ROWS 2 PRECEDING) FROM visits WINDOW "
    "win AS (PARTITION BY berth_id ORDER BY moored)",
    "SELECT json_group_array(json_object('boat', boat, 'depth', depth)) FROM berths",
    "SELECT json('{\"a\": [1, 2]}') -> '$.a' ->> 1",
    "SELECT json_extract('{\"a b\": 1}', '$.\"a b\"')",
    'SELECT key, type, atom, path FROM json_tree(\'{"a": {"b": [1, null]}}\')',
    "SELECT date('now', 'start of year'), date('now', 'weekday 0', '-7 days'), "
    "datetime('now', 'localtime'), datetime('now', 'subsec')",
    "SELECT CURRENT_TIME, CURRENT_DATE, CURRENT_TIMESTAMP",
    "SELECT sign(depth - 3), ceiling(depth), floor(depth) FROM berths",
    "SELECT boat FROM berths WHERE (kind, id % 2) IN (VALUES ('quay', 1), ('buoy', 0))",
    "SELECT id, (SELECT max(v.fee) FROM visits v WHERE v.berth_id = b.id AND v.fee < (SELECT "
    "avg(w.fee) FROM visits w WHERE w.berth_id = b.id)) FROM berths b",
    "VALUES (1), (2) UNION SELECT 3 ORDER BY 1 DESC",
    "SELECT * FROM (SELECT 1 UNION ALL SELECT 2) LIMIT 1 OFFSET 1",
    'SELECT count(*) AS "group", max(id) AS "order" FROM berths',
    "SELECT first_value(boat) OVER (PARTITION BY kind ORDER BY depth DESC), last_value(boat) "
    "OVER (PARTITION BY kind ORDER BY depth RANGE BETWEEN CURRENT ROW AND UNBOUNDED "
    "FOLLOWING) FROM berths",
    "SELECT printf('%.1f%%', 100.0 * count(*) / 6) FROM berths GROUP BY kind",
    "SELECT printf('%d|%5d|%-5s|%05d|%x|%o|%e|%g|%c|%q|%Q', 1, 2, 'a', 3, 255, 8, 1.5, 1.5, "
    "'x', 'it''s', 'y')",
    "SELECT nullif(trim(boat, ' '), ''), ltrim(boat), rtrim(boat, 'e') FROM berths",
    'SELECT "boat" FROM "berths" WHERE "kind" = \'quay\' AND "berths"."depth" > 2',
    "SELECT 1 AS [select], 2 AS [from] WHERE 1=1 GROUP BY 1",
    "SELECT iif(depth > 3, 'd', iif(depth > 2, 'm', 's')) AS s, count(*) FROM berths GROUP BY s",
    "SELECT id FROM berths WHERE id IN () OR id IN "
    "(1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20)",
    "SELECT -(-(-1)), - -1, 1--2",
    "SELECT ALL boat FROM berths",
    "SELECT max(fee), total_fee FROM (SELECT fee, sum(fee) OVER () AS total_fee FROM visits)",
    "SELECT lag(boat, 2, 'none') OVER (ORDER BY id) FROM berths",
    "SELECT sum(depth) FROM berths WHERE arrived >= date('2026-01-01') AND arrived < "
    "date('2026-01-01', '+1 year')",
    "SELECT char(10) || char(0x1F600), quote(NULL), quote(x'00')",
)
OF_POSTGRES: Final = (
    "SELECT boat::varchar(3), depth::int, '2026-02-03'::date FROM berths",
    "SELECT DISTINCT ON (kind) kind, boat FROM berths ORDER BY kind, depth DESC",
    "SELECT b.boat, l.fee FROM berths b, LATERAL (SELECT fee FROM visits v "
    "WHERE v.berth_id = b.id ORDER BY fee DESC LIMIT 1) l",
    "SELECT b.boat, l.n FROM berths b LEFT JOIN LATERAL (SELECT count(*) n FROM visits v "
    "WHERE v.berth_id = b.id) l ON true",
    "SELECT d::date FROM generate_series(date '2026-01-01', date '2026-01-31', interval '1 day') d",
    "SELECT g FROM generate_series(1, 10, 2) g",
    "SELECT generate_series(1, 3), boat FROM berths",
    "SELECT d, count(v.id) FROM generate_series('2026-01-01'::timestamp, '2026-03-01', '1 "
    "month') d "
    "LEFT JOIN visits v ON date_trunc('month', v.moored) = d GROUP BY d",
    "SELECT d FROM generate_series(current_date - interval '7 days', current_date, '1 day') d",
    "SELECT age(moored), age(moored, timestamp '2025-01-01'), extract(year FROM moored) FROM "
    "visits",
    "SELECT date_trunc('month', moored), date_part('dow', moored), to_char(moored, 'YYYY-MM') "
    "FROM visits",
    "SELECT extract(epoch FROM moored - timestamp '2026-01-01') / 3600 FROM visits",
    "SELECT moored + interval '1 day', moored - '2 hours'::interval, now() - moored FROM visits",
    "SELECT moored AT TIME ZONE 'UTC', make_date(2026, 1, 1), to_date('2026', 'YYYY') FROM visits",
    "SELECT split_part(boat, 'i', 1), initcap(boat), left(boat, 2), right(boat, 2) FROM berths",
    "SELECT position('e' IN boat), strpos(boat, 'e'), overlay(boat placing 'X' from 1) FROM berths",
    "SELECT substring(boat FROM 2 FOR 3), substring(boat, '[aeiou]'), trim(both 'x' from boat) "
    "FROM berths",
    "SELECT boat FROM berths WHERE boat ~* '^k.*e$' OR boat !~ 'x' OR boat ILIKE '%a%'",
    "SELECT boat FROM berths WHERE boat SIMILAR TO '(K|P)%'",
    "SELECT regexp_replace(boat, '[aeiou]', '_', 'g'), regexp_matches(boat, 'i') FROM berths",
    "SELECT string_agg(boat, ', ' ORDER BY boat), array_agg(DISTINCT kind) FROM berths",
    "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY depth), mode() WITHIN GROUP (ORDER BY "
    "kind) "
    "FROM berths",
    "SELECT stddev(depth), variance(depth), corr(depth, id), bool_and(depth > 0) FROM berths",
    "SELECT kind, count(*) FROM berths GROUP BY ROLLUP (kind)",
    "SELECT kind, grouping(kind), count(*) FROM berths GROUP BY GROUPING SETS ((kind), ())",
    "SELECT kind, boat, count(*) FROM berths GROUP BY CUBE (kind, boat)",
    "SELECT data -> 'crew', data ->> 'name', data #> '{crew,0}', data #>> '{crew,0}' FROM notes",
    "SELECT id FROM notes WHERE data @> '{\"name\": \"x\"}' OR data ? 'name'",
    "SELECT n.id, e.value FROM notes n, jsonb_array_elements(n.data -> 'crew') e",
    "SELECT n.id, e.key, e.value FROM notes n, jsonb_each_text(n.data) e",
    "SELECT jsonb_agg(boat), json_build_object('n', count(*)), to_jsonb(max(boat)) FROM berths",
    "SELECT row_to_json(b) FROM (SELECT id, boat FROM berths) b",
    "SELECT jsonb_path_query_first(data, '$.crew[0]'), jsonb_typeof(data) FROM notes",
    "SELECT unnest(ARRAY[1, 2, 3]), array_length(ARRAY[1, 2], 1)",
    "SELECT * FROM unnest(ARRAY['a', 'b']) WITH ORDINALITY AS t(x, n)",
    "SELECT u FROM notes n, unnest(string_to_array(n.body, ' ')) u",
    "SELECT boat FROM berths WHERE id = ANY(ARRAY[1, 2]) OR id = ANY (SELECT berth_id FROM visits)",
    "SELECT boat FROM berths WHERE depth > ALL (SELECT depth FROM berths WHERE id < 2)",
    "SELECT (ARRAY[1, 2, 3])[1:2], ARRAY[1] || ARRAY[2], ARRAY[1, 2] && ARRAY[2]",
    "SELECT to_tsvector('simple', body) @@ plainto_tsquery('simple', 'lamp') FROM notes",
    "SELECT lpad(id::text, 5, '0'), rpad(boat, 20), repeat('*', least(id, 5)) FROM berths",
    "SELECT format('%s has %s m', boat, depth), format('%-10s|', kind) FROM berths",
    "SELECT to_char(depth, 'FM999,990.00'), to_number('12', '99') FROM berths",
    "SELECT greatest(depth, 3), least(depth, 3), trunc(depth), ceil(depth), div(7, 2) FROM berths",
    "SELECT boat FROM berths FETCH FIRST 3 ROWS ONLY",
    "SELECT boat FROM berths ORDER BY depth LIMIT ALL",
    "SELECT boat, depth IS DISTINCT FROM 3 FROM berths",
    "SELECT (date '2026-01-01', date '2026-02-01') OVERLAPS (date '2026-01-15', date '2026-03-01')",
    "SELECT * FROM berths TABLESAMPLE system (50)",
    "SELECT b FROM berths b",
    "SELECT c.b2 FROM (SELECT id, boat FROM berths) AS c(id, b2)",
    "SELECT count(*) OVER (PARTITION BY kind ORDER BY id RANGE UNBOUNDED PRECEDING) FROM berths",
    "SELECT md5(boat), encode(sha256('x'), 'hex'), ascii(boat), chr(65), reverse(boat) FROM berths",
    "SELECT '5 days'::interval * 2, justify_hours('30 hours'), 1.5::numeric(4, 2), 'x'::text",
    "SELECT x FROM (VALUES (1), (2)) AS v(x)",
    "WITH a AS MATERIALIZED (SELECT * FROM berths) SELECT count(*) FROM a",
    "SELECT E'a\\nb', $$it's$$, B'101'",
    "SELECT width_bucket(depth, 0, 10, 5), random() >= 0, gen_random_uuid() IS NOT NULL FROM "
    "berths",
    "SELECT boat FROM berths WHERE boat LIKE ANY (ARRAY['K%', 'P%'])",
    "SELECT boat FROM berths WHERE kind = ANY ('{quay,buoy}'::text[])",
    "SELECT moored::date, count(*) FILTER (WHERE fee > 3) OVER (PARTITION BY "
    "moored::date) FROM visits",
    "SELECT date '2026-03-01' - date '2026-02-01', interval '1 year 2 months', timestamp "
    "'2026-01-01 10:00' + '90 min'",
    "SELECT to_char(moored, 'Day DD Mon YYYY HH24:MI'), extract(isodow FROM moored), "
    "to_char(moored, 'IYYY-IW') FROM visits",
    "SELECT array(SELECT boat FROM berths ORDER BY boat), cardinality(ARRAY[1, 2])",
    "SELECT jsonb_build_object('a', jsonb_build_array(1, 2)), '{\"a\": 1}'::jsonb || "
    "'{\"b\": 2}', '{\"a\": [1]}'::jsonb #- '{a,0}'",
    "SELECT data['name'], jsonb_pretty(data), data - 'crew' FROM notes",
    "SELECT coalesce(sum(fee), 0)::numeric(10, 2), round(avg(fee)::numeric, 2) FROM visits",
    "SELECT boat, count(*) AS n FROM berths b JOIN visits v ON v.berth_id = b.id GROUP "
    "BY boat ORDER BY n DESC FETCH FIRST 2 ROWS WITH TIES",
    "SELECT regexp_split_to_array(body, E'\\\\s+'), regexp_count(body, 'o') FROM notes",
    "SELECT regexp_split_to_table(body, ' ') FROM notes",
    "SELECT string_to_table('a,b', ',')",
    "SELECT lag(fee) OVER w - fee FROM visits WINDOW w AS (PARTITION BY berth_id ORDER BY moored)",
    "WITH RECURSIVE t(n, p) AS (VALUES (1, ARRAY[1]) UNION ALL SELECT n + 1, p || n FROM "
    "t WHERE n < 5) SELECT * FROM t",
    "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t WHERE n < 3) "
    "SEARCH DEPTH FIRST BY n SET o SELECT n FROM t",
    "SELECT DISTINCT ON (b.kind) b.kind, v.fee FROM berths b JOIN visits v ON v.berth_id "
    "= b.id ORDER BY b.kind, v.fee DESC NULLS LAST",
    "SELECT unnest(ARRAY[1, 2]), unnest(ARRAY['a', 'b'])",
    "SELECT * FROM unnest(ARRAY[1, 2], ARRAY['a', 'b']) AS t(n, s)",
    "SELECT (SELECT jsonb_object_agg(boat, depth) FROM berths) ->> 'Skua'",
    "SELECT tsrange('2026-01-01', '2026-02-01') @> timestamp '2026-01-15', int4range(1, "
    "5) * int4range(3, 9)",
    'SELECT boat COLLATE "C" FROM berths ORDER BY boat COLLATE "C"',
    "SELECT quote_literal(boat), quote_ident('a b'), starts_with(boat, 'K'), "
    "translate(boat, 'ab', 'xy') FROM berths",
    "SELECT percentile_disc(ARRAY[0.25, 0.75]) WITHIN GROUP (ORDER BY depth) FROM berths",
    "SELECT rank(3) WITHIN GROUP (ORDER BY depth) FROM berths",
    "SELECT every(depth > 0), bit_or(id), regr_slope(depth, id), array_agg(boat ORDER BY "
    "depth DESC) FROM berths",
    "SELECT x.* FROM jsonb_to_recordset('[{\"a\": 1}]') AS x(a int)",
    "SELECT date_bin('15 minutes', moored, timestamp '2026-01-01'), isfinite(moored) FROM visits",
    "SELECT make_interval(days => 3), make_timestamp(2026, 1, 1, 0, 0, 0), "
    "date_part('week', now())",
    "SELECT num_nulls(boat, kind), num_nonnulls(boat) FROM berths",
    "SELECT U&'d\\0061ta', 'a' 'b' IS NULL",
    "SELECT scale(1.50), min_scale(1.50), trim_scale(1.50), log(2, 8), cbrt(27), degrees(1)",
    "(SELECT boat FROM berths ORDER BY depth LIMIT 1)",
    "SELECT moored::timestamptz AT TIME ZONE 'Europe/Berlin', timezone('UTC', moored) FROM visits",
    "SELECT date_trunc('week', moored)::date AS week, count(*) FROM visits GROUP BY week "
    "ORDER BY week",
    "SELECT EXTRACT(QUARTER FROM moored), EXTRACT(DOY FROM moored), EXTRACT(CENTURY FROM "
    "moored), EXTRACT(EPOCH FROM now() - moored) FROM visits",
    "SELECT interval '1' day, interval '1-2' year to month, interval 'P1DT2H', interval '3 "
    "4:05:06' day to second",
    "SELECT moored + make_interval(hours => id), moored - interval '1 month' * id FROM visits",
    "SELECT justify_interval(interval '1 mon -1 hour'), age(timestamp '2026-01-01')",
    "SELECT * FROM berths WHERE depth BETWEEN SYMMETRIC 5 AND 2",
    "SELECT boat IS NOT DISTINCT FROM 'Tern', (depth > 3) IS NOT TRUE, (depth > 3) IS "
    "UNKNOWN FROM berths",
    "SELECT data @? '$.crew[*] ? (@ == \"mara\")', data @@ '$.name == \"x\"' FROM notes",
    "SELECT jsonb_path_query_array(data, '$.crew[*] ? (@ like_regex \"^m\")') FROM notes",
    "SELECT data ?| array['name', 'x'], data ?& array['name', 'crew'] FROM notes",
    "SELECT data || '{\"z\": 1}'::jsonb, data - ARRAY['name'], jsonb_set(data, '{crew,0}', "
    "'\"zoe\"') FROM notes",
    "SELECT jsonb_array_length(data -> 'crew'), data -> 'crew' -> 0, data -> 'crew' ->> -1 "
    "FROM notes",
    "SELECT key, value FROM notes, jsonb_each(data) WHERE key <> 'name'",
    "SELECT n.id, c.name, c.pos FROM notes n CROSS JOIN LATERAL "
    "jsonb_array_elements_text(n.data -> 'crew') WITH ORDINALITY AS c(name, pos)",
    "SELECT jsonb_object_keys(data) FROM notes",
    "SELECT json_agg(row_to_json(t)) FROM (SELECT boat, depth FROM berths ORDER BY depth) t",
    "SELECT json_object_agg(boat, depth ORDER BY boat) FILTER (WHERE depth > 3) FROM berths",
    "SELECT jsonb_build_object('boat', boat, 'visits', (SELECT "
    "jsonb_agg(jsonb_build_object('fee', fee) ORDER BY fee) FROM visits v WHERE v.berth_id = "
    "b.id)) FROM berths b",
    'SELECT * FROM jsonb_to_record(\'{"a": 1, "b": "x"}\') AS r(a int, b text)',
    "SELECT ARRAY[[1, 2], [3, 4]][1][2], array_dims(ARRAY[[1, 2]]), ARRAY[1, 2, 3] @> "
    "ARRAY[1], ARRAY[1] <@ ARRAY[1, 2]",
    "SELECT array_position(ARRAY['a', 'b'], 'b'), array_remove(ARRAY[1, 2], 1), "
    "array_to_string(ARRAY[1, NULL], ',', '*')",
    "SELECT unnest(array_agg(boat ORDER BY depth DESC)) FROM berths",
    "SELECT (array_agg(boat ORDER BY depth DESC))[1] AS deepest, kind FROM berths GROUP BY kind",
    "SELECT ARRAY(SELECT DISTINCT kind FROM berths ORDER BY kind)",
    "SELECT trim_array(ARRAY[1, 2, 3], 1), array_sample(ARRAY[1, 2], 1), array_shuffle(ARRAY[1])",
    "SELECT percentile_cont(ARRAY[0.25, 0.5, 0.75]) WITHIN GROUP (ORDER BY fee), mode() "
    "WITHIN GROUP (ORDER BY berth_id) FROM visits",
    "SELECT kind, grouping(kind, boat), sum(depth) FROM berths GROUP BY GROUPING SETS "
    "(ROLLUP (kind, boat), CUBE (kind), ())",
    "SELECT kind, sum(depth) FROM berths GROUP BY DISTINCT ROLLUP (kind)",
    "SELECT boat, sum(depth) OVER w, avg(depth) OVER (w ROWS BETWEEN 1 PRECEDING AND 1 "
    "FOLLOWING EXCLUDE CURRENT ROW) FROM berths WINDOW w AS (PARTITION BY kind ORDER BY id)",
    "SELECT fee, sum(fee) OVER (ORDER BY moored RANGE BETWEEN INTERVAL '7 days' PRECEDING "
    "AND CURRENT ROW) FROM visits",
    "SELECT sum(depth) OVER (ORDER BY id GROUPS BETWEEN 1 PRECEDING AND UNBOUNDED FOLLOWING "
    "EXCLUDE TIES) FROM berths",
    "SELECT dense_rank() OVER (ORDER BY fee DESC), percent_rank() OVER (ORDER BY fee), "
    "cume_dist() OVER (ORDER BY fee) FROM visits",
    "WITH RECURSIVE cal(d) AS (SELECT date '2026-01-01' UNION ALL SELECT (d + interval '1 "
    "day')::date FROM cal WHERE d < date '2026-01-31') SELECT d, to_char(d, 'Dy') FROM cal",
    "WITH RECURSIVE t AS (SELECT id, ARRAY[id] AS path FROM berths WHERE id = 0 UNION ALL "
    "SELECT b.id, t.path || b.id FROM berths b JOIN t ON b.id = t.id + 1 WHERE NOT b.id = "
    "ANY (t.path)) SELECT * FROM t",
    "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 3) CYCLE n SET "
    "looped USING p SELECT n FROM t",
    "SELECT boat FROM berths OFFSET 1 ROW FETCH NEXT ROW ONLY",
    "SELECT boat FROM berths TABLESAMPLE BERNOULLI (50) REPEATABLE (7)",
    "VALUES (1, 'a'), (2, 'b') ORDER BY 1 DESC LIMIT 1",
    "(SELECT id FROM berths ORDER BY id LIMIT 2) UNION ALL (SELECT id FROM visits ORDER BY "
    "id DESC LIMIT 2) ORDER BY 1",
    "(SELECT 1 UNION SELECT 2) INTERSECT ALL (SELECT 2 EXCEPT ALL SELECT 3)",
    "SELECT boat FROM berths WHERE boat COLLATE \"C\" < 'M'",
    "SELECT boat FROM berths WHERE boat ~ '^[[:upper:]]\\w+$' AND boat !~* 'zz' AND boat NOT "
    "SIMILAR TO '%(x|y)%'",
    "SELECT regexp_match(boat, '(\\w)(\\w+)'), regexp_substr(boat, '[aeiou]'), "
    "regexp_instr(boat, 'e'), (regexp_match(boat, '.'))[1] FROM berths",
    "SELECT boat LIKE ALL (ARRAY['%']), boat NOT ILIKE ANY (ARRAY['x%']) , boat ~~ 'K%', "
    "boat !~~* 'k%' FROM berths",
    "SELECT concat_ws(', ', boat, kind), concat(boat, ' ', NULL), boat || ' ' || id FROM berths",
    "SELECT left(boat, -1), reverse(boat), initcap(lower(boat)), char_length(boat), "
    "octet_length(boat), bit_length(boat) FROM berths",
    "SELECT trim(leading 'K' from boat), btrim(boat, 'Ke'), ltrim(boat, 'K'), trim(trailing "
    "from boat) FROM berths",
    "SELECT to_char(1234.5, 'L9G999D99'), to_char(interval '90 min', 'HH24:MI'), "
    "to_timestamp('2026-01-01', 'YYYY-MM-DD'), to_timestamp(0)",
    "SELECT CASE WHEN depth > 3 THEN 'd' WHEN depth IS NULL THEN NULL ELSE 's' END AS c, "
    "count(*) FILTER (WHERE kind = 'quay') FROM berths GROUP BY c",
    'SELECT 1 AS "select", 2 AS "from", \'\U0001f600\' AS "\U0001f6a4 ""x"" "',
    "SELECT E'tab\\there', $q$it's -- not a comment$q$, U&'\\+01F600', X'1F', B'1010'::int",
    "SELECT num FROM (SELECT 1 AS num) s WHERE num = SOME (ARRAY[1, 2])",
    "SELECT m::date, coalesce(sum(v.fee), 0) FROM generate_series(date '2026-01-01', date "
    "'2026-06-01', interval '1 month') m LEFT JOIN visits v ON v.moored >= m AND v.moored < "
    "m + interval '1 month' GROUP BY m ORDER BY m",
    "SELECT b.boat, s.* FROM berths b CROSS JOIN LATERAL (SELECT count(*) AS n, max(fee) AS "
    "top FROM visits v WHERE v.berth_id = b.id) s WHERE s.n > 0",
    "SELECT boat, tt.* FROM berths, LATERAL (VALUES (depth), (depth * 2)) AS tt(d)",
    "SELECT daterange('2026-01-01', '2026-02-01', '[]') && daterange('2026-01-15', NULL), "
    "lower(int4range(1, 5)), upper_inc(int4range(1, 5)), '[1,5)'::int4range @> 3",
    "SELECT range_agg(daterange(arrived, arrived + 7)) FROM berths",
    "SELECT int4multirange(int4range(1, 2)), datemultirange(daterange('2026-01-01', '2026-01-02'))",
    "SELECT arrived + 7, arrived - date '2026-01-01', (arrived - interval '1 day')::date, "
    "arrived + time '10:00' FROM berths",
    "SELECT 'infinity'::timestamp > now(), isfinite(date '2026-01-01')",
    "SELECT '{\"a\": {\"b\": 1}}'::json #> '{a,b}', '{\"a\": 1}'::jsonb ->> 'a', jsonb '[1, "
    "2]' @> '1'",
    "SELECT corr(depth, id), regr_slope(depth, id), regr_r2(depth, id), stddev_pop(depth), "
    "var_samp(depth), covar_pop(depth, id) FROM berths",
    "SELECT bool_or(depth > 5), every(id >= 0), bit_and(id), any_value(kind) FROM berths",
    "SELECT width_bucket(fee, ARRAY[0, 5, 10]), ceil(fee), floor(fee), round(fee, -1), "
    "sign(fee), mod(fee::int, 3), power(fee, 2), erf(0.5) FROM visits",
    "SELECT ts_rank(to_tsvector('english', body), to_tsquery('english', 'lamp & note')), "
    "body FROM notes WHERE to_tsvector('english', body) @@ websearch_to_tsquery('english', "
    "'\"drop table\" or lamp')",
    "SELECT setweight(to_tsvector('lamp'), 'A'), numnode('a & b'::tsquery), "
    "strip(to_tsvector('lamp')), tsvector_to_array(to_tsvector('a'))",
    "SELECT '192.168.1.5'::inet << '192.168.1.0/24', host('192.168.1.5/24'::inet), "
    "masklen('10.0.0.0/8'::cidr), network('10.1.1.1/8'::inet)",
    "SELECT money '12.50', '12.5'::numeric::money",
    "SELECT encode(boat::bytea, 'base64'), decode('YQ==', 'base64'), "
    "convert_from('\\x41'::bytea, 'UTF8'), length(boat::bytea) FROM berths",
    "SELECT DISTINCT ON (kind, date_trunc('month', arrived)) * FROM berths ORDER BY kind, "
    "date_trunc('month', arrived), id DESC",
    "SELECT count(*), count(DISTINCT (kind, depth)), count(DISTINCT kind) FILTER (WHERE id > "
    "1) FROM berths",
    "SELECT (SELECT b FROM berths b LIMIT 1) IS NOT NULL",
    "SELECT t.* FROM (SELECT ROW(1, 'a') AS r) t",
    "SELECT string_agg(DISTINCT kind, ',' ORDER BY kind DESC) FROM berths",
    "SELECT pg_typeof(depth) FROM berths",
    "SELECT cast(boat AS varchar(4)), boat::char(3), depth::double precision, depth::real, "
    "id::bigint, '1'::smallint, 'yes'::boolean FROM berths",
    "SELECT * FROM berths NATURAL JOIN paid",
    "SELECT overlay('abcdef' placing 'XX' from 2 for 3), position('c' in 'abc'), ascii('a'), "
    "to_hex(255), chr(9786)",
    "SELECT nullif(split_part(boat, 'i', -1), ''), string_to_array('a,b', ','), "
    "translate(boat, 'aeiou', '') FROM berths",
    "SELECT make_timestamptz(2026, 1, 1, 0, 0, 0, 'UTC'), "
    "date_add('2026-01-01'::timestamptz, '1 day'), date_subtract('2026-01-01'::timestamptz, "
    "'1 day')",
    "SELECT sum(fee) / nullif(count(*), 0), 100 * avg((fee > 5)::int) FROM visits",
    "TABLE berths",
    "SELECT boat, lag(depth) OVER (ORDER BY id) AS prev, depth - lag(depth, 1, depth) OVER "
    "(ORDER BY id) FROM berths",
    "SELECT merge_x FROM (SELECT 1 AS merge_x) q WHERE EXISTS (TABLE visits)",
    "SELECT btrim(to_char(id, '000')), lpad(id::text, 3, '0'), to_char(arrived, 'FMMonth "
    "DDth, YYYY') FROM berths",
    "SELECT regexp_like(boat, '^k', 'i'), starts_with(boat, 'K'), boat ^@ 'K' FROM berths",
    "SELECT extract(year from age(arrived)) * 12 + extract(month from age(arrived)), "
    "date_part('month', age(arrived)) FROM berths",
    "SELECT string_agg(format('%s=%s', boat, depth), '; ') FROM berths",
    "SELECT format('%I.%L %1$s %%', 'a b', 'it''s')",
    "SELECT unnest(string_to_array(body, ' ')) AS w, count(*) FROM notes GROUP BY 1 HAVING "
    "count(*) > 1 ORDER BY 2 DESC, 1",
    "SELECT array_length(regexp_split_to_array(body, '\\s+'), 1) FROM notes",
    "SELECT to_json(b) -> 'boat' FROM berths b",
    "SELECT greatest(depth, 2, NULL), least(id, 3), coalesce(NULL, boat), nullif(id, 0) FROM "
    "berths",
    "SELECT array_agg(ARRAY[id, id]) FROM berths",
    "SELECT max(arrived) - min(arrived) AS span, avg(arrived - date '2026-01-01') FROM berths",
)
OF_DUCKDB: Final = (
    "FROM berths",
    "FROM berths SELECT boat WHERE depth > 3",
    "SELECT * EXCLUDE (depth) FROM berths",
    "SELECT * REPLACE (upper(boat) AS boat) FROM berths",
    "SELECT boat, row_number() OVER (ORDER BY depth) AS r FROM berths QUALIFY r <= 2",
    "PIVOT berths ON kind USING count(*)",
    "PIVOT visits ON berth_id IN (1, 2) USING sum(fee)",
    "SELECT * FROM (PIVOT berths ON kind USING max(depth) GROUP BY boat)",
    "UNPIVOT (SELECT id, depth FROM berths) ON id, depth INTO NAME k VALUE v",
    "SELECT kind, count(*) FROM berths GROUP BY ALL ORDER BY ALL",
    "SELECT DISTINCT ON (kind) kind, boat FROM berths ORDER BY kind, depth",
    "SELECT list(boat ORDER BY boat), array_agg(kind) FROM berths",
    "SELECT list_transform([1, 2], lambda x: x + 1), list_filter([1, 2], lambda x: x > 1)",
    "SELECT [x * 2 for x in [1, 2, 3] if x > 1]",
    "SELECT unnest([1, 2, 3]), unnest(['a', 'b', 'c'])",
    "SELECT s.a FROM (SELECT {'a': 1, 'b': 'x'} AS s) x",
    "SELECT struct_pack(a := 1, b := 2), row(1, 2)",
    "SELECT map {'a': 1}, map(['x'], [1])['x']",
    "SELECT boat[1:3], boat[-1] FROM berths",
    "SELECT boat.upper().lower() FROM berths",
    "SELECT data ->> '$.name', json_extract(data, '$.crew[0]') FROM notes",
    "SELECT n.id, j.value FROM notes n, json_each(n.data) j",
    "SELECT date_trunc('month', moored), strftime(moored, '%Y-%m'), year(moored), "
    "dayname(moored) FROM visits",
    "SELECT moored + INTERVAL 1 DAY, moored - INTERVAL '2 hours', date_diff('day', moored, "
    "now()) FROM visits",
    "SELECT time_bucket(INTERVAL '1 week', moored), count(*) FROM visits GROUP BY 1",
    "SELECT last_day(DATE '2026-02-01'), make_date(2026, 1, 2), epoch(moored) FROM visits",
    "SELECT * FROM range(5)",
    "SELECT * FROM generate_series(1, 10, 3) AS t(i)",
    "SELECT * FROM range(DATE '2026-01-01', DATE '2026-02-01', INTERVAL 1 DAY)",
    "SELECT median(depth), quantile_cont(depth, 0.9), mode(kind), approx_count_distinct(boat) "
    "FROM berths",
    "SELECT arg_max(boat, depth), max_by(boat, depth), any_value(kind), first(boat) FROM berths",
    "SELECT histogram(kind), entropy(kind), skewness(depth), kurtosis(depth) FROM berths",
    "SELECT b.boat, l.n FROM berths b, LATERAL (SELECT count(*) n FROM visits v "
    "WHERE v.berth_id = b.id) l",
    "SELECT b.boat FROM berths b SEMI JOIN visits v ON v.berth_id = b.id",
    "SELECT b.boat FROM berths b ANTI JOIN visits v ON v.berth_id = b.id",
    "SELECT v.fee, b.boat FROM visits v ASOF JOIN berths b ON v.id >= b.id",
    "SELECT * FROM berths POSITIONAL JOIN visits",
    "SELECT 1 AS a UNION BY NAME SELECT 2 AS b",
    "SELECT boat FROM berths USING SAMPLE 2",
    "SELECT boat FROM berths WHERE boat ILIKE 'k%' OR regexp_matches(boat, '^P') OR boat ~ 'S.*'",
    "SELECT regexp_extract(boat, '([A-Z])', 1), regexp_replace(boat, 'e', 'E', 'g') FROM berths",
    "SELECT string_split(body, ' '), split_part(body, ' ', 1) FROM notes",
    "SELECT lpad(id::VARCHAR, 5, '0'), repeat('*', least(id, 5)), format('{:.2f}', depth) FROM "
    "berths",
    "SELECT printf('%05d', id), bar(depth, 0, 10, 20) FROM berths",
    "SELECT try_cast('x' AS INTEGER), '2026-01-01'::DATE, 1::DECIMAL(4, 2)",
    "SELECT 7 // 2, 7 % 2, 2 ** 3, 2 ^ 3",
    "SELECT if(depth > 3, 'deep', 'flat'), ifnull(kind, 'x') FROM berths",
    "SELECT greatest(1, 2), least(1, 2), gcd(12, 18), xor(1, 3), factorial(5)",
    "SELECT levenshtein('a', 'b'), jaro_winkler_similarity('a', 'ab'), md5('x'), hash('x') IS NULL",
    "SELECT sum(depth) FILTER (WHERE kind = 'quay') FROM berths",
    "SELECT kind, count(*) FROM berths GROUP BY ROLLUP (kind)",
    "SELECT kind, boat, count(*) FROM berths GROUP BY GROUPING SETS ((kind), (boat), ())",
    "SELECT main.berths.boat FROM main.berths",
    "WITH a AS MATERIALIZED (SELECT * FROM berths) SELECT count(*) FROM a",
    "SELECT rowid, boat FROM berths",
    "SELECT typeof(depth), 'a' IN ('a', 'b'), list_contains([1], 1) FROM berths",
    "SELECT x: 42",
    "FROM berths SELECT COLUMNS(c -> c LIKE 'b%')",
    "SELECT min(COLUMNS(*)) FROM berths",
    "SELECT COLUMNS('b|d') FROM berths",
    "SELECT * LIKE 'b%' FROM berths",
    "SELECT * RENAME (boat AS ship) FROM berths",
    "SELECT berths.* EXCLUDE (id, arrived) FROM berths",
    "FROM berths WHERE depth > 3 ORDER BY depth LIMIT 2",
    "FROM (FROM berths SELECT boat, depth) SELECT max(depth)",
    "WITH d AS (FROM berths) FROM d SELECT count(*)",
    "SELECT boat, depth, depth * 2 AS twice, twice + 1 AS more FROM berths WHERE twice > 3",
    "SELECT kind, list(boat)[1], list(depth).list_sort().list_reverse() FROM berths GROUP BY ALL",
    "SELECT unnest({'a': 1, 'b': 2})",
    "SELECT unnest([{'a': 1}, {'a': 2}], recursive := true)",
    "SELECT list_aggregate([1, 2], 'sum'), list_zip([1], ['a']), flatten([[1], [2]])",
    "SELECT list_reduce([1, 2, 3], (a, b) -> a + b), list_transform([1], (x, i) -> x + i)",
    "SELECT date_part(['year', 'month'], DATE '2026-01-01'), age(DATE '2026-01-01', DATE "
    "'2025-01-01')",
    "SELECT moored::DATE AS d, count(*) FROM visits GROUP BY d HAVING count(*) > 1 ORDER BY d",
    "SELECT strptime('01/02/2026', '%d/%m/%Y')::DATE, date_sub('month', DATE "
    "'2026-01-01', DATE '2026-03-01')",
    "SELECT regexp_extract_all(boat, '[a-z]+'), regexp_split_to_array(boat, 't') FROM berths",
    "SELECT boat FROM berths WHERE boat SIMILAR TO '(K|P).*' AND boat NOT ILIKE 'x%'",
    "SELECT kind, sum(depth) FROM berths GROUP BY CUBE (kind)",
    "PIVOT (SELECT kind, depth FROM berths) ON kind USING avg(depth) AS a, max(depth) AS m",
    "SELECT fee, quantile_cont(fee, [0.25, 0.75]) OVER () FROM visits",
    "SELECT arg_min(boat, depth, 2), max(depth, 2) FROM berths",
    "SELECT count() FROM berths",
    "SELECT 1_000_000, 0xFF, '\\x00'::BLOB, 'a' || 1",
    "SELECT x, y FROM (VALUES (1, 2)) t(x, y) WHERE (x, y) = (1, 2)",
    "SELECT TRY(CAST('x' AS INT)), coalesce(TRY_CAST('1' AS INT), 0)",
    "SELECT last(boat ORDER BY depth), string_agg(boat, ', ' ORDER BY boat) FROM berths",
    "SELECT row_number() OVER () AS n, * FROM berths QUALIFY n <= 2 ORDER BY n DESC",
    "SELECT b.boat FROM berths b JOIN visits v ON v.berth_id = b.id AND v.moored BETWEEN "
    "TIMESTAMP '2026-01-01' AND now()",
    "SELECT data.name, data->'crew'->>0 FROM notes",
    "SELECT * FROM berths ORDER BY ALL DESC LIMIT 50%",
    "SELECT array_value(1, 2)[1], [1, 2, 3][2:], [1, 2] && [2]",
    "SELECT enum_x FROM (SELECT 'a' AS enum_x)",
    "SELECT map_from_entries([('a', 1)])['a'], map {'k': 1}.k IS NULL",
    "(SELECT boat FROM berths ORDER BY depth LIMIT 1)",
    "SELECT moored + INTERVAL (id) DAY, moored + to_days(id), date_add(moored, INTERVAL 1 "
    "MONTH) FROM visits",
    "SELECT datediff('month', DATE '2026-01-01', moored), datesub('day', moored, "
    "now()::TIMESTAMP), date_part('dow', moored), extract('isodow' FROM moored) FROM visits",
    "SELECT monthname(moored), weekofyear(moored), quarter(moored), dayofyear(moored), "
    "isodow(moored), yearweek(moored), hour(moored) FROM visits",
    "SELECT strftime(moored, '%A %d %B'), strptime('2026-01-02', ['%d/%m/%Y', '%Y-%m-%d']), "
    "try_strptime('x', '%Y'), epoch_ms(moored) FROM visits",
    "SELECT moored::DATE, CAST(moored AS TIME), moored::TIMESTAMPTZ AT TIME ZONE 'UTC' FROM visits",
    "SELECT data->'$.crew'->>0, data->>'$.crew[1]', json_extract_string(data, '$.name'), "
    "data->'crew' FROM notes",
    "SELECT json_keys(data), json_array_length(data->'crew'), json_type(data), "
    "json_valid(body) FROM notes",
    'SELECT from_json(data, \'{"name": "VARCHAR", "crew": ["VARCHAR"]}\').crew[1] FROM notes',
    "SELECT unnest(from_json(data->'crew', '[\"VARCHAR\"]')) FROM notes",
    "SELECT json_group_array(boat), json_group_object(boat, depth), to_json(list(boat)) FROM "
    "berths",
    "SELECT json_object('a', 1), json_array(1, 'x'), json_merge_patch('{\"a\": 1}', '{\"b\": "
    "2}'), json_structure(data) FROM notes",
    "SELECT (data->>'name')::VARCHAR || '!' FROM notes",
    "SELECT cast(data->'crew' AS VARCHAR[]) FROM notes",
    "SELECT list_distinct([1, 1]), list_sort([3, 1], 'DESC'), list_reverse([1, 2]), "
    "list_slice([1, 2, 3], 1, 2), list_unique([1]), list_position([1, 2], 2)",
    "SELECT [1, 2] || [3], list_concat([1], [2]), array_append([1], 2), list_prepend(0, "
    "[1]), len([1, 2]), list_has_any([1], [1, 2])",
    "SELECT list_sum([1, 2]), list_avg([1, 2]), list_max([1]), list_min([2]), list_count([1, "
    "NULL]), list_string_agg(['a', 'b']), list_any_value([NULL, 1])",
    "SELECT array_to_string(['a', 'b'], '-'), list_aggregate([1, 2], 'string_agg', '|'), "
    "list_cosine_similarity([1.0, 2.0], [2.0, 1.0])",
    "SELECT list_transform([1, 2], x -> x + 1), list_filter(['a', 'b'], x -> x > 'a'), [1, "
    "2, 3].list_filter(lambda x: x > 1)",
    "SELECT [lower(b) for b in ['A', 'B']], [x for x in [1, 2, 3] if x % 2 = 1]",
    "SELECT {'a': 1, 'b': {'c': 2}}.b.c, struct_extract({'x': 5}, 'x'), struct_insert({'a': "
    "1}, b := 2), row(1, 'x')",
    "SELECT s.* FROM (SELECT {'p': boat, 'q': depth} AS s FROM berths)",
    "SELECT b FROM berths b",
    "SELECT b.boat.upper(), (b).depth FROM berths b",
    "SELECT MAP {'a': 1, 'b': 2}['b'], map_keys(MAP {'x': 1}), map_values(MAP {'x': 1}), "
    "element_at(MAP {'x': 1}, 'x'), cardinality(MAP {'x': 1})",
    "SELECT boat FROM berths QUALIFY row_number() OVER (PARTITION BY kind ORDER BY depth DESC) = 1",
    "SELECT kind, depth, rank() OVER w FROM berths WINDOW w AS (PARTITION BY kind ORDER BY "
    "depth DESC) QUALIFY rank() OVER w < 3",
    "PIVOT (SELECT kind, month(arrived) AS m, depth FROM berths) ON m IN (1, 2, 3) USING "
    "sum(depth) GROUP BY kind",
    "SELECT * FROM (SELECT kind, depth, id FROM berths) PIVOT (max(depth) FOR id IN (0, 1, "
    "2) GROUP BY kind)",
    "PIVOT visits ON berth_id USING sum(fee) AS total, count(*) AS n",
    "UNPIVOT (SELECT id, depth, id * 2.0 AS twice FROM berths) ON COLUMNS(* EXCLUDE (id)) "
    "INTO NAME k VALUE v",
    "SELECT * FROM (SELECT id, depth::DOUBLE AS a, id::DOUBLE AS b FROM berths) UNPIVOT (v "
    "FOR k IN (a, b))",
    "WITH p AS (PIVOT berths ON kind USING count(*) GROUP BY boat) SELECT * FROM p ORDER BY boat",
    "SELECT v.id, b.boat FROM visits v ASOF LEFT JOIN berths b ON v.berth_id = b.id AND "
    "v.moored >= b.arrived",
    "SELECT v.id, b.boat FROM visits v ASOF JOIN berths b USING (id)",
    "SELECT sum(fee) OVER (ORDER BY moored RANGE BETWEEN INTERVAL 7 DAYS PRECEDING AND "
    "CURRENT ROW EXCLUDE CURRENT ROW) FROM visits",
    "SELECT sum(DISTINCT fee) OVER (), first_value(fee IGNORE NULLS) OVER (ORDER BY id), "
    "lag(fee, 1 IGNORE NULLS) OVER (ORDER BY id) FROM visits",
    "SELECT list(fee ORDER BY fee DESC) FILTER (WHERE fee > 3), quantile_disc(fee, [0.1, "
    "0.9]), mad(fee), approx_quantile(fee, 0.5), reservoir_quantile(fee, 0.5) FROM visits",
    "SELECT arg_min(boat, depth), min_by(boat, depth), argmax(boat, depth), max(boat, 2), "
    "bool_or(depth > 3), product(id + 1), favg(depth), fsum(depth), geomean(depth) FROM "
    "berths",
    "SELECT kind, GROUPING_ID(kind), sum(depth) FROM berths GROUP BY GROUPING SETS ((kind), ())",
    "SELECT * EXCLUDE (id) REPLACE (round(depth, 1) AS depth) RENAME (boat AS ship) FROM berths",
    "SELECT COLUMNS('^(b|k)'), COLUMNS(* EXCLUDE id)::VARCHAR FROM berths",
    "SELECT max(COLUMNS(c -> c IN ('id', 'depth'))) FROM berths",
    "FROM visits v JOIN berths b ON b.id = v.berth_id SELECT b.boat, sum(v.fee) GROUP BY ALL "
    "ORDER BY ALL DESC LIMIT 3",
    "SELECT boat AS b, b || '!' AS c FROM berths WHERE c LIKE 'K%' ORDER BY c",
    "SELECT id FROM berths LIMIT 20%",
    "SELECT * FROM berths USING SAMPLE 50 PERCENT (bernoulli)",
    "SELECT * FROM berths TABLESAMPLE reservoir(3 ROWS) REPEATABLE (1)",
    "SELECT * FROM berths USING SAMPLE reservoir(2 ROWS) REPEATABLE (42)",
    "SELECT boat.substr(1, 2), boat[1], boat[:3], boat[-2:], boat.contains('e'), boat.len() "
    "FROM berths",
    "SELECT contains(boat, 'it'), prefix(boat, 'K'), suffix(boat, 'e'), starts_with(boat, "
    "'K'), ends_with(boat, 'e'), boat ^@ 'K', instr(boat, 'i') FROM berths",
    "SELECT regexp_extract(boat, '(?P<a>\\w)(\\w+)', ['x', 'y']), regexp_matches(boat, '^K', "
    "'i'), regexp_full_match(boat, '\\w+'), regexp_replace(boat, '(.)$', '\\1\\1') FROM "
    "berths",
    "SELECT string_split_regex(body, '\\s+'), str_split(body, ' ')[1], split(body, ' '), "
    "concat_ws('-', 'a', 'b'), left(body, 3), right(body, 3), reverse(body) FROM notes",
    "SELECT format('{} is {:.1f} m, {:>10}', boat, depth, kind), printf('%-10s|%5.1f', boat, "
    "depth), format('{:,}', 1234567) FROM berths",
    "SELECT lcase(boat), ucase(boat), strip_accents('\u00e9'), unicode('\u00e9'), chr(65), "
    "ord('A'), ascii('A'), bit_length(boat), strlen(boat), translate(boat, 'a', 'b') FROM "
    "berths",
    "SELECT damerau_levenshtein('a', 'b'), hamming('ab', 'ac'), jaccard('ab', 'ac'), "
    "jaro_similarity('a', 'b'), editdist3('a', 'b'), mismatches('a', 'b')",
    "SELECT even(2.3), cbrt(27), isnan(1.0), nextafter(1.0, 2.0), round_even(2.5, 0), lcm(2, "
    "3), pow(2, 3), bit_count(7), trunc(2.7), ceiling(2.1)",
    "SELECT TRY_CAST(boat AS INT), CAST(depth AS DECIMAL(10, 2)), depth::HUGEINT, '1 "
    "year'::INTERVAL, 'a'::VARCHAR, [1]::DOUBLE[], {'a': 1}::STRUCT(a BIGINT) FROM berths",
    "SELECT 'happy'::ENUM('happy', 'sad')",
    "SELECT uuid() IS NOT NULL, gen_random_uuid() IS NOT NULL, random() < 1, md5('a'), "
    "sha256('a'), hash('a')",
    "SELECT CASE WHEN depth > 3 THEN 'deep' ELSE 'flat' END AS c, count(*) FROM berths GROUP "
    "BY c HAVING c = 'deep'",
    "SELECT unnest(generate_series(1, 3)) AS i, unnest(['a', 'b', 'c']) AS s",
    "SELECT i, sqrt(i) FROM range(1, 10) t(i) WHERE i % 2 = 0",
    "SELECT d::DATE, count(v.id) FROM generate_series(TIMESTAMP '2026-01-01', TIMESTAMP "
    "'2026-02-01', INTERVAL '1' DAY) g(d) LEFT JOIN visits v ON v.moored::DATE = d::DATE "
    "GROUP BY d ORDER BY d",
    "WITH RECURSIVE t(d) AS (SELECT DATE '2026-01-01' UNION ALL SELECT (d + INTERVAL 1 "
    "MONTH)::DATE FROM t WHERE d < DATE '2026-12-01') SELECT d, last_day(d) FROM t",
    "WITH RECURSIVE t(i) USING KEY (i) AS (SELECT 1 UNION SELECT i + 1 FROM t WHERE i < 5) "
    "SELECT count(*) FROM t",
    "(SELECT 1 UNION ALL SELECT 2) EXCEPT ALL (SELECT 2) ORDER BY 1",
    "SELECT id FROM berths UNION ALL BY NAME SELECT fee AS id, moored FROM visits LIMIT 4",
    "SELECT b.boat, l.* FROM berths b LEFT JOIN LATERAL (SELECT max(fee) AS m FROM visits v "
    "WHERE v.berth_id = b.id) l ON TRUE",
    "SELECT b.boat, (SELECT list(v.fee) FROM visits v WHERE v.berth_id = b.id) AS fees FROM "
    "berths b",
    "SELECT boat FROM berths WHERE id IN [1, 2, 3] OR 1 IN (SELECT 1)",
    "SELECT boat FROM berths WHERE depth > ALL (SELECT 1) AND depth = ANY ([2.5, 4.0])",
    "SELECT boat FROM berths WHERE depth BETWEEN SYMMETRIC 5 AND 2",
    "SELECT depth IS NOT DISTINCT FROM 3, depth IS DISTINCT FROM NULL FROM berths",
    "SELECT boat GLOB 'K*', boat ILIKE '%I%', boat NOT LIKE 'x' ESCAPE '$' , boat !~ 'x', "
    "boat SIMILAR TO 'K.*' FROM berths",
    'SELECT 1 AS "select", "from" FROM "table" AS "where" WHERE "where"."order" = 3',
    "SELECT '\\x41'::BLOB, encode('a'), decode('a'::BLOB), hex('a'), unhex('61'), "
    "to_base64('a'::BLOB), from_base64('YQ=='), bin(5)",
    "SELECT first(boat ORDER BY depth), last(boat), any_value(kind), arbitrary(kind), "
    "count_if(depth > 3), bit_xor(id), string_agg(boat, ','), group_concat(boat, ';') FROM "
    "berths",
    "SELECT date '2026-03-01' - date '2026-02-01', age(TIMESTAMP '2026-01-01'), today(), "
    "current_date + 1, date_trunc('quarter', today()), century(today()), time '10:00' + "
    "interval 1 hour",
    "SELECT make_timestamp(2026, 1, 1, 0, 0, 0.0), make_time(1, 2, 3.0), to_timestamp(0), "
    "epoch(INTERVAL 1 DAY), to_months(3), to_hours(2), datepart('year', today()), "
    "time_bucket(INTERVAL 1 MONTH, DATE '2026-01-15', DATE '2026-01-01')",
    "SELECT stddev_samp(depth), var_pop(depth), covar_samp(depth, id), regr_slope(depth, "
    "id), regr_intercept(depth, id), sem(depth), kurtosis_pop(depth) FROM berths",
    "SELECT histogram(fee), histogram(fee, [0, 5, 10]), approx_top_k(fee, 2), cume_dist() "
    "OVER () FROM visits GROUP BY ALL",
    "SELECT ntile(3) OVER (ORDER BY fee), nth_value(fee, 2) OVER (ORDER BY id), fill(fee) "
    "OVER (ORDER BY id) FROM visits",
    "SELECT array_distance([1.0, 2.0]::FLOAT[2], [2.0, 3.0]::FLOAT[2]), "
    "array_cosine_similarity([1.0, 2.0]::FLOAT[2], [2.0, 1.0]::FLOAT[2]), "
    "list_dot_product([1.0], [2.0]), array_inner_product([1.0]::FLOAT[1], [1.0]::FLOAT[1])",
    "SELECT union_value(a := 1), union_tag(union_value(k := 'x'))",
    "SELECT columns.boat FROM berths AS columns",
    "SELECT x.y FROM (SELECT {'y': 1} AS x)",
    "SELECT list_grade_up([3, 1]), list_select([1, 2], [1]), list_where([1, 2], [true, "
    "false]), list_contains([1], 1), list_has_all([1, 2], [1]), list_intersect([1], [1]), "
    "list_resize([1], 3)",
    "SELECT parse_path('/a/b'), parse_filename('a/b.c'), url_encode('a b'), "
    "url_decode('a%20b'), regexp_escape('a.b'), nfc_normalize('e')",
    "SELECT greatest('a', 'b'), least(1, 2), count(*) FILTER (depth > 3) FROM berths",
    "VALUES (1, 'a'), (2, 'b') ORDER BY 1 DESC",
    "FROM (VALUES (1, 'a')) t(n, s) SELECT s, n",
    "SELECT kind, sum(depth) AS s FROM berths GROUP BY ROLLUP (kind) ORDER BY kind NULLS FIRST",
    "SELECT b.*, v.* EXCLUDE (id) FROM berths b JOIN visits v ON b.id = v.berth_id",
    "SELECT list_value(1, 2), list_pack(1), array_value(1, 2), [[1, 2], [3]][1][2], "
    "flatten([[1], [2]])",
    "SELECT sum(x) FROM (SELECT unnest(list(depth)) AS x FROM berths)",
    "SELECT min(depth), kind FROM berths GROUP BY kind HAVING min(depth) > 1 AND kind NOT IN "
    "('x') ORDER BY ALL",
    "SELECT month(arrived) m, count(*) FROM berths GROUP BY 1 ORDER BY m LIMIT ALL OFFSET 1",
)


def honest(dialect: str) -> list[str]:
    """All of a dialect."""
    own = {"sqlite": OF_SQLITE, "postgres": OF_POSTGRES, "duckdb": OF_DUCKDB}[dialect]
    return [*ALL, *own]
