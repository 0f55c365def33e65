"""What one layer costs on one device and microbatch: operators, communication, activations."""
