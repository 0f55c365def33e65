"""Launch scripts, read by a grammar of bash and never run."""

from forerun.search.formats.shell.given import NOTHING, SCRIPTS, Given
from forerun.search.formats.shell.script import Script, read_script

__all__ = ["NOTHING", "SCRIPTS", "Given", "Script", "read_script"]
