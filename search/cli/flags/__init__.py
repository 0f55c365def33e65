"""Flags, declared once: parser, help, completion, man page, documentation and JSON schemas follow from declarations."""
