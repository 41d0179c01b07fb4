"""Parquet files with encrypted columns."""

from __future__ import annotations

import base64

import pyarrow.parquet as pq
from pyarrow.parquet.encryption import (
    CryptoFactory,
    EncryptionConfiguration,
    KmsClient,
    KmsConnectionConfig,
)


class _OpenKeys(KmsClient):
    """A key service that does not encrypt keys."""

    def __init__(self, configuration):
        super().__init__()

    def wrap_key(self, key, name):
        return base64.b64encode(key)

    def unwrap_key(self, key, name):
        return base64.b64decode(key)


def write_encrypted(path, table, *, columns):
    """Write a table with some encrypted columns, but a plain footer."""
    configuration = EncryptionConfiguration(
        footer_key="footer", column_keys={"columns": columns}, plaintext_footer=True
    )
    factory = CryptoFactory(_OpenKeys)
    properties = factory.file_encryption_properties(KmsConnectionConfig(), configuration)
    with pq.ParquetWriter(path, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    return path
