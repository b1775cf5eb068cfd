"""A console of rich that shows nothing but visible texts, whatever they are printed in."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.segment import Segment

from teola.cli.visible import visible


def visibly(console: Console) -> Console:
    """The console, which now shows nothing but visible texts."""
    console.push_render_hook(_Hook())
    return console


class _Hook(RenderHook):
    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Visible(renderable) for renderable in renderables]


class _Visible:
    def __init__(self, of: ConsoleRenderable) -> None:
        self._of = of

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from _shown(console.render(self._of, options))


def _shown(segments: Iterable[Segment]) -> Iterable[Segment]:
    for text, style, control in segments:
        yield Segment(text if control else visible(text), style, control)
