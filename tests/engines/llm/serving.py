"""Real vLLM servers of a small random model, which can be killed and come back."""

import os
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from experiments.common.tiny_model import make_model
from teola.runtime.hosts.model_server import PYTHON, ModelServer, ServerOptions

ROOT = Path(__file__).resolve().parents[3]


class Served:
    """A server of the model in `folder`; it can be killed and come back at the same port."""

    def __init__(self, folder, name):
        self.folder, self.log = folder, folder.with_name(f"{name}.log")
        self.kv_events = f"ipc://{folder.parent}/{name}"
        self.process = self._process(port=0, dtype="float32")
        self.process.start()

    def _process(self, **options):
        options |= {"python": ROOT / PYTHON, "kv_gib": 1, "log": self.log}
        return ModelServer(ServerOptions(str(self.folder), kv_events=self.kv_events, **options))

    @property
    def url(self):
        return self.process.url

    def serve(self, dtype):
        """At the same port, in this precision, also if it was killed."""
        running = self.process.running and self.process.options.dtype == dtype
        if not running:
            self.process.kill()
            port = int(self.url.rpartition(":")[2].partition("/")[0])
            self.process = self._process(port=port, dtype=dtype)
            self.process.start()


@contextmanager
def serving(place, count=1):
    """So many servers of one model, while it is wanted; skips where there is no vLLM."""
    if not (ROOT / PYTHON).exists():
        if os.environ.get("CI") == "true":
            pytest.fail(f"there is no vLLM at {PYTHON}: run `make vllm`")
        pytest.skip("no vLLM here: run `make vllm` for these tests")
    folder = place / "tiny"
    make_model(folder, hidden=128, layers=3, heads=4, vocabulary=2048, chat_template=True)
    with ExitStack() as stack:
        servers = []
        for i in range(count):
            servers.append(Served(folder, f"server{i}"))
            stack.callback(lambda server=servers[-1]: server.process.stop())
        yield servers
