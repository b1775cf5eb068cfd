"""A cluster of several nodes: engines go where their resources are; a node that is lost is not
missed. The nodes are real Ray nodes, on one machine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from teola import App, Embedding, Runtime
from teola.runtime.engines import EngineConfig
from teola.runtime.hosts import ray_actor
from tests.runtime.hosts.elsewhere import Embedder

pytestmark = [
    pytest.mark.ray,
    pytest.mark.nightly,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.fixture
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "resources": {"slot": 1}})
    yield made
    ray_actor.disconnect()
    made.shutdown()


def test_adding_a_node_is_all_it_takes_and_losing_one_loses_nothing(cluster: Any) -> None:
    second = cluster.add_node(num_cpus=1, resources={"slot": 1})
    cluster.wait_for_nodes()
    config = EngineConfig(
        Embedder, {"seconds": 0.05}, instances=2, host="ray", resources={"slot": 1}
    )
    with Runtime({"embedding": config}, ray=cluster.address) as runtime:
        app = App(
            "embed",
            Embedding(),
            inputs={"texts": "texts"},
            outputs={"vectors": "vectors"},
            runtime=runtime,
        )
        texts = [f"text {i}" for i in range(40)]
        expected = [Embedder()._vector(text)[1:] for text in texts]
        found = app.run(texts=texts, deadline_s=90).outputs["vectors"]
        assert len({v[0] for v in found}) == 2, "both nodes have worked"
        query = runtime.start(app.arun(texts=texts * 5, deadline_s=120))
        time.sleep(0.3)
        cluster.remove_node(second, allow_graceful=False)
        found = query.result(timeout=120).outputs["vectors"]
        assert [v[1:] for v in found] == expected * 5
