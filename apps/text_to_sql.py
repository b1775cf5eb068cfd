"""Text to SQL: answers questions from a database, which it can only read.

question ─▶ link ─▶ prepare ─┬▶ candidate 1: write ─▶ run ─▶ judge ⟲ ─┬▶ compare ┬ alike ──────╮
                             ╰▶ candidate 2: write ─▶ run ─▶ judge ⟲ ─╯          ╰ tests ─▶ vote ┤
                                                    answer ◀─ rows ◀─ (a person agrees) ◀────────╯

The two candidates differ in the style that they are asked for, and run side by side, each as soon
as it is written. A statement that fails is repaired in a loop of its own. Where both give the same
rows, that is it: two calls side by side, and one for the words. What each step decides stands in
`asking_sql`; the database is read by the engine `databases` (docs/text-to-sql.md).
"""

from collections.abc import Mapping
from inspect import iscoroutinefunction
from typing import Any, Final

from teola import App, Ask, Condition, Each, Input, Loop, Sql, Write, component

from .asking_sql import answering, attempts, choosing, prompts, replies, wanted
from .asking_sql.inline import inline
from .asking_sql.kept import keep, kept_examples

REPAIRS: Final = 5
"""Of each candidate: ten of a question."""
LONGEST_SQL_TOKENS: Final = 700
PARTS: Final = {
    "schema": prompts.SCHEMA,
    "examples": prompts.EXAMPLES,
    "asked": prompts.QUESTION,
    "attempt": prompts.ATTEMPT,
}
DATABASES: Final = "databases"
"""The engine."""


def of(function: Any, name: str, outputs: Any, **more: Any) -> Any:
    """A component of a pure function, which takes no thread where its inputs are small."""
    plain = not iscoroutinefunction(function)
    called = inline(function) if plain else function
    return component(called, name=name, outputs=outputs, pure=True, **more)


# --- what it is about -----------------------------------------------------------------------------

begin = of(wanted.begin, "begin", ["wanted", "search_text", "own_sql", "keeps"])
link = Sql(
    "link",
    work="link",
    engine=DATABASES,
    inputs={"text": "search_text"},
    outputs={"result": "linked_at_first"},
)


