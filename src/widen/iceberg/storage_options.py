"""The store of the files of a table, with the settings of its PyIceberg FileIO: it needs no second configuration.

Source: PyIceberg: ``FileIO``.
"""

from __future__ import annotations

from collections.abc import Mapping

from widen.log.store.log_store import LogStore, percent_encode

NAMES: Mapping[str, str] = {
    "s3.endpoint": "aws_endpoint",
    "s3.access-key-id": "aws_access_key_id",
    "s3.secret-access-key": "aws_secret_access_key",
    "s3.session-token": "aws_session_token",
    "s3.region": "aws_region",
    "client.access-key-id": "aws_access_key_id",
    "client.secret-access-key": "aws_secret_access_key",
    "client.session-token": "aws_session_token",
    "client.region": "aws_region",
    "gcs.oauth2.token": "google_bearer_token",
    "adls.account-name": "azure_storage_account_name",
    "adls.account-key": "azure_storage_account_key",
    "adls.sas-token": "azure_storage_sas_token",
    "adls.tenant-id": "azure_storage_tenant_id",
    "adls.client-id": "azure_storage_client_id",
    "adls.client-secret": "azure_storage_client_secret",
}
"""The setting of object_store for each setting of PyIceberg; the first one that is set wins."""


def open_store(location: str, properties: Mapping[str, str], given: Mapping[str, str] | None = None) -> LogStore:
    """Return the store below a location in Iceberg metadata.

    Args:
        location: The location. Iceberg's clients take it as it is, so ``%20`` does not stand for a space.
        given: Settings from the caller, which win.

    Raises:
        InvalidOption: its scheme is not supported.
    """
    place = percent_encode(location) if location.startswith("file:") else location
    return LogStore(place, to_storage_options(properties, given))


def to_storage_options(properties: Mapping[str, str], given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the settings of a store.

    Args:
        properties: The properties of a catalog or of the FileIO of a table.
        given: Settings from the caller, which win.

    Example:
        >>> to_storage_options({"s3.endpoint": "http://localhost:9000"})
        {'aws_endpoint': 'http://localhost:9000', 'aws_allow_http': 'true'}
        >>> to_storage_options({"s3.endpoint": "http://localhost:9000"}, {"AWS_ENDPOINT_URL": "https://s3.eu"})
        {'AWS_ENDPOINT_URL': 'https://s3.eu'}
    """
    options: dict[str, str] = {}
    for name, option in NAMES.items():
        if name in properties:
            options.setdefault(option, properties[name])
    given_settings = {_setting(name) for name in given or ()}
    options = {name: value for name, value in options.items() if _setting(name) not in given_settings}
    if options.get("aws_endpoint", "").startswith("http:") and "allow_http" not in given_settings:
        options["aws_allow_http"] = "true"
    return options | dict(given or {})


def _setting(name: str) -> str:
    """Return a name without what it may have or not have: object_store refuses two names of one setting."""
    return name.lower().removeprefix("aws_").removeprefix("default_").removesuffix("_url")
