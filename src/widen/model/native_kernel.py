"""The native module ``widen._kernel``, which the build compiles where cargo is found; see docs/kernel.md."""

from __future__ import annotations

import os
import pkgutil
import sys
import tempfile
from functools import cache
from importlib import import_module
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import module_from_spec
from typing import Any

KERNEL_VARIABLE = "WIDEN_KERNEL"
"""Environment variable of the process: ``off`` means that it uses no native code."""

KERNEL_FILE = "_kernel.pyd" if sys.platform == "win32" else "_kernel.abi3.so"
"""The file of the module in the folder of the package."""

_NAME = "widen._kernel"


@cache
def find_kernel() -> Any:
    """Return the module ``widen._kernel``; None if this process does not have it, or must not use it."""
    if os.environ.get(KERNEL_VARIABLE, "").lower() == "off":
        return None
    try:
        return import_module(_NAME)
    except ImportError:
        pass
    try:
        return _load_from_archive()
    except (ImportError, OSError):
        return None


def describe_kernel() -> str:
    """Return in a few words whether this process decodes natively."""
    if find_kernel() is not None:
        return "native kernel"
    if os.environ.get(KERNEL_VARIABLE, "").lower() == "off":
        return f"no native kernel, since {KERNEL_VARIABLE} is off"
    return "no native kernel"


def _load_from_archive() -> Any:
    """Load the module of a package in an archive, which executors get: Python imports no native code from there."""
    content = pkgutil.get_data("widen", KERNEL_FILE)
    if content is None:
        return None
    with tempfile.TemporaryDirectory(prefix="widen-kernel-") as folder:
        path = os.path.join(folder, KERNEL_FILE)
        with open(path, "wb") as file:
            file.write(content)
        loader = ExtensionFileLoader(_NAME, path)
        module = module_from_spec(ModuleSpec(_NAME, loader, origin=path))
        loader.exec_module(module)
    sys.modules[_NAME] = module
    return module
