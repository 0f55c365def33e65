"""Costs of stages that differ: layers with their settings on pipeline ranks."""
