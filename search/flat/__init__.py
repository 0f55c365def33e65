"""Search over flat strategies: walk the space in slices, score, keep the best."""
