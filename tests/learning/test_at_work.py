"""How much engines slow each other down is told apart from what their work takes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from teola.learning import AtWork, Learner, Lessons
from teola.learning.at_work import Nobody
from teola.profile import paper
from tests.learning.loaded import Loaded, alike

TRUE = paper("13b")
CROWDING = 0.3
SHARED = ("llm", "embedding", "rerank", "vectorstore")


def test_others_are_those_that_work_meanwhile() -> None:
    crowd = AtWork()
    crowd.came(10.0)
    mine = crowd.seconds(10.0)
    crowd.came(12.0)
    crowd.came(12.0)
    crowd.left(13.0)
    assert crowd.others(mine, 4.0, 14.0) == pytest.approx((2 * 1 + 1) / 4)
    crowd.left(14.0)
    crowd.left(14.0)
    assert crowd.seconds(20.0) == crowd.seconds(14.0)


def test_nobody_is_counted_where_nobody_shares() -> None:
    nobody = Nobody()
    nobody.came(1.0)
    assert nobody.others(0.0, 1.0, 2.0) == 0.0


@pytest.mark.parametrize(
    ("app", "engines"), [("naive_rag", ("embedding", "llm")), ("advanced_rag", ("rerank", "llm"))]
)
def test_what_is_shared_is_learned_apart_from_the_work_itself(
    app: str, engines: tuple[str, str]
) -> None:
    profile = TRUE
    for name in SHARED:
        profile = alike(profile, name, crowding=CROWDING)
    learner = Learner(AtWork())
    Loaded(app, profile, learner=learner).run(250, rate=0.1)
    found = learner.snapshot().engines
    for name in engines:
        assert found[name].crowding == pytest.approx(CROWDING, rel=0.25), name
    for op, cost in found[engines[0]].costs.items():
        true = TRUE.engines[engines[0]].cost(op)
        assert cost.seconds(16, 4096) == pytest.approx(true.seconds(16, 4096), rel=0.1)
    step, real = found["llm"].step, TRUE.engines["llm"].step
    assert step is not None
    assert step.seconds(4) == pytest.approx(real.seconds(4), rel=0.15)


def test_nothing_is_learned_where_nobody_shares() -> None:
    learner = Learner(AtWork())
    Loaded("advanced_rag", TRUE, learner=learner).run(150, rate=0.3)
    for times in learner.snapshot().engines.values():
        assert times.crowding < 0.05


def test_it_is_kept_and_goes_into_profiles() -> None:
    learner = Learner(AtWork())
    made = Loaded("naive_rag", alike(TRUE, "embedding", crowding=CROWDING), learner=learner)
    made.run(60, rate=0.5)
    lessons = Lessons.from_json(learner.snapshot().to_json())
    times = lessons.engines["embedding"]
    assert times.over(TRUE.engines["embedding"]).crowding == times.crowding
    assert replace(times, crowding=0.0) != times or times.crowding == 0.0
    old = learner.snapshot().to_json()
    for engine in old["engines"].values():
        del engine["crowding"]
    assert Lessons.from_json(old).engines["embedding"].crowding == 0.0
