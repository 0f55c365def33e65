"""When nothing fits: what blocks, and which change would help."""
