"""The schedulers are in environments of their own: `make schedulers`. Elsewhere these tests are not collected."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore = [f"test_{name}.py" for name in ("airflow", "dagster") if find_spec(name) is None]
