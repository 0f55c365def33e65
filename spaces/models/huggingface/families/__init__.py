"""Families of configurations by ``model_type``, and families that no table can express."""
