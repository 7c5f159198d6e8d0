from tests.engine import engine, image

__all__ = ["engine", "image"]
