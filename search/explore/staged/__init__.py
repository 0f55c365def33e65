"""Search over strategies whose stages differ."""
