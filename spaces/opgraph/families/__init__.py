"""Generators of published networks with repeated layers."""
