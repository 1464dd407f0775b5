"""Where PySpark finds the classes of Java, asked once.

To call a function of Java, PySpark asks for ``org``, ``org.apache`` and so on, each time, and Java looks for a class of
each of these names in hundreds of archives. That is a fifth of the processor time of tests whose queries are small.
"""

from __future__ import annotations

from typing import Any


def remember_java_names() -> None:
    """Let the packages, classes and static methods of Java stay where they were first found, for this process."""
    from py4j.java_gateway import JavaClass, JavaPackage, JVMView

    for owner in (JVMView, JavaPackage, JavaClass):
        _remember(owner)


def _remember(owner: Any) -> None:
    find = owner.__getattr__
    if hasattr(find, "finds_once"):
        return

    def find_once(self: Any, name: str) -> Any:
        found = find(self, name)
        if not name.startswith("_"):
            vars(self)[name] = found
        return found

    find_once.finds_once = True  # type: ignore[attr-defined]
    owner.__getattr__ = find_once
