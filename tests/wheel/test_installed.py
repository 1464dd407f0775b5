"""The built wheel, as users install it: with one extra, in a virtual environment that holds nothing else.

The versions of other packages are those of the requirement files, so that a run can be repeated.
"""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import fastavro
import pytest

from support.drift_log import write_drift
from support.pages import FOLDER, blocks, comparable

ROOT = Path(__file__).resolve().parents[2]
ORDERS = ROOT / "examples" / "orders"
SPARK_OF = {"3.10": "4.2", "3.13": "4.3"}
"""The Spark of each Python: the oldest and the newest one that are supported."""

OLD_SPARK = ("pyspark==3.5.7", "py4j==0.10.9.7")


def build(place: Path, kernel: str) -> Path:
    """Build the wheel with or without the kernel, and return its path."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", place]
    environment = clean() | {"WIDEN_BUILD_KERNEL": kernel, "CARGO_TARGET_DIR": str(ROOT / ".work" / "cargo")}
    finished = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return next(place.glob("*.whl"))


has_cargo = shutil.which(os.environ.get("CARGO", "cargo")) is not None


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("wheel"), "require" if has_cargo else "no")


def test_the_wheel_has_the_kernel(wheel: Path, plain: Path, tmp_path: Path) -> None:
    assert ("-cp310-abi3-" in wheel.name, "-py3-none-any" in wheel.name) == (has_cargo, not has_cargo)
    expected = "native kernel" if has_cargo else "no native kernel"
    assert widen(plain, "--version", cwd=tmp_path).endswith(f" ({expected})\n")
    assert widen(plain, "--version", cwd=tmp_path, WIDEN_KERNEL="off").endswith(", since WIDEN_KERNEL is off)\n")


def test_without_cargo_it_is_a_wheel_of_pure_python(
    plain: Path, tmp_path: Path, constraints: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CARGO", "no-such-cargo")
    monkeypatch.setenv("HOME", str(tmp_path))  # where Rust is by default
    pure = build(tmp_path / "wheel", "auto")
    assert pure.name.endswith("-py3-none-any.whl")
    place = tmp_path / "installed"
    done("-m", "pip", "install", "--quiet", "--no-deps", "--target", place, pure, python=plain / "python")
    (tmp_path / "x.json").write_text('{"total": 7}\n')
    environment = {"PYTHONPATH": str(place)}
    assert widen(plain, "--version", cwd=tmp_path, **environment).endswith(" (no native kernel)\n")
    said = widen(plain, "ingest", "x.json", "--into", "table", "--verify", cwd=tmp_path, **environment)
    assert "1 of 1 leaves exact" in said


@pytest.fixture(scope="session")
def constraints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The locked versions by the version of Spark; without hashes, which pip would ask of the wheel, too."""
    place = tmp_path_factory.mktemp("constraints")
    found = {}
    for spark in SPARK_OF.values():
        names = ("dev.txt", f"spark-{spark}.txt")
        lines = "".join((ROOT / "requirements" / name).read_text() for name in names)
        found[spark] = place / f"{spark}.txt"
        found[spark].write_text("\n".join(re.findall(r"^[\w.-]+==[^\\\n]+", lines, re.MULTILINE)))
    return found


@pytest.fixture(scope="module", params=SPARK_OF)
def installed(
    request: pytest.FixtureRequest,
    wheel: Path,
    constraints: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Path]:
    """The folder of programs of an environment that has ``widen[spark]`` only; no test changes it."""
    python = find_python(request.param)
    if python is None:
        if request.param != min(SPARK_OF) or any(map(find_python, SPARK_OF)):
            pytest.skip(f"There is no python{request.param}.")
        python = sys.executable
    place = tmp_path_factory.mktemp("installed") / "venv"
    yield environment(place, python, "-c", constraints[SPARK_OF[request.param]], f"{wheel}[spark]")
    shutil.rmtree(place)


def find_python(version: str) -> str | None:
    """Return the interpreter of a version: a program of that name that starts, or one of pyenv."""
    name = f"python{version}"
    candidates = [shutil.which(name), *sorted(map(str, pyenv().glob(f"versions/{version}.*/bin/{name}")))]
    return next((each for each in candidates if each and starts(each)), None)


def minor(version: str) -> int:
    return int(version.partition(".")[2])


