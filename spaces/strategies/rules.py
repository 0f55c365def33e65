"""Legality: every law of strategies, as a vectorised predicate with a reason code and a message.

A rule names the axes that it reads, so that the space can apply it as soon as these axes are known and drop entire
ranges of candidates at once. ``illegal`` receives one integer array per axis (and ``dp`` once gpus, pp, tp and cp are
known) and returns the mask of broken rows. Reasons are counted in the order of the rules.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from forerun.spaces.divisors import use_one_of
from forerun.spaces.strategies.axes import AXES, SPELLING
from forerun.spaces.strategies.context import Context
from forerun.spaces.strategies.degree_laws import (
    inactive,
    interleave_broken,
    kv_broken,
    no_such_microbatches,
    no_such_shape,
    no_such_shard_degree,
    schedule_broken,
    shard_broken,
    split_broken,
    undealt,
)
from forerun.spaces.strategies.framework_laws import (
    block_broken,
    degree_unsupported,
    no_such,
    no_such_block,
    no_such_degree,
    no_such_recompute,
    no_such_schedule,
    no_such_shard,
    no_such_zero,
    recompute_redundant,
    recompute_unsupported,
    schedule_unsupported,
    shard_unsupported,
    sp_unsupported,
    split_unsupported,
    unsupported,
    zero_unsupported,
)
from forerun.spaces.strategies.software import READ_BY_SOFTWARE, not_running, why_not, without_degrees, without_passes
from forerun.spaces.strategies.table import Columns, Mask

_DP = ("gpus", "pp", "tp", "cp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One law."""

    code: str
    """Reason code under which rejected candidates are counted."""
    meaning: str
    """Description of the violation."""
    axes: tuple[str, ...]
    """Axes that it reads."""
    illegal: Callable[[Columns, Context], Mask]
    """Function for the mask of rows that break it."""
    message: Callable[[Mapping[str, int], Context], str]
    """Function for the message: the values of one broken strategy and the nearest fix."""
    asked: str | None = None
    """Axis whose choice 0 satisfies the law for any other values."""

    @property
    def depth(self) -> int:
        """Number of leading axes (canonical order) that must be known before the rule can be applied."""
        return 1 + max(AXES.index(axis) for axis in self.axes)


