"""Which tables and values a question is about, without a model.

    question ─▶ words ─▶ tables whose names, columns, comments and synonyms have them ─╮
             ╰▶ phrases ─▶ values of the database that look like them ─▶ their tables ─┴▶ joined
                                     (else: that mean what they mean)

A schema that fits is given whole, so that its prompt is the same for every question. Of a larger
one at most twelve tables are given: the best ones, and those that join them.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log
from typing import Final, Protocol

from teola.sql.dialects.dialect import SqlDialect, names
from teola.sql.hints import NO_HINTS, Example, SqlHints
from teola.sql.schema_text import quoted_text, table_text, tokens_about
from teola.sql.sql_tables import SqlTable
from teola.sql.written_names import column_name_text, name_text, table_name_text

WHOLE_TOKENS: Final = 4_000
"""A schema of up to so many tokens is given whole."""
MOST_TABLES: Final = 12
MOST_OFFERED: Final = 60
"""Tables of a large schema that a model may choose from."""
HINT_TOKENS: Final = 1_000
"""Hints of up to so many tokens are all given; of more, those that share words with the
question."""
MOST_PHRASES: Final = 8
"""Texts of a question that values are looked up for."""
MOST_VALUES: Final = 10
MEANT_VALUES: Final = 2
"""Values told for a phrase that looks like none, where they are found by meaning."""
LONGEST_QUESTION: Final = 4_000
"""Characters of a question that are looked at."""
ALIKE: Final = 0.55
"""Likeness from which on a value is given to the model."""
NAME_WEIGHT, COLUMN_WEIGHT, ABOUT_WEIGHT, VALUE_WEIGHT = 3.0, 1.5, 0.5, 4.0
_WORD: Final = re.compile(r"[^\W\d_]+|\d+", re.UNICODE)
_CAMEL: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
_QUOTED: Final = re.compile(
    r"\"([^\"]{2,80})\"|“([^”]{2,80})”|(?<!\w)['‘]((?:[^'’]|['’](?=\w)){2,80})['’](?!\w)"
)
"""Texts in quotes of one kind. The apostrophe of a word, as in What's, opens and closes nothing."""
_CAPITALS: Final = re.compile(r"\b[A-ZÀ-Þ][\w&.-]*(?:\s+(?:of\s+|de\s+)?[A-ZÀ-Þ][\w&.-]*)*")
STOP: Final = names(
    """
    a about after all also am an and any are as at average be been before between both by can
    count did do does each every find first for from get give had has have highest how i in into
    is it its last least less list lowest many maximum me minimum more most much name names no
    not number of on one only or order other our over per please return same shall should show
    since so some sum tell than that the their them then there these they this those to top
    total under up was we were what when where which while who whom whose why will with within
    without would year you your
    """
)
"""Words that say nothing of what a question is about."""


class FindsValues(Protocol):
    """An index of values; see ValueIndex."""

    def __call__(self, text: str, limit: int, /) -> Sequence[tuple[str, str, str, float]]: ...


class FindsMeanings(Protocol):
    """For each text, values that it may mean, the nearest first; see Meanings."""

    def __call__(
        self, texts: Sequence[str], limit: int, /
    ) -> Sequence[Sequence[tuple[str, str, str, float]]]: ...


@dataclass(frozen=True, slots=True)
class LinkedValue:
    """A text of the question, and a value of the database that it may mean."""

    text: str
    table: str
    column: str
    value: str


@dataclass(frozen=True, slots=True)
class Linked:
    """What a question is about. schema: the tables' text. whole: whether these are all tables.
    offered: of a large schema, lines that name its most likely tables, the best first."""

    tables: tuple[str, ...]
    schema: str
    whole: bool
    offered: tuple[str, ...]
    values: tuple[LinkedValue, ...]
    examples: tuple[Example, ...]


