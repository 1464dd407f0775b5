"""The rules of evolution by their codes, as ``widen explain`` prints them.

`tools/rules.py` copies the texts from docs/evolution-rules.md into the package.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

import msgspec

from widen.errors import InvalidOption


class EvolutionRule(msgspec.Struct, frozen=True):
    """One rule (U), decision (D) or test vector (V)."""

    code: str
    title: str
    text: str


@cache
def evolution_rules() -> Mapping[str, EvolutionRule]:
    """Return all rules by their codes: U1 to U20, D1 to D24, V1 to V21."""
    text = files("widen.report").joinpath("evolution_rules.json").read_bytes()
    return {rule.code: rule for rule in msgspec.json.decode(text, type=list[EvolutionRule])}


def find_rule(code: str) -> EvolutionRule:
    """Return the rule with a code; the case does not matter.

    Raises:
        InvalidOption: The rule does not exist.
    """
    rule = evolution_rules().get(code.strip().upper())
    if rule is None:
        raise InvalidOption(option="CODE", value=code, expected="Use U1 to U20, D1 to D24 or V1 to V21.")
    return rule
