"""What the model writes: the next step of a task's plan, cut into exactly so many tokens.

    react      a step of one call: 60 tokens
    parallel   the calls that can be made now: 20 tokens, and 22 a call
    plan       all calls, some of which read others' results ("${1.value}"): 20, and 22 a call
    all        the answer, when all results are there: 60

Two of the 20 come behind the last call. What is written follows from the prompt alone: which demand
it ends with, and which results it shows. An answer is made of those results, so a client that
loses or mixes up any of them is given a wrong one.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from experiments.agents.parallelqa import joined
from experiments.agents.task import Demand

REACT: Final = 60
HEAD: Final = 18
CALL: Final = 22
TAIL: Final = 2
JOINER: Final = 60
STYLES: Final = ("react", "parallel", "plan")
"""The models that the server has: one for each way of writing."""
TAG: Final = re.compile(r"\[\w+ \S+ \d+\]")
_RESULT: Final = re.compile(r"^(\d+)\. [\w-]+\(.*\):\n> (\{\"value\".*)$", re.MULTILINE)
_READ: Final = re.compile(r"\$\{(\d+)\.value\}")
THOUGHT: Final = "These calls are what is needed to answer the question that was asked."
BECAUSE: Final = (
    "this follows from what the tools said: every figure that the question names was looked up or "
    "computed by one of the calls above, and none of them was guessed or left out in between."
)
Results = Mapping[int, Any]


@dataclass(frozen=True, slots=True)
class Call:
    """A call that the model writes."""

    number: int
    tool: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model writes next: calls, or an answer."""

    calls: tuple[Call, ...] = ()
    answer: str = ""


def reply(style: str, demand: Demand, results: Results) -> Reply:
    """The next step. results: value of each call that was made, by number."""
    if all(number in results for number in range(1, len(demand.calls) + 1)):
        told = joined(demand.join, results) if demand.join is not None else "Done"
        return Reply(answer=f"{told} -- {BECAUSE}")
    groups = {
        "react": [[number] for number in range(1, len(demand.calls) + 1)],
        "parallel": demand.stages(),
        "plan": demand.plans(),
    }[style]
    missing = list(next(g for g in groups if any(n not in results for n in g)))
    known = {} if style == "plan" else results
    return Reply(tuple(_call(demand, number, known) for number in missing))


def _call(demand: Demand, number: int, known: Results) -> Call:
    planned = demand.calls[number - 1]
    return Call(number, planned.tool, filled(planned.arguments, known))


def filled(arguments: Mapping[str, Any], known: Results) -> Mapping[str, Any]:
    """Arguments with the values that are known in the place of references."""

    def value(match: re.Match[str]) -> str:
        number = int(match[1])
        return repr(known[number]) if number in known else match[0]

    return {
        name: _READ.sub(value, given) if isinstance(given, str) else given
        for name, given in arguments.items()
    }


def references(text: str) -> list[int]:
    """Numbers of the calls whose results stand in a text."""
    return sorted({int(number) for number in _READ.findall(text)})


# --- what a prompt shows ------------------------------------------------------------------------


def shown(prompt: str) -> tuple[str, Results]:
    """The tag of the demand that a text ends with, and the results behind it. Raises LookupError
    for a prompt of no task."""
    found = [*TAG.finditer(prompt)]
    if not found:
        raise LookupError("the prompt has no task")
    behind = prompt[found[-1].end() :]
    return found[-1][0], {int(m[1]): valued(m[2]) for m in _RESULT.finditer(behind)}


def shown_in_chat(messages: Sequence[Mapping[str, Any]]) -> tuple[str, Results]:
    """As `shown`, of messages; results that are messages of their own go by the number in the
    calls' ids."""
    tag, results = "", dict[int, Any]()
    for message in messages:
        if message["role"] == "user":
            tag, told = shown(text_of(message))
            results = dict(told)
        elif message["role"] == "tool":
            results[int(message["tool_call_id"].split("_")[1])] = valued(text_of(message))
    if not tag:
        raise LookupError("the messages have no task")
    return tag, results


def text_of(message: Mapping[str, Any]) -> str:
    """What a message says, whichever way it says it."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def valued(observation: str) -> Any:
    """The value in what a tool said; None if it failed."""
    try:
        return json.loads(observation)["value"]
    except (ValueError, KeyError, TypeError):
        return None


# --- tokens -----------------------------------------------------------------------------------


def cut(text: str, count: int) -> list[str]:
    """The text in so many pieces of nearly the same length."""
    ends = [len(text) * k // count for k in range(count + 1)]
    return [text[a:b] for a, b in itertools.pairwise(ends)]


def as_text(style: str, reply: Reply) -> list[str]:
    """Tokens of one JSON object, as our own lists are asked for."""
    if not reply.calls:
        return cut(json.dumps({"answer": reply.answer}), JOINER)
    listed = [json.dumps({"tool": c.tool, "args": dict(c.arguments)}) for c in reply.calls]
    head = f'{{"thought": {json.dumps(THOUGHT)}, "calls": ['
    if style == "react":
        return cut(f"{head}{listed[0]}]}}", REACT)
    pieces = cut(head, HEAD)
    for k, text in enumerate(listed):
        pieces += cut(f", {text}" if k else text, CALL)
    return [*pieces, "]", "}"]


def as_chat(style: str, reply: Reply) -> list[dict[str, Any]]:
    """Deltas of a chat message, of which an empty one is a token that shows nothing."""
    if not reply.calls:
        return [{"content": piece} for piece in cut(reply.answer, JOINER)]
    head = REACT - CALL - TAIL if style == "react" else HEAD
    deltas: list[dict[str, Any]] = [{"content": piece} for piece in cut(THOUGHT, head)]
    for index, call in enumerate(reply.calls):
        function = {"name": call.tool, "arguments": ""}
        first = {"index": index, "id": f"call_{call.number}_{call.tool}", "type": "function"}
        deltas.append({"tool_calls": [{**first, "function": function}]})
        for piece in cut(json.dumps(dict(call.arguments)), CALL - 1):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    return [*deltas, *({} for _ in range(TAIL))]
