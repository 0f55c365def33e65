"""What data-parallel replicas cost per step: gradient reduction, optimizer, sharded states."""
