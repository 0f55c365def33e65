"""A simulated step for people and other programs: timelines, traces, Chakra."""
