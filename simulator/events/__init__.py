"""The second level of fidelity: one step of training, event by event."""
