"""Settings of switches as text, for the command line and as flags of a framework."""

from collections.abc import Mapping

from forerun.spaces.frameworks.switches import Flags


def flag_words(flags: Flags) -> list[str]:
    """Return settings of a framework in the syntax of its command line or configuration.

    >>> flag_words({"exp_avg_dtype": "bf16", "overlap_param_gather": True, "compile.enable": False})
    ['--exp-avg-dtype bf16', '--overlap-param-gather', 'compile.enable=false']
    """
    texts = []
    for name, value in flags.items():
        shown = str(value).lower() if isinstance(value, bool) else str(value)
        shown = " ".join(map(str, value)) if isinstance(value, list | tuple) else shown
        if "." in name or name.isupper():
            texts.append(f"{name}={shown}")
        else:
            texts.append("--" + name.replace("_", "-") + ("" if value is True else f" {shown}"))
    return texts


def settings_text(settings: Mapping[str, str]) -> str:
    """Return settings in the syntax of ``--with``.

    >>> settings_text({"bf16-grads": "on", "dispatcher": "deepep"})
    'bf16-grads, dispatcher=deepep'
    """
    return ", ".join(name if setting == "on" else f"{name}={setting}" for name, setting in settings.items())
