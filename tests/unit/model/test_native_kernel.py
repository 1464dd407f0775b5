"""The native module: where it is found, and what is said of it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from widen.model.native_kernel import KERNEL_FILE, describe_kernel, find_kernel
from widen.spark import ship

ASK = """
import sys
sys.path.insert(0, {!r})
from widen.model.native_kernel import describe_kernel, find_kernel
assert ".zip" in sys.modules["widen"].__file__
kernel = find_kernel()
print(describe_kernel(), hasattr(kernel, "Decoder"), kernel is not None and kernel is find_kernel())
"""


def ask(archive: Path) -> str:
    done = subprocess.run([sys.executable, "-c", ASK.format(str(archive))], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """The package as executors get it that do not have it."""
    return ship._zip_package(tmp_path / "widen.zip")


@pytest.mark.skipif(find_kernel() is None, reason="the kernel is not compiled; see docs/kernel.md")
def test_executors_get_the_kernel_with_the_code(archive: Path) -> None:
    assert ask(archive) == "native kernel True True"


def test_a_kernel_for_another_machine_is_passed_over(archive: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.zip"
    with zipfile.ZipFile(archive) as source, zipfile.ZipFile(other, "w") as target:
        for name in source.namelist():
            content = b"of another machine" if name.endswith(KERNEL_FILE) else source.read(name)
            target.writestr(name, content)
    assert ask(other) == "no native kernel False False"


def test_the_environment_rules_it_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIDEN_KERNEL", "OFF")
    find_kernel.cache_clear()
    try:
        assert find_kernel() is None
        assert describe_kernel() == "no native kernel, since WIDEN_KERNEL is off"
    finally:
        monkeypatch.undo()
        find_kernel.cache_clear()
