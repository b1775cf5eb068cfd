"""The application whose queries are replayed, of shipped components, and what its calls give.

    link1 - keywords? - link2 - link3 - link4 - candidate1 - revise (Loop)? - test1 - tests? - test2
    -
                                              - candidate2 -
      - evaluate (Each) - test3

Lengths of prompts and answers, branches, turns and items are those of a recorded query. Its order
is the template's, and no pass runs: what the file does not tell are the data that calls share.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from experiments.hexgen.recorded import MOST_REPAIRS, Call, RecordedQuery
from teola.app import App
from teola.graph import Growth, Op, Role
from teola.habit import Habit
from teola.learning import Lessons
from teola.passes.estimate import ANSWER_TOKENS, ROLE_TOKENS
from teola.runtime.in_flight import Query
from teola.runtime.sim.outcome import Delivery, Planned
from teola.runtime.values import Tokens, new_text, tokens_of
from teola.workflow.components import Condition, Each, Generate, Loop
from teola.workflow.components.function import Function
from teola.workflow.components.loop import LoopGrower, Turning

APP: Final = "text2sql"
LINKS: Final = ("link1", "link2", "link3", "link4")
CANDIDATES: Final = ("candidate1", "candidate2")
CHECKS: Final = ("check1", "check2", "check3")
STAGE: Final = {
    **dict.fromkeys(LINKS, "linking"),
    "keywords": "keywords",
    **dict.fromkeys(CANDIDATES, "candidate"),
    "revise": "revise",
    **dict.fromkeys(CHECKS, "testing"),
    "tests": "tests",
    "evaluate": "evaluate",
}
"""The stage of each component that calls a model."""
TABLE: Final = {
    "linking": (306, 7),
    "keywords": (680, 50),
    "candidate": (11_000, 700),
    "revise": (7_000, 118),
    "testing": (275, 5),
    "tests": (1_200, 102),
    "evaluate": (1_115, 30),
}
"""Tokens of prompts and answers, by the paper's table of stages: what is known before any call."""
PREPARED: Final = 64
"""Calls that stand behind what is known before."""


def _generate(name: str, reads: str) -> Generate:
    return Generate(
        name=name, instruction="", inputs={"question": reads}, outputs={"answer": f"of_{name}"}
    )


def execute(of_revise: str) -> str:
    """Run the repaired query, and say what is wrong with it."""
    return of_revise


def split(of_tests: str) -> list[str]:
    """The tests that the model proposes."""
    return [of_tests]


def _wanted(value: Any) -> bool:
    return bool(value)


@cache
def application() -> App:
    """The application."""
    link = [_generate(name, f"p_{name}") for name in LINKS]
    check = [_generate(name, f"p_{name}") for name in CHECKS]
    repairs = Loop(
        _generate("revise", "issue") >> Function(execute, outputs="next", name="execute"),
        carry={"issue": "next"},
        until=_wanted,
        reads=["next"],
        gives=["next"],
        at_most=MOST_REPAIRS,
        name="repairs",
        outputs={"next": "repaired"},
        expect=4,
    )
    tests = _generate("tests", "p_tests") >> Function(split, outputs="each_test", name="split")
    evaluations = Each(
        _generate("evaluate", "one_test"),
        over="each_test",
        item="one_test",
        gives={"verdicts": "of_evaluate"},
        name="evaluations",
    )
    template = (
        link[0]
        >> Condition(
            _wanted,
            reads=["p_keywords"],
            then=_generate("keywords", "p_keywords"),
            name="has_keywords",
        )
        >> link[1]
        >> link[2]
        >> link[3]
        >> [_generate(name, f"p_{name}") for name in CANDIDATES]
        >> Condition(_wanted, reads=["issue"], then=repairs, name="is_wrong")
        >> check[0]
        >> Condition(_wanted, reads=["p_tests"], then=tests, name="has_tests")
        >> check[1]
        >> evaluations
        >> check[2]
    )
    single = (*LINKS, "keywords", *CANDIDATES, *CHECKS, "tests")
    inputs = {**{f"p_{name}": "text" for name in single}, "issue": "text"}
    outputs = {name: f"of_{name}" for name in single}
    outputs |= {"repaired": "repaired", "verdicts": "verdicts"}
    return App(APP, template, inputs=inputs, outputs=outputs, passes="none")


