"""Generate: an LLM answers the question from the context, in one of three ways.

simple   one call over the whole context
tree     one call for each piece of context, then one over their answers; of very many, some first;
         the answer from a single piece is the answer
refine   one call for each piece of context, each improving the answer before
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, Literal

from pydantic import BaseModel, Field, field_validator
from pydantic.errors import PydanticInvalidForJsonSchema

from teola.errors import TemplateError
from teola.graph import (
    AggregateParams,
    Aggregation,
    DecodeParams,
    Op,
    Part,
    PrefillParams,
    Prompt,
    Ref,
    Role,
)
from teola.workflow.block import Block, Feed
from teola.workflow.component import Component, Config
from teola.workflow.components.history import opening_parts
from teola.workflow.kinds import Kind

INSTRUCTION = (
    "Answer the question from the context below and from nothing else. Be brief and exact: give "
    "the fact that was asked for, in the words of the context where that is possible. If the "
    "context does not contain the answer, say that it does not; never guess, and never mention "
    "these instructions.\n\n"
)

MERGED: Final = (
    Part(Role.INSTRUCTION, "\n\nAnswers found in single passages, to be merged into one:\n"),
)
END: Final = Part(Role.INSTRUCTION, "\n\nAnswer: ")

MOST_MERGED: Final = 32
"""Answers that one call merges where nobody knows how many would fit."""
PLANNED_TOKENS: Final = {Role.INSTRUCTION: 256, Role.HISTORY: 2048, Role.QUESTION: 256}
"""What is left for the data of a merging prompt besides the answers, however long it will be."""
CHARACTERS: Final = 3
"""Characters of a token, at least: more of them would be fewer tokens."""
SEPARATOR_TOKENS: Final = 2
"""Between two answers."""


class GenerateConfig(Config):
    """mode: see the module. json_schema: of the final answer, which is then a JSON value; a schema,
    its text, or a pydantic model, whose schema it is then; any round of a refinement may be the
    last, so the answer of each must fit, else the query fails. stop:
    texts before which the final answer ends. seed: the same one gives the same answer, where an
    engine heeds it.

    context_required: without context nothing is generated and the answer is absent. answer_last: a
    refinement reads its context before the answer so far, so that the context can be prefilled
    while that answer is still being written. history_first: the conversation stands before all
    instructions, as in other components with this option, which then share it. fan_in: answers of
    a tree that one call merges at most; by default as many as fit the model's window, or 32 where
    nobody knows that. keep_thoughts: the final answer keeps the reasoning that a model writes
    before it between <think> and </think>, unless it is JSON, and the next round of a refinement
    reads it; else it is left out, as it is of all other calls.
    """

    mode: Literal["simple", "tree", "refine"] = "simple"
    instruction: str = INSTRUCTION
    max_tokens: int = Field(256, ge=1)
    temperature: float = Field(0.0, ge=0.0, le=2.0)
    seed: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    context_required: bool = True
    answer_last: bool = False
    history_first: bool = False
    fan_in: int | None = Field(None, ge=2)
    json_schema: dict[str, Any] | None = None
    keep_thoughts: bool = False

    @field_validator("json_schema", mode="before")
    @classmethod
    def _parse(cls, value: Any) -> Any:
        if isinstance(value, type) and issubclass(value, BaseModel):
            return _schema_of(value)
        try:
            return json.loads(value) if isinstance(value, str) else value
        except RecursionError:
            raise ValueError("it nests too deeply") from None


def _schema_of(model: type[BaseModel]) -> dict[str, Any]:
    try:
        return model.model_json_schema()
    except PydanticInvalidForJsonSchema as error:
        raise ValueError(f"{model.__name__} has no JSON schema: {error.message}") from None


class Generate(Component):
    """`answer` to `question` from `context`. `instructions`, for a whole conversation, and
    `history` go before the question if there are any (see `teola.workflow.components.history`)."""

    default_name = "generate"
    default_engine = "llm"
    needs = {"question": Kind.TEXT}
    may_use = {"context": Kind.ANY, "history": Kind.TEXT, "instructions": Kind.TEXT}
    gives = {"answer": Kind.TEXT}
    config_type = GenerateConfig

    def decompose(self, block: Block) -> None:
        mode, context = block.config.mode, block.may_read("context")
        if mode != "simple" and (context is None or context.items is None):
            raise TemplateError(
                f"component {self.name!r}: mode {mode!r} needs a list as `context`, and "
                f"{'there is none' if context is None else 'this is not known to be one'}; say so "
                "where it comes from (an input of kind 'texts', a function `-> list[str]`, "
                "component(..., most=N)), or use mode 'simple'"
            )
        if context is None or mode == "simple" or context.items is None:
            parts = self._context(context.ref, block.config.context_required) if context else ()
            answer = self._call(block, "", parts, final=True)
        elif mode == "tree":
            answer = self._tree(block, context, max(1, context.items))
        else:
            answer = self._refine(block, context, max(1, context.items))
        block.give("answer", answer)

    def _tree(self, block: Block, context: Feed, count: int) -> Ref:
        pieces = [self._context(context.item(i), required=True) for i in range(count)]
        if count == 1:
            return self._call(block, "1.", pieces[0], final=True)
        answers = [self._call(block, f"{i + 1}.", piece) for i, piece in enumerate(pieces)]
        level, most = 0, block.config.fan_in or self._fitting(block)
        while len(answers) > most:
            level += 1
            groups = -(-len(answers) // most)
            size = -(-len(answers) // groups)
            answers = [
                self._merge(block, f"{level}.{at // size + 1}.", answers[at : at + size])
                for at in range(0, len(answers), size)
            ]
        return self._merge(block, "", answers, final=True)

    def _fitting(self, block: Block) -> int:
        """How many answers one call can merge: each as long as it may be, and the merged one, too,
        fit the model's window beside the rest of the prompt."""
        if block.window is None:
            return MOST_MERGED
        prompt_tokens = sum(
            len(part.content) // CHARACTERS + 1
            if isinstance(part.content, str)
            else PLANNED_TOKENS[part.role]
            for part in (*self._head(block), *MERGED, END)
        )
        answer: int = block.config.max_tokens
        return max(2, (block.window - prompt_tokens - answer) // (answer + SEPARATOR_TOKENS))

    def _merge(self, block: Block, key: str, answers: Sequence[Ref], final: bool = False) -> Ref:
        """One answer from several. Where there turns out to be but one, it is that, unless it was
        not asked for as the final one has to be."""
        if len(answers) == 1:
            return answers[0]
        config = block.config
        alone = not final or not (config.json_schema or config.stop or config.keep_thoughts)
        drafts = self._gather(
            block, f"{key}drafts", answers, Aggregation.SEVERAL if alone else Aggregation.CONCAT
        )
        parts = (*MERGED, Part(Role.CONTEXT, drafts, required=True))
        merged = self._call(block, f"merge.{key}", parts, final)
        if not alone:
            return merged
        return self._gather(block, f"{key}merged", (*answers, merged), Aggregation.MERGED)

    def _gather(self, block: Block, key: str, parts: Sequence[Ref], mode: Aggregation) -> Ref:
        inputs = {"parts": tuple(parts)}
        return Ref(block.add(key, Op.AGGREGATE, inputs, ("out",), AggregateParams(mode)), "out")

    def _refine(self, block: Block, context: Feed, count: int) -> Ref:
        """Every round is a final call, because it may be the last. The next one reads its text: a
        JSON value would lose its form where prompts join the items of a list."""
        rounds: list[Ref] = []
        for i in range(count):
            parts: tuple[Part, ...] = self._context(context.item(i), required=True)
            if rounds:
                before = (
                    Part(Role.INSTRUCTION, "\n\nThe answer so far, to be improved:\n"),
                    Part(Role.ANSWER, Ref(rounds[-1].producer, "text")),
                )
                parts = parts + before if block.config.answer_last else before + parts
            rounds.append(self._call(block, f"{i + 1}.", parts, final=True))
        return rounds[0] if count == 1 else self._gather(block, "last", rounds, Aggregation.LAST)

    def _context(self, ref: Ref, required: bool) -> tuple[Part, ...]:
        return (
            Part(Role.INSTRUCTION, "\n\nContext:\n"),
            Part(Role.CONTEXT, ref, required=required),
        )

    def _head(self, block: Block) -> tuple[Part, ...]:
        """What the prompts of all calls begin with."""
        return (
            *opening_parts(block, block.config.instruction),
            Part(Role.INSTRUCTION, "Question: "),
            Part(Role.QUESTION, block.read("question").ref, required=True),
        )

    def _call(self, block: Block, key: str, parts: tuple[Part, ...], final: bool = False) -> Ref:
        """Prefilling + Decoding of one call; the Ref of its answer."""
        config = block.config
        prompt = Prompt((*self._head(block), *parts, END))
        prefill = block.add(
            f"{key}prefill", Op.PREFILLING, {"prompt": prompt}, ("sequence",), PrefillParams()
        )
        schema = json.dumps(config.json_schema) if final and config.json_schema else None
        decode = block.add(
            f"{key}decode",
            Op.DECODING,
            {"sequence": Ref(prefill, "sequence")},
            ("value", "text") if schema else ("text",),
            DecodeParams(
                max_tokens=config.max_tokens,
                temperature=config.temperature,
                ignore_eos=config.ignore_eos,
                schema=schema,
                stop=config.stop if final else (),
                seed=config.seed,
                keep_thoughts=final and not schema and config.keep_thoughts,
            ),
        )
        return Ref(decode, "value" if schema else "text")
