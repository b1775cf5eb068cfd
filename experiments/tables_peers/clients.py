"""The systems: `python -m experiments.tables_peers.clients SYSTEM FILE`, in their environments.

FILE is JSON: where the table is, what is asked, where the server is, a folder for caches, and where
the result goes. Nothing of ours is imported but this folder's. Each system has what its users can
switch on: its caches, `at_once` calls at once, and rows with errors that do not end the others.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

MOST_TOKENS: Final = 32
WARM: Final = "Say hello."
KEY: Final = "sk-none"


class Job(NamedTuple):
    """table: of JSON lines with `id`, `prompt` and the fields. folder: what it keeps between
    runs."""

    table: str
    instruction: str
    fields: list[str]
    url: str
    model: str
    folder: str
    at_once: int

    def rows(self) -> list[dict[str, Any]]:
        with open(self.table, encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]


Answers = dict[int, str | None]
System = Callable[[Job], Callable[[], Answers]]
"""Imports what it needs, and gives what is timed."""


def ours(job: Job) -> Callable[[], Answers]:
    """Teola: SQL over the file, answers kept."""
    from teola import EngineConfig, tables

    engine = {"url": job.url, "model": job.model, "max_sequences": job.at_once}
    text = job.instruction.replace("'", "''")
    query = f"SELECT id, LLM('{text}', {', '.join(job.fields)}, max_tokens := {MOST_TOKENS}) FROM r"

    def run() -> Answers:
        done = tables.sql(query, {"r": job.table}).run(
            llm=EngineConfig("openai", engine), answers=Path(job.folder) / "answers.duckdb"
        )
        return dict(done.rows)

    return run


def asyncio_openai(job: Job) -> Callable[[], Answers]:
    """As one writes it by hand: the OpenAI SDK, gather and a semaphore."""
    import openai

    async def ask() -> Answers:
        places = asyncio.Semaphore(job.at_once)
        async with openai.AsyncOpenAI(base_url=job.url, api_key=KEY) as client:

            async def one(row: dict[str, Any]) -> tuple[int, str | None]:
                async with places:
                    try:
                        done = await client.chat.completions.create(
                            model=job.model,
                            messages=[{"role": "user", "content": row["prompt"]}],
                            max_tokens=MOST_TOKENS,
                            temperature=0,
                        )
                    except openai.OpenAIError:
                        return row["id"], None
                    return row["id"], done.choices[0].message.content

            return dict(await asyncio.gather(*map(one, job.rows())))

    return lambda: asyncio.run(ask())


def daft(job: Job) -> Callable[[], Answers]:
    """Daft's `prompt` with its OpenAI provider and chat completions. No option says how many calls
    are open at once."""
    import daft as library
    from daft.ai.openai.provider import OpenAIProvider
    from daft.functions import prompt

    provider = OpenAIProvider(name="scripted", base_url=job.url, api_key=KEY)

    def run() -> Answers:
        frame = library.read_json(job.table).select("id", "prompt")
        said = prompt(
            library.col("prompt"),
            provider=provider,
            model=job.model,
            use_chat_completions=True,
            on_error="ignore",
            temperature=0,
            max_tokens=MOST_TOKENS,
        )
        found = frame.with_column("said", said).select("id", "said").to_pydict()
        return dict(zip(found["id"], found["said"], strict=True))

    return run


def lotus(job: Job) -> Callable[[], Answers]:
    """LOTUS's `sem_map`, with its cache in SQLite."""
    import lotus as library
    import pandas as pd
    from lotus.cache import CacheConfig, CacheFactory, CacheType
    from lotus.models import LM

    config = CacheConfig(cache_type=CacheType.SQLITE, max_size=10**6, cache_dir=job.folder)
    model = LM(
        model=f"openai/{job.model}",
        api_base=job.url,
        api_key=KEY,
        temperature=0,
        max_tokens=MOST_TOKENS,
        max_batch_size=job.at_once,
        cache=CacheFactory.create_cache(config),
    )
    library.settings.configure(lm=model, enable_cache=True)

    def run() -> Answers:
        frame = pd.DataFrame(job.rows())[["id", "prompt"]]
        found = frame.sem_map("{prompt}", suffix="said")
        return dict(zip(found["id"].tolist(), found["said"].tolist(), strict=True))

    return run


def docetl(job: Job) -> Callable[[], Answers]:
    """DocETL: a pipeline with one map, its cache and all its threads."""
    package = find_spec("litellm")
    assert package is not None
    assert package.origin is not None
    tokenizers = Path(package.origin).parent / "litellm_core_utils" / "tokenizers"
    # DocETL counts with tiktoken, which would fetch what LiteLLM has at hand.
    os.environ |= {"DOCETL_HOME_DIR": job.folder, "TIKTOKEN_CACHE_DIR": str(tokenizers)}
    from docetl.runner import DSLRunner

    # What it keeps of a pipeline is found again by its paths, whatever is in the files.
    place = Path(job.folder) / Path(job.table).stem
    place.mkdir(exist_ok=True)
    out, given = place / "out.json", place / "given.json"
    plan = {
        "default_model": f"openai/{job.model}",
        "default_lm_api_base": job.url,
        "datasets": {"rows": {"type": "file", "path": str(given)}},
        "operations": [
            {
                "name": "ask",
                "type": "map",
                "prompt": "{{ input.prompt }}",
                "output": {"schema": {"said": "string"}},
                "skip_on_error": True,
                "litellm_completion_kwargs": {"temperature": 0, "max_tokens": MOST_TOKENS},
            }
        ],
        "pipeline": {
            "steps": [{"name": "ask", "input": "rows", "operations": ["ask"]}],
            "output": {"type": "file", "path": str(out), "intermediate_dir": str(place)},
        },
    }

    def run() -> Answers:
        rows = job.rows()
        given.write_text(json.dumps([{"id": one["id"], "prompt": one["prompt"]} for one in rows]))
        DSLRunner(plan, max_threads=job.at_once).load_run_save()
        return {one["id"]: one.get("said") for one in json.loads(out.read_text())}

    return run