async def fits(linked_at_first: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema is small, or was cut down to what the question is about."""
    return linked_at_first


async def offered(linked_at_first: Mapping[str, Any]) -> str:
    return "\n".join(linked_at_first["offered"])


narrow = Condition(
    lambda linked: bool(linked["offered"]),
    reads=["linked_at_first"],
    expect=False,
    name="large",
    then=of(offered, "offer", "offered")
    >> Write(
        "choose_tables",
        instruction=prompts.LINK,
        parts={"offered": "", "search_text": prompts.QUESTION},
        question="search_text",
        outputs={"text": "names_written"},
        max_tokens=128,
    )
    >> of(replies.read_names, "read_names", "chosen", inputs={"written": "names_written"})
    >> Sql(
        "link_again",
        work="link",
        engine=DATABASES,
        inputs={"text": "search_text"},
        outputs={"result": "linked"},
    ),
    otherwise=of(fits, "fits", "linked"),
)
examples = component(kept_examples, name="kept_examples", outputs="kept", pure=True)
prepare = of(
    prompts.prepare,
    "prepare",
    [
        "schema",
        "examples",
        "plain_question",
        "tried_0",
        "attempt_1",
        "attempt_2",
        "style_1",
        "style_2",
        "more_calls",
        "started",
    ],
)

# --- asking back ----------------------------------------------------------------------------------


async def unchanged(plain_question: str) -> str:
    return plain_question


async def with_reply(plain_question: str, doubt: str, reply: str) -> str:
    return f"{plain_question}\nAsked back: {doubt}\nThe answer to that: {reply}"


clarify = Condition(
    lambda wanted: bool(wanted["ask"]),
    reads=["wanted"],
    expect=False,
    name="may_ask_back",
    then=Write(
        "clarify",
        instruction=prompts.CLARIFY,
        parts={"schema": prompts.SCHEMA, "plain_question": prompts.QUESTION},
        question="plain_question",
        outputs={"text": "doubt_written"},
        max_tokens=96,
    )
    >> of(replies.read_doubt, "read_doubt", "doubt", inputs={"written": "doubt_written"})
    >> Condition(
        lambda doubt: bool(doubt),
        reads=["doubt"],
        expect=False,
        name="doubts",
        then=Ask("{doubt}", name="ask_back", gives="reply")
        >> of(with_reply, "with_reply", "asked"),
        otherwise=of(unchanged, "clear", "asked"),
    ),
    otherwise=of(unchanged, "as_asked", "asked"),
)

# --- candidates -----------------------------------------------------------------------------------


def candidate(n: int) -> Loop:
    """Writes a statement, runs it, and repairs it as long as something is said against it."""
    write = Write(
        f"write_{n}",
        instruction=prompts.WRITE,
        parts=PARTS,
        question="asked",
        inputs={"attempt": f"attempt_{n}"},
        outputs={"text": "written"},
        max_tokens=LONGEST_SQL_TOKENS,
    )
    run = Condition(
        lambda run: run == "auto",
        reads=["run"],
        name=f"may_run_{n}",
        then=Sql(f"run_{n}", engine=DATABASES, inputs={"sql": "sql_text"}, tell_errors=True),
        otherwise=Sql(
            f"plan_{n}",
            work="explain",
            engine=DATABASES,
            inputs={"sql": "sql_text"},
            tell_errors=True,
        ),
    )
    judge = of(
        attempts.judge,
        f"judge_{n}",
        ["tried", "attempt", "verdict"],
        inputs={"tried": "tried_0", "style": f"style_{n}"},
    )
    return Loop(
        write >> of(replies.read_reply, f"read_{n}", ["statement", "sql_text"]) >> run >> judge,
        carry={"tried_0": "tried", f"attempt_{n}": "attempt"},
        until=attempts.done,
        reads=["verdict"],
        gives=["tried"],
        outputs={"tried": f"tried_{n}"},
        at_most=1 + REPAIRS,
        expect=1,
        name=f"candidate_{n}",
    )


compare = of(choosing.compare, "compare", ["compared", "shown"])
test_tests = Write(
    "tests",
    instruction=prompts.TESTS,
    parts={"asked": prompts.QUESTION, "shown": "\n\n"},
    question="asked",
    outputs={"text": "tests"},
    items=5,
    max_tokens=256,
)
evaluate = Each(
    Write(
        "evaluate",
        instruction=prompts.EVALUATE,
        parts={"asked": prompts.QUESTION, "shown": "\n\n", "test": "\n\nTest: "},
        question="asked",
        outputs={"text": "verdict_written"},
        max_tokens=16,
    ),
    over="tests",
    item="test",
    gives={"verdicts": "verdict_written"},
    at_most=5,
    on_error="none",
    name="evaluations",
)
choose = Condition(
    choosing.differs,
    reads=["compared"],
    expect=False,
    name="differ",
    then=test_tests >> evaluate >> of(choosing.vote, "vote", "chosen"),
    otherwise=of(choosing.outcome, "agree", "chosen"),
)

# --- a person agrees ------------------------------------------------------------------------------


async def as_chosen(chosen: Mapping[str, Any]) -> Mapping[str, Any]:
    return chosen


async def proposal(chosen: Mapping[str, Any]) -> dict[str, str]:
    return {"proposed_sql": chosen["sql"], "proposed_why": chosen["explanation"]}


async def with_rows(chosen: Mapping[str, Any], approved: Mapping[str, Any]) -> dict[str, Any]:
    if "error" in approved:
        return {**chosen, "ran": False, "error": approved["error"], "result": {}}
    return {**chosen, "result": approved}


async def not_run(chosen: Mapping[str, Any]) -> dict[str, Any]:
    return {**chosen, "stopped": "It was not run: nobody agreed to that."}


agree = Condition(
    lambda run, chosen: run == "ask" and chosen["ran"],
    reads=["run", "chosen"],
    expect=False,
    name="asks_first",
    then=of(proposal, "propose", ["proposed_sql", "proposed_why"])
    >> Ask(
        "May this be run?\n\n{proposed_sql}\n\n{proposed_why}",
        schema={"enum": ["run", "do not run"]},
        name="may_it_run",
        gives="agreed",
    )
    >> Condition(
        lambda agreed: agreed == "run",
        reads=["agreed"],
        name="agreed_to",
        then=Sql(
            "run_agreed",
            engine=DATABASES,
            inputs={"sql": "proposed_sql"},
            outputs={"result": "approved"},
            tell_errors=True,
        )
        >> of(with_rows, "with_rows", "outcome"),
        otherwise=of(not_run, "not_run", "outcome"),
    ),
    otherwise=of(as_chosen, "as_chosen", "outcome"),
)

# --- a statement of one's own ---------------------------------------------------------------------


def own_outcome(own_result: Mapping[str, Any], kept_note: str) -> dict[str, Any]:
    return {
        "sql": own_result["sql"],
        "result": own_result,
        "explanation": "",
        "ran": True,
        "cannot": False,
        "missing": "",
        "instead": "",
        "error": "",
        "doubt": "",
        "attempts": [],
        "calls": 0,
        "kept": kept_note,
    }


own = (
    Sql(
        "own",
        engine=DATABASES,
        inputs={"sql": "own_sql", "keep": "keeps"},
        outputs={"result": "own_result"},
    )
    >> component(
        keep, name="keep_example", outputs="kept_note", inputs={"result": "own_result"}, effect=True
    )
    >> of(own_outcome, "own_outcome", "outcome")
)
written = (
    link
    >> narrow
    >> examples
    >> prepare
    >> clarify
    >> [candidate(1), candidate(2)]
    >> compare
    >> choose
    >> agree
)
answer = Condition(
    answering.wants_words,
    reads=["outcome", "own_sql"],
    name="has_rows",
    then=of(answering.facts, "facts", "facts")
    >> Write(
        "answer",
        instruction=prompts.ANSWER,
        parts={"question": prompts.QUESTION, "facts": "\n\nRows:\n"},
        ending="\n\nAnswer: ",
        outputs={"text": "said"},
        max_tokens=200,
        optional=True,  # without words the rows are the answer
    ),
)
OUTPUTS: Final = (
    "answer", "sql", "columns", "rows", "truncated", "explanation", "tables", "answerable",
    "attempts", "calls", "chart",
)  # fmt: skip

app = App(
    "text-to-sql",
    begin
    >> Condition(
        lambda own_sql: bool(own_sql),
        reads=["own_sql"],
        expect=False,
        name="has_sql",
        then=own,
        otherwise=written,
    )
    >> answer
    >> of(answering.finish, "finish", list(OUTPUTS)),
    inputs={
        "question": "text",
        "database": Input("text", default=None, names="databases"),
        "hints": Input("text", default=None, names="hints"),
        "history": Input("any", default=None),
        "run": Input("text", default="auto"),
        "ask": Input("any", default=False),
        "sql": Input("text", default=None),
        "keep": Input("any", default=False),
    },
    outputs={name: name for name in OUTPUTS},
    description="Answers questions from a database, with the SQL shown",
)
