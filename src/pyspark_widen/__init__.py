"""Make ``format("widen")`` known to each Spark session, without a call.

Spark imports each installed module whose name begins with ``pyspark_``, and registers its `DefaultSource`. It does so
when a session asks for the first format that Java does not know, also for the formats of others. So nothing of Widen is
imported before a table is read or written.

Source: Spark's Python Data Source API (Spark 4.0)
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.datasource import DataSource

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """The data source ``widen``; see `widen.register` for what a registration can do more."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "widen"

    def __new__(cls, options: Mapping[str, str]) -> DataSource:  # type: ignore[misc]
        """Return the source that does the work."""
        from widen.data_source.source import WidenSource

        return WidenSource(dict(options))