class Linker:
    """Links questions to one schema; make one for a schema and keep it."""

    def __init__(
        self,
        tables: Sequence[SqlTable],
        hints: SqlHints = NO_HINTS,
        dialect: SqlDialect | None = None,
    ) -> None:
        self.tables = [table for table in tables if table.columns]
        self.hints, self.dialect = hints, dialect
        self._at = {table.name: i for i, table in enumerate(self.tables)}
        self._plain = {_plain(table.name): i for i, table in enumerate(self.tables)}
        self._texts: dict[int, str] = {}

    @cached_property
    def _whole(self) -> str | None:
        """The text of all tables; None: it is too long."""
        total, texts = 0, []
        for i in range(len(self.tables)):
            total += tokens_about(text := self._text(i))
            if total > WHOLE_TOKENS:
                return None
            texts.append(text)
        return "\n".join(texts)

    def _text(self, i: int) -> str:
        if i not in self._texts:
            self._texts[i] = table_text(self.tables[i], self.hints.abouts, self.dialect)
        return self._texts[i]

    @cached_property
    def _weights(self) -> Mapping[str, Mapping[int, float]]:
        """Word -> table -> how much it says of the table; words of few tables say more."""
        weights: dict[str, dict[int, float]] = defaultdict(dict)

        def note(i: int, text: str, weight: float) -> None:
            for word in set(words(text)):
                weights[word][i] = max(weights[word].get(i, 0.0), weight)

        for i, table in enumerate(self.tables):
            note(i, table.name, NAME_WEIGHT)
            note(i, f"{table.comment} {self.hints.abouts.get(table.name, '')}", ABOUT_WEIGHT)
            for column in table.columns:
                note(i, column.name, COLUMN_WEIGHT)
                about = self.hints.abouts.get(f"{table.name}.{column.name}", "")
                if about or column.comment:
                    note(i, f"{column.comment} {about}", ABOUT_WEIGHT)
        for meant, others in self.hints.synonyms.items():
            whose = meant if meant in self._at else meant.rpartition(".")[0]
            if whose in self._at:
                for other in others:
                    note(self._at[whose], other, NAME_WEIGHT)
        for metric in self.hints.metrics:
            if metric.table in self._at:
                note(self._at[metric.table], f"{metric.name} {metric.about}", COLUMN_WEIGHT)
        count = max(1, len(self.tables))
        return {
            word: {i: weight * log(1 + count / len(of)) for i, weight in of.items()}
            for word, of in weights.items()
        }

    @cached_property
    def _joins(self) -> Mapping[int, frozenset[int]]:
        """Table -> tables that it is joined with, by its keys or by hints."""
        joined: dict[int, set[int]] = defaultdict(set)

        def join(a: str, b: str) -> None:
            left, right = self._at.get(a), self._at.get(b)
            if left is not None and right is not None:
                joined[left].add(right)
                joined[right].add(left)

        for table in self.tables:
            for column in table.columns:
                if column.references:
                    join(table.name, column.references.rpartition(".")[0] or column.references)
        for hint in self.hints.joins:
            left, _, right = hint.partition(" = ")
            join(left.rpartition(".")[0], right.rpartition(".")[0])
        return {i: frozenset(others) for i, others in joined.items()}

    def link(
        self,
        question: str,
        find: FindsValues | None = None,
        chosen: Iterable[str] = (),
        more: Iterable[Example] = (),
        *,
        meant: FindsMeanings | None = None,
    ) -> Linked:
        """The tables, values and examples that `question` is about. find: looks up values. chosen:
        tables that a model has named. more: examples besides those of the hints. meant: looks up
        values for phrases that look like none."""
        shortened = question[:LONGEST_QUESTION]
        values = tuple(self._values(shortened, find, meant)) if find else ()
        examples = alike(shortened, (*self.hints.examples, *more))
        if self._whole is not None:
            text = self._with_hints(self._whole, shortened)
            everything = tuple(table.name for table in self.tables)
            return Linked(everything, text, True, (), values, examples)
        ranked = self._ranked(shortened, values, examples)
        named = list(dict.fromkeys(i for name in chosen if (i := self._named(name)) is not None))
        linked = self._fitting(named or ranked)
        text = "\n".join(self._text(i) for i in linked)
        offered = tuple(self._offered(i) for i in self._all(ranked)[:MOST_OFFERED])
        names = tuple(self.tables[i].name for i in linked)
        return Linked(names, self._with_hints(text, shortened), False, offered, values, examples)

    def _named(self, name: str) -> int | None:
        """The table that a model means, which it may have written in quotes or in small letters."""
        return self._at.get(name, self._plain.get(_plain(name)))

    def _ranked(
        self, question: str, values: Sequence[LinkedValue], examples: Sequence[Example]
    ) -> list[int]:
        """Tables that the question has something in common with, the best first."""
        scores: dict[int, float] = defaultdict(float)
        for word in set(words(question)) - STOP:
            for i, weight in self._weights.get(word, {}).items():
                scores[i] += weight
        for value in values:
            if value.table in self._at:
                scores[self._at[value.table]] += VALUE_WEIGHT
        for example in examples:
            used = set(words(example.sql))
            for i in list(scores):
                if used.issuperset(words(self.tables[i].name)):
                    scores[i] += ABOUT_WEIGHT
        return sorted(scores, key=lambda i: (-scores[i], i))

    def _all(self, ranked: Sequence[int]) -> list[int]:
        others = (i for i in range(len(self.tables)) if i not in set(ranked))
        return [*ranked, *others] if len(ranked) < MOST_OFFERED else list(ranked)

    def _fitting(self, ranked: Sequence[int]) -> list[int]:
        """As many of these tables as fit, each with the tables that join it to those before."""
        linked: dict[int, None] = {}
        total = 0
        for i in ranked or range(min(len(self.tables), MOST_TABLES)):
            if len(linked) >= MOST_TABLES:
                break
            if i in linked:
                continue
            added = [n for n in self._way(i, linked) if n not in linked]
            if len(linked) + len(added) > MOST_TABLES:
                added = [i]
            tokens = sum(tokens_about(self._text(n)) for n in added)
            if linked and total + tokens > WHOLE_TOKENS:
                continue
            total += tokens
            linked |= dict.fromkeys(added)
        return sorted(linked)

    def _way(self, i: int, linked: Mapping[int, None]) -> list[int]:
        """The table, and tables between it and the nearest of those linked, two at most."""
        if not linked or self._joins.get(i, frozenset()) & linked.keys():
            return [i]
        seen, open_ = {i: -1}, deque([(i, 0)])
        while open_:
            at, far = open_.popleft()
            if far > 2:
                break
            for other in sorted(self._joins.get(at, ())):
                if other in linked:
                    way = [at]
                    while seen[way[-1]] >= 0:
                        way.append(seen[way[-1]])
                    return way
                if other not in seen:
                    seen[other] = at
                    open_.append((other, far + 1))
        return [i]

    def _offered(self, i: int) -> str:
        table = self.tables[i]
        columns = ", ".join(name_text(column.name, self.dialect) for column in table.columns[:12])
        more = ", ..." if len(table.columns) > 12 else ""
        return f"{table_name_text(table.name, self.dialect)}: {columns}{more}"

    def _with_hints(self, text: str, question: str) -> str:
        """The tables' text, and the hints: the same for all questions, unless it is long."""
        hints, lines = self.hints, [text]
        lines += [
            "join " + " = ".join(column_name_text(side, self.dialect) for side in join.split(" = "))
            for join in hints.joins
        ]
        hint_lines = [
            f"metric {name_text(m.name)}: {' '.join(m.sql.split())}"
            + (f" of {table_name_text(m.table, self.dialect)}" if m.table else "")
            + (f" {quoted_text(m.about)}" if m.about else "")
            for m in hints.metrics
        ]
        hint_lines += [
            f"{self._meant_text(meant)} is also called {', '.join(map(quoted_text, others))}"
            for meant, others in hints.synonyms.items()
        ]
        if tokens_about("\n".join(hint_lines)) > HINT_TOKENS:
            question_words = set(words(question)) - STOP
            hint_lines = [line for line in hint_lines if question_words & set(words(line))]
        return "\n".join([*lines, *hint_lines])

    def _meant_text(self, meant: str) -> str:
        """What a synonym stands for: a table, a column of one, or a metric."""
        write = table_name_text if meant in self._at else column_name_text
        return write(meant, self.dialect)

    def _values(
        self, question: str, find: FindsValues, meant: FindsMeanings | None
    ) -> list[LinkedValue]:
        seen: dict[tuple[str, str, str], LinkedValue] = {}
        lower, vague = question.casefold(), list[str]()
        for phrase in phrases(question, self._weights.keys()):
            looks_alike = False
            for table, column, value, score in find(phrase, 3):
                within = len(value) > 2 and value.casefold() in lower
                if score >= ALIKE or within:
                    looks_alike = True
                    found = LinkedValue(phrase, table, column, value)
                    seen.setdefault((table, column, value), found)
            if not looks_alike:
                vague.append(phrase)
        if meant is not None:
            vague = list(dict.fromkeys([*runs(question, self._weights.keys()), *vague]))
            for phrase, near in zip(vague, meant(vague, MEANT_VALUES), strict=True):
                for table, column, value, _ in near:
                    found = LinkedValue(phrase, table, column, value)
                    seen.setdefault((table, column, value), found)
        return list(seen.values())[:MOST_VALUES]


