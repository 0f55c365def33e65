"""The event engine: tasks, flows on shared links, and when they run."""
