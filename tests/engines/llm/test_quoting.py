"""Which sentences are quoted, beside a slow choice that weighs each pair by itself."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from random import Random

import numpy as np
import pytest

from teola_engines.embedding.encoder import EncodedText
from teola_engines.llm import quoting
from teola_engines.llm.quoting import best, choose
from teola_engines.llm.reformulate import STOP_WORDS
from teola_engines.llm.sentences import Sentence

WORDS = ["harbour", "lamps", "lamp", "lighting", "boats", "market", "boat", "early", "oil", "tides"]


class Model:
    """Embeds a text by its words, each with a direction of its own; the same text always alike."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def vector(self, text: str) -> np.ndarray:
        total = np.zeros(8, dtype=np.float32)
        for word in text.lower().replace(":", "").split():
            draw = np.random.default_rng(sum(map(ord, word)) * 31 + len(word))
            total += draw.normal(size=8).astype(np.float32)
        return total / (np.linalg.norm(total) or 1)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        self.asked.append([*texts])
        return np.stack([self.vector(text) for text in texts])

    def tokens(self, texts: Sequence[str]) -> list[EncodedText]:
        self.asked.append([*texts])
        rows = (np.stack([self.vector(word) for word in text.split()]) for text in texts)
        return [EncodedText(np.zeros(len(row), dtype=np.int64), row) for row in rows]


def stems(text: str) -> set[str]:
    words = [word for word in re.findall(r"\w+", text.lower()) if word not in STOP_WORDS]
    return {re.sub("(ies|ing|ed|es|s|ly)$", "", w) if len(w) > 4 else w for w in words}


def whole(sentence: Sentence) -> str:
    return f"{sentence.heading}: {sentence.text}" if sentence.heading else sentence.text


def slowly(question: str, context: Sequence[Sentence], model: Model, most: int) -> list[Sentence]:
    """Of texts that are alike but for their marks the first is taken, and none whose words follow
    each other in another one."""
    plain = [" ".join(re.findall(r"\w+", one.text.lower())) for one in context]
    firsts = [k for k, text in enumerate(plain) if plain.index(text) == k]
    kept = [k for k in firsts if sum(f" {plain[k]} " in f" {plain[j]} " for j in firsts) == 1]
    with_word = {
        stem: sum(stem in stems(whole(context[k])) for k in kept) for stem in stems(question)
    }
    weight = {s: math.log(1 + len(kept) / (1 + count)) for s, count in with_word.items()}
    asked, scores = model.vector(question), {}
    for k in kept:
        own = stems(whole(context[k]))
        overlap = sum(w for s, w in weight.items() if s in own) / (sum(weight.values()) or 1.0)
        scores[k] = float(asked @ model.vector(whole(context[k]))) + 0.35 * overlap
    order = sorted(kept, key=lambda k: (-round(scores[k], 6), k))
    chosen: list[int] = []
    for k in order:
        if chosen and scores[k] < 0.82 * scores[order[0]]:
            break
        alike = [model.vector(whole(context[k])) @ model.vector(whole(context[j])) for j in chosen]
        if len(chosen) < most and all(each < 0.92 for each in alike):
            chosen.append(k)
    return [context[k] for k in chosen]


@pytest.mark.parametrize("seed", range(25))
def test_the_best_are_those_of_a_slow_choice(seed: int) -> None:
    draw, model = Random(seed), Model()

    def text(count: int) -> str:
        return " ".join(draw.choice([*WORDS, "the", "is"]) for _ in range(count))

    context = [
        Sentence(text(draw.randint(2, 6)) + draw.choice([".", "!", ""]), draw.choice(["", "Boats"]))
        for _ in range(draw.randint(1, 30))
    ]
    context += [Sentence(one.text.upper()) for one in context[:2]]  # again, by another's hand
    context.append(Sentence(context[0].text.rpartition(" ")[0] or "oil", "Half"))
    question, most = text(4), draw.choice([1, 2, 3, 5])
    found, near = best(question, context, model.embed, model.tokens, most=most)
    assert found == slowly(question, context, model, most)
    embedded, quoted = model.asked
    assert embedded == sorted({*embedded}), "in one call, in order, each once"
    assert quoted == [question, *map(whole, found)]
    asked, *rows = model.tokens(quoted)
    sims = [float(np.mean(np.max(asked.vectors @ row.vectors.T, axis=1))) for row in rows]
    assert near == pytest.approx(max(sims), abs=1e-5)
    for least, all_of_it in ((near, True), (np.nextafter(np.float32(near), np.float32(2)), False)):
        chosen = choose(question, context, model.embed, model.tokens, most=most, least=float(least))
        assert chosen == (found if all_of_it else [])


@pytest.mark.parametrize(("question", "texts"), [("", ["a b c"]), (" \n", ["a b c"]), ("why?", [])])
def test_without_a_question_or_a_context_nothing_is_near(question: str, texts: list[str]) -> None:
    model = Model()
    context = [Sentence(text) for text in texts]
    assert best(question, context, model.embed, model.tokens, most=3) == ([], -1.0)
    assert model.asked == []


def test_of_many_those_that_share_most_words_are_weighed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exactly so many, in the order of the context; and of too many, halves are not looked for."""
    monkeypatch.setattr(quoting, "MOST_CANDIDATES", 2)
    model = Model()
    context = [Sentence(text) for text in ("oil one", "tides two", "oil tides", "boat three")]
    best("oil and tides", context, model.embed, model.tokens, most=9)
    assert model.asked[0] == ["oil and tides", "oil one", "oil tides"]
    eight = [Sentence(f"{word} {k}") for k, word in enumerate(WORDS[:7])]
    for count, halves in ((8, 0), (9, 1)):
        more = [*eight, *[Sentence("extra 9")] * (count - 8), Sentence("extra")]
        more = [*more[:-1], Sentence("harbour")]
        distinct = quoting._distinct(more)
        assert (Sentence("harbour") in distinct) is bool(halves), count
