"""What became of one call of a query, in its report."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class CallStage:
    """All that one call was asked, also where it was asked in several windows of rows.

    model: the engine that is asked ("": none, it searches). rows: that need an answer. distinct:
    their questions. answered_before: those whose answer was kept when the query began. asked:
    prompts that were sent, further tries apart. truncated: of the distinct ones, those that were
    cut to the model's window. order: of the fields. reason: why that one. errors: by their text,
    how many rows and one of them. wanted: what answers were looked through for. stray: the first
    answer without it.
    """

    operator: str
    instruction: str
    model: str = ""
    rows: int = 0
    distinct: int = 0
    answered_before: int = 0
    asked: int = 0
    failed: int = 0
    unmatched: int = 0
    truncated: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    order: list[str] = field(default_factory=list)
    reason: str = ""
    errors: dict[str, tuple[int, str]] = field(default_factory=dict)
    wanted: str = ""
    stray: str = ""

    def add_error(self, error: str, rows: int, example: str) -> None:
        """Count rows that have this error."""
        known, first = self.errors.get(error, (0, example))
        self.errors[error] = known + rows, first

    def note(self) -> str:
        """A note on answers in which no value was found; "" if there are none."""
        if not self.unmatched:
            return ""
        answers = "1 answer has" if self.unmatched == 1 else f"{self.unmatched:,} answers have"
        such = f", such as {self.stray!r}" if self.stray else ""
        return f"{answers} no {self.wanted}, so their value is NULL{such}"

    def recount(self) -> None:
        """Start counting anew, since its answers are read again."""
        self.failed = self.unmatched = 0
        self.errors.clear()