def _plain(name: str) -> str:
    return name.replace('"', "").casefold()


def words(text: str) -> list[str]:
    """Words of a text or a name, in the singular and in lower case."""
    return [_singular(word.casefold()) for word in _WORD.findall(_CAMEL.sub(" ", text))]


def _singular(word: str) -> str:
    if len(word) > 4 and word.endswith("ies"):
        return f"{word[:-3]}y"
    if len(word) > 4 and word.endswith(("sses", "shes", "ches", "xes")):
        return word[:-2]
    return word[:-1] if len(word) > 3 and word.endswith("s") and word[-2] not in "su" else word


def phrases(question: str, schema_words: Iterable[str] = ()) -> list[str]:
    """Texts of a question that may be values: in quotes, names, and words that no table has."""
    schema = set(schema_words)
    texts = dict.fromkeys(str(found[found.lastindex or 0]) for found in _QUOTED.finditer(question))
    for match in _CAPITALS.finditer(question):
        own = match[0].strip(" .-")
        if not set(words(own)) <= STOP | (schema if match.start() == 0 else set()):
            texts[own] = None
    for word in _WORD.findall(question):
        if len(word) > 2 and not word.isdigit() and _singular(word.casefold()) not in schema | STOP:
            texts[word] = None
    return list(texts)[:MOST_PHRASES]


