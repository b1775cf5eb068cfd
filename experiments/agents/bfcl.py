"""The Berkeley Function Calling Leaderboard: parallel calls, of one or several functions, and
conversations with tools that can be executed.

Data, answers and tools are those of the package `bfcl-eval`, which pins old versions of much that
it does not need here. So it is installed without them, into a folder of its own (`make` does):

    python -m pip install --no-deps --target .teola/bfcl bfcl-eval==2026.3.23

Which calls of a conversation may be made together is found out by making them in several orders.
Tasks whose answers do not fit the schemas of their own functions are left out.
"""

from __future__ import annotations

import ast
import copy
import importlib
import importlib.util
import inspect
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from jsonschema import Draft202012Validator

from experiments.agents.task import Demand, Planned, Task
from teola.errors import InputError

FOLDER: Final = Path(".teola/bfcl")
PACKAGE: Final = "bfcl_eval"
SETS: Final = {
    "bfcl_parallel": "parallel",
    "bfcl_parallel_multiple": "parallel_multiple",
    "bfcl_multi_turn": "multi_turn_base",
}
SERVICE_S: Final = 1.0
"""Of a function that is only described: it stands for a service, as a search does."""
LOCAL_S: Final = 0.1
"""Of a tool that is executed."""
_TYPES: Final = {"dict": "object", "float": "number", "tuple": "array", "any": None}
Value = Any


def tasks(name: str) -> Iterator[Task]:
    """Of a set, in the order of the data. Raises InputError."""
    package, kind = root(), SETS[name]
    answers = {one["id"]: one["ground_truth"] for one in _lines(package, f"possible_answer/{kind}")}
    make = _conversation if name == "bfcl_multi_turn" else _single
    for entry in _lines(package, kind):
        task = make(name, entry, answers[entry["id"]])
        if task is not None:
            yield task


def root() -> Path:
    """The folder of the package. Raises InputError."""
    if FOLDER.is_dir() and str(FOLDER.resolve()) not in sys.path:
        sys.path.append(str(FOLDER.resolve()))
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise InputError(
            "the sets of BFCL need its package: python -m pip install --no-deps "
            f"--target {FOLDER} bfcl-eval==2026.3.23"
        )
    return Path(next(iter(found.submodule_search_locations)))


def _lines(package: Path, name: str) -> list[Any]:
    folder, _, kind = name.rpartition("/")
    path = package / "data" / folder / f"BFCL_v4_{kind}.json"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


# --- one demand, functions that are only described -------------------------------------------


def _single(name: str, entry: Mapping[str, Any], truth: Sequence[Mapping[str, Any]]) -> Task | None:
    functions = [function(one) for one in entry["function"]]
    calls = [
        Planned(_plain(called), _chosen(given)) for one in truth for called, given in one.items()
    ]
    if not _fits(functions, calls):
        return None
    question = entry["question"][0][-1]["content"]
    options = [{_plain(called): given} for one in truth for called, given in one.items()]
    return Task(
        name,
        entry["id"].rpartition("_")[2],
        (Demand(question, tuple(calls)),),
        functions,
        {"options": options},
    )


def _plain(name: str) -> str:
    """A name that servers of models take."""
    return name.replace(".", "_")


def _chosen(given: Mapping[str, Any]) -> dict[str, Any]:
    """Of the values that each argument may have the first one; one that may be left out is."""
    return {name: _one(options) for name, options in given.items() if "" not in options}


def _one(options: Sequence[Value]) -> Value:
    return _opened(next(one for one in options if one != ""))


def _opened(value: Value) -> Value:
    if isinstance(value, dict):
        return {name: _one(options) for name, options in value.items() if "" not in options}
    return [_opened(one) for one in value] if isinstance(value, list) else value


def accepted(value: Value, options: Sequence[Value]) -> bool:
    """Whether an argument has one of the values that it may have."""
    return any(_same(value, option) for option in options)


def _same(value: Value, option: Value) -> bool:
    if isinstance(option, dict) and isinstance(value, dict):
        return all(
            accepted(value[name], options) if name in value else "" in options
            for name, options in option.items()
        ) and set(value) <= set(option)
    if isinstance(option, list) and isinstance(value, list):
        return len(value) == len(option) and all(map(_same, value, option))
    return bool(value == option)


def answered(made: Sequence[tuple[str, Mapping[str, Any]]], task: Task) -> bool:
    """Whether the calls that were made are those that were asked for, in whatever order."""
    left = list(made)
    for option in task.scenario["options"]:
        ((name, given),) = option.items()
        match = next((one for one in left if one[0] == name and _same(one[1], given)), None)
        if match is None:
            return False
        left.remove(match)
    return not left


class Services:
    """Functions that are only described: they confirm."""

    pure = True

    def call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        return f"{name} was done with {len(arguments)} arguments"

    def seconds(self, name: str) -> float:
        return SERVICE_S


def function(described: Mapping[str, Any]) -> dict[str, Any]:
    """A function as servers of models want it."""
    return {
        "name": _plain(described["name"]),
        "description": described["description"],
        "parameters": _schema(described["parameters"]),
    }


