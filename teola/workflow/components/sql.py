"""Sql: what a database answers, to a statement that only reads or to a question about itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import Field

from teola.errors import UnknownName
from teola.graph import Op, Ref, SqlParams, SqlWork, Value
from teola.workflow.block import Block
from teola.workflow.component import Component, Config
from teola.workflow.kinds import Kind

NEEDS: Final[Mapping[SqlWork, Mapping[str, Kind]]] = {
    SqlWork.QUERY: {"sql": Kind.TEXT},
    SqlWork.EXPLAIN: {"sql": Kind.TEXT},
    SqlWork.SCHEMA: {},
    SqlWork.VALUES: {"text": Kind.TEXT},
    SqlWork.LINK: {"text": Kind.TEXT},
}
MORE: Final[Mapping[SqlWork, Mapping[str, Kind]]] = {
    SqlWork.QUERY: {"keep": Kind.ANY},
    SqlWork.LINK: {"hints": Kind.TEXT, "chosen": Kind.ANY},
}


class SqlConfig(Config):
    """max_rows: of the result; more are left out, and `truncated` says so. tell_errors: whether
    what is wrong with a statement is a result (`{"error": ...}`), for a component that repairs it;
    otherwise the query fails."""

    max_rows: int = Field(1000, ge=1, le=100_000)
    tell_errors: bool = False


class Sql(Component):
    """`result` of the statement `sql`: `columns`, `rows`, `truncated`, and `note` where something
    was left out. engine: the database, by its name in the configuration; with the engine
    `databases`, the input `database` names it. work: what it is asked for, see docs/text-to-sql.md.
    """

    default_name = "sql"
    default_engine = "database"
    gives = {"result": Kind.ANY}
    config_type = SqlConfig

    def __init__(self, name: str | None = None, *, work: str = "query", **options: Any) -> None:
        valid = {kind.value: kind for kind in SqlWork}
        if work not in valid:
            raise UnknownName("work", work, valid, "Sql")
        self.work = valid[work]
        self.needs = NEEDS[self.work]  # type: ignore[misc]
        self.may_use = {"database": Kind.TEXT, **MORE.get(self.work, {})}  # type: ignore[misc]
        super().__init__(name, **options)

    def decompose(self, block: Block) -> None:
        config = block.config
        inputs: dict[str, Value] = {port: block.read(port).ref for port in self.required}
        for port in self.extra:
            if feed := block.may_read(port):
                inputs[port] = feed.ref
        params = SqlParams(config.max_rows, self.work, config.tell_errors)
        run = block.add("run", Op.SQL, inputs, ("result",), params)
        block.give("result", Ref(run, "result"))
