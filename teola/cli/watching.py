"""Progress on standard error while something takes long; nothing unless that is a terminal."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import as_completed
from contextlib import contextmanager
from itertools import chain

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from teola.cli.step_words import called, step_words
from teola.cli.visible import visible
from teola.collections import IndexingStep
from teola.graph import Op, ToolStep
from teola.graph.ops import PREFILLS
from teola.runtime.live import query as live_query
from teola.runtime.runtime import Runtime

DOING = {
    Op.EMBEDDING.value: "embedding",
    Op.INGESTION.value: "storing",
    Op.SEARCHING.value: "searching",
    Op.RERANKING.value: "reranking",
    Op.WEB_SEARCH.value: "searching the web",
    Op.SQL.value: "asking a database",
}
MORE_CALLS = " and 999 more 00:00:00"


class Watch:
    """One line that says what is going on, if asked with a bar. Thread-safe."""

    def __init__(self, bar: bool) -> None:
        console = Console(stderr=True)
        columns = [SpinnerColumn(style="cyan"), TextColumn("{task.description}", markup=False)]
        columns += [BarColumn(bar_width=24), MofNCompleteColumn()] if bar else []
        self._bars = Progress(
            *columns,
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._line = self._bars.add_task("", total=None, visible=False)
        self._chunks = 0
        self.calls = 0
        """Of tools that were told, each in a line that stays."""
        self._calling: dict[str, str] = {}

    def show(self, text: str, done: int | None = None, total: int | None = None) -> None:
        """Say `text`, and how much is done of how much there is to do."""
        self._bars.update(
            self._line, description=visible(text), completed=done or 0, total=total, visible=True
        )
        self._bars.start()

    def say(self, text: str) -> None:
        """A line that stays."""
        if not self._bars.disable:
            self._bars.console.print(visible(f"teola: {text}"), highlight=False)

    def hide(self) -> None:
        """Clear the line, so that something else can be written."""
        self._bars.stop()

    def start(self, runtime: Runtime, engines: Sequence[str], optional: Collection[str]) -> None:
        """Start the engines, side by side. Raises EngineUnavailable, but not for an `optional`
        one."""
        futures = {runtime.start(runtime.ensure([name], optional)): name for name in engines}
        waiting = list(engines)
        for future in chain([None], as_completed(futures)):
            if future is not None:
                future.result()
                waiting.remove(futures[future])
            if waiting:
                self.show("starting " + ", ".join(waiting))

    def event(self, event: live_query.Progress) -> None:
        """Say what a query does."""
        if self._calling and event.op == Op.TOOL_CALL.value:
            return  # the call is told already, by its tool's name
        if event.state == "started":
            doing = "asking the LLM" if Op(event.op) in PREFILLS else DOING.get(event.op, "running")
            items = f" {event.items} items" if event.items > 1 else ""
            self.show(f"{doing}{items} ({event.primitive})")
        elif event.state == "writing":
            self.show(f"the LLM writes ({event.primitive.removesuffix('.prefill')})")

    def call(self, step: ToolStep) -> None:
        """Say which tool an agent calls, and what that gave."""
        if self._bars.disable:
            return
        room = self._bars.console.width - 4
        if step.state == "started":
            self._calling[step.id] = called(step.tool, step.args, room - len(MORE_CALLS))
            self._show_calls()
            return
        self._calling.pop(step.id, None)
        self.calls += 1
        fields = {**step._asdict(), "failed": step.state == "failed"}
        line = Text(visible(f"  {step_words(fields, room)}"), style="dim")
        self._bars.console.print(line, no_wrap=True, overflow="ellipsis")
        self._show_calls()

    def _show_calls(self) -> None:
        *others, last = self._calling.values() or [""]
        if last:
            self.show(f"{last} and {len(others)} more" if others else last)

    def step(self, step: IndexingStep) -> None:
        """Say how far indexing is."""
        bar = self._bars.tasks[0]
        done, total = int(bar.completed), int(bar.total or 0)
        if step.state == "found":
            self._chunks, done, total = 0, 0, step.items
        elif step.state == "embedded":
            self._chunks += step.items
        else:
            done += 1
        self.show(f"indexing documents, {self._chunks} chunks embedded", done, total)


@contextmanager
def watching(*, bar: bool = False) -> Iterator[Watch]:
    """A Watch that is gone at the end, however that comes."""
    watch = Watch(bar)
    try:
        yield watch
    except KeyboardInterrupt:
        watch.say("cancelling")  # an engine that is loading its model must finish first
        raise
    finally:
        watch.hide()
