"""Nobody imports a framework without asking for it, and who lacks one is told its extra."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import teola.adapters

PROBE = """
import json, sys
import teola, teola.adapters
for name in teola.__all__:
    getattr(teola, name)
loaded = [name.partition(".")[0] for name in sys.modules]
sys.modules.update(dict.fromkeys(("langchain_core", "llama_index", "haystack")))
told = {}
for name in teola.adapters.__all__:
    try:
        getattr(teola.adapters, name)
    except Exception as error:
        told[name] = f"{type(error).__name__}: {error}"
print(json.dumps({"loaded": loaded, "told": told}))
"""


def test_nothing_is_imported_before_and_what_is_missing_is_named() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROBE], check=True, capture_output=True, text=True
    )
    found = json.loads(done.stdout)
    assert not {"langchain_core", "llama_index", "haystack"} & set(found["loaded"])
    assert found["told"] == {
        f"{way}_{name}": f"MissingExtra: teola.adapters.{name} needs the extra {extra!r} "
        f"({module} is missing): pip install 'teola[{extra}]'"
        for way in ("from", "to")
        for name, extra, module in (
            ("haystack", "haystack", "haystack"),
            ("langchain", "langchain", "langchain_core"),
            ("llama_index", "llama-index", "llama_index"),
        )
    }


def test_every_name_is_there_and_documented() -> None:
    assert list(teola.adapters.__all__) == sorted(teola.adapters.__all__)
    for name in teola.adapters.__all__:
        assert getattr(teola.adapters, name).__doc__, name
    assert set(teola.adapters.__all__) <= set(dir(teola.adapters))
    with pytest.raises(AttributeError, match="no attribute 'from_nowhere'"):
        teola.adapters.from_nowhere  # noqa: B018
