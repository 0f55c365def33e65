"""Trees on top of the best flat strategies of a search: modules and layers that may differ, event by event."""
