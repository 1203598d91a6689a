"""Where trials run: one small protocol, a file for each kind of place."""