RULES: tuple[Rule, ...] = (
    Rule(
        code="devices",
        meaning="the degrees do not multiply to the number of GPUs",
        axes=_DP,
        illegal=lambda c, x: np.asarray(c["gpus"] % (c["pp"] * c["tp"] * c["cp"]) != 0),
        message=lambda v, x: (
            f"{v['gpus']} devices are not divisible by tp*pp*cp = {v['tp']}*{v['pp']}*{v['cp']} = "
            f"{v['tp'] * v['pp'] * v['cp']}; use degrees whose product divides {v['gpus']}"
        ),
    ),
    Rule(
        code="framework degree",
        meaning="the framework does not have this degree",
        axes=("pp", "tp", "cp", "ep", "etp"),
        illegal=degree_unsupported,
        message=no_such_degree,
    ),
    Rule(
        code="heads",
        meaning="attention heads are not divisible by tp",
        axes=("tp",),
        illegal=lambda c, x: np.asarray(x.heads % c["tp"] != 0),
        message=lambda v, x: f"{x.heads} heads are not divisible by tp={v['tp']}; {use_one_of(x.heads)}",
    ),
    Rule(
        code="kv heads",
        meaning="key and value heads do not fit tp",
        axes=("tp",),
        illegal=kv_broken,
        message=lambda v, x: (
            f"{x.kv_heads} key/value heads are not divisible by tp={v['tp']} and {x.framework.name} "
            f"{'copies heads only for multiples' if x.framework.legality.kv_replication else 'does not copy heads'}; "
            f"{use_one_of(x.kv_heads)}"
        ),
    ),
    Rule(
        code="heads / cp",
        meaning="attention heads are not divisible by tp times cp, which exchange them",
        axes=("tp", "cp"),
        illegal=lambda c, x: np.asarray(
            (c["cp"] > 1) & (x.framework.context_exchange == "heads") & (x.heads % (c["tp"] * c["cp"]) != 0)
        ),
        message=lambda v, x: (
            f"{x.heads} heads are not divisible by tp*cp = {v['tp']}*{v['cp']} = {v['tp'] * v['cp']}, and "
            f"cp-exchange=a2a gives each rank a part of them; use degrees whose product divides {x.heads}, or "
            "cp-exchange=p2p"
        ),
    ),
    Rule(
        code="sequence / cp",
        meaning="the sequence is not divisible by what cp needs",
        axes=("cp",),
        illegal=lambda c, x: np.asarray((c["cp"] > 1) & (x.workload.seq_len % (2 * c["cp"]) != 0)),
        message=lambda v, x: (
            f"sequence length {x.workload.seq_len} is not divisible by 2*cp = {2 * v['cp']}; "
            f"use a cp that divides {x.workload.seq_len // 2}"
        ),
    ),
    Rule(
        code="cp kernel",
        meaning="the device has no attention kernel that cp works with",
        axes=("cp",),
        # Transformer Engine disables every other backend under context parallelism (attention/dot_product_attention).
        illegal=lambda c, x: np.asarray((c["cp"] > 1) & (not x.attention.startswith("flash"))),
        message=lambda v, x: (
            f"cp={v['cp']} needs a flash attention kernel, but {x.cluster.device.name} runs {x.attention}; use cp=1"
        ),
    ),
    Rule(
        code="experts",
        meaning="experts are not divisible by ep",
        axes=("ep",),
        illegal=lambda c, x: np.asarray(x.experts % c["ep"] != 0),
        message=lambda v, x: (
            f"{x.experts} experts are not divisible by ep={v['ep']}; {use_one_of(x.experts)}"
            if x.moe
            else f"the model has no experts, but ep={v['ep']}; use ep=1"
        ),
    ),
    Rule(
        code="expert folding",
        meaning="ep and etp do not fold into the other degrees",
        axes=(*_DP, "ep", "etp"),
        illegal=lambda c, x: np.asarray((c["dp"] * c["cp"] * c["tp"]) % (c["ep"] * c["etp"]) != 0),
        message=lambda v, x: (
            f"dp*cp*tp = {v['dp'] * v['cp'] * v['tp']} devices of a stage are not divisible by ep*etp = "
            f"{v['ep']}*{v['etp']}; use degrees whose product divides {v['dp'] * v['cp'] * v['tp']}"
        ),
    ),
    Rule(
        code="expert tensor",
        meaning="the experts cannot be cut by etp",
        axes=("etp",),
        illegal=lambda c, x: np.asarray((c["etp"] > 1) & (not x.moe)),
        message=lambda v, x: f"the model has no experts, but etp={v['etp']}; use etp=1",
    ),
    Rule(
        code="schedule",
        meaning="the schedule does not fit pp and vpp",
        axes=("pp", "vpp", "schedule"),
        illegal=schedule_broken,
        message=no_such_shape,
    ),
    Rule(
        code="framework schedule",
        meaning="the framework does not have this schedule, or not with two ranks",
        axes=("pp", "schedule"),
        illegal=schedule_unsupported,
        message=no_such_schedule,
    ),
    Rule(
        code="layers / stages",
        meaning="layers do not divide over the stages",
        axes=("pp", "vpp", "schedule", "split"),
        illegal=split_broken,
        message=undealt,
    ),
    Rule(
        code="framework split",
        meaning="the framework does not split layers this way",
        axes=("pp", "split"),
        illegal=split_unsupported,
        message=no_such("split", "splits"),
    ),
    Rule(
        code="global batch",
        meaning="the global batch is not divisible by dp times mbs",
        axes=(*_DP, "mbs"),
        illegal=lambda c, x: np.asarray(x.workload.global_batch % (c["dp"] * c["mbs"]) != 0),
        message=lambda v, x: (
            f"global batch {x.workload.global_batch} is not divisible by dp*mbs = {v['dp']}*{v['mbs']} = "
            f"{v['dp'] * v['mbs']}; use a dp*mbs that divides it"
        ),
    ),
    Rule(
        code="microbatches",
        meaning="too few microbatches, or not a multiple of what the schedule needs",
        axes=(*_DP, "schedule", "mbs"),
        illegal=interleave_broken,
        message=no_such_microbatches,
    ),
    Rule(
        code="switches",
        meaning="a switch of the software does nothing with these degrees, or the framework does not have it",
        axes=(*_DP, "ep", "vpp", "mbs", "switches"),
        asked="switches",
        illegal=without_degrees,
        message=why_not("switches", slice(1)),
    ),
    Rule(
        code="framework zero",
        meaning="the framework does not have this ZeRO stage here",
        axes=(*_DP, "ep", "zero"),
        illegal=zero_unsupported,
        message=no_such_zero,
    ),
    Rule(
        code="shard",
        meaning="replicas that share states do not divide all of them, or those of the experts",
        axes=(*_DP, "ep", "etp", "shard"),
        asked="shard",
        illegal=shard_broken,
        message=no_such_shard_degree,
    ),
    Rule(
        code="framework shard",
        meaning="the framework does not share these states by a part of the replicas",
        axes=("cp", "zero", "shard"),
        asked="shard",
        illegal=shard_unsupported,
        message=no_such_shard,
    ),
    Rule(
        code="framework sequence parallel",
        meaning="the framework needs or forbids sp here",
        axes=("tp", "ep", "sp"),
        illegal=sp_unsupported,
        message=lambda v, x: (
            f"{x.framework.name} has sequence parallel {x.framework.legality.sequence_parallel!r} with tp={v['tp']}"
            + (" and needs it when ep > 1" if x.framework.legality.sp_with_experts else "")
            + f"; {'drop' if v['sp'] else 'add'} sp"
        ),
    ),
    Rule(
        code="sequence / sp",
        meaning="the sequence is not divisible by tp, which sp needs",
        axes=("tp", "cp", "sp"),
        illegal=lambda c, x: np.asarray((c["sp"] == 1) & (x.workload.seq_len % (c["tp"] * c["cp"]) != 0)),
        message=lambda v, x: (
            f"sequence length {x.workload.seq_len} is not divisible by tp*cp = {v['tp'] * v['cp']}; drop sp"
        ),
    ),
    Rule(
        code="framework recompute",
        meaning="the framework does not have this recompute",
        axes=("recompute",),
        illegal=recompute_unsupported,
        message=no_such_recompute,
    ),
    Rule(
        code="switches / recompute",
        meaning="a switch of the software does not go with what is recomputed",
        axes=("switches", "recompute"),
        asked="switches",
        illegal=without_passes,
        message=why_not("switches", slice(1, None)),
    ),
    Rule(
        code="recompute layers",
        meaning="no stage has more layers than are to be recomputed, or its schedule or framework recomputes all",
        axes=("pp", "vpp", "schedule", "recompute", "recompute_layers"),
        asked="recompute_layers",
        illegal=block_broken,
        message=no_such_block,
    ),
    Rule(
        code="framework placement",
        meaning="the framework does not have this placement",
        axes=("placement",),
        illegal=unsupported("placement", "placements"),
        message=no_such("placement", "placements"),
    ),
    Rule(
        code="recompute modules",
        meaning="the model does not have a module that is to be recomputed, or another one contains it",
        axes=("recompute",),
        illegal=recompute_redundant,
        message=lambda v, x: (
            f"recompute={SPELLING['recompute'].get(v['recompute'], v['recompute'])} names modules that {x.model.name} "
            "does not have, or that another one contains; leave them out"
        ),
    ),
    Rule(
        code="duplicate",
        meaning="redundant: another candidate is the same training",
        axes=(*_DP, "zero", "shard", "sp", "placement"),
        illegal=inactive,
        message=lambda v, x: (
            "the strategy is redundant: sp needs tp > 1, zero needs dp*cp > 1, "
            "shard fewer than dp*cp, placement needs pp and dp > 1"
        ),
    ),
)
"""All laws of axes, in the order of counting their reasons."""
SWITCHES = Rule(
    code="software",
    meaning="a switch of the software does nothing here, or the framework does not run it with these degrees",
    axes=READ_BY_SOFTWARE,
    illegal=not_running,
    message=why_not("software"),
)
"""Law of switches, which follow from the axes in a space and are explicit in a strategy."""


def violations(values: Mapping[str, int], context: Context) -> list[tuple[str, str]]:
    """Return (code, message) of every law that one strategy breaks; ``values`` has every column."""
    columns = {axis: np.array([value], dtype=np.int64) for axis, value in values.items()}
    broken = []
    for rule in (*RULES, SWITCHES):
        if bool(rule.illegal(columns, context)[0]):
            broken.append((rule.code, rule.message(values, context)))
            if rule.code == "devices":
                break
    return broken