def palimpzest(job: Job) -> Callable[[], Answers]:
    """Palimpzest: one `sem_map`, 64 workers, without what would ask several times a row. Its way to
    an own vLLM cannot work (it multiplies a text by a dictionary), so a model of OpenAI's is
    named, and LiteLLM is told where that is."""
    os.environ["OPENAI_API_BASE"] = job.url
    import palimpzest as pz
    from palimpzest.constants import Model

    said = {"name": "said", "desc": "The answer to the prompt", "type": str}
    plain = dict.fromkeys(("allow_rag_reduction", "allow_mixtures", "allow_critic"), False)

    def run() -> Answers:
        rows = [{"id": one["id"], "prompt": one["prompt"]} for one in job.rows()]
        asked = pz.MemoryDataset(id="rows", vals=rows).sem_map([said], depends_on=["prompt"])
        config = pz.QueryProcessorConfig(
            policy=pz.MinCost(),
            available_models=[Model.GPT_4o_MINI],
            max_workers=job.at_once,
            progress=False,
            **plain,
        )
        found = asked.run(config).to_df()
        return dict(zip(found["id"].tolist(), found["said"].tolist(), strict=True))

    return run


def ray_data(job: Job) -> Callable[[], Answers]:
    """Ray Data: the HTTP request processor. It sends the rows of a batch one after another, so a
    batch is one row, and one worker has as many batches at once as calls may be open."""
    os.environ["RAY_DATA_DEFAULT_ASYNC_BATCH_UDF_MAX_CONCURRENCY"] = str(job.at_once)
    import ray
    from ray.data.llm import HttpRequestProcessorConfig, build_processor

    ray.init(
        ignore_reinit_error=True,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=200 * 2**20,
        _temp_dir=job.folder,
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    model, most = job.model, MOST_TOKENS  # functions go to other processes without this module

    def payload(row: dict[str, Any]) -> dict[str, Any]:
        messages = [{"role": "user", "content": row["prompt"]}]
        body = {"model": model, "messages": messages, "max_tokens": most, "temperature": 0}
        return {"id": row["id"], "payload": body}

    def said(row: dict[str, Any]) -> dict[str, Any]:
        choices = row["http_response"].get("choices")
        return {"id": row["id"], "said": choices[0]["message"]["content"] if choices else None}

    config = HttpRequestProcessorConfig(
        url=f"{job.url}/chat/completions",
        headers={"Authorization": f"Bearer {KEY}"},
        batch_size=1,
        concurrency=1,
        max_retries=2,
    )

    def run() -> Answers:
        rows = [{"id": one["id"], "prompt": one["prompt"]} for one in job.rows()]
        given = ray.data.from_items(rows, override_num_blocks=1)
        found = build_processor(config, preprocess=payload, postprocess=said)(given).take_all()
        return {one["id"]: one["said"] for one in found}

    return run


SYSTEMS: Final[dict[str, System]] = {
    "teola": ours,
    "asyncio": asyncio_openai,
    "daft": daft,
    "lotus": lotus,
    "docetl": docetl,
    "palimpzest": palimpzest,
    "ray_data": ray_data,
}


def warm(job: Job) -> Job:
    """One row with another question, which the server does not count: with it whatever a system
    imports or sets up at its first query is there."""
    path = Path(job.table).with_name("warm.jsonl")
    fields = dict.fromkeys(job.fields, "warm")
    path.write_text(json.dumps({"id": 0, "prompt": WARM, **fields}) + "\n", encoding="utf-8")
    return job._replace(table=str(path), instruction=WARM)


def family(pid: int) -> list[int]:
    """A process and all that it has started, and those have, as far as they run (on Linux): what is
    in a session of its own, too."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    found = [pid]
    for one in found:
        found += children.get(one, ())
    return found


def resident_mb() -> float:
    """The most that this process or one of those that it started had."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)  # children that have ended
    most = max(resource.getrusage(kind).ru_maxrss for kind in kinds)
    for pid in family(os.getpid()):
        with suppress(OSError):
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            peaks = [int(line.split()[1]) for line in lines if line.startswith("VmHWM:")]
            most = max([most, *peaks])
    return most / 1024


def main(system: str, file: str) -> None:
    """Run one system once."""
    told = json.loads(Path(file).read_text(encoding="utf-8"))
    result, job = Path(told.pop("result")), Job(**told)
    SYSTEMS[system](warm(job))()
    run = SYSTEMS[system](job)
    answers: Answers = {}
    error, began = "", time.monotonic()
    try:
        answers = run()
    except Exception as failed:  # noqa: BLE001 - whatever a framework raises is told
        error = f"{type(failed).__name__}: {failed}"[:500]
    seconds = time.monotonic() - began
    found = {"answers": answers, "seconds": seconds, "resident_mb": resident_mb(), "error": error}
    result.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
