"""An S3 server for tests: moto's, a process of its own, which forgets everything when it ends."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from boto3.session import Session

from tests.servers import free_port, running, wait_until

BUCKET = "cold"

#: what boto3 reads
VARIABLES = {
    "AWS_ACCESS_KEY_ID": "tests",
    "AWS_SECRET_ACCESS_KEY": "a secret of tests",
    "AWS_CONFIG_FILE": "/nonexistent",
    "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
    "AWS_EC2_METADATA_DISABLED": "true",
    "NO_PROXY": "127.0.0.1",
    "no_proxy": "127.0.0.1",
}

#: a machine's own are none of the tests'
OTHERS = (
    *("AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"),
    *("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"),
)


class S3Server:
    """A server on a port of its own, which may be killed and started again."""

    def __init__(self, port: int, process: subprocess.Popen) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.process = process

    @cached_property
    def client(self) -> Any:
        session = Session(aws_access_key_id="tests", aws_secret_access_key="a secret of tests")
        return session.client("s3", endpoint_url=self.url, region_name="us-east-1")

    def answers(self) -> bool:
        with urlopen(f"{self.url}/moto-api/", timeout=5) as response:
            return response.status == 200

    def keys(self) -> list[str]:
        """The keys of all objects in the bucket, in order; at most 1,000."""
        return [one["Key"] for one in self.client.list_objects_v2(Bucket=BUCKET).get("Contents", ())]

    def contents(self) -> dict[str, bytes]:
        return {key: self.client.get_object(Bucket=BUCKET, Key=key)["Body"].read() for key in self.keys()}

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def aws(monkeypatch):
    """The variables of AWS, in this process and those that it starts."""
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    for name in OTHERS:
        monkeypatch.delenv(name, raising=False)


@contextmanager
def s3_server(folder: Path, port: int = 0, contents: dict[str, bytes] | None = None) -> Iterator[S3Server]:
    """A server with one bucket, which has these objects."""
    port = port or free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with (folder / "s3.log").open("ab") as log, running(command, stdout=log, stderr=log) as process:
        server = S3Server(port, process)
        wait_until(server.answers, "the S3 server")
        server.client.create_bucket(Bucket=BUCKET)
        for key, content in (contents or {}).items():
            server.client.put_object(Bucket=BUCKET, Key=key, Body=content)
        yield server
