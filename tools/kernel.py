"""Compile the native module ``widen._kernel`` with cargo: a hook of the build, and what ``make kernel`` runs.

    python tools/kernel.py     # build it and put it into src/widen, for an editable installation

``pip install`` of the sources compiles the module where it finds cargo. Without cargo, or where it cannot compile, the
wheel is one of pure Python, which does the same more slowly. ``WIDEN_BUILD_KERNEL`` in the environment decides
otherwise: ``no`` never compiles, ``require`` fails where the module cannot be compiled.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent.parent
VARIABLE = "WIDEN_BUILD_KERNEL"
FILE = "_kernel.pyd" if sys.platform == "win32" else "_kernel.abi3.so"
LIBRARY = {"win32": "kernel.dll", "darwin": "libkernel.dylib"}.get(sys.platform, "libkernel.so")
OLDEST_MACOS = {"arm64": "11_0", "x86_64": "10_12"}
"""The macOS that Rust compiles for, by the machine."""


class NoKernel(Exception):
    """The module cannot be compiled here, and why."""


class KernelHook(BuildHookInterface[Any]):
    """Adds the native module to a wheel, and says which platform the wheel is for."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the module, unless the environment rules it out.

        Raises:
            SystemExit: the environment requires the module, and it cannot be compiled.
        """
        wish = os.environ.get(VARIABLE, "auto").lower()
        if self.target_name != "wheel" or wish == "no":
            return
        self.folder = tempfile.mkdtemp(prefix="widen-kernel-")
        # An editable package is the folder of the sources itself.
        place = ROOT / "src" / "widen" if version == "editable" else Path(self.folder)
        try:
            module = compile_kernel(place)
        except NoKernel as error:
            if wish == "require":
                raise SystemExit(f"The native kernel cannot be compiled: {error}") from None
            self.app.display_warning(f"Widen is built without its native kernel, so it reads JSON slower: {error}")
            return
        if version != "editable":
            build_data["force_include"][str(module)] = f"widen/{FILE}"
        build_data["pure_python"] = False
        build_data["tag"] = f"cp310-abi3-{platform_tag()}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what the build needed."""
        shutil.rmtree(getattr(self, "folder", ""), ignore_errors=True)


def compile_kernel(place: Path) -> Path:
    """Compile the module into a folder, and return its path.

    Raises:
        NoKernel: there is no cargo, or it fails.
    """
    cargo = shutil.which(os.environ.get("CARGO", "cargo")) or shutil.which(Path.home() / ".cargo" / "bin" / "cargo")
    if cargo is None:
        raise NoKernel("cargo is missing. Install Rust 1.85 or later, then install Widen again.")
    with tempfile.TemporaryDirectory(prefix="widen-kernel-") as folder:
        sources, target = ROOT / "kernel", os.environ.get("CARGO_TARGET_DIR")
        if target is None:
            # The sources may be read-only, and cargo writes beside them.
            sources, target = Path(folder, "kernel"), str(Path(folder, "target"))
            shutil.copytree(ROOT / "kernel", sources, ignore=shutil.ignore_patterns("target", "fuzz"))
        command = [cargo, "rustc", "--release", "--lib", "--crate-type", "cdylib", "--target-dir", target]
        done = subprocess.run(
            [*command, *_linker_options()],
            cwd=sources,
            env={**os.environ, "PYO3_PYTHON": sys.executable, "PYO3_BUILD_EXTENSION_MODULE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            last = "\n".join(done.stderr.strip().splitlines()[-8:])
            raise NoKernel(f"cargo ended with {done.returncode}:\n{last}")
        # In one step, since a process may have the last one loaded.
        shutil.copy(Path(target, "release", LIBRARY), place / f"{FILE}.new")
        return (place / f"{FILE}.new").replace(place / FILE)


def _linker_options() -> list[str]:
    # On macOS the process that loads the module brings the symbols of Python.
    return ["--", "-Clink-arg=-undefined", "-Clink-arg=dynamic_lookup"] if sys.platform == "darwin" else []


def platform_tag() -> str:
    """Return the platform of the wheel, as file names of wheels have it."""
    if sys.platform == "darwin":
        machine = platform.machine()
        return f"macosx_{OLDEST_MACOS[machine]}_{machine}"
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")


if __name__ == "__main__":
    try:
        compile_kernel(ROOT / "src" / "widen")
    except NoKernel as error:
        sys.exit(str(error))
