"""Families of configurations: which reads which ``model_type``, and those that no table can state."""
