"""One training step as tasks, and the figures of its run."""
