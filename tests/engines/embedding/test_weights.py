"""Where a model's files are looked for, and what tells one model from another; without a model."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from teola.errors import EngineUnavailable
from teola_engines.embedding import weights
from teola_engines.embedding.weights import check_weights, identify, locate

FILES = {"config.json": "a", "vocab.txt": "b", "1_Pooling/config.json": "c", "m.safetensors": "d"}


def folder_of(files: dict[str, str], folder: Path) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def digest(tmp_path: Path) -> str:
    return identify(folder_of(FILES, tmp_path / "first"))[1]


@pytest.mark.parametrize(
    ("files", "same"),
    [
        (FILES, True),
        (FILES | {"README.md": "x", "onnx/model.onnx": "x"}, True),
        (FILES | {"vocab.txt": "B"}, False),
        (FILES | {"tokenizer.model": "x"}, False),
        (FILES | {"config.json": "c", "1_Pooling/config.json": "a"}, False),
        ({**{k: v for k, v in FILES.items() if k != "vocab.txt"}, "words.txt": "b"}, False),
    ],
)
def test_a_model_is_known_by_the_names_and_contents_of_its_files(
    files: dict[str, str], same: bool, digest: str, tmp_path: Path
) -> None:
    name, other = identify(folder_of(files, tmp_path / "second"))
    assert (name, other == digest) == ("second", same)


def test_a_model_in_the_hub_s_cache_has_the_name_that_it_has_there(tmp_path: Path) -> None:
    folder = folder_of(FILES, tmp_path / "models--some--small-model" / "snapshots" / "0123abc")
    assert identify(folder)[0] == "some/small-model"


def test_weights_that_are_missing_are_not_the_published_ones(tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable, match="SHA-256 no file, expected"):
        check_weights(tmp_path / "model.safetensors")


def test_a_name_is_a_folder_or_one_on_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(weights, "_from_hub", lambda name: Path("/hub", name))
    for name, there in (("mine", "sentence-transformers/mine"), ("their/model", "their/model")):
        assert locate(name) == Path("/hub", there)
        (tmp_path / name).mkdir(parents=True)
        assert locate(name) == locate(f"./{name}") == locate(f"~/{name}") == tmp_path / name
    assert locate("other", organisation="some") == Path("/hub/some/other")
    for missing in ("./no", "../no", "~/no", "/no", "a/b/c"):
        with pytest.raises(EngineUnavailable, match="does not exist; give the folder or the name"):
            locate(missing)


def test_libraries_speak_again_when_the_last_model_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changes: list[str] = []

    @contextmanager
    def silenced() -> Iterator[None]:
        changes.append("silent")
        yield
        changes.append("as before")

    monkeypatch.setattr(weights, "_silenced", silenced)
    quiet = weights._Quiet()
    for _ in range(2):
        with quiet():
            with pytest.raises(OSError, match="no model"), quiet():
                raise OSError("no model")
            assert changes.pop() == "silent"
        assert changes.pop() == "as before"
    assert changes == []


def test_the_packaged_model_is_known_wherever_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its own digest, which is only looked up where it is the packaged one."""
    folder = tmp_path / "package"
    shutil.copytree(folder_of(FILES, tmp_path / "files"), folder)
    monkeypatch.setattr(weights, "_packaged_folder", lambda: folder)
    monkeypatch.setattr(weights, "check_weights", lambda path: None)
    assert identify(folder) == (weights.PACKAGED, weights.PACKAGED_SHA256)
    assert identify(tmp_path / "files")[0] == "files"


@pytest.mark.parametrize("name", ["no such/name", "--x"])
def test_a_name_that_no_hub_has_says_what_to_give(name: str) -> None:
    with pytest.raises(EngineUnavailable, match="give the path of a folder with the model") as told:
        locate(name)
    assert not told.value.retryable, "it would never be one"
