"""stub"""

from typing import Any


class Explanation: ...


def explain(*a: Any) -> Any: ...
