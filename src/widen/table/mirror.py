"""Mirror a Delta table as an Iceberg table."""

from __future__ import annotations

from widen.iceberg.catalog import CatalogSource, to_table_name
from widen.iceberg.mirror import Mirrored, mirror_version
from widen.model.argument_types import check_arguments
from widen.table.table_version import TableVersion


class MirrorMixin(TableVersion):
    """The method that mirrors the table."""

    @check_arguments
    def mirror(self, *, catalog: CatalogSource, identifier: str) -> Mirrored:
        """Make an Iceberg table show this version, from the log alone: no data file is opened, written or moved.

        The Iceberg table is created if it is missing; later calls add and remove only the files that have changed. It
        is for reading: another writer of it would not change the Delta table.

        Args:
            catalog: The name of a catalog in PyIceberg's configuration, a path that ends in ``.db`` for an embedded
                catalog, or an open PyIceberg catalog.
            identifier: The namespace and the name of the Iceberg table, e.g. ``shop.orders``.

        Raises:
            MirrorRefused: the table lacks IcebergCompatV1 and V2, or has deletion vectors. Nothing is written.
            InvalidOption: the Iceberg table is not its mirror. Nothing is written.
            UnsupportedColumnType: Iceberg does not have the type of a column. Nothing is written.
            IcebergUnavailable: PyIceberg is not installed.
            ContentionError: another writer changed the mirror first, or the outcome is unknown.
            StorageError: the catalog returned an error.

        Source: PROTOCOL.md#iceberg-compatibility-v2
        """
        return mirror_version(self._snapshot, to_table_name(identifier, catalog))
