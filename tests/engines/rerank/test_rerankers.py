"""The rerankers on real weights: MiniLM for MaxSim, a tiny random BERT for the cross-encoder."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor

from teola.engine import Hit, QueryContext, Request
from teola.errors import EngineError, EngineUnavailable
from teola.graph.ops import Op, RerankParams
from teola_engines.embedding import packaged
from teola_engines.embedding.encoder import EncodedText
from teola_engines.rerank import CrossEncoder, MaxSim
from teola_engines.rerank.maxsim import maxsim as late_interaction

TEXTS = (
    "PostgreSQL stores each table in files of at most one gigabyte.",
    "The Eiffel Tower in Paris was finished in 1889 and is 330 metres tall.",
    "Bread rises because yeast gives off carbon dioxide.",
)


def request(question: object, texts: tuple[str, ...] = TEXTS) -> Request:
    hits = [Hit(str(i), "d", text, 0.0) for i, text in enumerate(texts)]
    inputs = {"hits": hits, "question": question}
    return Request(Op.RERANKING, RerankParams(), inputs, QueryContext("q"), "k")


@pytest.fixture(scope="module")
def maxsim() -> Iterator[MaxSim]:
    engine = MaxSim(dtype="float32")
    engine.start()
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of two small layers with random weights and a vocabulary of the texts' words."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

    folder = tmp_path_factory.mktemp("bert")
    words = sorted({word.strip(".,?").lower() for text in TEXTS for word in text.split()})
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        num_labels=1,
        initializer_range=0.5,
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("question", "best"),
    [
        ("When was the Eiffel Tower built?", 1),
        ("How are tables stored on disk?", 0),
        ("Why does dough get bigger?", 2),
    ],
)
def test_maxsim_prefers_the_text_that_answers(maxsim: MaxSim, question: str, best: int) -> None:
    (result,) = maxsim.execute([request(question)])
    assert isinstance(result, dict)
    assert len(result["scores"]) == len(TEXTS)
    assert max(range(len(TEXTS)), key=result["scores"].__getitem__) == best


def test_each_question_token_looks_for_its_best_match() -> None:
    def tokens(*rows: tuple[float, float]) -> EncodedText:
        return EncodedText(np.arange(len(rows)), np.array(rows, dtype=np.float32))

    question = tokens((1, 0), (0, 1))
    assert late_interaction(question, tokens((1, 0), (-1, 0), (0.8, 0.6))) == pytest.approx(0.8)
    assert late_interaction(question, tokens((1, 0))) == pytest.approx(0.5)


def test_maxsim_scores_are_cosines(maxsim: MaxSim) -> None:
    (result,) = maxsim.execute([request(TEXTS[0])])
    assert isinstance(result, dict)
    assert result["scores"][0] == pytest.approx(1, abs=1e-4)
    assert all(-1 <= score <= 1.0001 for score in result["scores"])


def test_maxsim_does_not_depend_on_the_batch(maxsim: MaxSim) -> None:
    questions = ("When was the tower built?", "", "yeast")
    together = maxsim.execute([request(question) for question in questions])
    for question, one in zip(questions, together, strict=True):
        (alone,) = maxsim.execute([request(question)])
        assert isinstance(one, dict)
        assert isinstance(alone, dict)
        assert one["scores"] == pytest.approx(alone["scores"], abs=1e-4)


def test_maxsim_computes_each_text_of_a_batch_once_and_no_padding(
    maxsim: MaxSim, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, gelu = [], packaged.gelu

    def counted(given: Tensor) -> Tensor:
        rows.append(given.shape[:-1].numel())
        return gelu(given)

    monkeypatch.setattr(packaged, "gelu", counted)
    questions, texts = ["When?", "Who keeps the lamp?", "When?"], (*TEXTS, "a long one " * 60)
    one, _, other = maxsim.execute([request(question, texts) for question in questions])
    assert one == other
    assert maxsim._shared is not None
    ids = maxsim._shared.encode_all([*{*questions, *texts}])
    assert sum(rows) == 6 * sum(len(one) + 2 for one in ids)


def test_nothing_to_score(maxsim: MaxSim) -> None:
    results = maxsim.execute([request("question", ()), request("question", ("",)), request("")])
    assert results == [{"scores": []}, {"scores": [0.0]}, {"scores": [0.0, 0.0, 0.0]}]


def test_an_ill_formed_request_fails_alone(maxsim: MaxSim) -> None:
    bad, good = maxsim.execute([request(None), request("bread")])
    assert isinstance(bad, EngineError)
    assert isinstance(good, dict)


def test_before_start_they_say_so(bert: Path) -> None:
    for engine in (MaxSim(), CrossEncoder(model=str(bert))):
        with pytest.raises(EngineError, match="not started"):
            engine.execute([request("x")])


def test_cross_encoder_scores_every_pair(bert: Path) -> None:
    engine = CrossEncoder(model=str(bert), max_batch=2)
    engine.start()
    try:
        one, none, two = engine.execute(
            [request("paris tower"), request("yeast", ()), request("bread", TEXTS[:2])]
        )
        assert isinstance(one, dict)
        assert isinstance(two, dict)
        assert none == {"scores": []}
        assert (len(one["scores"]), len(two["scores"])) == (3, 2)
        assert len({*one["scores"], *two["scores"]}) == 5  # each pair has a score of its own
        (alone,) = engine.execute([request("bread", TEXTS[:2])])
        assert isinstance(alone, dict)
        assert alone["scores"] == pytest.approx(two["scores"], abs=1e-5)
    finally:
        engine.close()


def test_cross_encoder_computes_equal_pairs_once_and_pads_to_neighbours(
    bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = CrossEncoder(model=str(bert), device="cpu")
    engine.start()
    try:
        forward, seen = engine._model.forward, []

        def counted(features: dict[str, Tensor], **more: object) -> object:
            seen.append(features["attention_mask"])
            return forward(features, **more)

        monkeypatch.setattr(engine._model, "forward", counted)
        texts = tuple(f"{'bread rises ' * count}{last}" for count in (2, 40)
                      for last in ("bread", "paris", "tower", "yeast"))  # fmt: skip
        one, other = engine.execute([request("paris", texts * 2), request("paris", texts)])
        assert isinstance(one, dict)
        assert isinstance(other, dict)
        assert one["scores"] == other["scores"] * 2
        assert sum(len(mask) for mask in seen) == len(texts)
        assert all(bool(mask.all()) for mask in seen)
    finally:
        engine.close()


def test_cross_encoder_without_a_model_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable, match="needs a model"):
        CrossEncoder().start()
    with pytest.raises(EngineUnavailable, match="cannot load") as caught:
        CrossEncoder(model=str(tmp_path)).start()
    assert "\n" not in str(caught.value)
