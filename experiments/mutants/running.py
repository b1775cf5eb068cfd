"""A run: mutants are drawn, written into a copy of the tree, and given to workers.

All that a run needs to go on after it was stopped lies in a folder of its own, whose name is a
digest of the code and of what was asked: the mutants that were drawn, the files they stand in, and
a row for each that is done, in a file whose name is a digest of the tests.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from experiments.mutants import environment, finding, reaching, tree
from experiments.mutants.finding import Mutant
from experiments.mutants.worker import STILL_S
from teola.errors import TeolaError

PACKAGES: Final = (
    "teola/graph",
    "teola/passes",
    "teola/schedule",
    "teola/policies",
    "teola/kv",
    "teola/learning",
    "teola/runtime/driver.py",
    "teola/runtime/in_flight.py",
    "teola/runtime/live",
    "teola/query/journal",
    "engines/llm",
    "engines/openai",
)
"""What is mutated by itself: the deciding half, what grows, live, the journal and the wire."""
SPARE: Final = 4
"""So many times more are drawn than wanted, and twice that if need be: mypy refuses many."""
CHUNK: Final = 20
"""The most mutants of one worker process, which collects their tests once."""
COPIED: Final = ("no-redef", "unused-ignore")
"""Errors that mypy finds because a function stands several times in a file, or that are none."""
ENDING_S: Final = 10.0
"""How long workers of a run that was killed may take to end."""
TYPED: Final = "teola/"
"""mypy checks this folder alone."""

Say = Callable[[str], None]
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a run was asked for. paths: packages, each a folder or a file. work: the folder of
    everything that runs keep."""

    sample: int
    seed: int
    paths: tuple[str, ...]
    workers: int
    work: Path
    limit_s: float


def packages(paths: Sequence[str], root: Path = tree.ROOT) -> dict[str, list[str]]:
    """The Python files of each package. Raises TeolaError for one without any, and for two that
    share some."""
    names = [name for name in tree.files(root) if name.endswith(".py")]
    found = {}
    for path in (path.strip().rstrip("/") for path in paths):
        found[path] = [name for name in names if name == path or name.startswith(f"{path}/")]
        if not found[path] or not path.startswith(("teola", "engines")):
            raise TeolaError(f"{path!r} is no Python file or folder of teola or engines")
    for file, times in Counter(name for names in found.values() for name in names).items():
        if times > 1:
            raise TeolaError(f"{file} is in two of the packages {', '.join(found)}")
    return found


def make_table(asked: Asked, say: Say) -> Row:
    """Make what is missing of the table for some packages. Returns what it took."""
    began = time.monotonic()
    kept = asked.work / "table"
    within = packages(asked.paths)
    tree.copy(asked.work / "probed", tree.files())
    reach, claimed = reaching.load(kept), set[str]()
    missing = {}
    for package, paths in within.items():
        missing[package] = set(reaching.missing(paths, reach)) - claimed
        claimed |= missing[package]

    def make(package: str, files: set[str]) -> None:
        since = time.monotonic()
        reaching.make(files, asked.work / "probed", kept)
        say(f"{package}: {len(files)} test files, {time.monotonic() - since:.0f} s")

    with ThreadPoolExecutor(asked.workers) as pool:
        made = [pool.submit(make, package, files) for package, files in missing.items() if files]
        for done in made:
            done.result()
    reach = reaching.load(kept)
    return {
        "files": len(claimed),
        "functions": len(reach.tests),
        "tests": len(reach.seconds),
        "seconds": round(time.monotonic() - began, 1),
    }


def run(asked: Asked, say: Say, lock: int) -> list[Row]:
    """Rows of all mutants of a sample: path, line, operator, state, by, seconds, and package and
    function beside. A run that was stopped goes on. Raises TeolaError."""
    names = tree.files()
    within = packages(asked.paths)
    folder = asked.work / "runs" / _name(asked, names)
    folder.mkdir(parents=True, exist_ok=True)
    mutants = _drawn(asked, within, folder, names, say)
    out = folder / f"rows-{tree.digest_below(tree.TESTS, names)[:16]}.jsonl"
    todo = [mutant for mutant in mutants if mutant.key not in _rows(out)]
    if todo:
        say(f"{len(mutants) - len(todo)} mutants are done, {len(todo)} are left")
        tree.copy(folder, names)
        _write(folder)
        reach = reaching.load(asked.work / "table")
        _say_stale(asked, todo, reach, say)
        _work(asked, todo, reach, folder, out, say, lock)
        for made in (folder / "tree", folder / "links", *folder.glob("tmp-*")):
            shutil.rmtree(made)
    rows = _rows(out)
    return [
        {
            "path": mutant.path,
            "line": mutant.line,
            "operator": mutant.change,
            "state": rows[mutant.key]["state"],
            "by": rows[mutant.key]["by"],
            "seconds": rows[mutant.key]["seconds"],
            "package": mutant.package,
            "function": mutant.function,
        }
        for mutant in mutants
    ]