def runs(asked: str, known: Iterable[str] = ()) -> list[str]:
    """Words side by side that no table has, as one text each: 'the big apple' means another thing
    than its words."""
    schema, found, before = set(known) | STOP, list[str](), -1
    for match in _WORD.finditer(asked):
        if match[0].isdigit() or _singular(match[0].casefold()) in schema:
            continue
        if before >= 0 and asked[before : match.start()] == " ":
            found[-1] += f" {match[0]}"
        else:
            found.append(match[0])
        before = match.end()
    return [run for run in found if " " in run][:MOST_PHRASES]


MOST_EXAMPLES: Final = 3
LEAST_ALIKE: Final = 0.15


def alike(question: str, examples: Iterable[Example]) -> tuple[Example, ...]:
    """Examples whose questions are like this one, the most alike first, three at most."""
    own_grams = _grams(question)
    scored: list[tuple[float, int, Example]] = []
    for at, example in enumerate(examples):
        own = _grams(example.question)
        score = len(own_grams & own) / max(1, len(own_grams | own))
        if score >= LEAST_ALIKE:
            scored.append((-score, at, example))
    best = sorted(scored, key=lambda entry: entry[:2])[:MOST_EXAMPLES]
    return tuple({example.sql: example for _, _, example in best}.values())


def _grams(text: str) -> frozenset[str]:
    line = f" {' '.join(text.casefold().split())} "
    return frozenset(line[at : at + 3] for at in range(len(line) - 2))
