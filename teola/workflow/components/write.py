"""Write: an LLM writes a text from a prompt whose parts come in an order of your own.

instruction ─▶ part ─▶ part ─▶ ... ─▶ text, or a list of texts

The order decides what calls share: a prefix cache finds what two prompts have in common up to the
first part in which they differ, so what is the same for most calls stands first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from teola.errors import TemplateError
from teola.graph import DecodeParams, Op, Part, PrefillParams, Prompt, Ref, Role
from teola.workflow.block import Block
from teola.workflow.component import Component, Config
from teola.workflow.kinds import Kind


class WriteConfig(Config):
    """instruction: the beginning of the prompt. items: of a list, one a line; None: a text. seed:
    the same one gives the same text, where an engine heeds it."""

    instruction: str = Field(min_length=1)
    max_tokens: int = Field(256, ge=1)
    temperature: float = Field(0.0, ge=0.0, le=2.0)
    items: int | None = Field(None, ge=1, le=64)
    parser: Literal["lines", "numbered", "json_list"] = "lines"
    stop: tuple[str, ...] = ()
    seed: int | None = None
    ignore_eos: bool = False


class Write(Component):
    """`text` from the instruction and `parts`: names that it reads, with the words before each.
    question: the one of them that is the question, by default `question` if there is one; the
    others are context. ending: the prompt's
    last words. With `items` it gives a list, of which each item can go on as it is written.

        Write(instruction="Translate.\\n", parts={"glossary": "\\nGlossary:\\n", "question": "\\n"})
    """

    default_name = "write"
    default_engine = "llm"
    gives = {"text": Kind.TEXT}
    config_type = WriteConfig

    def __init__(
        self,
        name: str | None = None,
        *,
        parts: Mapping[str, str],
        question: str | None = None,
        ending: str = "",
        **options: Any,
    ) -> None:
        if not parts or not isinstance(parts, Mapping):
            raise TemplateError('Write: parts must map names, such as {"question": "Question: "}')
        if question is not None and question not in parts:
            raise TemplateError(
                f"Write: question is {question!r}, which is none of its parts: {', '.join(parts)}"
            )
        self.parts, self.question, self.ending = dict(parts), question or "question", ending
        self.needs = dict.fromkeys(parts, Kind.ANY)  # type: ignore[misc]
        if options.get("items") is not None:
            self.gives = {"text": Kind.TEXTS}  # type: ignore[misc]
        super().__init__(name, **options)

    def decompose(self, block: Block) -> None:
        config = block.config
        if (config.items is None) is not (self.gives["text"] is Kind.TEXT):
            raise TemplateError(f"{self.name}.items: declare whether it writes a list")
        prompt = [Part(Role.INSTRUCTION, config.instruction)]
        for name, words in self.parts.items():
            role = Role.QUESTION if name == self.question else Role.CONTEXT
            prompt += [
                Part(Role.INSTRUCTION, words),
                Part(role, block.read(name).ref),
            ]
        if self.ending:
            prompt.append(Part(Role.INSTRUCTION, self.ending))
        prefill = block.add(
            "prefill",
            Op.PREFILLING,
            {"prompt": Prompt(tuple(prompt))},
            ("sequence",),
            PrefillParams(),
        )
        listed = config.items is not None
        decode = block.add(
            "decode",
            Op.DECODING,
            {"sequence": Ref(prefill, "sequence")},
            ("items", "text") if listed else ("text",),
            DecodeParams(
                max_tokens=config.max_tokens,
                items=config.items,
                parser=config.parser if listed else None,
                temperature=config.temperature,
                stop=config.stop,
                seed=config.seed,
                ignore_eos=config.ignore_eos,
            ),
            splittable=listed,
        )
        if listed:
            block.give("text", Ref(decode, "items"), config.items)
        else:
            block.give("text", Ref(decode, "text"))
