"""QueryExpansion: an LLM rewrites the question several ways, one rewriting a line."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from teola.graph import DecodeParams, Op, Part, PrefillParams, Prompt, Ref, Role
from teola.workflow.block import Block
from teola.workflow.component import Component, Config
from teola.workflow.components.history import opening_parts
from teola.workflow.kinds import Kind

INSTRUCTION = (
    "You help a search engine find passages that answer a question. Rewrite the question below in "
    "{n} different ways: use other words, name what is only implied, and split what is asked "
    "together, but keep the meaning. Write each rewriting on a line of its own, without numbers, "
    "quotation marks or any other text before or after.\n\n"
)


class ExpansionConfig(Config):
    """n: rewritings; instruction: may use {n}; parser: how the list is written. history_first: the
    conversation stands before the instruction."""

    n: int = Field(3, ge=1, le=16)
    instruction: str = INSTRUCTION
    parser: Literal["lines", "numbered", "json_list"] = "lines"
    max_tokens: int = Field(192, ge=1)
    history_first: bool = False
    temperature: float = Field(0.0, ge=0.0, le=2.0)


class QueryExpansion(Component):
    """`n` rewritings of `question`; `history` goes before the question if there is one.

    Its output is splittable: each rewriting can go on alone.
    """

    default_name = "expand"
    default_engine = "llm"
    needs = {"question": Kind.TEXT}
    may_use = {"history": Kind.TEXT}
    gives = {"queries": Kind.TEXTS}
    config_type = ExpansionConfig

    def decompose(self, block: Block) -> None:
        config = block.config
        prompt = Prompt(
            (
                *opening_parts(block, config.instruction.replace("{n}", str(config.n))),
                Part(Role.INSTRUCTION, "Question: "),
                Part(Role.QUESTION, block.read("question").ref, required=True),
                Part(Role.INSTRUCTION, "\n\nRewritings:\n"),
            )
        )
        prefill = block.add(
            "prefill", Op.PREFILLING, {"prompt": prompt}, ("sequence",), PrefillParams()
        )
        decode = block.add(
            "decode",
            Op.DECODING,
            {"sequence": Ref(prefill, "sequence")},
            ("items", "text"),
            DecodeParams(
                max_tokens=config.max_tokens,
                items=config.n,
                parser=config.parser,
                temperature=config.temperature,
            ),
            splittable=True,
        )
        block.give("queries", Ref(decode, "items"), config.n)
