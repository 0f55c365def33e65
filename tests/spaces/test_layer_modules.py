"""A layer is the sum of its modules: parameters and norms of every model of the catalogue."""

from dataclasses import fields

from forerun.spaces.models import LayerParameters, layer_parameters, load_model, model_names
from forerun.spaces.models.model import MODULES, module_of


def test_modules_add_up_to_the_layer() -> None:
    for name in model_names():
        model = load_model(name)
        for layer in model.layers:
            modules = [module_of(layer, module) for module in MODULES]
            whole = layer_parameters(layer, model.hidden)
            parts = [layer_parameters(module, model.hidden) for module in modules]

            assert sum(module.norms for module in modules) == layer.norms, name
            for entry in fields(LayerParameters):
                assert sum(getattr(part, entry.name) for part in parts) == getattr(whole, entry.name), entry.name
            assert parts[0].mlp_dense == parts[0].experts_total == parts[0].router == 0, name
            assert parts[1].mixer == 0, name
