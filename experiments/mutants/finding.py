"""Mutants of a file, as mutmut makes them, and which of all are drawn.

mutmut writes a file in which each mutated function stands several times: as it was, and once a
mutant. Which of them a call runs, a process is told by a variable. Only functions are mutated that
have no decorator (but `staticmethod` and `classmethod`).
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from experiments.mutants import environment, tree


class Place(NamedTuple):
    """A mutant before it is written. number: among all of the file. function: its qualified name,
    such as `teola.kv.policies.fits.Fit.add`."""

    path: str
    number: int
    function: str
    line: int


@dataclass(frozen=True, slots=True)
class Mutant:
    """A mutant that stands in a mutated file. change: the changed lines before and after; equal
    changes of one function are numbered from the second on. name: what mutmut calls it. span: its
    first and last line in the mutated file."""

    package: str
    path: str
    number: int
    function: str
    line: int
    change: str
    name: str
    span: tuple[int, int]

    @property
    def key(self) -> str:
        """Tells it from all others of a tree."""
        return f"{self.path}#{self.number}"


class Parsed:
    """A file with all of its mutants. Raises TeolaError if mutmut cannot be had."""

    def __init__(self, path: str, code: str) -> None:
        environment.use()
        import libcst as cst
        from libcst.metadata import MetadataWrapper, PositionProvider
        from mutmut.mutation.file_mutation import MutationVisitor
        from mutmut.mutation.mutators import mutation_operators
        from mutmut.mutation.pragma_handling import IgnoredCode

        wrapper = MetadataWrapper(cst.parse_module(code))
        visitor = MutationVisitor(mutation_operators, IgnoredCode(set(), set(), set()))
        self.path = path
        self.module = wrapper.visit(visitor)
        self._names = dict(_functions(self.module.body, cst))
        self._positions = wrapper.resolve(PositionProvider)
        self._known: dict[str, dict[int, str]] = {}
        self.mutations: list[Any] = [
            mutation
            for mutation in visitor.mutations
            if mutation.contained_by_top_level_function in self._names
        ]

    def places(self) -> list[Place]:
        """All mutants, in the order of the file."""
        return [
            Place(self.path, number, self._function(mutation), self._line(mutation))
            for number, mutation in enumerate(self.mutations)
        ]

    def write(self, numbers: Iterable[int], package: str) -> tuple[str, list[Mutant]]:
        """The file with these mutants in it, which are inactive until one is named."""
        from mutmut.mutation.file_mutation import combine_mutations_to_source

        chosen = sorted(numbers)
        written = combine_mutations_to_source(self.module, [self.mutations[n] for n in chosen])
        functions = {self._function(self.mutations[n]) for n in chosen}
        changes = {
            number: change
            for function in functions
            for number, change in self._changes(function).items()
        }
        count: Counter[str] = Counter()
        mutants = []
        for number in chosen:
            mutation = self.mutations[number]
            function = self._function(mutation)
            count[function] += 1
            name = f"{self._mangled(mutation)}_{count[function]}"
            span = written.line_span_by_function_name[name]
            mutants.append(
                Mutant(
                    package=package,
                    path=self.path,
                    number=number,
                    function=function,
                    line=self._line(mutation),
                    change=changes[number],
                    name=f"{tree.module_of(self.path)}.{name}",
                    span=(span.start, span.end),
                )
            )
        return written.code, mutants

    def _changes(self, function: str) -> dict[int, str]:
        """The changes of all mutants of a function."""
        if function not in self._known:
            seen: Counter[str] = Counter()
            self._known[function] = {}
            for number, mutation in enumerate(self.mutations):
                if self._function(mutation) == function:
                    change = self._change(mutation)
                    seen[change] += 1
                    times = "" if seen[change] == 1 else f" ({seen[change]})"
                    self._known[function][number] = change + times
        return self._known[function]

    def _change(self, mutation: Any) -> str:
        from mutmut.mutation.file_mutation import deep_replace

        outer = mutation.contained_by_top_level_function
        changed = deep_replace(outer, mutation.original_node, mutation.mutated_node)
        return changed_lines(self.module.code_for_node(outer), self.module.code_for_node(changed))

    def _function(self, mutation: Any) -> str:
        name = self._names[mutation.contained_by_top_level_function]
        return f"{tree.module_of(self.path)}.{name}"

    def _mangled(self, mutation: Any) -> str:
        from mutmut.mutation.trampoline_templates import mangle_function_name

        owner, _, name = self._names[mutation.contained_by_top_level_function].rpartition(".")
        return f"{mangle_function_name(name=name, class_name=owner or None)}__mutmut"

    def _line(self, mutation: Any) -> int:
        """Operators of their own, such as `in`, have no position: then that of what holds them."""
        position = self._positions.get(mutation.original_node)
        if position is None:
            position = self._positions[mutation.contained_by_top_level_function]
        line: int = position.start.line
        return line


def changed_lines(before: str, after: str) -> str:
    """What differs between two texts, by whole lines: `a < b: -> a <= b:`."""
    old, new = before.splitlines(), after.splitlines()
    first = next(
        (i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b),
        min(len(old), len(new)),
    )
    last = 0
    while last < min(len(old), len(new)) - first and old[-1 - last] == new[-1 - last]:
        last += 1
    pieces = (" ".join(map(str.strip, text[first : len(text) - last])) for text in (old, new))
    return " -> ".join(piece or "(nothing)" for piece in pieces)


def listed(paths: Iterable[str], root: Path, kept: Path) -> list[Place]:
    """All mutants of files. What is found is kept by the digest of each file."""
    kept.mkdir(parents=True, exist_ok=True)
    found: list[Place] = []
    for path in paths:
        file = kept / f"{tree.digest([path], root)[:24]}.json"
        if not file.exists():
            places = Parsed(path, (root / path).read_text(encoding="utf-8")).places()
            file.write_text(json.dumps([place[1:] for place in places]), encoding="utf-8")
        found += [Place(path, *rest) for rest in json.loads(file.read_text(encoding="utf-8"))]
    return found


def drawn(places: Sequence[Place], seed: int, package: str) -> list[Place]:
    """The mutants of a package in the order in which they are drawn."""
    return random.Random(f"{seed} {package}").sample(list(places), len(places))


def quotas(sample: int, sizes: Mapping[str, int]) -> dict[str, int]:
    """How many of a sample each package gives: the same number, or all it has."""
    quota = dict.fromkeys(sizes, 0)
    for _ in range(min(sample, sum(sizes.values()))):
        left = [package for package in sizes if quota[package] < sizes[package]]
        quota[min(left, key=lambda package: quota[package])] += 1
    return quota


def _functions(body: Sequence[Any], cst: Any) -> Iterable[tuple[Any, str]]:
    """Functions and methods that mutmut knows, with their names within the module."""
    for statement in body:
        if isinstance(statement, cst.FunctionDef):
            yield statement, statement.name.value
        elif isinstance(statement, cst.ClassDef) and isinstance(statement.body, cst.IndentedBlock):
            for method in statement.body.body:
                if isinstance(method, cst.FunctionDef):
                    yield method, f"{statement.name.value}.{method.name.value}"
