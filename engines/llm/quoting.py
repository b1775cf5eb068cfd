"""Which sentences of a context answer a question best, and whether any of them answers it at all.

Similarity of meaning and shared words put sentences in order. Whether the best ones are near enough
is said by MaxSim, which asks of each word of the question whether the sentence has its like: it
tells text about something else apart better than the similarity of whole sentences.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..embedding.encoder import EncodedText
from ..rerank.maxsim import maxsim
from .reformulate import STOP_WORDS
from .sentences import Sentence

Embed = Callable[[Sequence[str]], NDArray[np.float32]]
EmbedTokens = Callable[[Sequence[str]], Sequence[EncodedText]]

MOST_CANDIDATES = 256
"""Sentences that are embedded for one answer: those that share most words with the question."""

_WEIGHT_OF_WORDS = 0.35
_CLOSE_TO_BEST = 0.82
_SAME = 0.92
LEAST_MAXSIM = 0.49
"""MaxSim that one of the quotes must reach, by MiniLM.

Chosen on half of XQuAD's articles (1190 questions about 48 articles) as the highest with which the
applications naive-rag and advanced-rag answer 94 % of the questions. Of those about the other half
they answer 97 %, and decline 94 and 93 % where the article is taken away.
`python -m experiments.retrieval` finds it again.
"""
_STEM = re.compile(r"(?:ies|ing|ed|es|s|ly)$")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A sentence, its place in the context, and how much of the question's words it has (0..1)."""

    place: int
    sentence: Sentence
    overlap: float


def choose(
    question: str,
    context: Sequence[Sentence],
    embed: Embed,
    embed_tokens: EmbedTokens,
    *,
    most: int,
    least: float,
) -> list[Sentence]:
    """What `best` finds; nothing if it is not as near to the question as `least`.

    least: -1 quotes in any case.
    """
    found, near = best(question, context, embed, embed_tokens, most=most)
    return found if near >= least else []


def best(
    question: str,
    context: Sequence[Sentence],
    embed: Embed,
    embed_tokens: EmbedTokens,
    *,
    most: int,
) -> tuple[list[Sentence], float]:
    """The best 1 to `most` sentences, best first, and the greatest MaxSim of one of them with the
    question; none and -1 without a question or a context.

    All texts go to `embed` in one call and in sorted order, so that the same question and context
    give the same answer whatever else is going on.
    """
    candidates = _candidates(question, context)
    if not candidates or not question.strip():
        return [], -1.0
    texts = [_in_context(candidate.sentence) for candidate in candidates]
    distinct = sorted({question, *texts})
    vectors = dict(zip(distinct, embed(distinct), strict=True))
    matrix = np.stack([vectors[text] for text in texts])
    similar = matrix @ vectors[question]
    overlaps = np.array([candidate.overlap for candidate in candidates], dtype=np.float32)
    scores = similar + _WEIGHT_OF_WORDS * overlaps
    order = sorted(range(len(candidates)), key=lambda i: (-round(float(scores[i]), 6), i))
    kept: list[int] = []
    for i in order:
        # The best is always one: a factor of a score below zero would leave nothing.
        if len(kept) == most or (kept and scores[i] < _CLOSE_TO_BEST * scores[order[0]]):
            break
        if all(matrix[i] @ matrix[j] < _SAME for j in kept):
            kept.append(i)
    asked, *quoted = embed_tokens([question, *(texts[i] for i in kept)])
    near = max(maxsim(asked, tokens) for tokens in quoted)
    return [candidates[i].sentence for i in kept], near


def _candidates(question: str, context: Sequence[Sentence]) -> list[Candidate]:
    """Distinct sentences with their word overlap; the most promising ones if there are many."""
    distinct = _distinct(context)
    stems = [_stems(_in_context(sentence)) for sentence in distinct]
    spread = Counter(stem for each in stems for stem in each)
    weights = {
        stem: math.log(1 + len(distinct) / (1 + spread[stem])) for stem in sorted(_stems(question))
    }
    total = sum(weights.values()) or 1.0
    found = [
        Candidate(place, sentence, sum(weights[stem] for stem in weights if stem in own) / total)
        for place, (sentence, own) in enumerate(zip(distinct, stems, strict=True))
    ]
    found.sort(key=lambda candidate: (-candidate.overlap, candidate.place))
    return sorted(found[:MOST_CANDIDATES], key=lambda candidate: candidate.place)


def _distinct(context: Sequence[Sentence]) -> list[Sentence]:
    """Without repetitions, and without the halves of sentences that overlapping chunks leave."""
    unique = list({_normal(sentence.text): sentence for sentence in reversed(context)}.items())
    unique.reverse()
    if len(unique) > 4 * MOST_CANDIDATES:
        return [sentence for _, sentence in unique]
    everything = "\n".join(f" {normal} " for normal, _ in unique)
    return [sentence for normal, sentence in unique if everything.count(f" {normal} ") == 1]


def _in_context(sentence: Sentence) -> str:
    return f"{sentence.heading}: {sentence.text}" if sentence.heading else sentence.text


def _normal(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower())) or text


def _stems(text: str) -> set[str]:
    words = re.findall(r"\w+", text.lower())
    return {_STEM.sub("", w) if len(w) > 4 else w for w in words if w not in STOP_WORDS}
