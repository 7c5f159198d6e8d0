import pytest

# The plugins of the suite are imported by its modules too, maybe before pytest loads them.
pytest.register_assert_rewrite("tests.report", "tests.quick")
