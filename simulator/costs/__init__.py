"""forerun."""
