"""Programs for operators, on the store's machine; `python -m admin` lists them."""
