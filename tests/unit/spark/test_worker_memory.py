from __future__ import annotations

import gc

import pytest

from widen.spark.ship import freeze_imports, without_garbage_collection


@pytest.mark.parametrize("is_enabled", [True, False])
def test_garbage_collection_is_left_as_it_was(is_enabled: bool) -> None:
    was_enabled = gc.isenabled()
    try:
        (gc.enable if is_enabled else gc.disable)()
        with without_garbage_collection():
            assert not gc.isenabled()
        assert gc.isenabled() is is_enabled
    finally:
        (gc.enable if was_enabled else gc.disable)()


def test_outside_of_a_task_nothing_is_frozen() -> None:
    before = gc.get_freeze_count()
    freeze_imports.__wrapped__()
    assert gc.get_freeze_count() == before
