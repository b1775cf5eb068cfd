"""What a query would take, before anything is asked.

The plan's relational steps run, without answers: so rows and distinct inputs are counted and not
guessed. Where a condition needs answers, its share of rows is what earlier runs saw, else one half,
and what comes after it is counted as if all rows had passed, times that. Tokens are characters over
four.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any, Final

from teola.tables.answer_table import AnswersInUse, AnswerTable
from teola.tables.call_stage import CallStage
from teola.tables.condition_ranks import SELECTIVITY
from teola.tables.executor import Executor
from teola.tables.model_identity import config_of, identity_of, named_identity
from teola.tables.plan_runs import RunOptions, answers_path, digest_of
from teola.tables.plan_steps import AskCall, Conjunct, Filter, PlanStep, TablePlan
from teola.tables.question_run import AskRows
from teola.tables.row_asking import CallAsker
from teola.tables.run_limits import RunLimits, Spent
from teola.tables.shared_beginnings import POSITIONS
from teola.tables.workspace import Workspace

CHARACTERS_A_TOKEN: Final = 4.0
"""Of English text, about; the model's own tokenizer counts otherwise."""


@dataclass(frozen=True, slots=True)
class StageEstimate:
    """Of one call. seconds, cost: None where nobody knows."""

    operator: str
    instruction: str
    rows: int
    distinct: int
    to_ask: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    seconds: float | None
    cost: float | None
    order: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class QueryEstimate:
    """What a query would take. `print` it, or see `to_json`."""

    plan: TablePlan
    stages: tuple[StageEstimate, ...]
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As `teola sql --explain --json` prints it."""
        names = (
            "operator",
            "instruction",
            "rows",
            "distinct",
            "to_ask",
            "prompt_tokens",
            "cached_tokens",
            "completion_tokens",
            "seconds",
            "cost",
        )
        return {
            "stages": [{name: getattr(one, name) for name in names} for one in self.stages],
            "rewrites": [
                {"rule": one.rule, "what": one.what, "reason": one.reason}
                for one in self.plan.rewrites
            ],
            "total": {
                "calls": sum(one.to_ask for one in self.stages),
                "prompt_tokens": sum(one.prompt_tokens for one in self.stages),
                "cached_tokens": sum(one.cached_tokens for one in self.stages),
                "seconds": _sum([one.seconds for one in self.stages]),
                "cost": _sum([one.cost for one in self.stages]),
            },
        }

    def __str__(self) -> str:
        lines = []
        for at, one in enumerate(self.stages, 1):
            lines.append(
                f"{at}. {one.instruction[:60]!r}: {one.rows:,} rows, {one.distinct:,} distinct, "
                f"{one.to_ask:,} to ask"
            )
            more = f"   {one.prompt_tokens:,} prompt tokens ({one.cached_tokens:,} cached), "
            more += f"at most {one.completion_tokens:,} of answers"
            if one.seconds is not None:
                more += f", about {one.seconds:,.0f} s"
            if one.cost is not None:
                more += f", cost {one.cost:,.4f}"
            lines.append(more)
            if one.order:
                lines.append(f"   fields: {', '.join(one.order)} ({one.reason})")
        for rewrite in self.plan.rewrites:
            lines.append(f"- {rewrite.rule}: {rewrite.what}: {rewrite.reason}")
        total = self.to_json()["total"]
        cost = "" if total["cost"] is None else f", cost {total['cost']:,.4f}"
        lines.append(
            f"total: {total['calls']:,} calls, {total['prompt_tokens']:,} prompt tokens "
            f"({total['cached_tokens']:,} cached){cost}"
        )
        return "\n".join([*lines, *self.notes])


def _sum(values: list[float | None]) -> float | None:
    known = [one for one in values if one is not None]
    return sum(known) if len(known) == len(values) else None


@dataclass(slots=True)
class _Estimator(CallAsker):
    """In the place of what asks: it counts, and gives columns without answers."""

    estimates: list[StageEstimate] = field(default_factory=list)
    share: float = 1.0
    """Of the rows at hand, those that are expected to be there."""

    def run(self, ask: AskCall, came: str | None = None) -> None:
        """Count what a call would ask."""
        call, operator = ask.call, self.operator(ask.call)
        stage = CallStage(operator.digest, call.prompt)
        self._key(ask, operator)
        self._count(stage, self._gather(ask, operator))
        order = self.order(call, stage.distinct - stage.answered_before)
        self.con.execute(f"DROP TABLE IF EXISTS {POSITIONS}")
        self._estimate(ask, stage, order.positions, order.share, order.reason)
        self.con.execute(
            f"CREATE OR REPLACE TABLE teola_new AS SELECT *, CAST(NULL AS {call.type}) AS "
            f"{ask.value}, CAST(NULL AS VARCHAR) AS {ask.error} FROM {ask.table}"
        )
        self.con.execute(f"DROP TABLE {ask.table}")
        self.con.execute(f"ALTER TABLE teola_new RENAME TO {ask.table}")

    def _estimate(
        self, ask: AskCall, stage: CallStage, order: tuple[int, ...], share: float, reason: str
    ) -> None:
        call = ask.call
        lengths = " + ".join([f"length(f{at})" for at in range(len(ask.fields))] or ["0"])
        ((characters,),) = self.con.execute(
            f"SELECT coalesce(sum({lengths}), 0) FROM teola_inputs "
            "WHERE key NOT IN (SELECT key FROM teola_known)"
        ).fetchall()
        fixed = len(call.prompt) + sum(len(name) + 3 for name in call.names)
        to_ask = stage.distinct - stage.answered_before
        prompt = (float(characters) + fixed * to_ask) / CHARACTERS_A_TOKEN * self.share
        asked = round(to_ask * self.share)
        if len(order) < 2:
            share = (
                (len(call.prompt) / CHARACTERS_A_TOKEN) * max(0, asked - 1) / prompt
                if prompt
                else 0.0
            )
        ((mean,),) = self.con.execute(
            f"SELECT avg(completion_tokens) FROM {self.answers.answers} "
            f"WHERE operator = '{stage.operator}'"
        ).fetchall()
        completion = round(asked * (float(mean) if mean is not None else call.max_tokens))
        cached = round(prompt * share) if "sort" in self.passes else 0
        self.estimates.append(
            StageEstimate(
                operator=stage.operator,
                instruction=call.prompt,
                rows=round(stage.rows * self.share),
                distinct=round(stage.distinct * self.share),
                to_ask=asked,
                prompt_tokens=round(prompt),
                cached_tokens=cached,
                completion_tokens=completion,
                seconds=self.answers.seconds_of(self.model_of(call), asked),
                cost=self.spent.limits.cost(round(prompt), cached, completion),
                order=tuple(call.names[at] for at in order),
                reason=reason,
            )
        )


class _Dry(Executor):
    """Runs steps without answers: no row goes for want of one."""

    def step(self, step: PlanStep) -> None:
        """Run one step."""
        asker = self.asker
        assert isinstance(asker, _Estimator)
        if not isinstance(step, Filter) or (not step.conjuncts and step.most is not None):
            Executor.step(self, step)
            return
        if step.most is not None:
            ((rows,),) = self.con.execute(f"SELECT count(*) FROM {step.table}").fetchall()
            passing = prod(self._share(one) for one in step.conjuncts)
            needed = step.most / max(passing, 1e-6)
            asker.share *= min(1.0, needed / rows) if rows else 1.0
        for conjunct in step.conjuncts:
            for ask in conjunct.asks:
                self._ask(ask)
            asker.share *= self._share(conjunct)

    def _share(self, conjunct: Conjunct) -> float:
        """Of rows, those that pass a condition: by earlier runs, if there were some."""
        return self.ranks.selectivity(conjunct) or SELECTIVITY


def explain(workspace: Workspace, plan: TablePlan, options: RunOptions) -> QueryEstimate:
    """What a plan would take. Raises InputError."""
    path = answers_path(options.answers)
    # An explanation leaves no file.
    notes: list[str] = []
    try:
        answers = AnswerTable(workspace.con, path if path is not None and path.exists() else None)
    except AnswersInUse as error:
        notes.append(f"{error}; all questions are counted as to be asked")
        answers = AnswerTable(workspace.con, None)
    query = digest_of(plan)

    def model_of(call: Any) -> str:
        if options.runtime is not None:
            return identity_of(options.runtime, call.model).name
        return named_identity(config_of(options.llm)).name if options.llm else "llm"

    try:
        estimator = _Estimator(
            workspace.con,
            answers,
            _nobody,
            Spent(RunLimits(price=options.limits.price)),
            options.passes,
            model_of,
            tenant=options.tenant,
            sample=f"{query}:{answers.samples_of(query)}",
        )
        dry = _Dry(workspace.con, estimator)
        for step in plan.steps:
            dry.step(step)
        return QueryEstimate(plan, tuple(estimator.estimates), tuple(notes))
    finally:
        answers.close()


def _never(*_: Any, **__: Any) -> Any:
    raise AssertionError("an explanation asks nothing")


_nobody: AskRows = _never
