"""Diagnosis of infeasible requests: reasons and helpful changes."""
