"""Fields of a configuration without an effect on cost: those of ``data/harmless_fields.yaml``, and name endings.

A field that no family reads and that is not harmless is refused if its value is a number, true, a list or a mapping,
since it may change cost.
"""

import re

from forerun.spaces.documents.package_data import package_yaml

HARMLESS = frozenset(
    name
    for names in package_yaml("forerun.spaces.models.huggingface", "data", "harmless_fields.yaml").values()
    for name in names
)

# Endings of names with one meaning in all parts of a configuration.
_ENDINGS = re.compile(
    r"((^|_)(ids?|token_ids?|token_index|dropout|dropout_rate|dropout_prob)|_token|_index_token|_drop|_eps|_epsilon|^eps|_coef|_coeff|"
    r"_initializer_factor|_init_range|_init_std|_init_value|^init_std|initializer_range|initializer_cutoff_factor|"
    r"initializer_factor|_initializer_range|_rope_theta|rope_theta|_base_freq|_swiglu_limit|swiglu_limit|swiglu_alpha|"
    r"activation_function|_act_fn|_activation|_loss_weight|_jitter|_noise|_clip_threshold|_softcap|_layerdrop|"
    r"_hidden_act|_in_fp32|_kernel_dtype|_ssm_dtype|_cache_dtype|_variance_scale)$"
)


def changes_cost(name: str, value: object) -> bool:
    """Check whether an unread field may change cost.

    A field may change cost if its value is neither a text nor empty, and neither its name nor its ending is harmless.
    """
    if name in HARMLESS or name.startswith("_") or _ENDINGS.search(name):
        return False
    return not isinstance(value, str) and bool(value)
