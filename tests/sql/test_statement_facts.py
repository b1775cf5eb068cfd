"""What a statement reads, and looks for."""

from __future__ import annotations

import pytest

from teola.sql.sql_schema import Schema
from teola.sql.statement_facts import MOST_TEXTS, facts_of

SCHEMA = Schema.of({"boats": ["id", "name"], "berths": ["depth"], "sales.boats": ["id"]})


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("SELECT 1", ()),
        ("SELECT name FROM Boats", ("boats",)),
        ("SELECT 1 FROM berths, boats, berths AS b", ("berths", "boats")),
        ("SELECT id FROM sales.boats", ("sales.boats",)),
        ("SELECT id FROM boats WHERE id IN (SELECT depth FROM berths)", ("boats", "berths")),
        ("WITH b AS (SELECT id FROM boats) SELECT id FROM b", ("boats",)),
        ("WITH boats AS (SELECT depth FROM berths) SELECT depth FROM boats", ("berths",)),
        (
            "WITH boats AS (SELECT depth FROM berths) SELECT 1 FROM sales.boats, boats",
            ("sales.boats", "berths"),
        ),
        (
            "SELECT id FROM boats WHERE EXISTS "
            "(WITH boats AS (SELECT depth FROM berths) SELECT 1 FROM boats)",
            ("boats", "berths"),
        ),
        ("WITH boats AS (SELECT id FROM boats) SELECT id FROM boats", ("boats",)),
    ],
)
def test_tables_are_those_that_names_mean_where_they_stand(
    sql: str, tables: tuple[str, ...]
) -> None:
    found = facts_of(sql, "postgres", SCHEMA).tables
    assert (len(found), set(found)) == (len(tables), set(tables))


@pytest.mark.parametrize(
    ("condition", "texts"),
    [
        ("name = 'a'", ["a"]),
        ("'a' = name", ["a"]),
        ("name <> 'a' OR name LIKE '%b_c%'", ["a", "b_c"]),
        ("name IN ('a', 'b', 'a')", ["a", "b"]),
        ("lower(name) = 'a'", ["a"]),
        ("id = 3", []),
        ("name LIKE '% %'", []),
    ],
)
def test_texts_are_those_that_columns_are_compared_with(condition: str, texts: list[str]) -> None:
    facts = facts_of(f"SELECT id FROM boats WHERE {condition}", "postgres", SCHEMA)
    assert sorted(facts.texts) == sorted(texts)


def test_of_many_texts_the_first_are_kept() -> None:
    for count in (MOST_TEXTS, MOST_TEXTS + 1):
        listed = ", ".join(f"'t{n}'" for n in range(count))
        facts = facts_of(f"SELECT id FROM boats WHERE name IN ({listed})", "postgres", SCHEMA)
        assert facts.texts == tuple(f"t{n}" for n in range(MOST_TEXTS))
