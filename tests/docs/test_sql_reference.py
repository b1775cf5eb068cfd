"""docs/sql-reference.md against the code: functions, options, types, values, and every refusal."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from teola import tables
from teola.errors import InputError
from teola.tables.llm_call import GROUP_OPTIONS, OPTIONS, llm_call_of
from teola.tables.marks import WRITTEN
from teola.tables.planner import plan_text
from tests.docs.blocks import ROOT
from tests.tables.oracle import FunctionAsker

PAGE = ROOT / "docs" / "sql-reference.md"
UNREACHED = {
    "a call stands in something that is no SELECT",  # all that parses so has a rule of its own
    " beside a call cannot be planned",  # of other dialects
    " is another value each time it is read",  # DuckDB refuses such an alias
    "there is no column ",  # DuckDB counts first
}
"""What is said only where something before it failed to say something better."""


def section(title: str) -> str:
    """What stands below a heading, up to the next one of its kind."""
    return PAGE.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def table_rows(text: str) -> Iterator[list[str]]:
    """Cells of the tables of a text, heads and backticks of code left out."""
    for line in text.splitlines():
        if not line.startswith("|") or line.startswith("| ---"):
            continue
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells[0] in ("query", "options", "option", "function", "value"):
            continue
        yield [
            cell.strip("`").replace("\\|", "|")
            if cell.startswith("`")
            else re.sub(r"\\(.)", r"\1", cell)
            for cell in cells
        ]


@pytest.fixture(scope="module")
def con() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    con.execute("CREATE TABLE t (id INTEGER, a VARCHAR, l VARCHAR[])")
    con.execute("CREATE TABLE u (id INTEGER, c VARCHAR)")
    return con


def test_each_function_and_option_is_on_the_page_and_no_other() -> None:
    functions = [cells[0].partition("(")[0] for cells in table_rows(section("Functions"))]
    assert sorted(functions) == sorted(WRITTEN)
    listed: dict[str, list[str]] = {"LLM": [], "LLM_AGG": [], "RETRIEVE": []}
    for option, of, *_ in table_rows(section("Options")):
        for function in of.split(", "):
            listed[function].append(option.partition(" := ")[0])
    assert sorted(listed["LLM"]) == sorted(OPTIONS)
    assert sorted(listed["LLM_AGG"]) == sorted(GROUP_OPTIONS)
    assert listed["RETRIEVE"] == ["keep_rank"]


def test_defaults_are_those_of_the_page() -> None:
    told = {
        option.partition(" ")[0]: default
        for option, _, default, _ in table_rows(section("Options"))
    }
    plain, group = llm_call_of("x", {}), llm_call_of("x", {}, grouped=True).group
    assert group is not None
    assert told["max_tokens"] == f"{plain.max_tokens}; with choices the longest one and 8 more"
    assert llm_call_of("x", {"choices": ["Yes", "No"]}).max_tokens == len("Yes") + 8
    assert told["part_tokens"] == str(group.part_tokens)
    assert told["temperature"] == f"{plain.temperature:g}"
    for name in ("shared", "fixed_order"):
        assert told[name] == str(getattr(plain, name)).lower()


def test_columns_have_the_types_of_the_page(con: duckdb.DuckDBPyConnection) -> None:
    listed = list(table_rows(section("Types")))
    assert len(listed) > 15
    for options, type in listed:
        sql = f"SELECT LLM('x', a{', ' if options else ''}{options}) AS k FROM t"
        (column,) = plan_text(con, sql, ["t"]).columns
        assert column.type == type, options


def test_values_stand_in_prompts_as_on_the_page() -> None:
    listed = list(table_rows(section("Fields")))
    fields = ", ".join(value for value, _ in listed)
    asker = FunctionAsker(lambda instruction, values: ("x", None))
    sql = f"SELECT LLM('q', {fields}, fixed_order := true) FROM t"
    tables.sql(sql, {"t": pa.table({"n": [1]})}, ask_rows=asker, answers=False).run()
    lines = asker.prompts[0].split("\n")[1:]
    assert lines == [f"field{at}: {shown}" for at, (_, shown) in enumerate(listed, 1)]


def test_each_refusal_says_what_the_page_says(con: duckdb.DuckDBPyConnection) -> None:
    for query, told in table_rows(section("What is refused")):
        with pytest.raises(InputError) as raised:
            plan_text(con, query, ["t", "u"])
        assert str(raised.value) == told, query


def refusals() -> Iterator[str]:
    """What the planner may say of a query, as it stands in the code."""
    for path in sorted((ROOT / "teola" / "tables").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            name = getattr(getattr(node, "func", None), "id", "")
            if isinstance(node, ast.Call) and name == "refused":
                yield from parts_of(node.args[0], path)


def parts_of(node: ast.expr, path: Path) -> Iterator[str]:
    """The longest fixed part of a text."""
    texts = [one.value for one in ast.walk(node) if isinstance(one, ast.Constant)]
    fixed = [one for one in texts if isinstance(one, str)]
    assert fixed, f"{path.name}: what is refused must be a text that stands there"
    yield max(fixed, key=len)


def test_all_that_the_planner_refuses_is_on_the_page() -> None:
    told = " ".join(said for _, said in table_rows(section("What is refused")))
    missing = {one for one in refusals() if one not in told}
    assert missing == UNREACHED
