"""Generators of published networks that repeat their layers."""
