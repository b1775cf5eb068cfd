"""For the tests of whoever extends Teola: a scripted model, and checks of policies, passes and
engines (docs/testing.md). Nothing here needs a server, a model or a testing framework.
"""

from __future__ import annotations

from teola.testing.checking import ContractBroken
from teola.testing.engine_contract import check_engine
from teola.testing.pass_contract import check_pass
from teola.testing.policy_contract import check_policy
from teola.testing.running import running
from teola.testing.scripted_model import ScriptedCall, ScriptedModel
from teola.testing.templates import RandomTemplate, random_template, usual_template

__all__ = [
    "ContractBroken",
    "RandomTemplate",
    "ScriptedCall",
    "ScriptedModel",
    "check_engine",
    "check_pass",
    "check_policy",
    "random_template",
    "running",
    "usual_template",
]
