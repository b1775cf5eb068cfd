"""RETRIEVE(text, 'collection', k): what a collection has that is nearest to a text.

    distinct texts of a table ─▶ one embedding ─▶ one search ─▶ lists of contexts, joined back

Both go through the scheduler of all queries, as one query for each batch of texts. Within a run a
text is searched for once. A list has the order of relevance; in prompts contexts that many rows
share go first (context_order), so that prompts begin alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pydantic import Field

from teola.app import App
from teola.errors import DeadlineExceeded, QueryCancelled, TeolaError, reason_of
from teola.graph import Op, Ref, SearchParams
from teola.runtime.runtime import Runtime
from teola.tables.plan_steps import ROW, Retrieve
from teola.tables.retrieval_call import CONTEXTS, RetrievalCall
from teola.tables.run_limits import Spent, Stopped
from teola.tables.workspace import cursor_of
from teola.workflow.block import Block
from teola.workflow.component import Component, Config
from teola.workflow.components.embedding import Embedding
from teola.workflow.kinds import Kind

if TYPE_CHECKING:
    import duckdb

    from teola.tables.call_stage import CallStage

AT_ONCE: Final = 1024
"""Texts that are searched for by one query."""
SECONDS: Final = 600.0
"""Seconds for one batch of texts, where the run has no deadline."""

SearchTexts = Callable[[RetrievalCall, Sequence[str], float], list[list[str]]]
"""Contexts for each text, the nearest first. The last argument: seconds for it."""


class SearchEachConfig(Config):
    """top_k: contexts for each vector."""

    top_k: int = Field(3, ge=1, le=200)


class SearchEach(Component):
    """The `top_k` best chunks for each vector by itself, within the query's scope."""

    default_name = "search"
    default_engine = "vectorstore"
    needs = {"vectors": Kind.VECTORS, "scope": Kind.SCOPE}
    gives = {"found": Kind.ANY}
    config_type = SearchEachConfig

    def decompose(self, block: Block) -> None:
        vectors = block.read("vectors")
        search = block.add(
            "search",
            Op.SEARCHING,
            {"vectors": vectors.ref, "scope": block.read("scope").ref},
            ("hits",),
            SearchParams(block.config.top_k, None),
            items=vectors.items,
        )
        block.give("found", Ref(search, "hits"), vectors.items, open=vectors.open)


def search_of(runtime: Runtime, tenant: str) -> SearchTexts:
    """Searches of a runtime's engines `embedding` and `vectorstore`."""
    app = App(
        "retrieve",
        Embedding(inputs={"texts": "texts"}) >> SearchEach(),
        inputs={"texts": "texts", "documents": "documents"},
        outputs={"found": "found"},
        runtime=runtime,
    )

    def search(call: RetrievalCall, texts: Sequence[str], seconds: float) -> list[list[str]]:
        result = app.run(
            {"texts": list(texts), "collection": call.collection},
            overrides={"search.top_k": call.k},
            deadline_s=seconds,
            tenant=tenant or "default",
        )
        return [[hit.text for hit in hits] for hits in result.outputs["found"]]

    return search


@dataclass(slots=True)
class Retriever:
    """Fills the columns of RETRIEVE in one run."""

    con: duckdb.DuckDBPyConnection
    search: SearchTexts
    spent: Spent
    _known: set[str] = field(default_factory=set)

    def check(self, calls: Sequence[RetrievalCall]) -> None:
        """Search once in each collection. Raises InputError where one is missing or was indexed
        with another embedder, and EngineUnavailable without an embedder or a store."""
        for call in dict.fromkeys(calls):
            self.search(call, ["a text to begin with"], self._seconds())

    def run(self, step: Retrieve, stage: CallStage, *, closed: bool) -> None:
        """Add the column to the table. closed: nothing is searched any more. Raises Stopped."""
        con, found = self.con, f"teola_found_{step.call.digest}"
        if found not in self._known:
            con.execute(f"CREATE OR REPLACE TABLE {found} (text VARCHAR, contexts {CONTEXTS})")
            self._known.add(found)
        guard = f" WHERE {step.guard}" if step.guard else ""
        con.execute(
            f"CREATE OR REPLACE TABLE teola_asked AS SELECT {ROW}, "
            f"CAST(({step.field}) AS VARCHAR) AS text FROM {step.table}{guard}"
        )
        new = f"(SELECT DISTINCT text FROM teola_asked ANTI JOIN {found} USING (text))"
        ((rows, texts, unknown),) = con.execute(
            "SELECT count(text), count(DISTINCT text), "
            f"(SELECT count(text) FROM {new}) FROM teola_asked"
        ).fetchall()
        stage.rows += int(rows)
        stage.distinct += int(unknown if stage.order else texts)
        stage.order = ["text"]
        if unknown and not closed:
            self._search(step.call, found, f"SELECT text FROM {new} WHERE text IS NOT NULL")
        con.execute(
            f"CREATE OR REPLACE TABLE teola_new AS SELECT b.*, f.contexts AS {step.value} "
            f"FROM {step.table} b LEFT JOIN teola_asked k ON k.{ROW} = b.{ROW} "
            f"LEFT JOIN {found} f ON f.text = k.text "
            f"{'WHERE k.text IS NULL OR f.text IS NOT NULL ' if closed else ''}ORDER BY b.{ROW}"
        )
        con.execute(f"DROP TABLE {step.table}")
        con.execute(f"ALTER TABLE teola_new RENAME TO {step.table}")
        con.execute("DROP TABLE teola_asked")

    def _search(self, call: RetrievalCall, found: str, sql: str) -> None:
        import pyarrow as pa

        cursor = cursor_of(self.con)
        try:
            for batch in cursor.sql(f"{sql} ORDER BY text").to_arrow_reader(AT_ONCE):
                texts = batch.columns[0].to_pylist()
                contexts = self._contexts(call, texts)
                arrays = [pa.array(texts, pa.string()), pa.array(contexts, pa.list_(pa.string()))]
                self.con.register("teola_batch", pa.Table.from_arrays(arrays, ["text", "contexts"]))
                self.con.execute(f"INSERT INTO {found} SELECT * FROM teola_batch")
                self.con.unregister("teola_batch")
        finally:
            cursor.close()

    def _contexts(self, call: RetrievalCall, texts: Sequence[str]) -> list[list[str]]:
        self.spent.check()
        try:
            return self.search(call, texts, self._seconds())
        except DeadlineExceeded as error:
            raise Stopped("deadline", reason_of(error), error) from error
        except QueryCancelled as error:
            raise Stopped("cancelled", reason_of(error), error) from error
        except TeolaError as error:
            raise Stopped("failed", reason_of(error), error) from error

    def _seconds(self) -> float:
        left = self.spent.left_s()
        return SECONDS if left is None else max(left, 0.001)
