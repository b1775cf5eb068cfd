"""Judge: an LLM decides whether a draft can stand or the web has to be searched.

prefill (instruction, question, draft) ─▶ decode (a few tokens) ─▶ decide (a Condition on the text)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from teola.graph import (
    ConditionParams,
    DecodeParams,
    Op,
    Part,
    PrefillParams,
    Prompt,
    Ref,
    Role,
)
from teola.workflow.block import Block
from teola.workflow.component import Component, Config, Template
from teola.workflow.components.condition import OTHERWISE, THEN, branches_of, branching
from teola.workflow.components.history import opening_parts
from teola.workflow.kinds import Kind

INSTRUCTION = (
    "You decide whether a question can be answered without searching the web. Below are the "
    "question and a draft of an answer, written from memory. Reply yes if a search is needed: the "
    "draft says that it does not know, is vague, may be wrong, leaves out a part of what was "
    "asked, or rests on facts that change with time. Reply no if the draft answers the question "
    "completely and you are sure that it is right. Reply with one word, yes or no.\n\n"
)

_THOUGHTS = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL | re.IGNORECASE)
_LABEL = r"(?:(?:the|final|my|answer|verdict|decision|judge?ment|search|needed|is)\b\W*)*"
_FIRST = re.compile(rf"[\W_]*{_LABEL}(yes|no|true|false)(?![^\W_])", re.IGNORECASE)
_LAST = re.compile(r"(?<![^\W_])(yes|no|true|false)[\W_]*\Z", re.IGNORECASE)


class JudgeConfig(Config):
    """instruction: must ask for yes (take `then`) or no (take `otherwise`). speculate: see
    ConditionConfig. history_first: the conversation stands before the instruction."""

    instruction: str = INSTRUCTION
    max_tokens: int = Field(4, ge=1)
    temperature: float = Field(0.0, ge=0.0, le=2.0)
    history_first: bool = False
    speculate: bool = False


class Judge(Component):
    """A Condition that asks an LLM: `otherwise` if it clearly says no of `draft`, else `then`.

    `history` goes before the question if there is one. expect: which branch estimates assume. As
    with Condition, what comes after `>>` runs in either case, and a name that both branches give
    comes from the one that ran.
    """

    default_name = "judge"
    default_engine = "judge"
    needs = {"question": Kind.TEXT, "draft": Kind.TEXT}
    may_use = {"history": Kind.TEXT}
    config_type = JudgeConfig

    def __init__(
        self,
        *,
        then: Component | Template,
        otherwise: Component | Template | None = None,
        expect: bool = True,
        name: str | None = None,
        engine: str | None = None,
        inputs: Mapping[str, str] | None = None,
        **config: Any,
    ) -> None:
        super().__init__(name, engine=engine, inputs=inputs, **config)
        self.expect = expect
        self.branches = branches_of(then, otherwise)

    def decompose(self, block: Block) -> None:
        config = block.config
        prompt = Prompt(
            (
                *opening_parts(block, config.instruction),
                Part(Role.INSTRUCTION, "Question: "),
                Part(Role.QUESTION, block.read("question").ref, required=True),
                Part(Role.INSTRUCTION, "\n\nDraft: "),
                Part(Role.ANSWER, block.read("draft").ref),
                Part(Role.INSTRUCTION, "\n\nIs a search needed? "),
            )
        )
        prefill = block.add(
            "prefill", Op.PREFILLING, {"prompt": prompt}, ("sequence",), PrefillParams()
        )
        decode = block.add(
            "decode",
            Op.DECODING,
            {"sequence": Ref(prefill, "sequence")},
            ("text",),
            DecodeParams(max_tokens=config.max_tokens, temperature=config.temperature),
        )
        prefer = THEN if self.expect else OTHERWISE
        block.add(
            "decide",
            Op.CONDITION,
            {"verdict": Ref(decode, "text")},
            ("branch",),
            ConditionParams(says_yes, (THEN, OTHERWISE), prefer),
        )

    def template(self) -> Template:
        return branching(self, self.branches)


def says_yes(verdict: str) -> bool:
    """Whether `verdict` says yes, or nothing clear: only a plain no counts as no.

    A word at its beginning (after a label such as "Answer:") or at its end counts; if they
    contradict each other, nothing is clear. What stands between <think> tags is not read.
    """
    text = _THOUGHTS.sub("", verdict or "").strip()
    words = [match[1].lower() for match in (_FIRST.match(text), _LAST.search(text)) if match]
    return not words or not all(word in ("no", "false") for word in words)