def pyenv() -> Path:
    return Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))


def starts(python: str) -> bool:
    return subprocess.run([python, "-c", "import venv"], capture_output=True, check=False).returncode == 0


def environment(place: Path, python: str, *wanted: str | Path) -> Path:
    """Make a virtual environment, install there what is wanted, and return its folder of programs."""
    done("-m", "venv", place, python=python)
    quietly = ("--quiet", "--disable-pip-version-check", "--no-compile")  # what a test imports is compiled then
    done("-m", "pip", "install", *quietly, *wanted, python=place / "bin" / "python")
    return place / "bin"


def done(*words: str | Path, python: str | Path, cwd: Path | None = None) -> str:
    finished = subprocess.run([python, *words], capture_output=True, text=True, check=False, cwd=cwd, env=clean())
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def clean() -> dict[str, str]:
    """Return the environment without what would lead to the sources or to another Spark."""
    unwanted = ("PYTHONPATH", "PYTHONHOME", "SPARK_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "VIRTUAL_ENV")
    unwanted += ("SPARK_SUBMIT_OPTS",)
    return {key: value for key, value in os.environ.items() if key not in unwanted}


EXPECTED = ("wrote ", "without Spark: ", "on Spark, because ")
"""How the notes begin that commands print beside their results."""


def widen(programs: Path, *words: str | Path, code: int = 0, cwd: Path, **environment: str) -> str:
    """Run a command; return what it says, and check that nobody else says anything."""
    finished = subprocess.run(
        [programs / "widen", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env=clean() | environment,
        timeout=150,
    )
    assert finished.returncode == code, finished.stdout + finished.stderr
    strange = [line for line in finished.stderr.splitlines() if code != 1 and not line.startswith(EXPECTED)]
    assert strange == []
    return finished.stdout + finished.stderr


def test_the_first_minute_of_the_readme(installed: Path, tmp_path: Path) -> None:
    """A stranger's walk in processes of its own: what the README shows is what the installed programs print."""
    section = (ROOT / "README.md").read_text(encoding="utf-8").split("## Sixty seconds")[1].split("\n## ")[0]
    said = []
    for block in blocks(section):
        program = ["sh", "-c"] if block.language == "sh" else [str(installed / "python"), "-c"]
        path = f"{installed}:{os.environ['PATH']}"
        environment = clean() | {"PATH": path, "COLUMNS": "100", "SPARK_LOCAL_IP": "127.0.0.1"}
        done = subprocess.run(
            [*program, block.text], capture_output=True, text=True, check=False, cwd=tmp_path, env=environment
        )
        code = f"(exit code {done.returncode})\n" if done.returncode else ""
        text = done.stdout.replace(str(tmp_path), FOLDER).strip("\n") + "\n" + code
        said.append((comparable(text).strip(), comparable(block.shown or "").strip()))
    assert [found for found, _ in said] == [shown for _, shown in said]


def test_what_else_the_programs_do(installed: Path, tmp_path: Path) -> None:
    if not (installed / f"python{max(SPARK_OF, key=minor)}").exists():
        pytest.skip("these commands start Spark again, and do nothing that depends on Python")
    shutil.copytree(ORDERS / "day1", tmp_path / "orders")
    widen(installed, "ingest", "orders/", "--into", "shop/orders", cwd=tmp_path)
    widen(installed, "read", "shop/orders", "--where", "total > 10", cwd=tmp_path)
    widen(installed, "report", "shop/orders", "--html", "report.html", cwd=tmp_path)
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    assert "CREATE" in widen(installed, "view", "shop/orders", "--name", "by_field", cwd=tmp_path)
    done = widen(installed, "alter", "shop/orders", "customer.id", "--type", "bigint", cwd=tmp_path)
    assert "widened customer.id from int to bigint" in done


READ = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").getOrCreate()
print(spark.read.format("widen").load({!r}).count())
"""


def test_spark_finds_the_data_source_by_itself(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"id": 1}\n')
    widen(installed, "ingest", "a.json", "--into", "table", cwd=tmp_path)
    program = READ.format(str(tmp_path / "table"))
    environment = clean() | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": str(installed / "python")}
    finished = subprocess.run(
        [installed / "python", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=environment,
    )
    assert finished.stdout == "1\n", finished.stderr


@pytest.fixture(scope="module")
def plain(wheel: Path, constraints: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment that has no extra."""
    return environment(tmp_path_factory.mktemp("plain") / "venv", sys.executable, "-c", constraints["4.2"], wheel)


def test_plain_widen_looks_and_alters(plain: Path, tmp_path: Path) -> None:
    write_drift(tmp_path / "table")
    for command in ("show", "history", "report"):
        assert "tags_array_string" in widen(plain, command, "table", cwd=tmp_path)
    assert "comment 'euro'" in widen(plain, "alter", "table", "total", "--comment", "euro", cwd=tmp_path)
    (tmp_path / "x.json").write_text('{"total": 7}\n')
    assert "wrote 1 record" in widen(plain, "ingest", "x.json", "--into", "table", cwd=tmp_path)
    said = widen(plain, "ingest", "x.json", "--into", "table", "--engine", "spark", code=1, cwd=tmp_path)
    assert "pip install 'widen[spark]'" in said


EXTRAS = {
    "avro": ("x.avro", ("ingest", "x.avro", "--into", "table", "--verify", "--engine", "local")),
    "xlsx": ("x.xlsx", ("ingest", "x.xlsx", "--into", "table", "--verify")),
}
"""A file for each extra, and the call that needs it."""


def write_file(path: Path) -> None:
    """Write a file with one record of two values."""
    days = runpy.run_path(str(ROOT / "examples" / "twelve-sources" / "make_days.py"))
    if path.suffix == ".xlsx":
        path.write_bytes(days["to_xlsx"]([["id", "name"], [7, "seven"]]))
    else:
        fields = [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}]
        with path.open("wb") as file:
            fastavro.writer(file, {"type": "record", "name": "row", "fields": fields}, [{"id": 7, "name": "seven"}])


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_loads_its_files_and_is_named_where_it_is_missing(
    extra: str, wheel: Path, plain: Path, constraints: dict[str, Path], tmp_path: Path
) -> None:
    name, call = EXTRAS[extra]
    write_file(tmp_path / name)
    said = widen(plain, *call, code=1, cwd=tmp_path)
    assert f"pip install 'widen[{extra}]'" in said
    assert not (tmp_path / "table").exists()
    place = tmp_path / "installed"
    quietly = ("--quiet", "--disable-pip-version-check", "--no-compile")
    wanted = ("--target", place, "-c", constraints["4.2"], f"{wheel}[{extra}]")
    done("-m", "pip", "install", *quietly, *wanted, python=plain / "python")
    assert "2 of 2 leaves exact" in widen(plain, *call, cwd=tmp_path, PYTHONPATH=str(place))


FRAMES = {
    "pandas": "import pandas; frame = pandas.DataFrame({'id': [7], 'name': ['seven']})",
    "polars": "import polars; frame = polars.DataFrame({'id': [7], 'name': ['seven']})",
    "duckdb": "import duckdb; frame = duckdb.sql(\"SELECT 7 id, 'seven' name\")",
}


@pytest.mark.parametrize("package", FRAMES)
def test_data_of_other_packages_is_loaded_without_an_extra(
    package: str, plain: Path, constraints: dict[str, Path], tmp_path: Path
) -> None:
    place = tmp_path / "installed"
    wanted = ("--target", place, "-c", constraints["4.2"], package)
    done("-m", "pip", "install", "--quiet", "--no-compile", *wanted, python=plain / "python")
    code = f"import sys; sys.path.append({str(place)!r}); import widen; {FRAMES[package]}; "
    code += "print(widen.ingest(frame, 'table', verify=True).verification)"
    assert "2 of 2 leaves exact" in done("-c", code, python=plain / "python", cwd=tmp_path)


def test_an_older_spark_is_refused_in_one_line(plain: Path, tmp_path: Path) -> None:
    old = tmp_path / "old"
    done("-m", "pip", "install", "--quiet", "--target", old, "--no-deps", *OLD_SPARK, python=plain / "python")
    (tmp_path / "a.json").write_text('{"id": 1}\n')
    words = ("ingest", "a.json", "--into", "table", "--engine", "spark")
    said = widen(plain, *words, code=1, cwd=tmp_path, PYTHONPATH=str(old))
    assert said.splitlines()[0] == "error: Widen needs Spark 4.0 or later; this is 3.5.7."
    assert not (tmp_path / "table").exists()
