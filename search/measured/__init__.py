"""Measured runs: profiles of a machine, validation, calibration and the certainty of predictions."""