@contextmanager
def alone(work: Path) -> Iterator[int]:
    """Keep others out of a folder of runs, which would write into the same copies. Gives a file
    that keeps them out as long as it is open anywhere: workers outlive a run that is killed by a
    second. Raises TeolaError if another run is at work there."""
    work.mkdir(parents=True, exist_ok=True)
    with (work / "lock").open("w") as lock:
        ends = time.monotonic() + ENDING_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > ends:
                    raise TeolaError(f"a run is at work in {work}: give --work FOLDER") from None
            time.sleep(0.2)
        yield lock.fileno()


# --- what is drawn --------------------------------------------------------------------------


def _name(asked: Asked, names: Sequence[str]) -> str:
    """The name of a run's folder: equal for what draws equal mutants."""
    about = [tree.digest_below(tree.CODE, names), asked.sample, asked.seed, asked.paths]
    return hashlib.sha256(json.dumps([*about, environment.WANTED]).encode()).hexdigest()[:16]


def _drawn(
    asked: Asked, within: dict[str, list[str]], folder: Path, names: Sequence[str], say: Say
) -> list[Mutant]:
    """The mutants of a run; those of an earlier start are read again."""
    plan = folder / "mutants.json"
    if plan.exists():
        found = json.loads(plan.read_text(encoding="utf-8"))
        return [Mutant(**{**one, "span": tuple(one["span"])}) for one in found]
    say("finding mutants")
    listed = {
        package: finding.listed(paths, tree.ROOT, asked.work / "found")
        for package, paths in within.items()
    }
    order = {p: finding.drawn(places, asked.seed, p) for p, places in listed.items()}
    quota = finding.quotas(asked.sample, {p: len(places) for p, places in listed.items()})
    parsed: dict[str, finding.Parsed] = {}
    times = SPARE
    while True:
        spare = {package: order[package][: times * n] for package, n in quota.items()}
        mutants = _written(spare, parsed, folder)
        say(f"mypy looks at {len(mutants)} mutants")
        tree.copy(folder, names)
        _write(folder)
        refused = _refused(mutants.values(), folder, asked.work / "mypy")
        say(f"mypy refuses {len(refused)}")
        taken = []
        for package, places in spare.items():
            keys = [f"{place.path}#{place.number}" for place in places]
            taken += [mutants[key] for key in keys if key not in refused][: quota[package]]
        if len(taken) == sum(quota.values()):
            break
        if all(spare[package] == order[package] for package, n in quota.items() if n):
            say(f"mypy lets only {len(taken)} mutants of these packages through")
            break
        times *= 2
    part = plan.with_suffix(".part")
    part.write_text(json.dumps([asdict(mutant) for mutant in taken]), encoding="utf-8")
    part.replace(plan)
    return taken


def _written(
    spare: dict[str, list[finding.Place]], parsed: dict[str, finding.Parsed], folder: Path
) -> dict[str, Mutant]:
    """Write mutated files to `folder/sources`. Returns the mutants by key."""
    numbers: dict[tuple[str, str], list[int]] = defaultdict(list)
    for package, places in spare.items():
        for place in places:
            numbers[package, place.path].append(place.number)
    mutants: dict[str, Mutant] = {}
    for (package, path), chosen in numbers.items():
        if path not in parsed:
            text = (tree.ROOT / path).read_text(encoding="utf-8")
            parsed[path] = finding.Parsed(path, text)
        code, found = parsed[path].write(chosen, package)
        file = folder / "sources" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(code, encoding="utf-8")
        mutants |= {mutant.key: mutant for mutant in found}
    return mutants


def _write(folder: Path) -> None:
    """Put the mutated files into the copy."""
    for file in (folder / "sources").rglob("*.py"):
        (folder / "tree" / file.relative_to(folder / "sources")).write_bytes(file.read_bytes())