LITERAL: Final = ("", "Question: ", "\n\nAnswer: ")
"""Of the prompt of each call, besides the text that is its question."""
LITERAL_TOKENS: Final = sum(map(tokens_of, LITERAL))
PLANNED_TOKENS: Final = LITERAL_TOKENS + ROLE_TOKENS[Role.QUESTION]
"""Of a prompt, as long as nothing is known of its component."""


class Recording:
    """What one query's calls are to be, as the graph asks for them."""

    def __init__(self, query: RecordedQuery) -> None:
        self.query = query
        singles: dict[str, Call] = {}
        for names, stage in ((LINKS, "linking"), (CANDIDATES, "candidate"), (CHECKS, "testing")):
            singles |= dict(zip(names, query.of(stage), strict=True))
        for stage in ("keywords", "tests"):
            if found := query.of(stage):
                singles[stage] = found[0]
        self.singles = singles
        self.turns, self.items = query.of("revise"), query.of("evaluate")

    def inputs(self) -> Mapping[str, Any]:
        """Inputs whose prompts have the recorded lengths."""
        given = {f"p_{name}": _text(call.prompt) for name, call in self.singles.items()}
        rest = dict.fromkeys(("p_keywords", "p_tests"), Tokens(1))
        issue = _text(self.turns[0].prompt) if self.turns else Tokens(1)
        return {**rest, **given, "issue": issue}

    def answer(self, component: str, key: str) -> int:
        """Tokens of a call's answer. key: of the part that it stands in, such as turn/2."""
        number = int(key.rpartition("/")[2]) if key else 0
        if component == "revise":
            return self.turns[number - 1].answer
        if component == "evaluate":
            return self.items[number].answer
        return self.singles[component].answer

    def branch(self, condition: str) -> str:
        """What a condition decides."""
        taken = {
            "has_keywords": "keywords" in self.singles,
            "is_wrong": bool(self.turns),
            "has_tests": "tests" in self.singles,
        }
        return "then" if taken[condition] else "otherwise"


def _text(tokens: int) -> Tokens:
    """What makes a prompt that long."""
    return Tokens(max(1, tokens - LITERAL_TOKENS))


class Replayed(Planned):
    """What recorded queries gave, by their ids."""

    def __init__(self) -> None:
        super().__init__()
        self.queries: dict[str, Recording] = {}

    def _of(self, query: Query) -> Recording:
        return self.queries[query.id.partition("/")[0]]

    def answer_of(self, query: Query, head: int) -> int:
        """Tokens of the answer of the call that `head` leads."""
        component = query.plan.primitives[head].component
        key = query.place.key if query.place is not None else ""
        return self._of(query).answer(component, key)

    def call(self, query: Query, head: int) -> tuple[int, list[Delivery]]:
        (member,) = query.plan.members[head]
        length, text = self.answer_of(query, head), new_text()
        outputs = query.plan.primitives[member].outputs
        given = {port: Tokens.of(text, 0, length) for port in outputs}
        return length, [Delivery(member, length, given)]

    def result(self, query: Query, i: int, lo: int, hi: int) -> Mapping[str, Any]:
        p, recording = query.plan.primitives[i], self._of(query)
        assert p.op is Op.TOOL_CALL
        if p.component == "split":
            return {"each_test": [_text(call.prompt) for call in recording.items]}
        assert query.place is not None
        turn = int(query.place.key.rpartition("/")[2])
        following = recording.turns[turn:]
        return {"next": _text(following[0].prompt) if following else Tokens(1)}

    def branch(self, query: Query, i: int) -> str:
        return self._of(query).branch(query.plan.primitives[i].component)

    def growth(self, query: Query, i: int) -> Growth:
        growth = super().growth(query, i)
        grower: Any = query.plan.primitives[i].params
        if isinstance(grower.grower, LoopGrower):
            assert isinstance(growth, Turning)
            growth.turns = len(self._of(query).turns)
        return growth


def prior() -> Lessons:
    """What is known of lengths before any query has ended: the paper's table of stages."""
    habits = {}
    for component, stage in STAGE.items():
        prompt, answer = TABLE[stage]
        factor = answer / ANSWER_TOKENS
        habits[APP, component] = Habit(
            calls=PREPARED,
            prompt=prompt / PLANNED_TOKENS,
            output=factor,
            output_p90=factor,
        )
    return Lessons(habits=habits)
