"""A model that says what a test wants, and a file in which commands leave their effects."""

import pytest

from tests.agents.scripted_model import scripted_model


@pytest.fixture
def effects(tmp_path):
    """A file that commands of an agent append a line to."""
    path = tmp_path / "effects"
    path.touch()
    return path


@pytest.fixture(scope="module")
def model():
    """A model that says what a test puts into its script."""
    with scripted_model() as model:
        yield model


@pytest.fixture
def fresh(model):
    """Lets the model begin with an empty script, and with no request noted."""
    model.script.clear()
    model.asked.clear()
    model.keys.clear()
    model.react = None
