"""The ten questions of SemBench's movie scenario, in SQL and in the relation API.

Both forms say the same, and both are as one would write them: a LIMIT is a LIMIT, a condition
without a call stands beside the one with it, and Q7 asks for the sentiment of each review and joins
by it. `PAIRS` is Q7 as the benchmark's own SQL has it, a call for each pair.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from teola import tables
from teola.tables import Expression, Relation

TABLE: Final = "reviews"
TAKEN: Final = "taken_3"
ANT_MAN: Final = "ant_man_and_the_wasp_quantumania"
FEW, MORE = 5, 10
"""Rows that Q1 and Q2 want, and pairs that Q5 and Q6 want."""

POSITIVE, NEGATIVE = "POSITIVE", "NEGATIVE"
YES, NO = "Yes", "No"
SENTIMENT: Final = "Is this movie review clearly positive (POSITIVE) or not (NEGATIVE)?"
SAME: Final = (
    "Do these two movie reviews express the same sentiment, both positive or both negative?"
)
OPPOSITE: Final = (
    "Do these two movie reviews express opposite sentiments, one positive and one negative?"
)
SCORE: Final = (
    "Score from 1 to 5 how much the reviewer liked the movie. "
    "5: very positive, strong positive sentiment, high satisfaction. "
    "4: positive, noticeably positive sentiment, general satisfaction. "
    "3: neutral, no clear positive or negative sentiment, or factual without emotion. "
    "2: negative, noticeably negative sentiment, some dissatisfaction without strong anger. "
    "1: very negative, strong negative sentiment, high dissatisfaction, frustration or anger. "
    "Answer with the number."
)
NUMBER: Final = r"[0-9]+(\.[0-9]+)?"

Read = Callable[[], Relation]
"""Reads the table of reviews; twice for a join with itself."""


@dataclass(frozen=True)
class Question:
    """sql: of the table `reviews`. relation: the same, made of relations. wanted: rows that are
    enough (None: all). instruction: what the benchmark asks of every row, or of every pair. movie:
    whose rows these are (None: of all)."""

    name: str
    sql: str
    relation: Callable[[Read], Relation]
    instruction: str
    movie: str | None
    pairs: bool = False
    wanted: int | None = None


# --- calls ----------------------------------------------------------------------------------------


def _sentiment_sql(review: str) -> str:
    return f"LLM('{SENTIMENT}', {review}, choices := ['{POSITIVE}', '{NEGATIVE}'])"


def _score_sql(review: str) -> str:
    return f"LLM('{SCORE}', {review}, pattern := '{NUMBER}', type := 'DOUBLE', max_tokens := 8)"


def _pair_sql(instruction: str) -> str:
    return f"LLM('{instruction}', a.reviewText, b.reviewText, choices := ['{YES}', '{NO}'])"


def _sentiment(t: Relation) -> Expression:
    return tables.llm(SENTIMENT, t.reviewText, choices=[POSITIVE, NEGATIVE])


def _score(t: Relation) -> Expression:
    return tables.llm(SCORE, t.reviewText, pattern=NUMBER, type="DOUBLE", max_tokens=8)


# --- joins ----------------------------------------------------------------------------------------

_OF_TAKEN: Final = f"id = '{TAKEN}'"
_POSITIVE: Final = f"{_sentiment_sql('reviewText')} = '{POSITIVE}'"


def _pairs_sql(instruction: str, limit: str = "") -> str:
    return (
        f"SELECT a.id, a.reviewId, b.reviewId AS reviewId_right FROM {TABLE} a "
        f"JOIN {TABLE} b ON a.id = b.id AND a.reviewId <> b.reviewId "
        f"WHERE a.id = '{ANT_MAN}' AND {_pair_sql(instruction)} = '{YES}'{limit}"
    )


def _paired(a: Relation, b: Relation) -> Relation:
    """Pairs of two reviews of one movie."""
    return a.join(b, on=(a.id == b.id) & (a.reviewId != b.reviewId))


def _pairs(instruction: str, wanted: int | None) -> Callable[[Read], Relation]:
    def made(read: Read) -> Relation:
        a = read()
        pairs = _paired(a.filter(a.id == ANT_MAN), read())
        call = tables.llm(instruction, pairs.reviewText, pairs.reviewText_right, choices=[YES, NO])
        found = pairs.filter(call == YES).select("id", "reviewId", "reviewId_right")
        return found if wanted is None else found.limit(wanted)

    return made


def _by_sentiment(read: Read) -> Relation:
    def side() -> Relation:
        t = read()
        return t.filter(t.id == ANT_MAN).select("id", "reviewId", sentiment=_sentiment(t))

    a, b = side(), side()
    same = (a.id == b.id) & (a.reviewId != b.reviewId)
    pairs = a.join(b, on=same & (a.sentiment != b.sentiment))
    return pairs.select("id", "reviewId", "reviewId_right")


# --- rows -----------------------------------------------------------------------------------------


def _positive(read: Read) -> Relation:
    t = read()
    return t.filter(_sentiment(t) == POSITIVE).select("reviewId").limit(FEW)


def _taken_positive(read: Read) -> Relation:
    t = read()
    found = t.filter(t.id == TAKEN, _sentiment(t) == POSITIVE)
    return found.select("reviewId").limit(FEW)


def _taken_count(read: Read) -> Relation:
    t = read()
    found = t.filter(t.id == TAKEN, _sentiment(t) == POSITIVE)
    return found.group_by().agg(positive_review_cnt=tables.count())


def _taken_ratio(read: Read) -> Relation:
    t = read()
    positive = (_sentiment(t) == POSITIVE).cast("INTEGER")
    return t.filter(t.id == TAKEN).group_by().agg(positivity_ratio=positive.mean())


def _taken_counts(read: Read) -> Relation:
    t = read()
    kept = t.filter(t.id == TAKEN)
    return kept.group_by(_sentiment(t).named("scoreSentiment")).agg(count=tables.count())


def _scores(read: Read) -> Relation:
    t = read()
    return t.filter(t.id == ANT_MAN).select("reviewId", reviewScore=_score(t))


def _ranked(read: Read) -> Relation:
    t = read()
    means = t.group_by(t.id.named("movieId")).agg(movieScore=_score(t).mean())
    return means.order_by(means.movieScore.desc(), "movieId")


_ALL: Final = (
    Question(
        "Q1",
        f"SELECT reviewId FROM {TABLE} WHERE {_POSITIVE} LIMIT {FEW}",
        _positive,
        SENTIMENT,
        None,
        wanted=FEW,
    ),
    Question(
        "Q2",
        f"SELECT reviewId FROM {TABLE} WHERE {_OF_TAKEN} AND {_POSITIVE} LIMIT {FEW}",
        _taken_positive,
        SENTIMENT,
        TAKEN,
        wanted=FEW,
    ),
    Question(
        "Q3",
        f"SELECT count(*) AS positive_review_cnt FROM {TABLE} WHERE {_OF_TAKEN} AND {_POSITIVE}",
        _taken_count,
        SENTIMENT,
        TAKEN,
    ),
    Question(
        "Q4",
        f"SELECT avg(CASE WHEN {_POSITIVE} THEN 1 ELSE 0 END) AS positivity_ratio FROM {TABLE} "
        f"WHERE {_OF_TAKEN}",
        _taken_ratio,
        SENTIMENT,
        TAKEN,
    ),
    Question(
        "Q5",
        _pairs_sql(SAME, f" LIMIT {MORE}"),
        _pairs(SAME, MORE),
        SAME,
        ANT_MAN,
        pairs=True,
        wanted=MORE,
    ),
    Question(
        "Q6",
        _pairs_sql(OPPOSITE, f" LIMIT {MORE}"),
        _pairs(OPPOSITE, MORE),
        OPPOSITE,
        ANT_MAN,
        pairs=True,
        wanted=MORE,
    ),
    Question(
        "Q7",
        f"WITH s AS (SELECT id, reviewId, {_sentiment_sql('reviewText')} AS sentiment "
        f"FROM {TABLE} WHERE id = '{ANT_MAN}') "
        "SELECT a.id, a.reviewId, b.reviewId AS reviewId_right FROM s a JOIN s b "
        "ON a.id = b.id AND a.reviewId <> b.reviewId AND a.sentiment <> b.sentiment",
        _by_sentiment,
        OPPOSITE,
        ANT_MAN,
        pairs=True,
    ),
    Question(
        "Q8",
        f"SELECT {_sentiment_sql('reviewText')} AS scoreSentiment, count(*) AS count "
        f"FROM {TABLE} WHERE {_OF_TAKEN} GROUP BY 1",
        _taken_counts,
        SENTIMENT,
        TAKEN,
    ),
    Question(
        "Q9",
        f"SELECT reviewId, {_score_sql('reviewText')} AS reviewScore FROM {TABLE} "
        f"WHERE id = '{ANT_MAN}'",
        _scores,
        SCORE,
        ANT_MAN,
    ),
    Question(
        "Q10",
        f"SELECT id AS movieId, avg({_score_sql('reviewText')}) AS movieScore FROM {TABLE} "
        "GROUP BY 1 ORDER BY movieScore DESC, movieId",
        _ranked,
        SCORE,
        None,
    ),
)
QUESTIONS: Final[Mapping[str, Question]] = {one.name: one for one in _ALL}
PAIRS: Final = Question(
    "Q7", _pairs_sql(OPPOSITE), _pairs(OPPOSITE, None), OPPOSITE, ANT_MAN, pairs=True
)
