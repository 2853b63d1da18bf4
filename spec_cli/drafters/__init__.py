"""Ways of guessing. A new one is a file here and a line in `table.py`."""
