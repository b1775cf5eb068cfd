"""Asks all systems all questions, one system after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from rich.progress import Progress

from experiments.common.command import Options, Report
from experiments.common.scratch import scratch_runtime
from experiments.retrieval import declining, ours
from experiments.retrieval.declining import Reader
from experiments.retrieval.found import CANDIDATES, Asked, System, reciprocal, row
from experiments.retrieval.others import others
from experiments.retrieval.questions import Question, QuestionSet, find, read
from experiments.retrieval.remembered import DTYPE, ENGINES, remembering
from teola import Runtime
from teola.runtime import machine
from teola_engines.embedding.model import SharedModel
from teola_engines.llm.quoting import LEAST_MAXSIM
from teola_engines.llm.sentences import sentences

QUICK: Final = 12
"""With --quick every so many questions are one."""
WEIGHTS: Final = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
"""Lexical weights of the reranker, from which one is chosen."""
AT_ONCE: Final = 64
"""Questions that a system is asked side by side."""
PACKAGES: Final = ("teola", "torch", "llama-index-core", "bm25s")


def measure(options: Options, progress: Progress) -> Report:
    """Rows for the half of the articles that is kept back and for all, and what was chosen on the
    other half. Raises InputError."""
    path = find(options.given.file, options.data)
    given = read(path, QUICK if options.quick else 1)
    with remembering() as model, scratch_runtime(ENGINES) as runtime:
        task = progress.add_task("computing vectors", total=None)
        compute(model, given)
        ours.stored(given.passages, runtime)
        progress.remove_task(task)

        weight = chosen_weight(runtime, given)
        apps = ours.applications(runtime)
        systems = [
            *ours.searches(runtime),
            ours.reranked_hybrid(runtime, weight),
            *apps,
            *others(given.passages, model),
        ]
        found = {
            system.name: asked(system, given.questions)
            for system in progress.track(systems, description="asking")
        }
        thresholds = declined(model, given, {one.name: found[one.name] for one in apps}, progress)
    return {
        "rows": rows(given, found),
        "chosen": {"lexical_weight": weight, **thresholds},
        "about": {
            "quick": options.quick,
            "file": path.name,
            "articles": len({one.article for one in given.passages}),
            "chosen_on": len(given.chosen_on),
            "passages": len(given.passages),
            "questions": len(given.questions),
            "dtype": DTYPE,
            "machine": machine.describe(PACKAGES),
        },
    }


def compute(model: SharedModel, given: QuestionSet) -> None:
    """The vectors that all systems share, and those of tokens, so that no system waits for what
    another one leaves behind."""
    passages = [one.text for one in given.passages]
    quotable = [sentence.text for text in passages for sentence in sentences(text)]
    texts = [*passages, *quotable, *(one.text for one in given.questions)]
    model.embed(texts)
    model.embed_tokens(texts)


def asked(system: System, questions: Sequence[Question]) -> list[Asked]:
    """The questions, put to the system in batches: also without their articles, if it reads."""
    answered = []
    for at in range(0, len(questions), AT_ONCE):
        some = questions[at : at + AT_ONCE]
        began = time.perf_counter()
        found = system.ask(some)
        seconds = (time.perf_counter() - began) / len(some)
        alone = system.ask(some, alone=True) if system.reads else [None] * len(some)
        each = zip(some, found, alone, strict=True)
        answered += [Asked(question, one, seconds, other) for question, one, other in each]
    return answered


def chosen_weight(runtime: Runtime, given: QuestionSet) -> float:
    """The lexical weight with the best MRR on questions about the articles for choosing, the least
    of several."""
    questions = [one for one in given.questions if not given.is_kept_back(one)]
    scored = asked(ours.reranked_hybrid(runtime, 0.0, CANDIDATES), questions)

    def mrr(weight: float) -> float:
        return reciprocal([replace(one, found=ours.reweighed(one.found, weight)) for one in scored])

    return max(WEIGHTS, key=mrr)


def declined(
    model: SharedModel, given: QuestionSet, asked: dict[str, list[Asked]], progress: Progress
) -> dict[str, Any]:
    """The threshold that would be chosen, what every threshold does, and how many answers the
    reader there gives unlike an application."""
    task = progress.add_task("declining", total=None)
    reader = Reader(model)
    curve = declining.curve(reader, asked, given)
    unlike = {app: declining.unlike(reader, app, some, LEAST_MAXSIM) for app, some in asked.items()}
    progress.remove_task(task)
    return {
        "least_maxsim": declining.chosen(curve),
        "shipped_maxsim": LEAST_MAXSIM,
        "curve": curve,
        "unlike_the_apps": unlike,
    }


def rows(given: QuestionSet, found: dict[str, list[Asked]]) -> list[dict[str, Any]]:
    """Those of the half that is kept back, then those of all."""
    sets: Iterable[tuple[str, Callable[[Question], bool]]] = (
        ("kept_back", given.is_kept_back),
        ("all", lambda question: True),
    )
    return [
        row(name, system, [one for one in some if belongs(one.question)])
        for name, belongs in sets
        for system, some in found.items()
    ]
