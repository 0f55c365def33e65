"""Files that forerun writes."""
