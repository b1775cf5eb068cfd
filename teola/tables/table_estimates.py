"""What a query would take, before anything is asked.

The plan's relational steps run, without answers: so rows and distinct inputs are counted and not
guessed. Where a condition needs answers, its share of rows is what earlier runs saw, else one half,
and what comes after it is counted as if all rows had passed, times that. Tokens are counted on some
prompts where the model runs already (counted_tokens), else they are characters over four.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from textwrap import wrap
from typing import Any, Final

from teola.price import shown_cost
from teola.runtime.runtime import Runtime
from teola.tables.answer_table import AnswerTable
from teola.tables.answers_file import AnswersInUse
from teola.tables.answers_place import answers_place, opened_answers
from teola.tables.call_stage import CallStage
from teola.tables.condition_ranks import SELECTIVITY
from teola.tables.counted_tokens import CHARACTERS_A_TOKEN, SAMPLED, TokenSize, token_size
from teola.tables.executor import Executor
from teola.tables.group_asking import (
    ANSWER,
    FAULT,
    GroupAsking,
    combined,
    filling,
    prompted,
)
from teola.tables.group_calls import LINES
from teola.tables.llm_call import LlmCall
from teola.tables.model_identity import config_of, identity_of, named_identity
from teola.tables.plan_runs import RunOptions, query_digest
from teola.tables.plan_steps import AskCall, Conjunct, Filter, PlanStep, Retrieve, TablePlan
from teola.tables.row_asking import ONLY_ORDER, CallAsker, asks_nothing, prompt_lines
from teola.tables.run_limits import RunLimits, Spent
from teola.tables.shared_beginnings import POSITIONS
from teola.tables.workspace import Workspace

CONTEXT_TOKENS: Final = 254
"""Tokens of a context, about: chunks of documents have at most as many, by default."""


@dataclass(frozen=True, slots=True)
class StageEstimate:
    """The estimate of one call. seconds, cost: None where they are not known."""

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

    def lines(self, number: int) -> Iterator[str]:
        """Lines for people: the questions, their tokens and seconds, and the order of the
        fields."""
        yield (
            f"{number}. {self.instruction[:60]!r}: {self.rows:,} rows, {self.distinct:,} distinct, "
            f"{self.to_ask:,} to ask"
        )
        takes = f"   {self.prompt_tokens:,} prompt tokens ({self.cached_tokens:,} cached), "
        takes += f"at most {self.completion_tokens:,} of answers"
        if self.seconds is not None:
            takes += f", about {self.seconds:,.0f} s"
        if self.cost is not None:
            takes += f", cost {shown_cost(self.cost)}"
        yield takes
        if self.order and self.reason != ONLY_ORDER:
            yield f"   fields: {', '.join(self.order)} ({self.reason})"


@dataclass(frozen=True, slots=True)
class QueryEstimate:
    """The estimate of a query. `print` it, or see `to_json`."""

    plan: TablePlan
    stages: tuple[StageEstimate, ...]
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The estimate as `teola sql --explain --json` prints it."""
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
            "stages": [{name: getattr(stage, name) for name in names} for stage in self.stages],
            "rewrites": [
                {"rule": rewrite.rule, "what": rewrite.what, "reason": rewrite.reason}
                for rewrite in self.plan.rewrites
            ],
            "total": {
                "calls": sum(stage.to_ask for stage in self.stages),
                "prompt_tokens": sum(stage.prompt_tokens for stage in self.stages),
                "cached_tokens": sum(stage.cached_tokens for stage in self.stages),
                "seconds": _sum([stage.seconds for stage in self.stages]),
                "cost": _sum([stage.cost for stage in self.stages]),
            },
        }

    def text(self, width: int | None = None) -> str:
        """The estimate as text for people. width: columns that a line may have; None: any."""
        lines = [line for at, stage in enumerate(self.stages, 1) for line in stage.lines(at)]
        for rewrite in self.plan.rewrites:
            lines.append(f"- {rewrite.rule}: {rewrite.what}: {rewrite.reason}")
        total = self.to_json()["total"]
        cost = "" if total["cost"] is None else f", cost {shown_cost(total['cost'])}"
        lines.append(
            f"total: {total['calls']:,} calls, {total['prompt_tokens']:,} prompt tokens "
            f"({total['cached_tokens']:,} cached){cost}"
        )
        lines += self.notes
        return "\n".join(lines if width is None else (_folded(line, width) for line in lines))

    def __str__(self) -> str:
        return self.text()


def _folded(line: str, width: int) -> str:
    """A line in lines of a width; those after the first one stand under its text."""
    bare = line.lstrip()
    begins = len(line) - len(bare)
    hanging = " " * (begins + (2 if bare.startswith("- ") else 0 if begins else 3))
    return "\n".join(
        wrap(line, width, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False)
    )