def _schema(described: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if kind := _TYPES.get(described.get("type", "any"), described.get("type")):
        found["type"] = kind.casefold()
    for name in ("description", "enum", "required"):
        if name in described:
            found[name] = described[name]
    if "properties" in described:
        found["properties"] = {k: _schema(v) for k, v in described["properties"].items()}
    if isinstance(described.get("items"), Mapping):
        found["items"] = _schema(described["items"])
    return found


def _fits(functions: Sequence[Mapping[str, Any]], calls: Sequence[Planned]) -> bool:
    schemas = {one["name"]: one["parameters"] for one in functions}
    return all(
        call.tool in schemas and Draft202012Validator(schemas[call.tool]).is_valid(call.arguments)
        for call in calls
    )


# --- conversations, with tools that are executed ----------------------------------------------


class Backend:
    """Instances of BFCL's classes, as a conversation begins."""

    pure = False

    def __init__(self, scenario: Mapping[str, Any]) -> None:
        self.instances = [_instance(name, scenario["config"]) for name in scenario["classes"]]

    def call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """What the method gives, or in words why it fails, as BFCL's own executor has it."""
        try:
            return self.method(name)(**copy.deepcopy(dict(arguments)))
        except Exception as error:  # noqa: BLE001 - the classes raise whatever they like
            return f"Error during execution: {error}"

    def method(self, name: str) -> Any:
        """Raises AttributeError."""
        for instance in self.instances:
            if hasattr(instance, name):
                return getattr(instance, name)
        raise AttributeError(name)

    def seconds(self, name: str) -> float:
        return LOCAL_S

    def state(self) -> list[dict[str, Any]]:
        """What BFCL's checker compares."""
        return [
            {name: value for name, value in vars(one).items() if not name.startswith("_")}
            for one in self.instances
        ]


def _instance(name: str, config: Mapping[str, Any]) -> Any:
    root()
    about = importlib.import_module(f"{PACKAGE}.constants.executable_backend_config")
    made = getattr(importlib.import_module(about.CLASS_FILE_PATH_MAPPING[name]), name)()
    if name not in about.STATELESS_CLASSES:
        made._load_scenario(copy.deepcopy(config.get(name, {})), long_context=False)
    return made


def _conversation(
    name: str, entry: Mapping[str, Any], truth: Sequence[Sequence[str]]
) -> Task | None:
    scenario = {"classes": entry["involved_classes"], "config": entry["initial_config"]}
    functions = [
        function(one)
        for one in _documented(entry["involved_classes"])
        if one["name"] not in entry.get("excluded_function", ())
    ]
    backend = Backend(scenario)
    done: list[Planned] = []
    demands = []
    for said, texts in zip(entry["question"], truth, strict=True):
        calls = [_parsed(text, backend) for text in texts]
        if not _fits(functions, calls):
            return None
        ordered = _ordered(scenario, done, calls)
        demands.append(Demand(said[-1]["content"], tuple(ordered)))
        done += ordered
    return Task(name, entry["id"].rpartition("_")[2], tuple(demands), functions, scenario)


def _documented(classes: Sequence[str]) -> Iterator[dict[str, Any]]:
    package = root()
    about = importlib.import_module(f"{PACKAGE}.constants.executable_backend_config")
    for name in classes:
        file = about.MULTI_TURN_FUNC_DOC_FILE_MAPPING[name]
        path = package / "data" / "multi_turn_func_doc" / file
        yield from (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())


def _parsed(text: str, backend: Backend) -> Planned:
    """A call as the answers write it, such as "cd(folder='document')"."""
    call = ast.parse(text.strip(), mode="eval").body
    assert isinstance(call, ast.Call)
    assert isinstance(call.func, ast.Name)
    bound = inspect.signature(backend.method(call.func.id)).bind(
        *map(ast.literal_eval, call.args),
        **{str(one.arg): ast.literal_eval(one.value) for one in call.keywords},
    )
    return Planned(call.func.id, json.loads(json.dumps(bound.arguments)))


def _ordered(
    scenario: Mapping[str, Any], done: Sequence[Planned], calls: Sequence[Planned]
) -> list[Planned]:
    """The calls, each marked if it must come after those before it."""
    found, together = list[Planned](), list[Planned]()
    for call in calls:
        before = [*done, *found[: len(found) - len(together)]]
        if together and not _commute(scenario, before, [*together, call]):
            together = []
            call = Planned(call.tool, call.arguments, after=True)
        together.append(call)
        found.append(call)
    return found


def _commute(
    scenario: Mapping[str, Any], before: Sequence[Planned], calls: Sequence[Planned]
) -> bool:
    """Whether they give the same in all the orders that are tried, and leave the same."""
    orders = ([*calls], [*reversed(calls)], [calls[-1], *calls[:-1]])
    return _alike(_outcome(scenario, before, order) for order in orders)


def _alike(outcomes: Iterator[Any]) -> bool:
    first = next(outcomes)
    return all(one == first for one in outcomes)


def _outcome(
    scenario: Mapping[str, Any], before: Sequence[Planned], calls: Sequence[Planned]
) -> tuple[Any, Any]:
    backend = Backend(scenario)
    for call in before:
        backend.call(call.tool, call.arguments)
    given = [
        (call.tool, repr(call.arguments), repr(backend.call(call.tool, call.arguments)))
        for call in calls
    ]
    return sorted(given), backend.state()


def ended_right(made: Sequence[Any], backend: Backend, task: Task) -> bool:
    """Whether the calls gave what they give when they are made one after another as the answers
    list them, and left the instances as those do."""
    right = Backend(task.scenario)
    expected = [
        repr(right.call(call.tool, call.arguments))
        for demand in task.demands
        for call in demand.calls
    ]
    given = [repr(one.value) for one in made]
    return sorted(expected) == sorted(given) and right.state() == backend.state()


def computes(task: Task) -> Services | Backend:
    """What the tools of a task do."""
    return Backend(task.scenario) if task.set == "bfcl_multi_turn" else Services()
