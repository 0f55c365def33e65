"""Measured runs: profiles of a machine, validation, calibration and the intervals of predictions."""
