"""Objects in a bucket of S3, or of a compatible server, by boto3.

boto3 finds credentials, region and proxies: in AWS' variables and files, or by the role of the machine. It is plain
Python over sockets: while a request waits for the bucket, its worker serves others.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from boto3.session import Session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from settings import ConfigError
from store.conversations.cold import ObjectMissing, ObjectsAway
from store.objects import MOST_BYTES, check_name, is_name

#: Timeouts to connect, and between two parts of a response, in seconds. A failed call is retried once.
_CONNECT_SECONDS, _READ_SECONDS = 2, 8

#: Number of connections that are kept open.
_CONNECTIONS = 16

#: Number of names per request.
PAGE = 1000

_MISSING = ("NoSuchKey", "404")


class Bucket:
    """The objects below a prefix of a bucket."""

    def __init__(self, bucket: str, prefix: str, endpoint: str) -> None:
        """prefix: empty, or ending with a slash. endpoint: a URL, or empty for boto3's default. Sends nothing.

        Raises ConfigError for wrong AWS variables or files.
        """
        config = Config(
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=_READ_SECONDS,
            retries={"total_max_attempts": 2, "mode": "standard"},
            max_pool_connections=_CONNECTIONS,
            # Self-hosted servers seldom have a host name for every bucket.
            s3={"addressing_style": "path"} if endpoint else None,
            # Servers other than AWS do not support the newer checksums. Each object contains a checksum.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        try:
            self._client: Any = Session().client("s3", endpoint_url=endpoint or None, config=config)
        except (BotoCoreError, ValueError) as error:
            raise ConfigError(f"COLD_URL: the settings of AWS cannot be used: {error}") from None
        self._bucket, self._prefix = bucket, prefix

    def put(self, name: str, content: bytes) -> None:
        """Store an object. Returns after S3 has stored all of it. Raises ObjectsAway."""
        with self._reached():
            self._client.put_object(
                Bucket=self._bucket, Key=self._key(name), Body=content, ContentType="application/octet-stream"
            )

    def get(self, name: str) -> bytes:
        """Return an object. Raises ObjectMissing, ObjectsAway."""
        key = self._key(name)
        with self._reached():
            try:
                found = self._client.get_object(Bucket=self._bucket, Key=key)
            except ClientError as error:
                if error.response.get("Error", {}).get("Code") in _MISSING:
                    raise ObjectMissing(name) from None
                raise
            with found["Body"] as body:
                if found["ContentLength"] > MOST_BYTES:
                    raise ObjectsAway(f"the object {key} has more than {MOST_BYTES} bytes")
                content: bytes = body.read()
        return content

    def delete(self, name: str) -> None:
        """Delete an object. Raises ObjectsAway."""
        with self._reached():
            self._client.delete_object(Bucket=self._bucket, Key=self._key(name))

    def names(self) -> Iterator[str]:
        """Return the names of all objects, in order. One request per PAGE names. Raises ObjectsAway."""
        with self._reached():
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=self._prefix, Delimiter="/", PaginationConfig={"PageSize": PAGE}
            )
            for page in pages:
                for one in page.get("Contents", ()):
                    name = one["Key"].removeprefix(self._prefix)
                    if is_name(name):
                        yield name

    def _key(self, name: str) -> str:
        check_name(name)
        return self._prefix + name

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """Turn boto3's errors into ObjectsAway."""
        try:
            yield
        except (BotoCoreError, ClientError) as error:
            raise ObjectsAway(f"the bucket {self._bucket}: {error}") from error
