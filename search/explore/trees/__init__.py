"""Trees around the best flat strategies of a search: modules and layers may differ, simulated event by event."""
