"""The paper's queries, as SQL for Teola, and what the scripted model answers to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from experiments.tables.generated import STATISTICS

CHARACTERS: Final = 4
"""Of a token."""
CONTEXTS: Final = 3
"""For each question of Q5."""
PASSES: Final = 0.5
"""Share of rows for which Q2 and Q3 get the answer that they look for. The paper does not say."""


@dataclass(frozen=True)
class Asked:
    """One call. question: its instruction. fields: in the order in which they are written, the
    paper's worst. labels: what it may answer (none: a text). wanted: how often the first of them
    is the answer (None: each as often). pattern: how the paper's operator finds them."""

    question: str
    fields: tuple[str, ...]
    labels: tuple[str, ...] = ()
    wanted: float | None = None
    pattern: str = ""
    numbers: bool = False

    def sql(self, fields: Sequence[str], *, choices: bool, fixed: bool) -> str:
        """The call. choices: say what it may answer, where that is known; else search for it."""
        options = []
        if self.labels and choices:
            shown = self.labels if self.numbers else [f"'{label}'" for label in self.labels]
            options.append(f"choices := [{', '.join(shown)}]")
        elif self.labels:
            options.append(f"pattern := '{self.pattern}'")
        if self.numbers:
            options.append("type := 'DOUBLE'")
        if fixed:
            options.append("fixed_order := true")
        return f"LLM('{self.question}', {', '.join([*fields, *options])})"


@dataclass(frozen=True)
class Query:
    """A query of a data set. calls: in the order of the text. template: SQL in which `{0}`, `{1}`
    stand for them. rows: of the paper. retrieves: whether it searches for contexts."""

    name: str
    data: str
    calls: tuple[Asked, ...]
    template: str
    rows: int
    retrieves: bool = False

    def sql(self, orders: Sequence[Sequence[str]] | None = None, *, choices: bool = False) -> str:
        """Its text. orders: of each call's fields, kept then. choices: as of `Asked.sql`."""
        fields = orders or [call.fields for call in self.calls]
        return self.template.format(
            *(
                call.sql(order, choices=choices, fixed=orders is not None)
                for call, order in zip(self.calls, fields, strict=True)
            )
        )


def instruction(text: str, tokens: int) -> str:
    """An instruction of so many tokens: the text, and what a system prompt says."""
    more = (
        "You are a data analyst who works on rows of a table, for people who read your answers in"
        " a report and cannot ask you anything more about it. What you write goes into one cell "
        "of a table. Each row has named fields, one in a line. Read all of the fields before you "
        "answer. Do not make up facts that are not in the fields. If the fields do not say "
        "enough, give the answer that is the most likely one. Be brief and answer in English. Do "
        "not repeat the fields, and do not repeat the task. The task is the same for each of the "
        "rows, and no row depends on another one. The order of the fields means nothing. Here is "
        "the task, and then the fields of a row."
    )
    length = tokens * CHARACTERS
    spent = length - len(text) - 1
    if not 0 <= spent <= len(more):
        raise ValueError(f"{text!r} cannot be an instruction of {tokens} tokens")
    return f"{more[-spent:] if spent else ''} {text}"


def _query(data: str, name: str) -> Query:
    movies = data == "movies"
    fields = ("review_content", "movie_info") if movies else ("reviewText", "description")
    cheap = "review_type = 'Fresh'" if movies else "verified"
    item = "title" if movies else "asin"
    long, short = (172, 166) if movies else (141, 112)
    told = Asked(
        instruction(
            "Recommend films to somebody who liked this one, and say why."
            if movies
            else "Say what one should know before one buys this product, and why.",
            long,
        ),
        fields,
    )
    labels = ("Yes", "No") if movies else ("Negative", "Positive", "Neutral")
    kept = Asked(
        instruction(
            "Is this film suitable for kids? Answer Yes or No."
            if movies
            else "Is the review Positive, Negative or Neutral? Answer with one word.",
            long,
        ),
        fields,
        labels,
        PASSES,
        rf"\b({'|'.join(labels)})\b",
    )
    rated = Asked(
        instruction("How satisfied is the writer, from 0 to 5? Answer with the number.", short),
        fields,
        tuple("012345"),
        None,
        r"\b[0-5]\b",
        numbers=True,
    )
    where = f"WHERE {{0}} = '{labels[0]}' AND {cheap}"
    return {
        "Q1": Query("Q1", data, (told,), "SELECT {0} AS said FROM t", 15000),
        "Q2": Query("Q2", data, (kept,), f"SELECT {item} FROM t {where}", 15000),
        "Q3": Query("Q3", data, (kept, told), f"SELECT {{1}} AS said FROM t {where}", 10000),
        "Q4": Query(
            "Q4",
            data,
            (rated,),
            f"SELECT {item}, avg({{0}}) AS satisfied FROM t GROUP BY {item}",
            15000,
        ),
    }[name]


_ANSWERED: Final = Asked(
    "You are given passages of an encyclopedia and a question. Answer the question from the "
    "passages, in a few words and without more. If they do not say it, say so.",
    (f"RETRIEVE(question, 'squad', {CONTEXTS})", "question"),
)
QUERIES: Final = {
    **{
        (name, data): _query(data, name) for name in ("Q1", "Q2", "Q3", "Q4") for data in STATISTICS
    },
    ("Q5", "squad"): Query(
        "Q5", "squad", (_ANSWERED,), "SELECT {0} AS said FROM t", 5000, retrieves=True
    ),
}


def answer_of(asked: Asked, lines: Sequence[str]) -> str:
    """What the model says of a row, in short: by its fields, in whatever order they come."""
    if not asked.labels:
        return "Said."
    digest = blake2b("\n".join(sorted(lines)).encode(), digest_size=8).digest()
    even = int.from_bytes(digest, "big") / 2**64
    if asked.wanted is None:
        return asked.labels[int(even * len(asked.labels))]
    if even < asked.wanted:
        return asked.labels[0]
    rest = asked.labels[1:]
    return rest[int((even - asked.wanted) / (1 - asked.wanted) * len(rest))]
