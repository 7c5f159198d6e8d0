"""Objects in a bucket of S3, or of a server that speaks its protocol, by boto3.

Credentials, region and proxies are those that boto3 finds: AWS' variables and files, or the role of the machine. boto3
is plain Python over sockets: in a worker other requests go on while one waits for the bucket.
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

#: seconds to connect, and between two parts of a response; a call that fails is tried once more
_CONNECT_SECONDS, _READ_SECONDS = 2, 8

#: connections that are kept
_CONNECTIONS = 16

#: names of one request
PAGE = 1000

_MISSING = ("NoSuchKey", "404")


class Bucket:
    """The objects under one prefix of a bucket."""

    def __init__(self, bucket: str, prefix: str, endpoint: str) -> None:
        """prefix: empty, or with a slash at its end. endpoint: a URL, or empty for what boto3 finds. Sends nothing.

        Raises ConfigError where AWS' variables or files are wrong.
        """
        config = Config(
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=_READ_SECONDS,
            retries={"total_max_attempts": 2, "mode": "standard"},
            max_pool_connections=_CONNECTIONS,
            # A server of one's own seldom has a host name for every bucket.
            s3={"addressing_style": "path"} if endpoint else None,
            # Other servers than AWS' do not know the newer checksums; each object has one of its own.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        try:
            self._client: Any = Session().client("s3", endpoint_url=endpoint or None, config=config)
        except (BotoCoreError, ValueError) as error:
            raise ConfigError(f"COLD_URL: the settings of AWS cannot be used: {error}") from None
        self._bucket, self._prefix = bucket, prefix

    def put(self, name: str, content: bytes) -> None:
        """Keep an object; S3 has stored all of it when it returns. Raises ObjectsAway."""
        with self._reached():
            self._client.put_object(
                Bucket=self._bucket, Key=self._key(name), Body=content, ContentType="application/octet-stream"
            )

    def get(self, name: str) -> bytes:
        """An object. Raises ObjectMissing, ObjectsAway."""
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
        """The names of all objects, in order; one request for each PAGE. Raises ObjectsAway."""
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
