from __future__ import annotations

import gc

import pytest

from widen.spark.text.verification import without_garbage_collection


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
