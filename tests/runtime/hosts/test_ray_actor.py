"""Engines in Ray actors: the same answers, little through the driver, deaths survived."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from teola import App, Component, Embedding, Generate, Runtime, Search
from teola.engine import Scope
from teola.errors import EngineUnavailable, InputError
from teola.runtime.engines import EngineConfig
from teola.runtime.hosts import ray_actor
from teola.runtime.values import RemoteList
from tests.runtime.hosts.elsewhere import Embedder, Keeping, Summer, Writer
from tests.runtime.hosts.going_back import assert_goes_back

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    ray_actor.connect(None)
    yield
    ray_actor.disconnect()


def on_ray(factory: Any, instances: int = 1, **options: Any) -> EngineConfig:
    return EngineConfig(factory, options, instances=instances, host="ray")


def app(runtime: Runtime, template: Component, outputs: Sequence[str], **inputs: str) -> App:
    named = dict.fromkeys(outputs, "")
    return App(
        "test",
        template,
        inputs=inputs,  # type: ignore[arg-type]
        outputs={name: name for name in named},
        runtime=runtime,
    )


def embedding_app(runtime: Runtime) -> App:
    return app(runtime, Embedding(), ["vectors"], texts="texts")


def test_batches_run_in_an_actor() -> None:
    with Runtime({"embedding": on_ray(Embedder)}, ray=True) as runtime:
        found = embedding_app(runtime).run(texts=["a", "b"]).outputs["vectors"]
    assert [v[1:] for v in found] == [Embedder()._vector(t)[1:] for t in ("a", "b")]
    assert os.getpid() not in {int(v[0]) for v in found}


OTHER = """
import ray
from teola.runtime.hosts import ray_actor
ray_actor.connect(None)
print(ray.get_runtime_context().gcs_address)
ray_actor.disconnect()
"""


def test_who_names_no_cluster_gets_one_of_his_own() -> None:
    """One that somebody else started would take him along when it ends."""
    import ray

    mine = ray.get_runtime_context().gcs_address
    command, beside = [sys.executable, "-c", OTHER], {**os.environ, "RAY_ADDRESS": mine}
    other = subprocess.run(
        command, env=beside, capture_output=True, text=True, timeout=120, check=True
    )
    assert other.stdout.strip() not in ("", mine)


def test_a_stream_comes_through_and_a_prefix_is_found_again() -> None:
    template = Generate(mode="simple", instruction="Read this at leisure, it is long enough. ")
    answers = []
    for llm in (on_ray(Writer), EngineConfig(Writer)):
        with Runtime({"llm": llm}, ray=True) as runtime:
            asked = app(runtime, template, ["answer"], question="text", context="text")
            texts = [
                e.text for e in asked.stream(question="why?", context="c") if hasattr(e, "text")
            ]
            answers.append("".join(texts))
            assert asked.run(question="why?", context="c").outputs["answer"] == answers[-1]
    assert answers[0] == answers[1] != ""


def test_a_question_goes_back_to_the_actor_that_keeps_it() -> None:
    assert_goes_back(on_ray(Keeping, 2), ray=True)


def test_closing_a_query_stops_the_actor() -> None:
    with Runtime({"llm": on_ray(Writer, pause=0.05)}, ray=True) as runtime:
        asked = app(runtime, Generate(), ["answer"], question="text")
        stream = iter(asked.stream(question="go on"))
        while not hasattr(next(stream), "text"):
            pass
        stream.close()  # type: ignore[attr-defined]
        engine = runtime.live.hosts["llm", 0].engine
        limit = time.monotonic() + 5
        while runtime.start(engine.call("busy")).result(5):  # type: ignore[attr-defined]
            assert time.monotonic() < limit, "it goes on"


def test_work_of_a_killed_actor_is_done_by_another_and_it_is_replaced(tmp_path: Path) -> None:
    flag = tmp_path / "died"
    config = on_ray(Embedder, 2, flag=str(flag), seconds=0.02)
    with Runtime({"embedding": config}, ray=True) as runtime:
        texts = [f"text {i}" for i in range(24)]
        found = embedding_app(runtime).run(texts=texts, deadline_s=90).outputs["vectors"]
        assert flag.exists()
        assert [v[1:] for v in found] == [Embedder()._vector(t)[1:] for t in texts]
        queue = runtime.live.core.queues["embedding"]
        limit = time.monotonic() + 60
        while not all(instance.up for instance in queue.instances):
            assert time.monotonic() < limit, "it was not replaced"
            time.sleep(0.05)


def test_an_answer_survives_the_death_of_its_actor(tmp_path: Path) -> None:
    flag = tmp_path / "died"
    with Runtime({"llm": on_ray(Writer, 2, flag=str(flag))}, ray=True) as runtime:
        answer = app(runtime, Generate(), ["answer"], question="text").run(question="why?")
    with Runtime({"llm": EngineConfig(Writer)}) as runtime:
        told = app(runtime, Generate(), ["answer"], question="text").run(question="why?")
    assert flag.exists()
    assert answer.outputs == told.outputs


def test_late_words_of_a_dead_actor_do_not_concern_its_successor() -> None:
    from ray.exceptions import RayActorError

    engine = ray_actor.RayEngine(on_ray(Embedder).recipe("embedding"), {}, "engine 'embedding'")
    engine._actor = successor = object()
    for actor, dies in ((object(), False), (successor, True)):
        with pytest.raises(EngineUnavailable, match="is gone"), engine._deaths(actor):
            raise RayActorError
        assert (engine.dead is not None) is dies


class Counted(ray_actor.RayEngine):
    """Counts the bytes of all results that come back to this process."""

    received = 0

    async def execute(self, requests: Any) -> Any:
        found = await super().execute(requests)
        for result in found:
            for value in result.values():
                kept = type(value) is RemoteList
                Counted.received += 0 if kept else len(pickle.dumps(value))
        return found


@pytest.mark.parametrize("far", [True, False])
def test_large_outputs_do_not_pass_through_the_driver(
    far: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 vectors of 4,000 numbers go from one actor to another, or (once) to an engine here."""
    monkeypatch.setattr(ray_actor, "RayEngine", Counted)
    Counted.received = 0
    texts = [f"text {i}" for i in range(100)]
    engines = {
        "embedding": on_ray(Embedder, width=4000, max_batch=64),
        "vectorstore": on_ray(Summer) if far else EngineConfig(Summer),
    }
    with Runtime(engines, ray=True) as runtime:
        template = Embedding() >> Search(top_k=1)
        summed = app(runtime, template, ["hits"], texts="texts", scope="scope")
        given = {"texts": texts, "scope": Scope("default", "c")}
        found = summed.run(given, deadline_s=90).outputs["hits"]
    own = Embedder(width=4000)
    assert {hit.text for hit in found} == {f"{sum(own._vector(t)[1:]):.3f}" for t in texts}
    assert Counted.received < 64 * 1024, "vectors came through the scheduler"


