"""Which rows a call is asked for: those for which the expression around it needs its value.

    CASE WHEN a THEN LLM(x) ELSE LLM(y) END     x where a IS TRUE, y where it is not
    a AND LLM(x)                                where a IS DISTINCT FROM FALSE
    a OR LLM(x)                                 where a IS DISTINCT FROM TRUE
    coalesce(a, LLM(x))                         where a IS NULL

Operands without calls guard those with calls, wherever they stand: AND and OR do not care for order
in three values either. The same call under two guards is two columns, since each has its answers
for its own rows only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp

from teola.tables.duckdb_schema import Catalogue, written
from teola.tables.llm_call import LlmCall
from teola.tables.marks import (
    ERROR,
    Calls,
    calls_in,
    fields_of,
    has_call,
    is_call,
    is_retrieval,
    retrieval_at,
)
from teola.tables.places import refused
from teola.tables.plan_steps import AskCall, Retrieve
from teola.tables.retrieval_call import RetrievalCall

NULL_CHOICES = ("coalesce", "ifnull")


def column(name: str) -> exp.Expr:
    """A column that the planner made."""
    return exp.Column(this=exp.Identifier(this=name, quoted=False))


class AnswerColumns:
    """Columns of one table that hold answers, by call and guard; makes the asks for new ones."""

    def __init__(
        self, table: str, catalogue: Catalogue, calls: Calls, new: Callable[[], int], guards: bool
    ) -> None:
        self.table, self.catalogue, self.calls = table, catalogue, calls
        self._new, self._guards = new, guards
        self._known: dict[tuple[LlmCall, tuple[str, ...], str | None], AskCall] = {}
        self._retrieved: dict[tuple[RetrievalCall, str, str | None], Retrieve] = {}
        self.asks: list[AskCall | Retrieve] = []
        """Asks that were planned since `taken` was last called."""

    def taken(self) -> tuple[AskCall | Retrieve, ...]:
        """Take the asks that were planned since the last call, in order."""
        taken, self.asks = tuple(dict.fromkeys(self.asks)), []
        return taken

    def known_put_in(self, node: exp.Expr) -> exp.Expr:
        """A copy in which calls that are asked for all rows already are replaced by their
        columns."""
        holder = exp.Paren(this=node.copy())
        for call in reversed(list(calls_in(holder))):
            if is_retrieval(call):
                retrieval = self._retrieved.get(
                    (retrieval_at(call), written(fields_of(call)[0]), None)
                )
                if retrieval is not None:
                    call.replace(column(retrieval.value))
                continue
            texts = tuple(written(field) for field in fields_of(call))
            ask = self._known.get((self.calls.of(call), texts, None))
            if ask is not None:
                call.replace(column(ask.error if call.this == ERROR else ask.value))
        rewritten: exp.Expr = holder.this
        return rewritten

    def rewritten(self, node: exp.Expr, guard: exp.Expr | None = None) -> exp.Expr:
        """A copy of an expression over columns of the table, with a column for each call."""
        if not has_call(node):
            return node.copy()
        if is_call(node):
            return self._call(node, guard)
        if isinstance(node, (exp.Lambda, exp.Comprehension)):
            raise refused(
                "a call stands in a function over a list",
                node,
                self.calls.sql,
                "unnest the list in a subquery and ask the call for its rows",
            )
        if isinstance(node, exp.And):
            return self._chain(node, guard, exp.And, exp.false())
        if isinstance(node, exp.Or):
            return self._chain(node, guard, exp.Or, exp.true())
        if isinstance(node, exp.Case):
            return self._case(node, guard)
        if isinstance(node, exp.If):
            return self._if(node, guard)
        if isinstance(node, exp.Filter):
            filtered = node.copy()
            condition = self.rewritten(node.expression.this, guard)
            filtered.expression.set("this", condition)
            filtered.set("this", self.rewritten(node.this, both(guard, _is(condition, True))))
            return filtered
        if isinstance(node, exp.Anonymous) and str(node.this).lower() in NULL_CHOICES:
            return self._coalesce(node, guard)
        copy = node.copy()
        for key, value in node.args.items():
            if isinstance(value, exp.Expr):
                copy.set(key, self.rewritten(value, guard))
            elif isinstance(value, list):
                copy.set(
                    key,
                    [self.rewritten(v, guard) if isinstance(v, exp.Expr) else v for v in value],
                )
        return copy

    def _call(self, node: exp.Expr, guard: exp.Expr | None) -> exp.Expr:
        fields = [self.rewritten(field, guard) for field in fields_of(node)]
        for rewritten in fields:
            self.check_constant(rewritten, "a call's field", node)
        if guard is not None and self._guards:
            self.check_constant(guard, "the condition around a call", node)
        else:
            guard = None
        condition = written(guard) if guard is not None else None
        if is_retrieval(node):
            return self._retrieval(retrieval_at(node), written(fields[0]), condition)
        texts = tuple(written(field) for field in fields)
        free = {r.value for r in self._retrieved.values() if not r.call.keep_rank}
        contexts = tuple(at for at, text in enumerate(texts) if text in free)
        call = self.calls.of(node)
        ask = self._known.get((call, texts, None)) or self._known.get((call, texts, condition))
        if ask is None:
            number = self._new()
            ask = AskCall(
                self.table,
                replace(call, contexts=contexts),
                texts,
                condition,
                f"teola_v{number}",
                f"teola_e{number}",
            )
            self._known[call, texts, condition] = ask
        self.asks.append(ask)
        return column(ask.error if node.this == ERROR else ask.value)

    def _retrieval(self, call: RetrievalCall, text: str, condition: str | None) -> exp.Expr:
        retrievals = self._retrieved
        retrieval = retrievals.get((call, text, None)) or retrievals.get((call, text, condition))
        if retrieval is None:
            retrieval = Retrieve(self.table, call, text, condition, f"teola_v{self._new()}")
            retrievals[call, text, condition] = retrieval
        self.asks.append(retrieval)
        return column(retrieval.value)

    def check_constant(self, node: exp.Expr, subject: str, call: exp.Expr) -> None:
        """Raise InputError where an expression is another value each time.

        subject: the expression's name in the message.
        """
        for inner in node.walk():
            if self.catalogue.is_volatile(inner):
                raise refused(
                    f"{subject} has {written(inner)}, which is another value each time",
                    call,
                    self.calls.sql,
                    "give the value itself",
                )

    def _chain(
        self, node: exp.Expr, guard: exp.Expr | None, kind: type[exp.Expr], decides: exp.Expr
    ) -> exp.Expr:
        """Operands of AND (decided by FALSE) or OR (by TRUE)."""
        operands = list(node.flatten(unnest=False))
        done: dict[int, exp.Expr] = {}
        for at in sorted(range(len(operands)), key=lambda at: has_call(operands[at])):
            done[at] = self.rewritten(operands[at], guard)
            undecided = exp.NullSafeNEQ(this=_held(done[at]), expression=decides.copy())
            guard = both(guard, undecided)
        chain = done[0]
        for at in range(1, len(operands)):
            chain = kind(this=chain, expression=done[at])
        return chain

    def _case(self, node: exp.Case, guard: exp.Expr | None) -> exp.Expr:
        copy = node.copy()
        subject = self.rewritten(node.this, guard) if node.this is not None else None
        if subject is not None:
            copy.set("this", subject)
        branches = []
        for branch in node.args["ifs"]:
            test = self.rewritten(branch.this, guard)
            met = test if subject is None else exp.EQ(this=_held(subject), expression=_held(test))
            value = self.rewritten(branch.args["true"], both(guard, _is(met, True)))
            branches.append(exp.If(this=test, true=value))
            guard = both(guard, _is(met, False))
        copy.set("ifs", branches)
        if node.args.get("default") is not None:
            copy.set("default", self.rewritten(node.args["default"], guard))
        return copy

    def _if(self, node: exp.If, guard: exp.Expr | None) -> exp.Expr:
        copy = node.copy()
        test = self.rewritten(node.this, guard)
        copy.set("this", test)
        copy.set("true", self.rewritten(node.args["true"], both(guard, _is(test, True))))
        if node.args.get("false") is not None:
            copy.set("false", self.rewritten(node.args["false"], both(guard, _is(test, False))))
        return copy

    def _coalesce(self, node: exp.Anonymous, guard: exp.Expr | None) -> exp.Expr:
        copy, values = node.copy(), []
        for expression in node.expressions:
            value = self.rewritten(expression, guard)
            values.append(value)
            guard = both(guard, exp.Is(this=_held(value), expression=exp.Null()))
        copy.set("expressions", values)
        return copy


def both(left: exp.Expr | None, right: exp.Expr) -> exp.Expr:
    """Both conditions."""
    if left is None:
        return right
    return exp.And(this=left.copy(), expression=right)


def _held(node: exp.Expr) -> exp.Expr:
    return exp.Paren(this=node.copy())


def _is(node: exp.Expr, truth: bool) -> exp.Expr:
    """`node IS TRUE`, or that it is not."""
    test = exp.Is(this=_held(node), expression=exp.true())
    return test if truth else exp.Not(this=test)
