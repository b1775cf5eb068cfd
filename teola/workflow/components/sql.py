"""Sql: what a database answers to a statement that only reads."""

from __future__ import annotations

from pydantic import Field

from teola.graph import Op, Ref, SqlParams
from teola.workflow.block import Block
from teola.workflow.component import Component, Config
from teola.workflow.kinds import Kind


class SqlConfig(Config):
    """max_rows: of the result; more are left out, and `truncated` says so. tell_errors: whether
    what is wrong with a statement is a result (`{"error": ...}`), for a component that repairs it;
    otherwise the query fails."""

    max_rows: int = Field(1000, ge=1, le=100_000)
    tell_errors: bool = False


class Sql(Component):
    """`result` of the statement `sql`: `columns`, `rows`, `truncated`, and `note` where something
    was left out. engine: the database, by its name in the configuration."""

    default_name = "sql"
    default_engine = "database"
    needs = {"sql": Kind.TEXT}
    gives = {"result": Kind.ANY}
    config_type = SqlConfig

    def decompose(self, block: Block) -> None:
        config = block.config
        run = block.add(
            "run",
            Op.SQL,
            {"sql": block.read("sql").ref},
            ("result",),
            SqlParams(config.max_rows, tell_errors=config.tell_errors),
        )
        block.give("result", Ref(run, "result"))