def test_each_actor_of_a_pool_has_its_own_options_and_resources() -> None:
    """Vectors are as long as an actor's options say, also of one that was started anew."""
    import ray

    pool = [{"width": 4}, {"width": 6, "resources": {"num_cpus": 0.5}}]
    config = EngineConfig(Embedder, {"max_batch": 2, "seconds": 0.02}, host="ray", pool=pool)
    with Runtime({"embedding": config}, ray=True) as runtime:
        asked = embedding_app(runtime)

        def lengths() -> set[int]:
            found = asked.run(texts=[str(i) for i in range(16)], deadline_s=90)
            return {len(vector) for vector in found.outputs["vectors"]}

        before = ray.cluster_resources()["CPU"]
        assert lengths() == {4, 6}
        assert before - ray.available_resources()["CPU"] == pytest.approx(0.5)
        runtime.start(runtime.replace("embedding", 1)).result(60)
        assert lengths() == {4, 6}


def test_a_pool_says_which_entry_asks_for_too_much() -> None:
    pool = [{}, {"resources": {"num_gpus": 1000}}]
    config = EngineConfig(Embedder, host="ray", pool=pool)
    with (
        Runtime({"embedding": config}, ray=True) as runtime,
        pytest.raises(EngineUnavailable, match=r"entry 1 of its pool: no node .* has GPU 1000"),
    ):
        embedding_app(runtime).run(texts=["a"])


def test_what_no_node_has_is_refused_early() -> None:
    config = EngineConfig(Embedder, host="ray", resources={"num_gpus": 64})
    with (
        Runtime({"embedding": config}, ray=True) as runtime,
        pytest.raises(EngineUnavailable, match="no node of the Ray cluster has GPU 64"),
    ):
        embedding_app(runtime).run(texts=["a"])


def test_an_engine_for_ray_without_a_cluster_says_what_to_do() -> None:
    with (
        Runtime({"embedding": on_ray(Embedder)}) as runtime,
        pytest.raises(InputError, match="--ray"),
    ):
        embedding_app(runtime).run(texts=["a"])


def test_by_default_ray_is_not_imported() -> None:
    program = (
        "import sys\n"
        "from teola import App, Embedding, Runtime\n"
        "from teola.testing.hash_engines import HashEmbedder\n"
        "with Runtime({'embedding': HashEmbedder}) as runtime:\n"
        "    app = App('e', Embedding(), inputs={'texts': 'texts'}, outputs={'vectors': 'vectors'},"
        " runtime=runtime)\n"
        "    assert len(app.run(texts=['a']).outputs['vectors']) == 1\n"
        "assert 'ray' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
