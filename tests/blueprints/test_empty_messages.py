"""A message without content is refused before it wakes an agent. Source: docs/wire.md."""

from uuid import uuid4

import pytest

BLANK = [[{"type": "text", "text": ""}], [{"type": "text", "text": " \n"}], [{"type": "image", "image_urls": []}]]
PATHS = ["/api/v1/app-conversations/{}/send-message", "/api/v1/conversations/{}/pending-messages"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("content", [*BLANK, [*BLANK[0], *BLANK[2]]])
def test_a_message_without_text_and_images_is_422_and_names_the_content(client, path, content):
    response = client.post(path.format(uuid4()), json={"content": content})

    assert response.status_code == 422
    [fault] = response.json["detail"]
    assert fault["loc"] == ["body", "content"]
    assert fault["msg"] == "A message should have a text that is not blank, or an image"


@pytest.mark.parametrize("path", PATHS)
def test_an_image_alone_is_content(client, path):
    content = [{"type": "text", "text": ""}, {"type": "image", "image_urls": ["data:image/png;base64,AAAA"]}]

    assert client.post(path.format(uuid4()), json={"content": content}).status_code == 404  # of the conversation


def test_the_events_of_an_agent_server_take_an_empty_message(client, url):
    """As the published one does."""
    assert client.post(f"{url}/events", json={}).status_code == 200
