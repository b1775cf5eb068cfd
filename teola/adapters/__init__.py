"""Adapters: objects of LangChain, LlamaIndex and Haystack in Teola, and applications in those.

    from_langchain, from_llama_index, from_haystack   an object of theirs becomes one of ours
    to_langchain, to_llama_index, to_haystack         an App (or a Tool) becomes one of theirs

Each framework comes with an extra, and is imported when one of its two functions is first asked
for. What is the same for all of them: `ForeignModel` and `ForeignEmbedder` are engines around
somebody else's models, `AppUse` is an application as others call it.
"""

import typing as _typing
from importlib import import_module as _import_module

if _typing.TYPE_CHECKING:
    from teola.adapters.haystack import from_haystack, to_haystack
    from teola.adapters.langchain import from_langchain, to_langchain
    from teola.adapters.llama_index import from_llama_index, to_llama_index

__all__ = [
    "from_haystack",
    "from_langchain",
    "from_llama_index",
    "to_haystack",
    "to_langchain",
    "to_llama_index",
]


def __getattr__(name: str) -> _typing.Any:
    if name not in __all__:
        raise AttributeError(f"module 'teola.adapters' has no attribute {name!r}")
    home = f"teola.adapters.{name.partition('_')[2]}"
    value = getattr(_import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
