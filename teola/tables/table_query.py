"""A query that can be planned, explained and run: written as SQL, or made of relations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, overload

from sqlglot import exp

from teola.price import Price
from teola.tables.marks import Calls, numbered
from teola.tables.plan_runs import RunOptions, run_plan
from teola.tables.plan_steps import TablePlan
from teola.tables.planner import chosen_passes, plan_text, plan_tree
from teola.tables.run_limits import RunLimits, Spent
from teola.tables.running_query import RunningQuery, begin_query
from teola.tables.workspace import MEMORY, Workspace

if TYPE_CHECKING:
    from teola.tables.done import Done
    from teola.tables.table_estimates import QueryEstimate

OF_LIMITS = ("on_error", "max_errors", "retry_failed", "most_calls", "most_tokens", "most_cost")


class TableQuery:
    """A query over tables. query: SQL, or a tree. tables: the tables that it reads, by name.
    defaults: default options of `run`."""

    def __init__(self, query: str | exp.Query, tables: Mapping[str, Any], **defaults: Any) -> None:
        self._query, self._tables, self._defaults = query, dict(tables), defaults

    def plan(self, workspace: Workspace, passes: Any = None) -> TablePlan:
        """The plan of the query, on a workspace that has its tables. Raises InputError."""
        chosen = chosen_passes(passes)
        if isinstance(self._query, str):
            return plan_text(workspace.con, self._query, list(self._tables), chosen)
        calls = Calls()
        tree = numbered(self._query, calls)
        assert isinstance(tree, exp.Query)
        return plan_tree(workspace.con, tree, calls, chosen)

    def explain(self, **options: Any) -> QueryEstimate:
        """The estimate of the query: its stages, its rewrites, its calls and tokens. Nothing is
        asked. Raises InputError."""
        from teola.tables.table_estimates import explain

        chosen = {**self._defaults, **options}
        with Workspace(self._tables, memory=chosen.pop("memory", MEMORY)) as workspace:
            plan = self.plan(workspace, chosen.get("passes"))
            return explain(workspace, plan, _options(chosen))

    @overload
    def run(
        self,
        *,
        check: bool = ...,
        cancel: Spent | None = ...,
        wait: Literal[True] = ...,
        **options: Any,
    ) -> Done: ...

    @overload
    def run(
        self,
        *,
        wait: Literal[False],
        check: bool = ...,
        cancel: Spent | None = ...,
        **options: Any,
    ) -> RunningQuery: ...

    def run(
        self,
        *,
        check: bool = True,
        cancel: Spent | None = None,
        wait: bool = True,
        **options: Any,
    ) -> Done | RunningQuery:
        """Run the query.

        llm: a server's URL or several, a model's folder, or an EngineConfig; or runtime: one that
        has an engine `llm`. answers: the file that answers are kept in (by default in the data
        folder), or postgresql://..., which several processes share; False: none. answers_lease_s:
        how long keys that it has claimed there stay claimed once it is dead. on: "ray" asks the
        rows on `workers` workers of a Ray cluster, each with an engine of its own; ray: the
        cluster's address (None: this machine). out: a file for the rows (.parquet, .csv, .jsonl).
        on_error, max_errors, retry_failed, most_calls, most_tokens, most_cost with price,
        deadline_s: see `RunLimits`. passes: the rewrites that may be made. memory: of DuckDB, such
        as "256MB". priority: "rows", or "interactive". tenant: whose it is. batch_aware:
        prompts that the engine computes together, where it finds in a batch only what batches
        before it computed: rows that begin alike are dealt to different batches (by default they
        follow each other). check: raise
        QueryFailed, QueryCancelled or DeadlineExceeded where it ends so (its `result` has what
        there is). wait: until it has ended; else it runs in a thread, and `reader` of what is
        returned gives its rows as they come.
        Raises InputError, before anything is asked, for what is wrong with the query.
        """
        chosen = {**self._defaults, **options}
        memory = chosen.pop("memory", MEMORY)
        run_options = _options(chosen)
        workspace = Workspace(self._tables, memory=memory)
        try:
            plan = self.plan(workspace, chosen.get("passes"))
            if not wait:
                return begin_query(workspace, plan, run_options, cancel, check)
            done = run_plan(workspace, plan, run_options, cancel)
        except BaseException:
            workspace.close()
            raise
        return done.checked() if check else done


def _options(options: Mapping[str, Any]) -> RunOptions:
    others = dict(options)
    limits = {name: others.pop(name) for name in OF_LIMITS if name in others}
    price = others.pop("price", None)
    as_it_is = price is None or isinstance(price, Price)
    limits["price"] = price if as_it_is else Price.parse(price)
    run_limits = RunLimits(**limits, deadline_s=others.pop("deadline_s", None))
    passes = chosen_passes(others.pop("passes", None))
    try:
        return RunOptions(**others, limits=run_limits, passes=passes)
    except TypeError as error:
        from teola.errors import UnknownName

        names = [*RunOptions.__dataclass_fields__, *OF_LIMITS, "price", "deadline_s", "memory"]
        wrong = next((name for name in others if name not in names), str(error))
        hidden = ("limits", "ask_rows", "search", "spool", "since", "answers_of")
        raise UnknownName(
            "option", wrong, [valid for valid in names if valid not in hidden]
        ) from None
