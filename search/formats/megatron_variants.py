"""Software whose launch scripts have Megatron-LM's arguments, or YAML files with a section of them.

``data/megatron_variants.yaml`` has the fields of each (``megatron_lm.MegatronVariant``).
"""

from forerun.search.formats.megatron_lm import MegatronVariant
from forerun.spaces.documents.package_data import package_yaml

_VARIANTS = package_yaml("forerun.search.formats", "data", "megatron_variants.yaml")
TESTS, PRIMUS, SLIME, MS_SWIFT, PAI = (
    MegatronVariant(name=name, **fields).launcher for name, fields in _VARIANTS.items()
)
