"""Programs for operators, where the store is; `python -m admin` lists them."""
