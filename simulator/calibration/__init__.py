"""Constants of a machine, fitted to measured runs."""
