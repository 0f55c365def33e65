"""Calculon: execution files.

Source: ``Llm.Execution`` of calculon-ai/calculon.
"""

from forerun.search.formats.keys import LaunchFacts
from forerun.search.formats.launcher_data import read_launcher
from forerun.search.formats.syntax import document
from forerun.spaces.errors import RequestError


def adjust(facts: LaunchFacts) -> None:
    """Check that the product of degrees is the number of processes.

    Raises
    ------
    RequestError
        The product differs.
    """
    tp, pp, dp = (facts.get(name) for name in ("tp", "pp", "dp"))
    tp, pp, procs = tp or 1, pp or 1, facts.get("devices")
    if dp is None or procs not in (None, dp * tp * pp):
        law = f"must be tensor_par*pipeline_par*data_par = {tp}*{pp}*{dp}"
        raise RequestError(f"{facts.source.name}: num_procs {procs} {law}")
    if facts.settings.text("tensor_par_comm_type") == "p2p_rs_ag":
        facts.notes.append(
            "tensor_par_comm_type p2p_rs_ag (scattered pipeline sends) is read without sequence parallel"
        )


LAUNCHER = read_launcher("calculon", syntax=document, adjust=adjust)
