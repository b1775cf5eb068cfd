"""How fast does the engine `transformers` decode, and does it say the same? See README.md here."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from experiments.common import command, pages
from experiments.common.command import Report
from experiments.common.tiny_model import make_model
from experiments.decoding import checking, speed
from teola.runtime import machine

PAGE: Final = Path(__file__).with_name("README.md")
BILLION: Final = {
    "hidden": 2048, "layers": 16, "heads": 32, "kv_heads": 8, "intermediate": 8192,
    "vocabulary": 32000,
}  # fmt: skip
"""The shape of Llama 3.2 1B, with fewer words."""
SMALL: Final = {"hidden": 256, "layers": 4, "heads": 8, "kv_heads": 2, "vocabulary": 2048}
HEAD: Final = ("system", "sequences", "first token, s", "a step, ms", "tokens a second")


def measure(given: argparse.Namespace) -> Report:
    """The report; see README.md."""
    import torch

    cuda = torch.cuda.is_available()
    shape: dict[str, Any] = SMALL if given.small else BILLION
    on = {"device": "cuda" if cuda else "cpu"}
    with tempfile.TemporaryDirectory(prefix="teola-decoding-") as name:
        small = make_model(Path(name) / "small", **SMALL, **on)
        checked = checking.check(small, given.check, given.seed)
        model = make_model(Path(name) / "model", **shape, dtype="bfloat16", **on)
        rows = speed.measure(
            model, given.sequences, given.prompt, given.output, given.repetitions, given.seed
        )
    return {
        "rows": rows,
        "checked": checked,
        "about": {
            "model": shape,
            "prompt_tokens": given.prompt,
            "output_tokens": given.output,
            "repetitions": given.repetitions,
            "seed": given.seed,
            "machine": machine.describe(("torch", "transformers")),
        },
    }


def lines(report: Report) -> list[list[str]]:
    """Of each system and number of sequences."""
    return [
        [
            row["system"],
            f"{row['sequences']}",
            f"{row['first_s']:.3f}",
            f"{row['step_ms']:.2f}",
            f"{row['tokens_per_s']:,.0f}",
        ]
        for row in report["rows"]
    ]


def told(report: Report) -> str:
    """What was checked, and on what it ran."""
    checked, on = report["checked"], report["about"]["machine"]
    packages = ", ".join(f"{name} {version}" for name, version in on["packages"].items())
    return (
        f"In float32, {checked['equal']} of {checked['prompts']} answers have the tokens of plain "
        f"transformers. {on.get('accelerator', on['cpu'])}, {packages}."
    )


def show(report: Report, console: Console) -> None:
    """The table on the terminal."""
    console.print(pages.terminal("Decoding", HEAD, lines(report), left=1))
    console.print(told(report), highlight=False)


def section(report: Report) -> str:
    """What README.md says of the kept report."""
    return f"{pages.table(HEAD, lines(report))}\n\n{pages.prose(told(report))}"


def main(argv: Sequence[str] | None = None) -> None:
    given = _parser().parse_args(argv)
    if given.report:
        report: Report = json.loads(given.report.read_text(encoding="utf-8"))
    else:
        report = measure(given)
    if given.out:
        command.save(report, given.out)
    if given.docs:
        pages.write("decoding", section(report), PAGE)
    if given.json:
        print(json.dumps({"rows": report["rows"], "checked": report["checked"]}, indent=1))
    else:
        show(report, Console())


def _numbers(text: str) -> list[int]:
    return [command._positive(one) for one in text.split(",")]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.decoding",
        description="Decodes with the engine `transformers` and with plain transformers, on a GPU "
        "if there is one, and compares tokens and times.",
    )
    parser.add_argument("--small", action="store_true", help="a model for a CPU")
    parser.add_argument("--sequences", type=_numbers, default=[1, 8, 64], metavar="A,B")
    parser.add_argument("--prompt", type=command._positive, default=256, metavar="TOKENS")
    parser.add_argument("--output", type=command._positive, default=128, metavar="TOKENS")
    parser.add_argument("--repetitions", type=command._positive, default=2, metavar="N")
    parser.add_argument("--check", type=command._positive, default=60, metavar="PROMPTS")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="rows and what was checked")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="report.json goes there")
    parser.add_argument("--report", type=Path, metavar="FILE", help="measure nothing, read this")
    parser.add_argument("--docs", action="store_true", help="write the table of README.md")
    return parser


if __name__ == "__main__":
    main()
