"""jsonschema, whose modules import each other in a circle, in two threads at once."""

from __future__ import annotations

import subprocess
import sys

BOTH = """
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from teola.runtime.hosts.structured import check_schema
from teola.tools.arguments import ArgumentChecker

both = Barrier(2)

def outputs():
    both.wait()
    check_schema('{"type": "object"}')

def arguments():
    both.wait()
    return ArgumentChecker({"type": "object"}).problems({})

with ThreadPoolExecutor(2) as pool:
    for one in (pool.submit(outputs), pool.submit(arguments)):
        one.result()
"""


def test_schemas_are_first_used_in_two_threads_at_once() -> None:
    subprocess.run([sys.executable, "-c", BOTH], check=True, timeout=60)
