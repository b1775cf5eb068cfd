"""What Teola uses of jsonschema, imported in one go.

Modules of jsonschema import each other in a circle: two threads that begin with different ones see
them half made, and fail. Who needs one imports it from here, and in a function: it takes 0.2 s, and
a second where the package for formats of addresses is installed.
"""

from __future__ import annotations

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, best_match
from jsonschema.validators import extend, validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable

__all__ = [
    "Draft202012Validator",
    "Registry",
    "SchemaError",
    "Unresolvable",
    "best_match",
    "extend",
    "validator_for",
]