def _refused(mutants: Iterable[Mutant], folder: Path, cache: Path) -> set[str]:
    """Keys of the mutants in which mypy finds an error. Raises TeolaError if it does not work."""
    by_path: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in mutants:
        if mutant.path.startswith(TYPED):
            by_path[mutant.path].append(mutant)
    if not by_path:
        return set()
    known = tree.ROOT / ".mypy_cache"
    if known.is_dir() and not cache.exists():  # files are the same there, as far as they go
        shutil.copytree(known, cache)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--output", "json", "--cache-dir", cache.resolve()],
        cwd=folder / "tree",
        env={**tree.variables(folder), "MYPYPATH": str(environment.folder())},
        capture_output=True,
        text=True,
        check=False,
    )
    if checked.returncode not in (0, 1):
        raise TeolaError(f"mypy failed:\n{(checked.stdout + checked.stderr)[-2000:]}")
    refused = set()
    told = [json.loads(line) for line in checked.stdout.splitlines()]
    for error in told:
        if error["severity"] != "error" or error["code"] in COPIED:
            continue
        for mutant in by_path.get(error["file"], ()):
            if mutant.span[0] <= error["line"] <= mutant.span[1]:
                refused.add(mutant.key)
    return refused


# --- workers --------------------------------------------------------------------------------


def _rows(out: Path) -> dict[str, Row]:
    """Rows of the mutants that are done, by key."""
    if not out.exists():
        return {}
    lines = out.read_text(encoding="utf-8").splitlines()
    return {row["key"]: row for row in map(json.loads, lines)}


def _say_stale(asked: Asked, todo: Sequence[Mutant], reach: reaching.Reach, say: Say) -> None:
    left = reaching.missing({mutant.path for mutant in todo}, reach)
    if left:
        say(
            f"the table has nothing of {len(left)} test files, or they have changed since: all of "
            "their tests are asked, unless --table makes it"
        )


def _chunks(todo: Sequence[Mutant]) -> list[list[Mutant]]:
    """Mutants of one package each, those of a file together."""
    by_package: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in todo:
        by_package[mutant.package].append(mutant)
    return [
        ordered[start : start + CHUNK]
        for mutants in by_package.values()
        for ordered in [sorted(mutants, key=lambda mutant: (mutant.path, mutant.number))]
        for start in range(0, len(ordered), CHUNK)
    ]


def _work(
    asked: Asked,
    todo: Sequence[Mutant],
    reach: reaching.Reach,
    folder: Path,
    out: Path,
    say: Say,
    lock: int,
) -> None:
    """Give chunks to workers until all are done. Raises TeolaError if one fails."""
    running: set[subprocess.Popen[bytes]] = set()
    stopped = threading.Event()

    def one(number: int, chunk: list[Mutant]) -> None:
        if stopped.is_set():
            return
        told = folder / f"chunk-{number}.json"
        told.write_text(json.dumps(_told(chunk, reach, asked, folder, out, number)))
        log = folder / f"chunk-{number}.log"
        with log.open("wb") as written:
            process = subprocess.Popen(
                [sys.executable, "-m", "experiments.mutants.worker", told.resolve()],
                cwd=folder / "tree",
                env=tree.variables(folder.resolve()),
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=(lock,),
            )
        running.add(process)
        code = process.wait()
        running.discard(process)
        left = [mutant.key for mutant in chunk if mutant.key not in _rows(out)]
        if left and not stopped.is_set():
            stopped.set()
            raise TeolaError(
                f"a worker ended with {code} before {left[0]}; the end of {log}:\n"
                + log.read_text(errors="replace")[-2000:]
            )
        say(f"{len(_rows(out))} mutants are done")

    pool = ThreadPoolExecutor(asked.workers)
    try:
        begun = [pool.submit(one, i, chunk) for i, chunk in enumerate(_chunks(todo))]
        for done in begun:
            done.result()
    finally:
        stopped.set()
        for process in tuple(running):
            process.terminate()
        pool.shutdown(cancel_futures=True)


def _told(
    chunk: Sequence[Mutant],
    reach: reaching.Reach,
    asked: Asked,
    folder: Path,
    out: Path,
    number: int,
) -> Row:
    """What a worker is told of its mutants."""
    mutants = []
    files: set[str] = set()
    seconds: dict[str, float] = {}
    for mutant in chunk:
        near = reaching.files_of(mutant.path)
        tests = None
        if reach.files.issuperset(near):
            tests = reaching.within(reach.tests.get(mutant.function, ()), reach, asked.limit_s)
            seconds |= {test: reach.seconds[test] for test in tests}
        told = {"key": mutant.key, "name": mutant.name, "tests": tests, "files": near}
        mutants.append(told)
        files |= {test.partition("::")[0] for test in tests} if tests else set(near)
    return {
        "mutants": mutants,
        "files": sorted(files),
        "seconds": seconds,
        "out": str(out.resolve()),
        "tmp": str((folder / f"tmp-{number}").resolve()),
        "limit_s": asked.limit_s,
        "still_s": STILL_S,
    }
