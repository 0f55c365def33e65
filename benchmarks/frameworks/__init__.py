"""The frameworks' own parsers and validators, given what forerun writes: a reader for each format."""
