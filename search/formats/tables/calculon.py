"""Calculon: execution files.

Source: ``Llm.Execution`` of calculon-ai/calculon.
"""

from forerun.search.formats.harmless import harmless_by
from forerun.search.formats.keys import Launcher, LaunchFacts, decide, switched_on
from forerun.search.formats.syntax import document, json_with
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Recompute

TYPES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float8": "fp8", "bf16": "bf16", "fp16": "fp16"}
TYPES |= {"fp32": "fp32", "fp8": "fp8"}


def adjust(facts: LaunchFacts) -> None:
    """Check that the degrees are those of all processes.

    Raises:
        RequestError: they are not.
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


LAUNCHER = Launcher(
    name="calculon",
    version="1",
    title="Calculon",
    keys=(
        decide("tp", "tensor_par"),
        decide("pp", "pipeline_par"),
        decide("dp", "data_par"),
        decide("vpp", "pipeline_interleaving"),
        decide("devices", "num_procs"),
        decide("mbs", "microbatch_size"),
        decide("global_batch", "batch_size"),
        decide("sp", "tensor_par_comm_type", words={"ar": None, "p2p_rs_ag": None, "rs_ag": True}),
        decide(
            "zero",
            "optimizer_sharding",
            words={word: value and 1 for word, value in switched_on("1").items()},
            meaning="replicas share the optimizer's states",
        ),
        decide(
            "recompute",
            "activation_recompute",
            words={"full": Recompute.FULL, "attn_only": Recompute.SELECTIVE, "none": Recompute.NONE},
        ),
        decide("precision", "datatype", words=TYPES),
    ),
    syntax=document,
    marks=lambda source: json_with(source, "tensor_par", "pipeline_par"),
    harmless=harmless_by("calculon"),
    adjust=adjust,
    assumed={"mbs": 1, "precision": "fp16"},
)
