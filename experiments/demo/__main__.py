"""Two questions about the project's own docs, and where the time went.

    python -m experiments.demo [--repetitions 3]

Everything is run on this machine with the default engines: the embedded PostgreSQL, MiniLM, and the
extractive reader, which quotes sentences and generates nothing. Nothing is left behind. With
repetitions the first question is timed as well, with and without the passes.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections.abc import Sequence
from concurrent.futures import Future
from copy import copy
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

import teola
from experiments.common.scratch import scratch_runtime
from experiments.demo import comparison, picture
from experiments.demo.documents import Documents
from teola import App, Result, Runtime
from teola.runtime.observe.recorded import Recorded
from teola.runtime.observe.shares import in_lines
from teola_apps import advanced_rag

DOCS = Path(__file__).resolve().parents[2] / "docs"
FILES = ("architecture.md", "learned-times.md", "search-agent.md")
QUESTIONS = (
    "When is a primitive skipped?",
    "What if several queries bring the same new document?",
)
WIDTH = 100
EXCERPT = 150
"""Characters that are shown of a source."""
DEADLINE_S = comparison.DEADLINE_S


def main(argv: Sequence[str] | None = None) -> None:
    options = _options(argv)
    console = Console(highlight=False)
    console.width = min(WIDTH, console.width) if console.is_terminal else WIDTH
    with (
        tempfile.TemporaryDirectory(prefix="teola-docs-") as folder,
        scratch_runtime() as runtime,
    ):
        documents = Documents(DOCS, FILES, Path(folder))
        app = copy(advanced_rag.app)
        app.runtime = runtime
        _introduce(console, documents)
        _load(console, runtime, app)
        results = [ask(console, app, question, documents) for question in QUESTIONS]
        show_run(console, results[0])
        estimate = app.explain(
            question=QUESTIONS[0], documents=documents.folder, profile="paper-13b"
        )
        if options.repetitions:
            found = comparison.measure(app, QUESTIONS[0], documents, options.repetitions, console)
            comparison.show(console, found, estimate)
        else:
            comparison.show_estimate(console, estimate)


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments.demo", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--repetitions", type=int, default=0, metavar="N")
    options = parser.parse_args(argv)
    if options.repetitions < 0:
        parser.error("--repetitions must not be negative")
    return options


def _introduce(console: Console, documents: Documents) -> None:
    console.rule(f"[bold]Teola[/], app {advanced_rag.app.name}")
    console.print(
        f"{', '.join(path.name for path in documents.paths)} of the docs, "
        f"{documents.size / 1000:.0f} kB. The reader quotes sentences and generates nothing."
    )


def _load(console: Console, runtime: Runtime, app: App) -> None:
    """Start all engines side by side, with a bar for each."""
    with _progress(console) as progress:
        futures: list[Future[None]] = []
        for name in app.engine_names:
            task = progress.add_task(f"starting {name}", total=None)
            future = runtime.start(runtime.ensure([name]))
            future.add_done_callback(partial(_finish, progress, task))
            futures.append(future)
        for future in futures:
            future.result()


def _finish(progress: Progress, task: TaskID, _: Future[None]) -> None:
    progress.update(task, total=1, completed=1)


def ask(console: Console, app: App, question: str, documents: Documents) -> Result:
    """Run one query with its progress, and print its answer and sources."""
    console.print()
    console.print(f"[bold cyan]? {escape(question)}[/]")
    result: Result | None = None
    with _progress(console) as progress:
        task = progress.add_task("reading documents", total=None)
        for event in app.stream(
            question=question, documents=documents.folder, deadline_s=DEADLINE_S
        ):
            if isinstance(event, teola.Progress):
                progress.update(task, description=f"{event.primitive} {event.state}")
            elif isinstance(event, Result):
                result = event
        progress.update(task, description="answered", total=1, completed=1)
    assert result is not None
    console.print(Padding(escape(str(result.answer)), (0, 2)))
    for hit in result["sources"]:
        excerpt = _excerpt(hit.text, str(result.answer))
        line = f"[bold]{escape(hit.citation)}[/] ({hit.score:.2f}) [dim]{escape(excerpt)}[/]"
        console.print(Padding(line, (0, 4)))
    console.print(f"  [dim]{result.latency_s:.2f} s, {result.primitives} primitives ran[/]")
    return result


def _excerpt(text: str, answer: str) -> str:
    """The beginning of what the answer quotes from `text`, else of `text` itself."""
    plain = " ".join(text.replace("`", "").replace("*", "").split())
    starts = [plain.find(quote[: EXCERPT // 6]) for quote in re.findall(r"“([^”]+)", answer)]
    found = [start for start in starts if start >= 0]
    at = min(found, default=0)
    piece = plain[at : at + EXCERPT].rpartition(" ")[0] if len(plain) > at + EXCERPT else plain[at:]
    return f"{'... ' if at else ''}{piece}{' ...' if len(plain) > at + EXCERPT else ''}"


def show_run(console: Console, result: Result) -> None:
    """The e-graph that a query ran as, and where its time went."""
    assert result.trace is not None
    assert result.trace.plan is not None
    trace, count = Recorded.of(result.trace), len(result.trace.plan.graph)
    console.print()
    console.print(
        f"[bold]The first question as it ran[/]: {count} primitives in {trace.latency_s:.2f} s"
    )
    for line in picture.lines(trace, console.width - 2):
        console.print(Padding(line, (0, 0, 0, 2)))
    for told in in_lines(trace.shares, console.width - 2):
        console.print(f"  {told}")


def _progress(console: Console) -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )


if __name__ == "__main__":
    main()
