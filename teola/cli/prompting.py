"""Questions to people at the terminal, on standard error: answers go where the program is typed."""

from __future__ import annotations

import select
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

from rich.console import Console
from rich.prompt import Prompt
from rich.text import Text, TextType

from teola.cli.replies import WORDS, Extras, answers_in_words, one_line_json, reply, typed_text
from teola.cli.visible_console import visibly
from teola.errors import InputError
from teola.graph import Inquiry
from teola.graph.inquiry import APPROVE, UNKNOWN
from teola.query.ways import NOTICE_S
from teola.runtime.live.people import check_answer


def at_a_terminal() -> bool:
    """Whether there is a terminal at which somebody can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


class TypedLine(Prompt):
    """A line that is typed. It is read once it is there: an interrupt that came just before a read
    began to wait would be noticed only after it."""

    @classmethod
    def get_input(
        cls, console: Console, prompt: TextType, password: bool, stream: TextIO | None = None
    ) -> str:
        """What is typed. Raises EOFError."""
        console.print(prompt, end="")
        while not select.select([sys.stdin], [], [], NOTICE_S)[0]:
            pass
        return console.input("", password=password, stream=stream)


class Prompter:
    """Answers questions with what is typed. before: called first, to clear the progress."""

    def __init__(self, before: Callable[[], None] = lambda: None) -> None:
        self._before = before
        self._console = visibly(Console(stderr=True, highlight=False, emoji=False))

    def __call__(self, inquiry: Inquiry) -> Any:
        """Show a question and ask until the answer fits it."""
        self._before()
        self._show(inquiry)
        while True:
            try:
                answer = self._typed(inquiry.kind, inquiry.schema)
                check_answer(answer, inquiry.schema)
                return answer
            except InputError as error:
                self._say(str(error), "red")

    def _show(self, inquiry: Inquiry) -> None:
        out, about = self._console, inquiry.about or {}
        out.print()
        out.print(Text.assemble((inquiry.component, "cyan"), (f"  {inquiry.id}", "dim")))
        out.print(Text(inquiry.question, style="bold"))
        if "tool" in about:
            out.print(Text(f"  {about['tool']}", style="cyan"))
            for name, value in about["arguments"].items():
                out.print(Text.assemble((f"    {name}: ", "dim"), typed_text(value)))
        elif about:
            out.print(Text(f"  {one_line_json(about)}", style="dim"))

    def _typed(self, kind: str, schema: Mapping[str, Any]) -> Any:
        if kind == APPROVE:
            return self._decision(schema)
        if kind == UNKNOWN:
            word = self._ask(kind, WORDS[kind])
            result = self._ask("what it gave, a text or JSON") if word == "take" else None
            return reply(kind, schema, word, Extras(result=result))
        choices = schema.get("enum")
        if choices is None and schema.get("type") == "boolean":
            choices = [True, False]
        if choices is not None:
            by_text = {typed_text(choice): choice for choice in choices}
            return by_text[self._ask("answer", [*by_text])]
        return reply(kind, schema, self._ask(answers_in_words(kind, schema)))

    def _decision(self, schema: Mapping[str, Any]) -> Any:
        """The decision on a call of a tool."""
        word = self._ask(APPROVE, [WORDS[APPROVE][0], "edit", *WORDS[APPROVE][1:]])
        if word == "edit":
            arguments = self._ask("the arguments, a JSON object")
            return reply(APPROVE, schema, "approve", Extras(arguments=arguments))
        reason = self._ask("why, for the model (may be empty)") if word == "reject" else None
        return reply(APPROVE, schema, word, Extras(reason=reason or None))

    def _ask(self, prompt: str, choices: Sequence[str] | None = None) -> str:
        return TypedLine(
            Text(prompt), console=self._console, choices=[*choices] if choices else None
        )()

    def _say(self, text: str, style: str) -> None:
        self._console.print(Text(text, style=style))
