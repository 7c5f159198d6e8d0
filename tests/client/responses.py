"""A server that gives the responses of a test, in their order."""

import httpx
from agent_server_client import Client


def responding(*responses, kind=Client, **options):
    """A client whose server gives these responses one after the other, and the requests that it got."""
    requests, left = [], iter(responses)

    def respond(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        response = next(left)
        if isinstance(response, BaseException):
            raise response
        return response

    return kind("http://server", transport=httpx.MockTransport(respond), **options), requests