def _sum(values: list[float | None]) -> float | None:
    known_values = [value for value in values if value is not None]
    return sum(known_values) if len(known_values) == len(values) else None


@dataclass(slots=True)
class _Estimator(CallAsker):
    """Stands in for CallAsker: it counts questions, and makes columns without answers."""

    estimates: list[StageEstimate] = field(default_factory=list)
    contexts: dict[str, int] = field(default_factory=dict)
    """Columns of contexts, and how many contexts a text has in each."""
    share: float = 1.0
    """Share of the present rows that are expected to remain."""
    runtime: Runtime | None = None
    """The runtime whose models count tokens."""

    def run(self, ask: AskCall, came: str | None = None) -> None:
        """Count what a call would ask."""
        call, operator = ask.call, self.operator(ask.call)
        stage = CallStage(operator.digest, call.prompt)
        self._key(ask, operator)
        self._count(stage, self._gather(ask, operator))
        order = self.order(call, stage.distinct - stage.answered_before)
        self.con.execute(f"DROP TABLE IF EXISTS {POSITIONS}")
        self._estimate(ask, stage, order.positions, order.share, order.reason)
        self._unanswered(ask)

    def retrieve(self, step: Retrieve) -> None:
        """Count what a RETRIEVE would search for; each text has contexts of its own."""
        guard = f" WHERE {step.guard}" if step.guard else ""
        ((rows, texts),) = self.con.execute(
            f"SELECT count({step.field}), count(DISTINCT {step.field}) FROM {step.table}{guard}"
        ).fetchall()
        self.estimates.append(
            StageEstimate(
                operator=step.call.digest,
                instruction=step.call.shown,
                rows=round(rows * self.share),
                distinct=round(texts * self.share),
                to_ask=0,
                prompt_tokens=0,
                cached_tokens=0,
                completion_tokens=0,
                seconds=0.0,
                cost=self.spent.limits.cost(0, 0, 0),
                order=("text",),
                reason=f"searched for, not asked; contexts are taken to have {CONTEXT_TOKENS} "
                "tokens",
            )
        )
        self.contexts[step.value] = step.call.k
        self.con.execute(
            f"CREATE OR REPLACE TABLE teola_new AS SELECT *, "
            f"[CAST({step.field} AS VARCHAR)] AS {step.value} FROM {step.table}"
        )
        self.con.execute(f"DROP TABLE {step.table}")
        self.con.execute(f"ALTER TABLE teola_new RENAME TO {step.table}")

    def _unanswered(self, ask: AskCall) -> None:
        """Add the columns of a call to the table, without answers."""
        self.con.execute(
            f"CREATE OR REPLACE TABLE teola_new AS SELECT *, CAST(NULL AS {ask.call.type}) AS "
            f"{ask.value}, CAST(NULL AS VARCHAR) AS {ask.error} FROM {ask.table}"
        )
        self.con.execute(f"DROP TABLE {ask.table}")
        self.con.execute(f"ALTER TABLE teola_new RENAME TO {ask.table}")

    def ask_groups(self, ask: AskCall) -> None:
        """Count the parts of an LLM_AGG, and the prompts that combine their answers."""
        assert ask.call.group is not None
        leaf, combining = prompted(ask.call)
        asking, most = GroupAsking(self, ask), ask.call.group.part_tokens
        # Fields that are answers are not known yet: a line without a value stands for them.
        rows = asking.rows_sql(empty=True)
        table = asking.fill("parts", rows, filling(leaf, most, 1, None))
        self.run(AskCall(table, leaf, (LINES,), None, ANSWER, FAULT))
        parts = self.estimates[-1]
        sizes = self.con.execute(f"SELECT count(*) FROM {table} GROUP BY teola_group").fetchall()
        operator = self.operator(leaf).digest
        answer = min(self.answers.mean_answer(operator) or leaf.max_tokens, leaf.max_tokens)
        more = [combined(int(size), int(answer) + 3, most) for (size,) in sizes]
        # Where all parts are answered, what combines them was asked as well.
        to_ask = sum(prompts for prompts, _ in more) if parts.to_ask else 0
        prompts = round(sum(prompts for prompts, _ in more) * self.share)
        if prompts:
            to_answer = round(to_ask * self.share)
            fixed = len(combining.prompt) / CHARACTERS_A_TOKEN
            lines = sum(lines for _, lines in more) * self.share * (answer + 3)
            tokens = round(lines + fixed * to_answer) if to_answer else 0
            cached = round(fixed * max(0, to_answer - 1)) if "sort" in self.passes else 0
            completion = round(to_answer * answer)
            self.estimates.append(
                StageEstimate(
                    operator=self.operator(combining).digest,
                    instruction=combining.prompt,
                    rows=prompts,
                    distinct=prompts,
                    to_ask=to_answer,
                    prompt_tokens=tokens,
                    cached_tokens=cached,
                    completion_tokens=completion,
                    seconds=self.answers.seconds_of(self.model_of(combining), to_answer),
                    cost=self.spent.limits.cost(tokens, cached, completion),
                    order=combining.names,
                    reason="answers in their group's order",
                )
            )
        self.con.execute(f"DROP TABLE {table}")
        self._unanswered(ask)

    def _estimate(
        self, ask: AskCall, stage: CallStage, order: tuple[int, ...], share: float, reason: str
    ) -> None:
        call = ask.call
        lengths = " + ".join([f"length(f{at})" for at in range(len(ask.fields))] or ["0"])
        ((characters,),) = self.con.execute(
            f"SELECT coalesce(sum({lengths}), 0) FROM teola_inputs "
            "WHERE key NOT IN (SELECT key FROM teola_known)"
        ).fetchall()
        fixed = 0
        contexts = sum(self.contexts.get(field, 0) for field in ask.fields)
        fixed += round(contexts * CONTEXT_TOKENS * CHARACTERS_A_TOKEN)
        if not call.listed:
            fixed += sum(len(name) + 3 for name in call.names)
        to_ask = stage.distinct - stage.answered_before
        size, lines = (
            self._token_size(call, counted=not contexts),
            float(characters) + fixed * to_ask,
        )
        prompt = (lines / size.characters + size.instruction * to_ask) * self.share
        to_answer = round(to_ask * self.share)
        mean = self.answers.mean_answer(stage.operator)
        completion = round(to_answer * (mean if mean is not None else call.max_tokens))
        others, length = max(0, to_ask - 1), len(call.prompt)
        # The share is of characters, and an instruction has others than values have.
        saved = max(0.0, share * (lines + length * to_ask) - length * others)
        shared = saved / size.characters + size.instruction * others
        shared -= others * (size.block - 1) / 2  # of the last block, which is seldom whole
        cached = round(max(0.0, shared) * self.share) if "sort" in self.passes else 0
        self.estimates.append(
            StageEstimate(
                operator=stage.operator,
                instruction=call.prompt,
                rows=round(stage.rows * self.share),
                distinct=round(stage.distinct * self.share),
                to_ask=to_answer,
                prompt_tokens=round(prompt),
                cached_tokens=cached,
                completion_tokens=completion,
                seconds=self.answers.seconds_of(self.model_of(call), to_answer),
                cost=self.spent.limits.cost(round(prompt), cached, completion),
                order=tuple(call.names[at] for at in order),
                reason=reason,
            )
        )

    def _token_size(self, call: LlmCall, *, counted: bool) -> TokenSize:
        if self.runtime is None or not counted:
            return token_size(None, call, self.tenant, ())
        lines = prompt_lines(call, call.names, [f"f{at}" for at in range(len(call.names))])
        texts = self.con.execute(
            f"SELECT {lines} FROM teola_inputs WHERE key NOT IN (SELECT key FROM teola_known) "
            f"ORDER BY key LIMIT {SAMPLED}"
        ).fetchall()
        return token_size(self.runtime, call, self.tenant, [text for (text,) in texts])


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
            passing = prod(self._share(conjunct) for conjunct in step.conjuncts)
            needed = step.most / max(passing, 1e-6)
            asker.share *= min(1.0, needed / rows) if rows else 1.0
        for conjunct in step.conjuncts:
            for ask in conjunct.asks:
                self._ask(ask)
            asker.share *= self._share(conjunct)

    def _ask_groups(self, ask: AskCall) -> None:
        assert isinstance(self.asker, _Estimator)
        self.asker.ask_groups(ask)

    def _share(self, conjunct: Conjunct) -> float:
        """Share of rows that pass a condition, by earlier runs if there were some."""
        return self.ranks.selectivity(conjunct) or SELECTIVITY


def explain(workspace: Workspace, plan: TablePlan, options: RunOptions) -> QueryEstimate:
    """The estimate of a plan. Raises InputError."""
    place = answers_place(options.answers)
    notes: list[str] = []
    try:
        answers = opened_answers(workspace.con, place, writes=False)
    except AnswersInUse as error:
        notes.append(f"{error}; all questions are counted as to be asked")
        answers = AnswerTable(workspace.con)
    query = query_digest(plan)

    def model_of(call: Any) -> str:
        if options.runtime is not None:
            return identity_of(options.runtime, call.model).name
        return named_identity(config_of(options.llm)).name if options.llm else "llm"

    try:
        estimator = _Estimator(
            workspace.con,
            answers,
            asks_nothing,
            Spent(RunLimits(price=options.limits.price)),
            options.passes,
            model_of,
            tenant=options.tenant,
            sample=f"{query}:{answers.samples_of(query)}",
            runtime=options.runtime,
        )
        dry = _Dry(workspace.con, estimator)
        for step in plan.steps:
            dry.step(step)
        return QueryEstimate(plan, tuple(estimator.estimates), tuple(notes))
    finally:
        answers.close()
