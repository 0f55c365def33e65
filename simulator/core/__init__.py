"""The vectorised core: seconds and bytes of every candidate of a table."""
