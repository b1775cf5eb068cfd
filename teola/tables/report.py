"""What became of a query, as a mapping: the same for Python and for `teola sql --json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from teola.price import shown_cost
from teola.tables.call_stage import CallStage
from teola.tables.plan_steps import Column


def report_of(
    columns: Sequence[Column],
    stages: Sequence[CallStage],
    *,
    row_count: int,
    state: str,
    seconds: float,
) -> dict[str, Any]:
    """The report of a query, without its rows. asked: prompts that were sent for rows, retries
    apart."""

    def total(name: str) -> int:
        return sum(int(getattr(stage, name)) for stage in stages)

    return {
        "columns": [{"name": column.name, "type": column.type} for column in columns],
        "row_count": row_count,
        "state": state,
        "asked": total("asked"),
        "answered_before": total("answered_before"),
        "failed": total("failed"),
        "unmatched": total("unmatched"),
        "truncated": total("truncated"),
        "prompt_tokens": total("prompt_tokens"),
        "cached_tokens": total("cached_tokens"),
        "completion_tokens": total("completion_tokens"),
        "seconds": round(seconds, 6),
        "errors": [
            {"operator": stage.operator, "error": error, "rows": rows, "example": example}
            for stage in stages
            for error, (rows, example) in stage.errors.items()
        ],
        "stages": [
            {
                "operator": stage.operator,
                "instruction": stage.instruction,
                "rows": stage.rows,
                "distinct": stage.distinct,
                "asked": stage.asked,
                "order": stage.order,
                "reason": stage.reason,
            }
            for stage in stages
        ],
    }


def with_rows(report: Mapping[str, Any], rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """The report with the rows behind the columns, as JSON values."""
    report_part = dict(report)
    listed = [[plain(value) for value in row] for row in rows]
    return {"columns": report_part.pop("columns"), "rows": listed, **report_part}


def plain(value: Any) -> Any:
    """A value of a row for JSON. A value of a type that JSON lacks becomes its text."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def summary_of(report: Mapping[str, Any], where: str = "", cost: float | None = None) -> str:
    """A line about a query's calls, tokens and seconds. where: text behind the number of its
    rows."""
    parts = [f"{report['asked']:,} asked"]
    for name in ("answered_before", "failed", "unmatched", "truncated"):
        if report[name]:
            parts.append(f"{report[name]:,} {name.replace('_', ' ')}")
    took = []
    if report["prompt_tokens"]:
        took.append(
            f"{report['prompt_tokens']:,} prompt tokens ({report['cached_tokens']:,} cached)"
        )
        took.append(f"{report['completion_tokens']:,} of answers")
    if cost is not None:
        took.append(f"cost {shown_cost(cost)}")
    took.append(f"{report['seconds']:,.1f} s")
    rows = f"{report['row_count']:,} {'row' if report['row_count'] == 1 else 'rows'}"
    return f"{rows}{where}, {report['state']}: {', '.join(parts)}; {', '.join(took)}"
